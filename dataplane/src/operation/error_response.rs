//! The response that reports a failure to the client.

use std::borrow::Cow;
use std::time::Duration;

use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use shared::error_kind::ErrorKind;
use wire::envelope::EnvelopeFamily;

use crate::error::Fault;
use crate::relay::ResponseBody;

/// Returns the response that reports `fault` in the envelope of `family`.
pub(crate) fn error_response(
    fault: Fault,
    family: EnvelopeFamily,
    request_id: &str,
) -> Response<ResponseBody> {
    let status = StatusCode::from_u16(family.client_status(fault.status()))
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let is_final = is_final(&fault);
    let mut response = Response::new(ResponseBody::full(fault.answer_body(family, request_id)));
    *response.status_mut() = status;
    response.extensions_mut().insert(ReportedError { kind: fault.kind, param: fault.param });
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if fault.kind == ErrorKind::InvalidKey {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(wait) = fault.retry_after {
        // Rounded up, so that a client that waits this long does not retry too early.
        headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_millis().div_ceil(1_000) as u64));
    }
    if is_final {
        headers.insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    if let Some(allow) = fault.allow {
        headers.insert(ALLOW, HeaderValue::from_static(allow));
    }
    if fault.close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The error of a response, as an extension of it.
#[derive(Clone, Debug)]
pub(crate) struct ReportedError {
    pub(crate) kind: ErrorKind,
    /// The field of the request that causes it, if one does.
    pub(crate) param: Option<Cow<'static, str>>,
}

/// Returns true if a retry is useless: the request, its key or what it names is at fault. The official SDKs retry every
/// 408, 409, 429 and 5xx, Claude Code a 401 as well (for minutes), and Anthropic's SDK waits for any `Retry-After`, even
/// hours.
fn is_final(fault: &Fault) -> bool {
    match fault.kind {
        ErrorKind::QuotaExceeded => fault.retry_after.is_none_or(|wait| wait > WORTH_WAITING),
        // The cause may be over at the next try; an upstream's own status may be either.
        ErrorKind::RequestTimeout
        | ErrorKind::RateLimited
        | ErrorKind::TooManySignIns
        | ErrorKind::NoEligibleTarget
        | ErrorKind::BudgetExhausted
        | ErrorKind::Overloaded
        | ErrorKind::DatabaseUnreachable
        | ErrorKind::Draining
        | ErrorKind::UpstreamUnreachable
        | ErrorKind::UpstreamTimeout
        | ErrorKind::UpstreamInvalid
        | ErrorKind::UpstreamStatus
        | ErrorKind::UpstreamCut
        | ErrorKind::Internal => false,
        ErrorKind::BadHttp
        | ErrorKind::InvalidRequest
        | ErrorKind::UnsupportedField
        | ErrorKind::UnsupportedRoute
        | ErrorKind::InvalidKey
        | ErrorKind::Forbidden
        | ErrorKind::NotAllowed
        | ErrorKind::PrivateProvider
        | ErrorKind::ForbiddenOrigin
        | ErrorKind::NotFound
        | ErrorKind::PreviousResponseNotFound
        | ErrorKind::InvalidEncryptedContent
        | ErrorKind::ModelNotFound
        | ErrorKind::OperationNotFound
        | ErrorKind::MethodNotAllowed
        | ErrorKind::Conflict
        | ErrorKind::PreconditionFailed
        | ErrorKind::BodyTooLarge
        | ErrorKind::UnsupportedEncoding
        | ErrorKind::UpgradeRequired
        | ErrorKind::NotImplemented
        | ErrorKind::Cancelled => true,
    }
}

/// A header that the official SDKs check before the status.
const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// The longest wait that a client should bridge with a retry. A longer wait is left to the user.
const WORTH_WAITING: Duration = Duration::from_secs(120);
