//! Results of a translation between dialects: whole answers, invalid answers, and rejected requests. Also
//! readers for the members of a client's document.

pub(crate) mod path;
pub(crate) mod read;
pub(crate) mod schema;
pub(crate) mod union;

use bytes::Bytes;
use shared::usage::{Finish, TokenCounts};

use crate::envelope::StreamError;
use crate::extras::Extras;

/// A whole answer in the client's dialect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranslatedAnswer {
    /// The body.
    pub body: Bytes,
    /// The usage that the upstream reports.
    pub usage: Option<TokenCounts>,
    /// The reported quantities other than tokens.
    pub extras: Extras,
    /// The reason for which the model ended its output.
    pub finish: Option<Finish>,
    /// The kinds of output that the client's dialect cannot express, such as `image`. A mark in the text takes their place.
    pub dropped: Vec<&'static str>,
    /// The length of the output text in bytes.
    pub output_bytes: u64,
}

/// The reason why a complete answer was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadAnswer {
    /// An error despite a success status. The text is not sanitized yet.
    Error(StreamError),
    /// Not an answer in the target's dialect; the reason.
    Invalid(&'static str),
    /// Valid, but without any of the requested output. Holds the text sent instead, not sanitized yet. The cause is the
    /// request, not the target's health.
    Nothing(String),
}

/// The reason why the events of a stream that broke off are no answer.
pub(crate) const INCOMPLETE: BadAnswer =
    BadAnswer::Invalid("the stream ended before the answer was complete");

/// The reason why a request cannot be translated into the target's dialect (MSG-2, CHAT-6, RESP-2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The path of the member, such as `messages.2.content.0.source`.
    pub param: String,
    /// The reason, for the client.
    pub message: String,
    /// Determines if another target could serve the request.
    pub flaw: Flaw,
}

/// Distinguishes an untranslatable member, which another target could serve, from a malformed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The target's dialect has no equivalent of the member.
    Unsupported,
    /// The member is missing, of the wrong type, or of an unknown value: no target could serve it.
    Malformed,
}

impl Rejection {
    /// Rejects the member at `param`, which has no translation. `why` completes the sentence that starts with its name.
    pub fn new(param: impl Into<String>, why: &str) -> Self {
        let param = param.into();
        Self { message: format!("'{param}' {why}"), param, flaw: Flaw::Unsupported }
    }

    /// Rejects the member at `param`, which is invalid in the client's dialect. `why` completes the sentence that
    /// starts with its name.
    pub fn malformed(param: impl Into<String>, why: &str) -> Self {
        Self { flaw: Flaw::Malformed, ..Self::new(param, why) }
    }
}
