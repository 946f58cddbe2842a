//! Failures of a request, and the responses that report them.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use shared::error_kind::ErrorKind;
use wire::envelope::{self, EnvelopeFamily};

use crate::relay::Reply;

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

    /// Returns the status sent to the client.
    pub(crate) fn status(&self) -> u16 {
        self.status.unwrap_or_else(|| self.kind.row().status)
    }

    /// Returns true if a retry is useless. The official SDKs retry every 429 and 5xx, and Anthropic's SDK waits for
    /// any `Retry-After`, even hours.
    fn is_final(&self) -> bool {
        match self.kind {
            ErrorKind::NotImplemented => true,
            ErrorKind::QuotaExceeded => self.retry_after.is_none_or(|wait| wait > WORTH_WAITING),
            _ => false,
        }
    }

    /// Converts the failure into a response with the envelope of `family`.
    pub(crate) fn into_response(self, family: EnvelopeFamily, request_id: &str) -> Response<Reply> {
        let status = StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let is_final = self.is_final();
        let body = match self.body {
            Some(body) => body,
            None => envelope::error_body(
                family,
                self.kind.row(),
                &self.message,
                self.param.as_deref(),
                request_id,
            ),
        };
        let mut response = Response::new(Reply::full(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.kind == ErrorKind::InvalidKey {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.retry_after {
            // Rounded up, so that a client that waits this long does not retry too early.
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_millis().div_ceil(1_000) as u64));
        }
        if is_final {
            headers.insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if self.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// A header that the official SDKs check before the status.
const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// The longest wait that a client should bridge with a retry. A longer wait is left to the user.
const WORTH_WAITING: Duration = Duration::from_secs(120);
