//! `POST /v1/metrics`, `/v1/logs`, `/v1/traces`: Claude Code's telemetry, which is relayed to the collector of the gateway's own
//! exports as it came. The collector's credentials stay here. Nothing of it is stored.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request as HttpRequest, Response, StatusCode, Uri};
use shared::access::Access;
use shared::error_kind::ErrorKind;
use shared::port::{Body, HttpLimits, full};
use shared::tags;

use super::settings;
use crate::admin::{ApiError, App, Request};
use crate::routing::config::Otlp;

/// True if the path takes telemetry.
pub(in crate::admin) fn takes(path: &str) -> bool {
    [METRICS, LOGS, TRACES].contains(&path)
}

/// Relays a message, and answers with the collector's answer.
pub(super) async fn relay(app: &App, access: &Access, request: &Request) -> Result<Response<Body>, ApiError> {
    let (path, otlp) = (request.parts.uri.path(), &app.config.otlp);
    settings(app, path)?;
    if !tags::is_signed_in(access.tags.as_deref()) {
        let message = "Telemetry is taken with keys that Claude Code got by its sign-in only.";
        return Err(ApiError::new(ErrorKind::Forbidden, message));
    }
    let Some(endpoint) = endpoint(otlp, path) else {
        let message = "The gateway has no collector for this: set OTEL_EXPORTER_OTLP_ENDPOINT, or turn the telemetry of \
                       Claude Code off.";
        return Err(ApiError::new(ErrorKind::NotImplemented, message));
    };
    let mut relayed = HttpRequest::new(request.body.clone());
    *relayed.method_mut() = Method::POST;
    *relayed.uri_mut() = endpoint.clone();
    relayed.headers_mut().extend(otlp.headers.iter().cloned());
    for name in [CONTENT_TYPE, CONTENT_ENCODING] {
        if let Some(value) = request.parts.headers.get(&name) {
            relayed.headers_mut().insert(name, value.clone());
        }
    }
    let limits = HttpLimits { timeout: otlp.timeout, body_bytes_max: ANSWER_BYTES_MAX };
    // The text of the error names the address of the collector, which is no concern of clients.
    let Ok(answer) = app.http.send(relayed, limits).await else {
        tracing::warn!(endpoint = %endpoint, "the telemetry of a client did not reach the collector");
        return Err(ApiError::new(ErrorKind::Overloaded, "The collector cannot be reached.")
            .retry_after(RETRY_SECONDS));
    };
    Ok(answered(answer))
}

/// Returns the collector's answer without headers of its own.
fn answered(answer: Response<bytes::Bytes>) -> Response<Body> {
    let (parts, body) = answer.into_parts();
    let mut response = Response::new(full(body));
    // The collector refused the credentials of the gateway, not those of the client.
    *response.status_mut() = match parts.status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => StatusCode::BAD_GATEWAY,
        status => status,
    };
    for name in [CONTENT_TYPE, RETRY_AFTER] {
        if let Some(value) = parts.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

/// Returns the collector's address for a path.
fn endpoint<'a>(otlp: &'a Otlp, path: &str) -> Option<&'a Uri> {
    match path {
        METRICS => otlp.metrics.as_ref().map(|metrics| &metrics.endpoint),
        TRACES => otlp.traces.as_ref().map(|traces| &traces.endpoint),
        _ => otlp.logs.as_ref(),
    }
}

const METRICS: &str = "/v1/metrics";
const LOGS: &str = "/v1/logs";
const TRACES: &str = "/v1/traces";
const ANSWER_BYTES_MAX: usize = 64 << 10;
const RETRY_SECONDS: u64 = 30;
