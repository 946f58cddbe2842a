//! `POST explain`: reports which targets would serve a given body with a given key, and why others would not, without
//! sending anything upstream (FAIL-8).

use std::sync::Arc;

use http::{Method, Response};
use serde::Deserialize;
use serde_json::Value;
use shared::access::{Access, Role};
use shared::port::{Body, Insider};

use super::trials::{administrator, principal};
use super::{ApiError, App, Call, Route, route_of};
use crate::catalog::test_completion::{HERE, request};

pub(super) static ROUTES: &[Route] = &[route_of(Method::POST, "explain", |call| Box::pin(explain(call)))];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainRequest {
    /// The project key to explain for.
    #[serde(default)]
    key_id: Option<String>,
    /// The human to explain for, as a key without limits that acts as them would. With neither field, the
    /// administrator who asks.
    #[serde(default)]
    principal_id: Option<String>,
    /// A path of the data plane.
    path: String,
    body: Value,
}

async fn explain(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let ExplainRequest { key_id, principal_id, path, body } = call.json()?;
    let access = match (key_id, principal_id) {
        (Some(_), Some(_)) => {
            return Err(ApiError::parameter("key_id", "Send key_id or principal_id, not both."));
        }
        (Some(id), None) => of_key(call.app, &id)?,
        (None, Some(id)) => {
            let acts_as = Some(principal(call.app, id).await?);
            Arc::new(Access { acts_as, ..Access::new("explain", Role::Project) })
        }
        (None, None) => Arc::new(administrator(&call, None)),
    };
    let operation = path.strip_prefix("/v1").unwrap_or(&path);
    if !PATHS.contains(&operation) {
        let message = "path must be a path for client POST requests, such as /v1/chat/completions.";
        return Err(ApiError::parameter("path", message));
    }
    let insider = Insider { access, only: None, explain: true };
    let request = request(insider, &path, body.to_string())
        .map_err(|_| ApiError::parameter("path", "path must be the path of a URL."))?;
    Ok(call.app.plane.handle(request, HERE).await)
}

/// Returns the access of a key in the snapshot. Disabled, revoked and expired keys are not in it.
fn of_key(app: &App, id: &str) -> Result<Arc<Access>, ApiError> {
    let snapshot = app.snapshot.load();
    let found = snapshot.access.keys.values().find(|access| access.key.as_str() == id).cloned();
    found.ok_or_else(|| {
        let message =
            "key_id does not name a usable key: the key does not exist, or it is disabled, revoked or \
             expired.";
        ApiError::parameter("key_id", message)
    })
}

/// Paths that clients post to, after `/v1`.
const PATHS: &[&str] = &[
    "/chat/completions",
    "/completions",
    "/responses",
    "/messages",
    "/messages/count_tokens",
    "/embeddings",
    "/audio/transcriptions",
    "/audio/speech",
    "/images/generations",
    "/videos/generations",
];
