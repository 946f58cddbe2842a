//! The routes that Claude Code calls with its key: managed settings, the standing against limits on cost, and telemetry. The data plane has
//! authenticated the caller.

use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::json;
use shared::error_kind::ErrorKind;
use shared::port::{Body, KeyHolder, full};

use super::{otlp, settings, spend};
use crate::admin::{ApiError, App, Request, json};
use crate::routing::config::ManagedSettings;

/// Answers a request of a key holder; `None` if the path is another one.
pub(in crate::admin) async fn answer(
    app: &App,
    holder: &KeyHolder,
    request: &Request,
) -> Option<Result<Response<Body>, ApiError>> {
    let path = request.parts.uri.path();
    match path {
        MANAGED_SETTINGS => Some(managed_settings(app, path, &request.parts.headers)),
        USAGE => Some(usage(app, path, holder).await),
        _ if otlp::takes(path) => Some(otlp::relay(app, &holder.0, request).await),
        _ => None,
    }
}

fn managed_settings(app: &App, path: &str, headers: &HeaderMap) -> Result<Response<Body>, ApiError> {
    let Some(ManagedSettings { settings, checksum, uuid }) = &settings(app, path)?.settings else {
        return Err(ApiError::new(ErrorKind::NotFound, "The gateway has no settings for Claude Code."));
    };
    let etag = HeaderValue::from_str(&format!("\"{checksum}\""))
        .map_err(|_| ApiError::new(ErrorKind::Internal, "The checksum of the settings cannot be sent."))?;
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|line| line.to_str().ok());
    // `*` asks only whether there are settings, and is answered like a request without the header.
    let is_known =
        known.flat_map(|line| line.split(',')).any(|known| known.trim().as_bytes() == etag.as_bytes());
    let mut response = match is_known {
        true => Response::new(full("")),
        false => json(&json!({"uuid": uuid, "checksum": checksum, "settings": settings}))?,
    };
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    response.headers_mut().insert(ETAG, etag);
    Ok(response)
}

async fn usage(app: &App, path: &str, holder: &KeyHolder) -> Result<Response<Body>, ApiError> {
    settings(app, path)?;
    spend::show(app, &holder.0).await
}

const MANAGED_SETTINGS: &str = "/managed/settings";
const USAGE: &str = "/api/oauth/usage";
