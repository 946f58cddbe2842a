//! Checks and headers that apply to every request and response of the control service.

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, IF_MATCH,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body::Body as _;
use shared::error_kind::ErrorKind;
use shared::port::{Body, full};

use super::ApiError;

/// Rejects a body that is not declared as plain JSON. Forms that a browser submits across origins without a preflight
/// use other content types.
pub(crate) fn expect_json(headers: &HeaderMap, body: &Body) -> Result<(), ApiError> {
    if body.is_end_stream() {
        return Ok(());
    }
    let refused = |message| Err(ApiError::new(ErrorKind::UnsupportedEncoding, message));
    let plain = headers.get(CONTENT_ENCODING).is_none_or(|coding| coding.as_bytes() == b"identity");
    if !plain {
        return refused("The admin API does not accept compressed bodies.");
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let media_type = types.next().and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") || types.next().is_some() {
        return refused("The admin API accepts only JSON. Send the header Content-Type: application/json.");
    }
    Ok(())
}

/// Rejects `If-Match` of a write that compares no version: its sender expects that a later change is not overwritten. `*` asks
/// for no version.
pub(super) fn expect_no_version(headers: &HeaderMap) -> Result<(), ApiError> {
    if headers.get(IF_MATCH).is_none_or(|value| value.as_bytes().trim_ascii() == b"*") {
        return Ok(());
    }
    Err(ApiError::parameter("If-Match", "This route compares no version. Omit If-Match."))
}

/// Answers `OPTIONS` with the methods of a path, and without any CORS headers.
pub(super) fn options(allow: &str) -> Result<Response<Body>, ApiError> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let allow = HeaderValue::from_str(allow)
        .map_err(|_| ApiError::new(ErrorKind::Internal, "The methods of this path could not be listed."))?;
    response.headers_mut().insert(ALLOW, allow);
    Ok(response)
}

/// True if `header`, one of those by which a client says what it accepts (RFC 9110, section 12.5), lists `value` with a
/// weight that is not 0.
pub(crate) fn accepts(request_headers: &HeaderMap, header: HeaderName, value: &str) -> bool {
    let lines = request_headers.get_all(header).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|item| {
        let (name, weight) = item.split_once(';').unwrap_or((item, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.trim().parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case(value) && weight.is_none_or(|weight| weight > 0.0)
    })
}

/// Adds the default headers to a response without overriding its own; removes the body of a response to HEAD.
pub(crate) fn finish(method: &Method, response: Response<Body>) -> Response<Body> {
    let (mut parts, mut body) = response.into_parts();
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (X_FRAME_OPTIONS, "DENY"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ] {
        parts.headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    if method == Method::HEAD {
        if let Some(bytes) = body.size_hint().exact() {
            parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        }
        body = full(Bytes::new());
    }
    Response::from_parts(parts, body)
}
