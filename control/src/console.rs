//! Serves the files of the console over HTTP, under a content security policy that only runs embedded code.

use std::borrow::Cow;

use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderValue, Method, Response};
use shared::error_kind::ErrorKind;
use shared::port::{Body, full};

use crate::api::ApiError;

/// One file of the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    /// The content of the file.
    pub bytes: Cow<'static, [u8]>,
    /// The value of `Content-Type`.
    pub content_type: &'static str,
}

/// Returns the file for `path`, the part of the URL path after `/console`.
pub(crate) fn answer(
    asset: fn(&str) -> Option<Asset>,
    version: &str,
    method: &Method,
    path: &str,
) -> Result<Response<Body>, ApiError> {
    if method != Method::GET && method != Method::HEAD {
        return Err(ApiError::method_not_allowed("GET, HEAD"));
    }
    let name = match path.strip_prefix('/').unwrap_or(path) {
        "" => PAGE,
        name => name,
    };
    let file =
        asset(name).ok_or_else(|| ApiError::new(ErrorKind::NotFound, "The console has no such file."))?;
    let bytes = if name == PAGE { with_version(file.bytes, version) } else { file.bytes };
    let mut response = Response::new(full(bytes.into_owned()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.content_type));
    for (name, value) in [(CONTENT_SECURITY_POLICY, POLICY), (CACHE_CONTROL, "no-cache")] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// Inserts the running version into the page; everything else in it is static.
fn with_version(page: Cow<'static, [u8]>, version: &str) -> Cow<'static, [u8]> {
    match std::str::from_utf8(&page) {
        Ok(text) => Cow::Owned(text.replace("{{version}}", version).into_bytes()),
        Err(_) => page,
    }
}

const PAGE: &str = "index.html";
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
