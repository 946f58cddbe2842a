//! Failures of a request.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use shared::error_kind::ErrorKind;
use wire::envelope::{self, EnvelopeFamily};

/// A failure as reported to the client.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: ErrorKind,
    pub(crate) message: Cow<'static, str>,
    pub(crate) param: Option<Cow<'static, str>>,
    /// The upstream's status, if it replaces the kind's own.
    pub(crate) status: Option<u16>,
    /// The upstream's error, already in our envelope and sanitized.
    pub(crate) body: Option<Bytes>,
    pub(crate) retry_after: Option<Duration>,
    /// The value of the `Allow` header, for 405.
    pub(crate) allow: Option<&'static str>,
    /// True if the rest of the request has not been read, so that the connection must be closed.
    pub(crate) close: bool,
}

impl Fault {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            message: message.into(),
            param: None,
            status: None,
            body: None,
            retry_after: None,
            allow: None,
            close: false,
        }
    }

    /// The failure of a request that an administrator has cancelled.
    pub(crate) fn cancelled() -> Self {
        Self::new(ErrorKind::Cancelled, "An administrator cancelled this request.")
    }

    pub(crate) fn param(mut self, param: impl Into<Cow<'static, str>>) -> Self {
        self.param = Some(param.into());
        self
    }

    pub(crate) fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Returns the body sent to the client.
    pub(crate) fn answer_body(&self, family: EnvelopeFamily, request_id: &str) -> Bytes {
        let enveloped = || {
            envelope::error_body(family, self.kind.row(), &self.message, self.param.as_deref(), request_id)
        };
        self.body.clone().unwrap_or_else(enveloped)
    }

    /// Returns the status sent to the client.
    pub(crate) fn status(&self) -> u16 {
        self.status.unwrap_or_else(|| self.kind.row().status)
    }
}
