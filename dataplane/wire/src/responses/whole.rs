//! Reads a unary Responses answer, in pieces while it is relayed, or at once if it is short.

use serde_json::Value;
use shared::usage::Finish;

use super::envelope::Envelope;
use crate::envelope::StreamError;
use crate::passthrough::{AnswerFacts, Gather, WholeAnswer};

/// Reads an answer of any size in pieces and keeps only its usage and error.
pub(crate) type ResponsesAnswerScan = Gather<Envelope<1>>;

impl AnswerFacts for Envelope<1> {
    /// `error: null` is not an error; a failed response without a reason is.
    fn answer(self) -> WholeAnswer {
        let error_value =
            self.error.truthy().map(|raw| serde_json::from_slice(raw).unwrap_or_else(|_| NO_WORD.into()));
        let failure = (self.finish() == Some(Finish::Error)).then(StreamError::of_failed_response);
        let error_value = error_value.or_else(|| self.failed.then(|| Value::from(NO_WORD)));
        WholeAnswer {
            finish: self.finish(),
            usage: self.usage,
            extras: self.extras,
            error: error_value.map(|error| StreamError::of_member(&error)).or(failure),
            output_bytes: self.text_bytes,
            ..WholeAnswer::default()
        }
    }
}

const NO_WORD: &str = "The upstream answered with an error.";
