//! `endpoints`: named, ordered failover lists from the configuration file and the API.

use std::collections::HashMap;
use std::convert::Infallible;

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use shared::clock::unix_ms;
use shared::error_kind::ErrorKind;
use shared::id::is_name;
use shared::port::Body;
use shared::snapshot::Snapshot;

use super::list::{Containing, ListPage, PageOf, SortedPaging};
use super::providers::{NAME_RULE, Sourced};
use super::reference::NoContent;
use super::spend::sums_since;
use super::{ApiError, Call, Route, json, json_of_version, route_of, write_of};
use crate::db::engine::Db;

use crate::db::HOUR_MS;
use crate::db::endpoints::StoredMember;
use crate::routing::config;
use crate::routing::connection::{ListedEndpoint, RoutedProvider, ShownEndpoint};
use crate::usage::requests::Column;
use crate::usage::scope::UsageScope;
use crate::writer::FLUSH_TIME_MAX;
use crate::writer::command::endpoints::{CreateEndpoint, DeleteEndpoint, ReplaceEndpoint};

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "endpoints", |call| Box::pin(list(call)))
        .answers::<ListPage<ShownEndpoint>>(
            "Lists the endpoints of the file and of the API, in order of `name`, `targets` or `requests` (of the last \
             24 hours) if wanted.",
        )
        .query::<EndpointList>(),
    write_of(Method::POST, "endpoints", |call| Box::pin(create(call)))
        .answers::<ShownEndpoint>("Creates an endpoint.")
        .statuses(&[201])
        .takes::<NewEndpoint>(),
    route_of(Method::GET, "endpoints/{}", |call| Box::pin(show(call)))
        .answers::<ShownEndpoint>("Shows an endpoint.")
        .query::<Sourced>(),
    write_of(Method::PUT, "endpoints/{}", |call| Box::pin(replace(call)))
        .answers::<ShownEndpoint>("Replaces the content of an endpoint of the API.")
        .takes::<Whole>()
        .query::<Sourced>()
        .reads_version(),
    write_of(Method::DELETE, "endpoints/{}", |call| Box::pin(delete(call)))
        .answers::<NoContent>("Deletes an endpoint of the API.")
        .query::<Sourced>()
        .reads_version(),
];

type EndpointList = (SortedPaging<EndpointColumn>, Sourced, EndpointQuery, Containing);

/// The filters of a list.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct EndpointQuery {
    /// Only those of this provider, by ID.
    provider: Option<String>,
}

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (paging, source, EndpointQuery { provider }, containing): EndpointList = call.query()?;
    let (page, text) = (PageOf::of(paging)?, containing.lower_case());
    let used = match page.column() {
        Some(EndpointColumn::Requests) => {
            let since_ms = (unix_ms() / HOUR_MS).saturating_sub(24).saturating_mul(HOUR_MS);
            call.app.writer.flush(FLUSH_TIME_MAX).await;
            let sum = move |db: &Db| sums_since(db, Column::Endpoint, since_ms, UsageScope::default());
            call.app.readers.ask(sum).await?
        }
        Some(_) | None => HashMap::new(),
    };
    let view = call.app.view.read();
    let wanted = |listed: &&ListedEndpoint| {
        listed.place > page.after
            && source.admits(listed.source)
            && provider
                .as_deref()
                .is_none_or(|provider| listed.failover.iter().any(|member| member.provider == provider))
            && text.as_deref().is_none_or(|text| listed.name.to_lowercase().contains(text))
    };
    let value = |listed: &&ListedEndpoint, column| {
        Some(match column {
            EndpointColumn::Name => listed.name.as_str().into(),
            EndpointColumn::Targets => count(listed.failover.len()).into(),
            EndpointColumn::Requests => used.get(&listed.name).map_or(0, |sums| sums.requests).into(),
        })
    };
    let found = view.endpoints.iter().filter(wanted).take(page.rows_max());
    let known = view.found(&call.app.catalog.known());
    let snapshot = call.app.snapshot.load();
    json(
        &ListPage::sorted(found, &page, |listed| &listed.place, value)
            .map(|listed| shown(listed, &known, &snapshot)),
    )
}

/// A column by which the list can be sorted.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum EndpointColumn {
    Name,
    Targets,
    Requests,
}

fn count(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let source: Sourced = call.query()?;
    let view = call.app.view.read();
    let found =
        view.endpoints.iter().find(|listed| listed.name == call.argument() && source.admits(listed.source));
    let listed = found.ok_or_else(|| ApiError::new(ErrorKind::NotFound, "There is no such endpoint."))?;
    let shown = shown(listed, &view.found(&call.app.catalog.known()), &call.app.snapshot.load());
    match listed.version() {
        Some(version) => json_of_version(&shown, version),
        None => json(&shown),
    }
}

fn shown(
    listed: &ListedEndpoint,
    known: &HashMap<&str, RoutedProvider>,
    snapshot: &Snapshot,
) -> ShownEndpoint {
    let find = |provider: &str| Ok::<_, Infallible>(known.get(provider).cloned());
    let passed_over = listed.passed_over(find).unwrap_or_else(|never| match never {});
    let used = snapshot.endpoints.iter().find(|endpoint| endpoint.name.as_str() == listed.name);
    let warnings =
        used.filter(|_| listed.shadow.is_none()).map(|endpoint| config::failover_gaps(&endpoint.targets));
    listed.shown(passed_over).with_warnings(warnings.unwrap_or_default())
}

/// An endpoint to create.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct NewEndpoint {
    name: String,
    /// Its targets in the order in which they are tried.
    failover: Vec<StoredMember>,
    /// The system text put before that of every request.
    #[serde(default)]
    preamble: Option<String>,
}

async fn create(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let NewEndpoint { name, failover, preamble } = call.json()?;
    if !is_name(&name) {
        return Err(ApiError::parameter("name", format!("name {NAME_RULE}")));
    }
    let create = CreateEndpoint { name, failover: members(failover)?, preamble: text(preamble)? };
    call.execute(StatusCode::CREATED, create).await
}

/// The new content of an endpoint.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "EndpointContent"))]
#[serde(deny_unknown_fields)]
struct Whole {
    /// Its targets in the order in which they are tried.
    failover: Vec<StoredMember>,
    /// The system text put before that of every request.
    #[serde(default)]
    preamble: Option<String>,
}

async fn replace(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let shadowed = call.query::<Sourced>()?.means_shadowed();
    let Whole { failover, preamble } = call.json()?;
    let replace = ReplaceEndpoint {
        name: call.argument().to_owned(),
        if_version: call.if_match()?,
        failover: members(failover)?,
        preamble: text(preamble)?,
        shadowed,
    };
    call.execute(StatusCode::OK, replace).await
}

async fn delete(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let shadowed = call.query::<Sourced>()?.means_shadowed();
    let delete = DeleteEndpoint { name: call.argument().to_owned(), if_version: call.if_match()?, shadowed };
    call.execute(StatusCode::NO_CONTENT, delete).await
}

pub(super) fn members(failover: Vec<StoredMember>) -> Result<Vec<StoredMember>, ApiError> {
    if failover.is_empty() || failover.len() > MEMBERS_MAX {
        let message =
            format!("failover must have 1 to {MEMBERS_MAX} items {{provider, model}}, in the order to try.");
        return Err(ApiError::parameter("failover", message));
    }
    Ok(failover)
}

pub(super) fn text(preamble: Option<String>) -> Result<Option<String>, ApiError> {
    match preamble {
        Some(text) if text.len() > PREAMBLE_BYTES_MAX => Err(ApiError::parameter(
            "preamble",
            format!("preamble has {} bytes; the maximum is {PREAMBLE_BYTES_MAX}.", text.len()),
        )),
        other => Ok(other.filter(|text| !text.is_empty())),
    }
}

const MEMBERS_MAX: usize = 100;
const PREAMBLE_BYTES_MAX: usize = 64 << 10;
