//! Results of a translation between dialects: whole answers, answers and requests that cannot be translated.

use bytes::Bytes;
use shared::usage::TokenCounts;

use crate::envelope::StreamError;
use crate::extras::Extras;

/// A whole answer in the client's dialect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranslatedAnswer {
    /// The body.
    pub body: Bytes,
    /// The usage that the upstream reports.
    pub usage: Option<TokenCounts>,
    /// The quantities that it reports beside tokens.
    pub extras: Extras,
    /// Bytes of output text.
    pub output_bytes: u64,
}

/// The reason why a complete answer was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadAnswer {
    /// It is an error in spite of its status. The text is not sanitized yet.
    Error(StreamError),
    /// It is not an answer in the target's dialect, for this reason.
    Invalid(&'static str),
    /// It is valid but holds nothing of what was requested; the text that it holds instead, not sanitized yet. The request
    /// causes this rather than the target's health.
    Nothing(String),
}

/// The reason why a request cannot be translated into the target's dialect (MSG-2, CHAT-6, RESP-2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The path of the member, such as `messages.2.content.0.source`.
    pub param: String,
    /// The reason, for the client.
    pub message: String,
    /// Tells if another target could help.
    pub flaw: Flaw,
}

/// Tells an untranslatable member from a malformed one: another target could serve the former.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The target's dialect has no equivalent of the member.
    Unsupported,
    /// The member is missing, of the wrong type, or of an unknown value: no target could serve it.
    Malformed,
}

impl Rejection {
    /// The member at `param` has no translation; `why` completes the sentence that begins with its name.
    pub fn new(param: impl Into<String>, why: &str) -> Self {
        let param = param.into();
        Self { message: format!("'{param}' {why}"), param, flaw: Flaw::Unsupported }
    }

    /// The member at `param` is invalid in the client's dialect; `why` completes the sentence that begins with its name.
    pub fn malformed(param: impl Into<String>, why: &str) -> Self {
        Self { flaw: Flaw::Malformed, ..Self::new(param, why) }
    }
}
