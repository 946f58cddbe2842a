//! The fate of each field of Gemini's request for embeddings at a target that speaks OpenAI's protocol.

use crate::adapt::Rejection;
use crate::adapt::loss::{self, Loss, hint, mapped, rejected};

/// The table of fields. Names are those in camelCase; both spellings are read.
pub(super) static LOSSES: &[Loss] = &[
    mapped("model", "the path contains it; it becomes the target's model"),
    mapped("content.parts.*.text", "the one element of `input`; texts are joined by a line feed"),
    rejected("content.parts.*", "is not text, and this target embeds only text."),
    mapped("requests.*.content.parts.*.text", "an element of `input`, as in `content`"),
    rejected("requests.*.content.parts.*", "is not text, and this target embeds only text."),
    mapped("requests.*.model", "must be the model of the path"),
    mapped("outputDimensionality", "`dimensions`"),
    mapped("requests.*.outputDimensionality", "`dimensions`, which must be the same for all elements"),
    hint("taskType", "dropped: OpenAI's models have no tasks"),
    hint("requests.*.taskType", "dropped"),
    hint("title", "dropped"),
    hint("requests.*.title", "dropped"),
    hint("autoTruncate", "dropped"),
    hint("requests.*.autoTruncate", "dropped"),
    rejected("embedContentConfig", "is Vertex AI's form of the options. Send them beside 'content'."),
];

pub(super) const PART: &str = "content.parts.*";
pub(super) const CONFIG: &str = "embedContentConfig";

/// Returns the rejection of the value at `param` for the reason in the row of `field`.
pub(super) fn refuse(field: &str, param: impl Into<String>) -> Rejection {
    loss::refuse(LOSSES, field, param)
}
