//! `GET /admin/api/setup`: which steps of the set-up are done, by the console or otherwise.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, Response};
use serde::Serialize;
use shared::clock::unix_ms;
use shared::port::Body;
use shared::routing::{Endpoint, ProviderInstance};
use shared::snapshot::Snapshot;

use super::{ApiError, App, Call, Route, json, route_of};
use crate::db::setup::{StoredSteps, steps};
use crate::routing::catalog::sync::has_list;
use crate::usage::first_request::first_request;
use crate::writer::FLUSH_TIME_MAX;

pub(super) static ROUTES: &[Route] = &[route_of(Method::GET, "setup", |call| Box::pin(show(call)))
    .answers::<SetupSteps>("Shows which steps of the set-up are done.")];

/// The steps of the set-up.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Setup"))]
struct SetupSteps {
    /// True if there is a human who is not disabled.
    human: bool,
    /// True if there is a project that is not disabled.
    project: bool,
    /// True if a human who is not disabled owns a project that is not disabled.
    owner: bool,
    /// True if a provider is ready to receive requests. Providers inside the gateway (`echo`, `builtin_speech`) do not
    /// count here and in the next three.
    provider: bool,
    /// True if the list of models of a ready provider was read, or a ready provider has no list to read.
    synced: bool,
    /// True if a ready provider has completed a request: a test, or one of a client.
    proven: bool,
    /// True if there is an endpoint with a target.
    endpoint: bool,
    /// True if a project key can be used.
    key: bool,
    /// The request ID of the first request that a project key completed, among the records that are kept. Null if
    /// there is none, or none was found within half a second.
    first_request: Option<String>,
}

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let app = call.app;
    app.writer.flush(FLUSH_TIME_MAX).await;
    let found = app.readers.ask(|db| {
        let until = Instant::now() + SEARCH_TIME_MAX;
        Ok((steps(db, unix_ms())?, first_request(db, until)?))
    });
    let (StoredSteps { human, project, owner, key }, first_request) = found.await?;
    let snapshot = app.snapshot.load();
    let upstreams = snapshot.providers.iter().filter(|instance| !instance.kind.is_in_process());
    let ready = upstreams.filter(|instance| instance.unready.is_none());
    let ready: Vec<ReadyProvider> =
        ready.map(|instance| ReadyProvider::of(app, &snapshot, instance)).collect();
    let reaches_an_upstream = |endpoint: &Arc<Endpoint>| {
        endpoint.targets.iter().any(|target| !target.provider.kind.is_in_process())
    };
    json(&SetupSteps {
        human,
        project,
        owner,
        provider: !ready.is_empty(),
        synced: ready.iter().any(|provider| provider.is_synced),
        proven: ready.iter().any(|provider| provider.is_proven),
        endpoint: snapshot.endpoints.iter().any(reaches_an_upstream),
        key,
        first_request,
    })
}

/// The evidence about a provider that is ready to receive requests.
struct ReadyProvider {
    is_synced: bool,
    is_proven: bool,
}

impl ReadyProvider {
    fn of(app: &App, snapshot: &Snapshot, instance: &ProviderInstance) -> Self {
        let id = instance.id.as_str();
        let evidence = app.catalog.evidence(id, Some((instance, &snapshot.key_hasher)));
        let last_answered_at_ms = app.answers.of_provider(id);
        Self {
            is_synced: evidence.catalog.synced_at_ms.is_some() || !has_list(instance),
            is_proven: evidence.inference.proven_at_ms.or(last_answered_at_ms).is_some(),
        }
    }
}

/// The maximum time of the search for the first request.
const SEARCH_TIME_MAX: Duration = Duration::from_millis(500);
