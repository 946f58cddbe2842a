//! Serves the files of the console over HTTP, under a content security policy that only runs embedded code.
//!
//! Every path below `/console` is the page, because the page's own router reads it; only paths below `/console/assets/` are
//! files. The names of those contain a hash of their content, so browsers keep them for good. `GET /` leads to the console.

use std::borrow::Cow;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, LOCATION, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use serde_json::json;
use shared::base_path::BasePath;
use shared::error_kind::ErrorKind;
use shared::operation::Operation;
use shared::port::{Body, full};

use crate::admin::{self, ADMIN_API, ApiError, accepts};

/// One file of the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    /// The content of the file.
    pub bytes: Cow<'static, [u8]>,
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// The value of `ETag`.
    pub etag: Option<String>,
}

/// Answers `/`: redirects a browser to the console (303), and lists the paths for everyone else. The list does not
/// contain the version, because callers without a key can read it.
pub(crate) fn root(parts: &Parts, base: &BasePath) -> Result<Response<Body>, ApiError> {
    expect_read(parts)?;
    let mut response = if accepts(&parts.headers, ACCEPT, "text/html") {
        let mut response = Response::new(full(""));
        *response.status_mut() = StatusCode::SEE_OTHER;
        response.headers_mut().insert(LOCATION, address(&format!("{base}{PATH}"))?);
        response
    } else {
        let below = |path: &str| format!("{base}{path}");
        let of_responses = [Operation::StoredResponses, Operation::CompactResponses];
        let clients = Operation::GRANTABLE.into_iter().chain(of_responses);
        let monitoring = [Operation::Health, Operation::Ready, Operation::Metrics];
        admin::json(&json!({
            "name": "llmgw",
            "clients": clients.map(|operation| below(operation.path())).collect::<Vec<_>>(),
            "monitoring": monitoring.map(|operation| below(operation.path())),
            "admin_api": below(ADMIN_API),
            "console": below(PATH),
        }))?
    };
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    Ok(response)
}

/// Returns the file for `path`, the part of the URL path after `/console`.
pub(crate) fn answer(
    asset: fn(&str) -> Option<Asset>,
    parts: &Parts,
    path: &str,
    base: &BasePath,
) -> Result<Response<Body>, ApiError> {
    expect_read(parts)?;
    let name = path.strip_prefix('/').unwrap_or(path);
    let found = if name.starts_with(ASSETS) { file(asset, name, &parts.headers) } else { None };
    match found {
        Some(response) => Ok(response),
        None if name.starts_with(ASSETS) => Err(missing()),
        None => page(&asset(PAGE).ok_or_else(missing)?, &parts.headers, base),
    }
}

/// A header with the base path, which consists of characters that headers may carry.
fn address(text: &str) -> Result<HeaderValue, ApiError> {
    HeaderValue::from_str(text)
        .map_err(|_| ApiError::new(ErrorKind::Internal, "LLMGW_BASE_PATH cannot be sent in a header."))
}

fn expect_read(parts: &Parts) -> Result<(), ApiError> {
    match parts.method {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(ApiError::method_not_allowed("GET, HEAD")),
    }
}

fn missing() -> ApiError {
    ApiError::new(ErrorKind::NotFound, "The console does not have this file.")
}

/// Returns the page with the addresses of its files below `base`, or 304 if the browser has it. The page is small and is not
/// compressed.
fn page(page: &Asset, request_headers: &HeaderMap, base: &BasePath) -> Result<Response<Body>, ApiError> {
    let etag = page.etag.as_deref().ok_or_else(missing)?;
    let etag = address(&format!("\"{base}{}\"", etag.trim_matches('"')))?;
    let is_known = is_known(request_headers, &etag);
    let html = match is_known {
        true => String::new(),
        false => String::from_utf8_lossy(&page.bytes).replace("\"/console/", &format!("\"{base}{PATH}/")),
    };
    let mut response = Response::new(full(html));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(page.content_type));
    }
    let headers = response.headers_mut();
    headers.insert(ETAG, etag);
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// True if `If-None-Match` names the `ETag`: the client has the content.
fn is_known(request_headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let known = request_headers.get_all(IF_NONE_MATCH).iter().filter_map(|line| line.to_str().ok());
    known.flat_map(|line| line.split(',')).any(|known| {
        let known = known.trim();
        known == "*" || known.strip_prefix("W/").unwrap_or(known).as_bytes() == etag.as_bytes()
    })
}

/// Returns a file below `/console/assets/` in the smallest form that the client accepts.
fn file(asset: fn(&str) -> Option<Asset>, name: &str, request_headers: &HeaderMap) -> Option<Response<Body>> {
    // The compressed forms are not files of their own.
    if CODINGS.iter().any(|(_, suffix)| name.ends_with(suffix)) {
        return None;
    }
    let packed = CODINGS.iter().filter(|(coding, _)| accepts(request_headers, ACCEPT_ENCODING, coding));
    let packed =
        packed.filter_map(|(coding, suffix)| Some((Some(*coding), asset(&format!("{name}{suffix}"))?)));
    let (coding, file) = packed.chain(asset(name).map(|file| (None, file))).next()?;
    let mut response = Response::new(full(file.bytes.into_owned()));
    let headers = response.headers_mut();
    for (name, value) in [(CONTENT_TYPE, file.content_type), (CACHE_CONTROL, KEPT), (VARY, "accept-encoding")]
    {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Some(coding) = coding {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    Some(response)
}

/// The path of the page.
pub(crate) const PATH: &str = "/console";
const PAGE: &str = "index.html";
const ASSETS: &str = "assets/";
/// Content codings and the suffixes of the files in them, the smallest first.
const CODINGS: [(&str, &str); 2] = [("br", ".br"), ("gzip", ".gz")];
/// The names of the files change with their content.
const KEPT: &str = "public, max-age=31536000, immutable";
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
     media-src 'self' blob:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
