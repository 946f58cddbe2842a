//! The end of a chat answer: the single interpretation of `finish_reason`.
//!
//! An answer that failed or was aborted is never complete, regardless of its content.

use crate::envelope::StreamError;

/// The meaning of a `finish_reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishReason {
    /// The model ended by itself, or called tools. Unknown reasons count as this one.
    Stop,
    /// The limit of the answer's tokens was reached.
    Length,
    /// The model's context window was full (Mistral's `model_length`).
    ContextFull,
    /// A filter cut off the answer.
    Filtered,
    /// The model or its server failed.
    Failed(FinishFailure),
}

/// The reason why an answer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishFailure {
    /// `error` (OpenRouter, Mistral).
    Error,
    /// `abort` (vLLM, SGLang).
    Aborted,
    /// `insufficient_system_resource` (DeepSeek).
    Overloaded,
}

impl FinishReason {
    /// Returns the meaning of `reason`; `None` if it is empty.
    pub(crate) fn of(reason: &[u8]) -> Option<Self> {
        Some(match reason {
            b"" => return None,
            b"length" => Self::Length,
            b"model_length" => Self::ContextFull,
            b"content_filter" => Self::Filtered,
            b"error" => Self::Failed(FinishFailure::Error),
            b"abort" => Self::Failed(FinishFailure::Aborted),
            b"insufficient_system_resource" => Self::Failed(FinishFailure::Overloaded),
            _ => Self::Stop,
        })
    }

    /// Returns true if a limit cut off the answer.
    pub(crate) fn is_cut(self) -> bool {
        matches!(self, Self::Length | Self::ContextFull)
    }

    /// Returns the failure, if the answer failed.
    pub(crate) fn failure(self) -> Option<FinishFailure> {
        match self {
            Self::Failed(failure) => Some(failure),
            Self::Stop | Self::Length | Self::ContextFull | Self::Filtered => None,
        }
    }
}

impl FinishFailure {
    /// Returns the error that a client receives in place of the end.
    pub(crate) fn error(self) -> StreamError {
        let (message, status) = match self {
            Self::Error => ("The upstream ended its response with an error without a message.", 502),
            Self::Aborted => ("The upstream aborted its response.", 502),
            Self::Overloaded => ("The upstream ran out of resources in the middle of its response.", 503),
        };
        StreamError { message: message.to_owned(), status: Some(status), ..StreamError::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vendors_finish_reason_has_a_meaning() {
        let rows = [
            ("", None),
            ("stop", Some(FinishReason::Stop)),
            ("tool_calls", Some(FinishReason::Stop)),
            ("function_call", Some(FinishReason::Stop)),
            ("eos", Some(FinishReason::Stop)),
            ("something_new", Some(FinishReason::Stop)),
            ("length", Some(FinishReason::Length)),
            ("model_length", Some(FinishReason::ContextFull)),
            ("content_filter", Some(FinishReason::Filtered)),
            ("error", Some(FinishReason::Failed(FinishFailure::Error))),
            ("abort", Some(FinishReason::Failed(FinishFailure::Aborted))),
            ("insufficient_system_resource", Some(FinishReason::Failed(FinishFailure::Overloaded))),
        ];
        for (reason, want) in rows {
            assert_eq!(FinishReason::of(reason.as_bytes()), want, "{reason}");
        }
    }
}
