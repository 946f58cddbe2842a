//! `endpoints`: named, ordered failover lists from the configuration file and the API.

use std::collections::HashMap;
use std::convert::Infallible;

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use shared::clock::unix_ms;
use shared::error_kind::ErrorKind;
use shared::id::is_name;
use shared::port::Body;
use shared::routing::Endpoint;
use shared::snapshot::{Route as SelectorRoute, Snapshot, fault_of_name};
use shared::usage::TargetOrder;

use super::list::{Containing, ListPage, PageOf, SortedPaging};
use super::providers::{NAME_RULE, Sourced};
use super::reference::NoContent;
use super::spend::sums_since;
use super::{ApiError, Call, Route, json, json_of_version, route_of, write_of};
use crate::db::engine::Db;

use crate::db::HOUR_MS;
use crate::db::endpoints::{EndpointContent, StoredMember};
use crate::routing::config::{self, TIER_MAX, WEIGHT_MAX, WrittenOrder};
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
        .takes::<EndpointContent>()
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
            && provider.as_deref().is_none_or(|provider| {
                listed.content.failover.iter().any(|member| member.provider == provider)
            })
            && text.as_deref().is_none_or(|text| listed.name.to_lowercase().contains(text))
    };
    let value = |listed: &&ListedEndpoint, column| {
        Some(match column {
            EndpointColumn::Name => listed.name.as_str().into(),
            EndpointColumn::Targets => count(listed.content.failover.len()).into(),
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
    let warnings = used.filter(|_| listed.shadow.is_none()).map(|endpoint| {
        let mut warnings = config::failover_gaps(endpoint);
        warnings.extend(listed.content.also.iter().filter_map(|name| useless_name(name, endpoint, snapshot)));
        warnings
    });
    listed.shown(passed_over).with_warnings(warnings.unwrap_or_default())
}

/// Returns the warning about a further name of `endpoint` that selects something else.
fn useless_name(name: &str, endpoint: &Endpoint, snapshot: &Snapshot) -> Option<String> {
    let route = snapshot.patterns.written(name).or_else(|| snapshot.routes.get(name));
    let is_own = route.and_then(SelectorRoute::endpoint).is_some_and(|owner| *owner == endpoint.name);
    (!is_own)
        .then(|| format!("its name '{name}' has no effect: another object has the name and takes precedence"))
}

/// An endpoint to create, or to assume in an explanation.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct NewEndpoint {
    name: String,
    /// Its targets in the order in which they are tried.
    failover: Vec<StoredMember>,
    /// The system text put before that of every request.
    #[serde(default)]
    preamble: Option<String>,
    /// Further names, and patterns that end in `*`.
    #[serde(default)]
    also: Vec<String>,
    /// The order of its targets within a tier; `listed` by default.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::TargetOrder"))]
    order: TargetOrder,
    /// True to keep a session at its target; by default true unless `order` is `listed`.
    #[serde(default)]
    sticky: Option<bool>,
    /// True to accept chat requests in the form of the Responses API, as Cursor sends them; false by default.
    #[serde(default)]
    cursor_bodies: bool,
}

impl NewEndpoint {
    /// Returns the checked name, which errors call `place`, and the checked content.
    pub(super) fn checked(self, place: &str) -> Result<(String, EndpointContent), ApiError> {
        let Self { name, failover, preamble, also, order, sticky, cursor_bodies } = self;
        if !is_name(&name) {
            return Err(ApiError::parameter(place, format!("{place} {NAME_RULE}")));
        }
        Ok((name, content(EndpointContent { failover, preamble, also, order, sticky, cursor_bodies })?))
    }
}

async fn create(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let (name, content) = call.json::<NewEndpoint>()?.checked("name")?;
    let create = CreateEndpoint { name, content };
    call.execute(StatusCode::CREATED, create).await
}

async fn replace(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let shadowed = call.query::<Sourced>()?.means_shadowed();
    let replace = ReplaceEndpoint {
        name: call.argument().to_owned(),
        if_version: call.if_match()?,
        content: content(call.json()?)?,
        shadowed,
    };
    call.execute(StatusCode::OK, replace).await
}

async fn delete(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let shadowed = call.query::<Sourced>()?.means_shadowed();
    let delete = DeleteEndpoint { name: call.argument().to_owned(), if_version: call.if_match()?, shadowed };
    call.execute(StatusCode::NO_CONTENT, delete).await
}

/// Checks what of the content depends on nothing else.
fn content(written: EndpointContent) -> Result<EndpointContent, ApiError> {
    let EndpointContent { failover, preamble, also, order, sticky, cursor_bodies } = written;
    if also.len() > NAMES_MAX {
        return Err(ApiError::parameter("also", format!("also must have at most {NAMES_MAX} names.")));
    }
    for (index, name) in also.iter().enumerate() {
        if let Some(fault) = fault_of_name(name) {
            let place = format!("also[{index}]");
            return Err(ApiError::parameter(&place, format!("{place} {fault}.")));
        }
    }
    let failover = members(failover)?;
    let shares = failover.iter().map(|member| (member.weight, member.tier));
    if let Some(useless) = (WrittenOrder { order, sticky }).useless(shares).into_iter().next() {
        let place = match useless.member {
            Some(member) => format!("failover[{member}].{}", useless.name),
            None => useless.name.to_owned(),
        };
        return Err(ApiError::parameter(&place, format!("{place} {}.", useless.reason)));
    }
    Ok(EndpointContent { failover, preamble: text(preamble)?, also, order, sticky, cursor_bodies })
}

fn members(failover: Vec<StoredMember>) -> Result<Vec<StoredMember>, ApiError> {
    if failover.is_empty() || failover.len() > MEMBERS_MAX {
        let message =
            format!("failover must have 1 to {MEMBERS_MAX} items {{provider, model}}, in the order to try.");
        return Err(ApiError::parameter("failover", message));
    }
    for (index, StoredMember { weight, tier, first_content_timeout, .. }) in failover.iter().enumerate() {
        if weight.is_some_and(|weight| weight > WEIGHT_MAX) {
            let place = format!("failover[{index}].weight");
            return Err(ApiError::parameter(&place, format!("{place} must be from 0 to {WEIGHT_MAX}.")));
        }
        if tier.is_some_and(|tier| !(1..=TIER_MAX).contains(&tier)) {
            let place = format!("failover[{index}].tier");
            return Err(ApiError::parameter(&place, format!("{place} must be from 1 to {TIER_MAX}.")));
        }
        if first_content_timeout.is_some_and(|seconds| !(SECONDS_MIN..=SECONDS_MAX).contains(&seconds)) {
            let place = format!("failover[{index}].first_content_timeout");
            let message = format!("{place} must be from {SECONDS_MIN} to {SECONDS_MAX} seconds.");
            return Err(ApiError::parameter(&place, message));
        }
    }
    Ok(failover)
}

fn text(preamble: Option<String>) -> Result<Option<String>, ApiError> {
    match preamble {
        Some(text) if text.len() > PREAMBLE_BYTES_MAX => Err(ApiError::parameter(
            "preamble",
            format!("preamble has {} bytes; the maximum is {PREAMBLE_BYTES_MAX}.", text.len()),
        )),
        other => Ok(other.filter(|text| !text.is_empty())),
    }
}

const MEMBERS_MAX: usize = 100;
const SECONDS_MIN: f64 = 0.001;
const SECONDS_MAX: f64 = 86_400.0;
const NAMES_MAX: usize = 100;
const PREAMBLE_BYTES_MAX: usize = 64 << 10;
