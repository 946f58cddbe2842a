//! `registry`: well-known providers that a connection can refer to by `registry_id`.

use http::{Method, Response};
use shared::port::Body;

use super::list::ListPage;
use super::{ApiError, Call, Route, json, route_of};
use crate::routing::config::{RegistryEntry, registry_entries};

pub(super) static ROUTES: &[Route] =
    &[route_of(Method::GET, "registry", |call| Box::pin(async move { list(&call) }))
        .answers::<ListPage<RegistryEntry>>("Lists the well-known providers.")];

fn list(call: &Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    json(&ListPage::whole(registry_entries().iter().collect()))
}
