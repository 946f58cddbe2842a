//! `openapi.json`: the description of the admin API for programs. A test generates it from the route table, as it generates
//! the pages of the documentation; the binary contains the committed file.

use std::io::Read as _;

use flate2::read::GzDecoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::{HeaderValue, Method, Response};
use shared::error_kind::ErrorKind;
use shared::port::{Body, full};

use super::reference::OpenApiDocument;
use super::{ApiError, Call, Route, accepts, route_of};

pub(super) static ROUTES: &[Route] =
    &[route_of(Method::GET, "openapi.json", |call| Box::pin(async move { show(&call) }))
        .answers::<OpenApiDocument>("Describes this API as an OpenAPI 3.1 document.")];

fn show(call: &Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let is_packed = accepts(&call.parts.headers, ACCEPT_ENCODING, "gzip");
    let mut response = Response::new(full(if is_packed { PACKED.to_vec() } else { unpacked()? }));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if is_packed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

fn unpacked() -> Result<Vec<u8>, ApiError> {
    let mut text = Vec::new();
    let read = GzDecoder::new(PACKED).read_to_end(&mut text);
    read.map_err(|_| ApiError::new(ErrorKind::Internal, "The document in the binary is damaged."))?;
    Ok(text)
}

/// `control/openapi.json`, compressed by the build script.
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json.gz"));
