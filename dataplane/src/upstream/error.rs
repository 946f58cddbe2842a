//! Reasons why a request to an upstream has no answer.

use std::error::Error as _;
use std::io;

use shared::port::BoxError;

use super::dial::{DialError, is_local, rejected_certificate};

/// Reason why there is no answer.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The connection failed.
    Dial(DialError),
    /// A connection failed that several requests waited for. Another of them has [`Self::Dial`], or has used the connection.
    Followed(DialError),
    /// The connection broke.
    Broke(BoxError),
    /// A connection from the pool was closed after the request had been written, before a byte of an answer.
    Stale,
    /// The gateway itself has no memory for the connection.
    Local(io::Error),
    /// The answer is invalid.
    Invalid(&'static str),
}

/// A request without an answer.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) progress: Progress,
    pub(crate) error: SendError,
}

/// The progress of an exchange when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The upstream has not processed the request, which may be sent again: no byte of it was written, or the upstream
    /// states so.
    Unprocessed,
    /// The upstream may have received the request, and has not sent a byte of an answer.
    Sent,
    /// A part of an answer has arrived.
    Answering,
}

impl From<Unanswered> for SendError {
    fn from(unanswered: Unanswered) -> Self {
        unanswered.error
    }
}

impl std::error::Error for SendError {}

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dial(error) | Self::Followed(error) => error.fmt(f),
            Self::Broke(error) => error.fmt(f),
            Self::Stale => f.write_str("the connection closed while the request was being sent"),
            Self::Local(error) => error.fmt(f),
            Self::Invalid(why) => f.write_str(why),
        }
    }
}

impl From<hyper::Error> for SendError {
    fn from(error: hyper::Error) -> Self {
        if error.is_parse_too_large() {
            return Self::Invalid("its response head is too large");
        }
        if error.is_parse() {
            return Self::Invalid("its response is not valid HTTP");
        }
        if error.is_incomplete_message() {
            return Self::Broke("the connection closed before a response".into());
        }
        match io_source(&error) {
            Some(source) if is_local(source) => Self::Local(io::Error::new(source.kind(), error)),
            Some(source) => match rejected_certificate(source) {
                Some(rejected) => Self::Dial(rejected),
                None => Self::Broke(Box::new(error)),
            },
            None => Self::Broke(Box::new(error)),
        }
    }
}

/// Returns the error of a dial whose connection broke before a request was sent on it.
pub(super) fn broken_dial(error: hyper::Error) -> DialError {
    let rejected = io_source(&error).and_then(rejected_certificate);
    rejected.unwrap_or_else(|| DialError::Io(io::Error::other(error)))
}

/// Returns the error of the socket that caused `error`.
fn io_source(error: &hyper::Error) -> Option<&io::Error> {
    error.source()?.downcast_ref()
}

/// Error of an upstream that exceeds the limit on interim answers.
pub(super) const INTERIM_WITHOUT_END: &str = "it sent too many interim responses (1xx)";
/// Error of an upstream that does not begin to speak HTTP/2.
pub(super) const WITHOUT_SETTINGS: &str = "it sent no HTTP/2 settings within 10 s";
