//! Cross-origin answers, only where `cors.origins` is configured (ROUTE-3).

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::relay::Reply;

/// Answers `OPTIONS` on a path that takes `allow`.
pub(crate) fn options(allow: &'static str) -> Response<Reply> {
    let mut response = Response::new(Reply::full(bytes::Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(allow));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(allow));
    response
}

/// Adds what a browser needs to a response, if the request's origin is an allowed one.
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
        response.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(TAKEN));
        response.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
}

const EXPOSED: &str =
    "x-request-id, x-llmgw-provider, x-llmgw-model, x-llmgw-attempts, x-llmgw-cost, retry-after";
const TAKEN: &str = "authorization, content-type, x-api-key, x-request-id, x-llmgw-affinity-key, \
     x-llmgw-fallback-timeout-ms, x-llmgw-tags, anthropic-version, anthropic-beta";
