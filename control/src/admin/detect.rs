//! `providers/detect`: model servers that run on this machine on their default ports.

use http::{Method, Response};
use serde::Serialize;
use shared::port::Body;

use super::list::ListPage;
use super::{ApiError, Call, Route, json, route_of};
use crate::routing::connection::ViewCell;
use crate::routing::detect::{Detected, local_servers};

pub(super) static ROUTES: &[Route] =
    &[route_of(Method::GET, "providers/detect", |call| Box::pin(detect(call)))
        .answers::<ListPage<DetectedServer>>("Looks for model servers on the usual ports of this machine.")];

/// A detected server, and the provider instances already configured for its address.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Detected"))]
struct DetectedServer {
    /// Its entry in the registry.
    registry_id: &'static str,
    name: &'static str,
    base_url: &'static str,
    /// Its models.
    models: Vec<String>,
    /// The number of further models.
    models_omitted: usize,
    /// Ids of the provider instances with this address.
    providers: Vec<String>,
}

async fn detect(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let servers = local_servers(&*call.app.http).await;
    json(&ListPage::whole(servers.into_iter().map(|server| found(server, &call.app.view)).collect()))
}

fn found(server: Detected, view: &ViewCell) -> DetectedServer {
    let Detected { registry_id, name, base_url, models, models_omitted } = server;
    let view = view.read();
    let same = view.providers.iter().filter(|connection| connection.base_url() == Some(base_url));
    let providers = same.map(|connection| connection.id.clone()).collect();
    DetectedServer { registry_id, name, base_url, models, models_omitted, providers }
}
