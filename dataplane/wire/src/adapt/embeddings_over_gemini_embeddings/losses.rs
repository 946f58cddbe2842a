//! The fate of each field of an OpenAI request for embeddings at Gemini's models.

use crate::adapt::Rejection;
use crate::adapt::loss::{self, Loss, hint, mapped, rejected};

/// The table of fields.
pub(super) static LOSSES: &[Loss] = &[
    mapped(
        "model",
        "in the path of the request to the target, and in each element of `requests`, except at Vertex AI",
    ),
    mapped(
        "input",
        "a string is one element of `requests`, a list of strings one each; Google accepts up to 100. Models of Vertex AI \
         whose names do not contain `gemini` get `:predict` with `instances`",
    ),
    rejected(TOKENS, "is a list of tokens, but this target takes text. Send strings."),
    mapped(
        "dimensions",
        "`outputDimensionality`, at Vertex AI in `embedContentConfig`, or in the `parameters` of `:predict`",
    ),
    mapped("encoding_format", "the form of the vectors in the answer: `float` or `base64`"),
    hint("user", "dropped"),
];

pub(super) const TOKENS: &str = "input.*";

/// Returns the rejection of the value at `param` for the reason in the row of `field`.
pub(super) fn refuse(field: &str, param: impl Into<String>) -> Rejection {
    loss::refuse(LOSSES, field, param)
}
