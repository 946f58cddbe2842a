//! `GET /health` and `GET /ready` (HEALTH-1, ROUTE-5).

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use serde_json::json;
use shared::error_kind::ErrorKind;

use crate::error::Fault;
use crate::plane::Plane;
use crate::relay::Reply;

/// The process lives, and what was built. Says nothing about providers.
pub(crate) fn health(plane: &Plane) -> Response<Reply> {
    let build = &plane.build;
    ok(&json!({
        "status": "ok",
        "version": build.version,
        "commit": build.commit,
        "built_at": build.built_at,
        "target": build.target,
    }))
}

/// Whether requests should be sent here: a snapshot is published and the gateway is not stopping.
pub(crate) fn ready(plane: &Plane) -> Result<Response<Reply>, Fault> {
    if plane.is_draining() {
        return Err(Fault::new(ErrorKind::Draining, "The gateway is stopping."));
    }
    if plane.snapshots.load().generation == 0 {
        return Err(Fault::new(ErrorKind::Overloaded, "The gateway is starting."));
    }
    Ok(ok(&json!({"status": "ready"})))
}

fn ok(body: &serde_json::Value) -> Response<Reply> {
    let mut response = Response::new(Reply::full(Bytes::from(body.to_string())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
