//! `outbox`: deliveries of events, and the leases of external workers (ADM-5).

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use shared::clock::unix_ms;
use shared::error_kind::ErrorKind;
use shared::port::Body;

use super::list::{Containing, ListPage, PageOf, SortValue, SortedPaging};
use super::reference::NoMembers;
use super::webhooks::kinds;
use super::{ApiError, Call, Route, field, json, route_of, write_of};
use crate::db::engine::{Db, DbResult};
use crate::db::names::{Labels, object_name};
use crate::db::outbox::{self, Delivery, DeliveryFilter, DeliveryState, OutboxFigures, lease};
use crate::writer::command::outbox::{
    ClaimDeliveries, ClaimedDeliveries, EndLease, RetryDelivery, WorkerFailure,
};

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "outbox", |call| Box::pin(list(call)))
        .answers::<DeliveryPage>(
            "Lists deliveries of events, newest first, or in order of `created`, `tries` or `next_try`. Those to workers are \
             listed once a worker has claimed one, or with `to=workers`.",
        )
        .query::<DeliveryList>(),
    write_of(Method::POST, "outbox/{}/retry", |call| Box::pin(retry(call)))
        .answers::<Delivery>("Makes a delivery due at once, with ten new tries.")
        .takes::<NoMembers>(),
    route_of(Method::POST, "outbox/claim", |call| Box::pin(claim(call)))
        .answers::<ClaimedDeliveries>("Leases events to an external worker, oldest first.")
        .takes::<NewClaim>(),
    route_of(Method::POST, "outbox/{}/delivered", |call| Box::pin(delivered(call)))
        .answers::<Delivery>("Ends a lease: the event was delivered.")
        .takes::<DeliveredReport>(),
    route_of(Method::POST, "outbox/{}/failed", |call| Box::pin(failed(call)))
        .answers::<Delivery>("Ends a lease: the event was not delivered. After ten failures it is dead.")
        .takes::<FailedReport>(),
];

/// A delivery in a list.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ListedDelivery {
    #[serde(flatten)]
    delivery: Delivery,
    /// The name of the event's object, for a limit that of its subject; the ID if it has no name, null for the gateway. It is
    /// no part of the event, which receivers get as it is.
    object_name: Option<String>,
}

impl ListedDelivery {
    fn of(db: &Db, labels: &mut Labels, delivery: Delivery) -> DbResult<Self> {
        let object = delivery.event.object.as_deref();
        let object_name = object.map(|object| object_name(db, labels, object)).transpose()?;
        Ok(Self { delivery, object_name })
    }
}

/// One page of deliveries.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DeliveryPage {
    data: Vec<ListedDelivery>,
    /// The `cursor` of the next page; null on the last one.
    next_cursor: Option<String>,
    /// The numbers of unfinished deliveries, regardless of filters.
    unfinished: OutboxFigures,
}

type DeliveryList = (SortedPaging<DeliveryColumn>, DeliveryQuery, Containing);

/// The filters of a list.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DeliveryQuery {
    /// Only deliveries in this state.
    state: Option<DeliveryState>,
    /// Only events of this kind.
    kind: Option<String>,
    /// Only deliveries to this receiver: the ID of a webhook, or `workers`.
    to: Option<String>,
}

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (paging, DeliveryQuery { state, kind, to }, Containing { q: text }): DeliveryList = call.query()?;
    let page = PageOf::of(paging)?;
    let before = if page.after.is_empty() { i64::MAX } else { cursor(&page.after)? };
    let filter = DeliveryFilter { state, kind, to, text };
    let reading = call.app.readers.ask(move |db| {
        let found = outbox::page(db, &filter, before, page.rows())?;
        let (data, next_cursor) = ListPage::sorted(found, &page, |delivery| &delivery.id, value).into_parts();
        let mut labels = Labels::default();
        let named = |delivery| ListedDelivery::of(db, &mut labels, delivery);
        let data = data.into_iter().map(named).collect::<DbResult<_>>()?;
        Ok(DeliveryPage { data, next_cursor, unfinished: outbox::figures(db)? })
    });
    json(&reading.await?)
}

/// A column by which the list can be sorted.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum DeliveryColumn {
    Created,
    Tries,
    NextTry,
}

fn value(delivery: &Delivery, column: DeliveryColumn) -> Option<SortValue> {
    Some(match column {
        DeliveryColumn::Created => delivery.created_at_ms.into(),
        DeliveryColumn::Tries => u64::from(delivery.tries).into(),
        DeliveryColumn::NextTry => delivery.next_at_ms?.into(),
    })
}

fn cursor(text: &str) -> Result<i64, ApiError> {
    let parsed = text.parse().ok().filter(|id| *id > 0);
    parsed
        .ok_or_else(|| ApiError::parameter("cursor", "cursor must be the next_cursor of the previous page."))
}

async fn retry(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    call.no_fields()?;
    call.execute(StatusCode::OK, RetryDelivery { number: number(&call)? }).await
}

/// A claim of a worker.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct NewClaim {
    /// The name of the worker, 1 to 200 characters on one line; `worker` by default.
    #[serde(default)]
    worker: Option<String>,
    /// The most events to claim, from 1 to 100; 10 by default.
    #[serde(default)]
    limit: Option<u32>,
    /// The time within which the worker must report, from 1 to 3,600 seconds; 60 by default. After it, the events count
    /// as failed once more and others can claim them.
    #[serde(default)]
    lease_seconds: Option<u32>,
    /// The kinds of events; null for all.
    #[serde(default)]
    kinds: Option<Vec<String>>,
}

async fn claim(mut call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let new: NewClaim = call.json()?;
    let claim = ClaimDeliveries {
        worker: field::name("worker", new.worker.as_deref().unwrap_or("worker"))?,
        limit: within("limit", new.limit.unwrap_or(CLAIMED_DEFAULT), CLAIMED_MAX)?,
        lease_ms: u64::from(within(
            "lease_seconds",
            new.lease_seconds.unwrap_or(LEASE_SECONDS),
            LEASE_SECONDS_MAX,
        )?) * 1_000,
        kinds: new.kinds.map(kinds).transpose()?,
    };
    if let Some(answer) = call.replayed().await? {
        return Ok(answer);
    }
    // Workers ask often: an answer without events is no change, and is not audited.
    if !call.app.readers.ask(|db| lease::is_waiting(db, unix_ms())).await? {
        return json(&ClaimedDeliveries { data: Vec::new(), lease: None, lease_until_ms: None });
    }
    call.execute(StatusCode::OK, claim).await
}

/// A report of a delivered event.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct DeliveredReport {
    /// The lease of the claim.
    lease: String,
}

async fn delivered(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let DeliveredReport { lease } = call.json()?;
    let end = EndLease { number: number(&call)?, lease, failure: None };
    call.execute(StatusCode::OK, end).await
}

/// A report of a failure.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct FailedReport {
    /// The lease of the claim.
    lease: String,
    /// The reason, 1 to 200 characters on one line.
    #[serde(default)]
    error: Option<String>,
    /// The shortest pause before the next try, from 0 to 3,600 seconds.
    #[serde(default)]
    retry_after_seconds: u32,
}

async fn failed(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let FailedReport { lease, error, retry_after_seconds } = call.json()?;
    let error = field::line("error", error.as_deref().unwrap_or("The worker reported a failure."))?;
    let retry_after_ms = u64::from(retry_after_seconds.min(LEASE_SECONDS_MAX)) * 1_000;
    let failure = Some(WorkerFailure { error, retry_after_ms });
    call.execute(StatusCode::OK, EndLease { number: number(&call)?, lease, failure }).await
}

/// Returns the number of the delivery that the path names.
fn number(call: &Call<'_>) -> Result<i64, ApiError> {
    let missing = || ApiError::new(ErrorKind::NotFound, "There is no such delivery.");
    call.argument().parse().map_err(|_| missing())
}

fn within(name: &str, number: u32, max: u32) -> Result<u32, ApiError> {
    if (1..=max).contains(&number) {
        return Ok(number);
    }
    Err(ApiError::parameter(name, format!("{name} must be a number from 1 to {max}.")))
}

const CLAIMED_DEFAULT: u32 = 10;
const CLAIMED_MAX: u32 = 100;
const LEASE_SECONDS: u32 = 60;
const LEASE_SECONDS_MAX: u32 = 3_600;
