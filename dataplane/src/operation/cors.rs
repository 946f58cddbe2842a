//! Cross-origin headers, sent only if `cors.origins` is configured (ROUTE-3).

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ALLOW, ORIGIN,
    VARY,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::relay::ResponseBody;

/// Answers `OPTIONS` on a path that supports the methods `allow`.
pub(crate) fn options(allow: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(bytes::Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(allow));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(allow));
    response
}

/// Adds the CORS headers to a response if the request's origin is allowed.
pub(crate) fn decorate(origins: &[HeaderValue], request: &HeaderMap, response: &mut HeaderMap) {
    if origins.is_empty() {
        response.remove(ACCESS_CONTROL_ALLOW_METHODS);
        return;
    }
    response.append(VARY, HeaderValue::from_static("origin"));
    let Some(origin) = request.get(ORIGIN).filter(|origin| origins.contains(origin)) else {
        response.remove(ACCESS_CONTROL_ALLOW_METHODS);
        return;
    };
    response.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    response.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    if response.contains_key(ACCESS_CONTROL_ALLOW_METHODS) {
        // Any requested header is allowed: SDKs add headers with each release, and the origin may send the key already.
        response.append(VARY, HeaderValue::from_static("access-control-request-headers"));
        for requested in request.get_all(ACCESS_CONTROL_REQUEST_HEADERS) {
            response.append(ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
        }
        response.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
}

const EXPOSED: &str = "x-request-id, x-llmgw-provider, x-llmgw-model, x-llmgw-attempts, x-llmgw-adapted, \
     x-llmgw-dropped, x-llmgw-cost, x-llmgw-quota-warning, x-llmgw-token-count, retry-after, x-should-retry";
