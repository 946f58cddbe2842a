//! What goes wrong with one request, and the response that says so.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use shared::error_kind::ErrorKind;
use wire::envelope::{self, EnvelopeFamily};

use crate::relay::Reply;

/// A failure as the client will read it.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: ErrorKind,
    pub(crate) message: Cow<'static, str>,
    pub(crate) param: Option<Cow<'static, str>>,
    /// The upstream's status, where it is kept instead of the kind's own.
    pub(crate) status: Option<u16>,
    /// The upstream's error, already in our envelope and sanitized.
    pub(crate) body: Option<Bytes>,
    pub(crate) retry_after: Option<Duration>,
    /// For 405.
    pub(crate) allow: Option<&'static str>,
    /// The rest of the request has not been read, so the connection cannot go on.
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

    /// The status that the client gets.
    pub(crate) fn status(&self) -> u16 {
        self.status.unwrap_or_else(|| self.kind.row().status)
    }

    /// Whether the official SDKs, which repeat every 429 and 5xx, would do so in vain: or after a wait of hours, which
    /// Anthropic's takes as it comes.
    fn is_final(&self) -> bool {
        match self.kind {
            ErrorKind::NotImplemented => true,
            ErrorKind::QuotaExceeded => self.retry_after.is_none_or(|wait| wait > WORTH_WAITING),
            _ => false,
        }
    }

    /// The response, in the envelope of `family`.
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
            // Rounded up: a client that waits as told must not come too early.
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

/// What the official SDKs ask before they look at the status.
const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// A longer wait is for people, not for a client that waits with a request in hand.
const WORTH_WAITING: Duration = Duration::from_secs(120);
