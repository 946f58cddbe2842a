//! `GET /admin/api/requests` and `requests/{request_id}`: finished exchanges, newest first (FAIL-8).

use std::time::{Duration, Instant};

use http::{Method, Response};
use jiff::tz::TimeZone;
use records::Record;
use serde::Serialize;
use shared::error_kind::ErrorKind;
use shared::port::Body;
use shared::usage::StepResult;

use super::list::{PageOf, PageRows, SortValue};
use super::query::Query;
use super::{ApiError, App, Call, Route, json, route_of};
use crate::admin::permission::Permission;
use crate::common::recorded::RecordedExchange;
use crate::db::audit::AuditEntry;
use crate::db::engine::{Db, DbResult};
use crate::db::names::OwnerNames;
use crate::usage::dimension::{CLIENT, END_USER, Marks};
use crate::usage::requests::attempts::AttemptFilter;
use crate::usage::requests::{
    Bounds, Column, NamedRequest, RequestCursor, RequestFilter, RequestRow, RequestRows, Search, add_owners,
    each, page, row,
};
use crate::writer::FLUSH_TIME_MAX;

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "requests", |call| Box::pin(list(call)))
        .answers::<RequestPage>(
            "Lists the records of finished requests without traces, newest first, or in order of `time`, `cost`, \
             `duration`, `first_token` or `tokens`.",
        )
        .query(&["limit", "cursor", "sort", "order"])
        .filters(FILTERS)
        .permits(Permission::SeeUsage),
    route_of(Method::GET, "requests/{}", |call| Box::pin(show(call)))
        .answers::<RequestRow>(
            "Shows the record of a request, with its trace; of several with its ID, the newest one.",
        )
        .query(&["started_at_ms"])
        .permits(Permission::SeeUsage),
    route_of(Method::GET, "requests/{}/exchange", |call| Box::pin(exchange(call)))
        .answers::<RecordedExchange>(
            "Shows what was captured of a request on both sides of the gateway. The audit records it.",
        ),
];

/// Returns a page of exchanges, without their traces.
async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (app, mut query) = (call.app, call.query()?);
    let wanted = PageOf::sortable(&mut query, COLUMNS)?;
    let start = Some(wanted.after.as_str()).filter(|text| !text.is_empty()).map(cursor).transpose()?;
    let filter = filter(&call, &mut query)?;
    query.finish()?;
    app.writer.flush(FLUSH_TIME_MAX).await;
    if wanted.column().is_some() {
        let time = if wanted.since_ms().is_some() { AGAIN_TIME } else { LOOKING_TIME };
        return json(&app.readers.ask(move |db| sorted(db, filter, &wanted, Instant::now() + time)).await?);
    }
    let found = app.readers.ask(move |db| {
        let rows = u32::try_from(wanted.limit).unwrap_or(u32::MAX);
        page(db, &filter, start, Bounds { rows, until: Instant::now() + LOOKING_TIME })
    });
    let RequestRows { rows, next } = found.await?;
    json(&RequestPage {
        data: rows,
        next_cursor: next.map(|next| format!("{}-{}", next.started_at_ms, next.id)),
        sorted_since_ms: None,
    })
}

/// A column by which the list can be sorted.
#[derive(Clone, Copy)]
enum RequestColumn {
    Time,
    Cost,
    Duration,
    FirstToken,
    Tokens,
}

const COLUMNS: &[(&str, RequestColumn)] = &[
    ("time", RequestColumn::Time),
    ("cost", RequestColumn::Cost),
    ("duration", RequestColumn::Duration),
    ("first_token", RequestColumn::FirstToken),
    ("tokens", RequestColumn::Tokens),
];

/// Returns a page of exchanges that are sorted by a column. A page that stops for lack of time sets the time since which
/// exchanges are in the list, and later pages keep to it.
fn sorted(
    db: &Db,
    filter: RequestFilter,
    page: &PageOf<RequestColumn>,
    until: Instant,
) -> DbResult<RequestPage> {
    let filter = RequestFilter { from_ms: page.since_ms().or(filter.from_ms), ..filter };
    let mut found = PageRows::new(page);
    let stopped_ms = each(db, &filter, until, |place, record, trace| {
        let value = page.column().and_then(|column| value(record, column));
        let id = sort_text(place);
        found.add_with(value, id, || RequestRow::of(record, OwnerNames::default(), trace));
    })?;
    let since_ms = stopped_ms.or_else(|| page.since_ms());
    let (mut data, next_cursor) = found.page_since(since_ms).into_parts();
    data.retain(|row| since_ms.is_none_or(|since_ms| since_ms <= row.started_at_ms));
    add_owners(db, &mut data)?;
    Ok(RequestPage { data, next_cursor, sorted_since_ms: since_ms })
}

/// Returns a text that sorts as the places of exchanges do. Ids that are longer than those of a few nodes follow all others.
fn sort_text(place: RequestCursor) -> String {
    let RequestCursor { started_at_ms, id } = place;
    if id < SHORT_IDS {
        format!("{started_at_ms:015}-{id:020}")
    } else {
        format!("{started_at_ms:015}-~{id:026}")
    }
}

fn value(record: &Record<'_>, column: RequestColumn) -> Option<SortValue> {
    match column {
        RequestColumn::Time => Some(record.started_at_ms.into()),
        RequestColumn::Cost => record.cost_nano_usd.map(SortValue::from),
        RequestColumn::Duration => Some(record.duration_us.into()),
        RequestColumn::FirstToken => record.first_content_us.map(SortValue::from),
        RequestColumn::Tokens => Some(record.tokens.total().into()),
    }
}

/// The parameters that [`filter`] takes.
pub(crate) const FILTERS: &[&str] = &[
    "from",
    "to",
    "model",
    "provider",
    "endpoint",
    "key",
    "project",
    "principal",
    "operation",
    "outcome",
    "tag.NAME",
    "end_user",
    "status",
    "error",
    "request_id_prefix",
    "duration_us_min",
    "cost_micro_usd_min",
    "cost_micro_usd_max",
    "status_class",
    "failed",
    "failed_over",
    "attempted",
    "result",
    "first_content_us_min",
    "client",
    "session",
    "q",
];

/// Takes the filters from a query.
pub(crate) fn filter(call: &Call<'_>, query: &mut Query) -> Result<RequestFilter, ApiError> {
    filter_in(call, query, &TimeZone::UTC)
}

/// Takes the filters from a query whose dates are those of a time zone.
pub(super) fn filter_in(
    call: &Call<'_>,
    query: &mut Query,
    zone: &TimeZone,
) -> Result<RequestFilter, ApiError> {
    let app = call.app;
    let nano = |micro: u64| micro.saturating_mul(1_000);
    let (from_ms, to_ms) = query.span_in(zone)?;
    Ok(RequestFilter {
        from_ms,
        to_ms,
        status: query.number("status", 100, 999)?,
        names: names(query),
        marks: marks(app, query)?,
        error: query.text("error"),
        request_id_prefix: query.text("request_id_prefix"),
        duration_us_min: query.number("duration_us_min", 0, u64::MAX)?,
        cost_min: query.number("cost_micro_usd_min", 0, u64::MAX)?.map(nano),
        cost_max: query.number("cost_micro_usd_max", 0, u64::MAX)?.map(nano),
        status_class: query.number("status_class", 1, 9)?,
        is_failed: query.choice("failed", &BOOLEAN)?,
        first_content_us_min: query.number("first_content_us_min", 0, u64::MAX)?,
        sessions: sessions(app, query),
        attempts: AttemptFilter {
            failed_over: query.choice("failed_over", &BOOLEAN)?,
            attempted: query.text("attempted"),
            result: query.choice("result", &StepResult::ALL.map(|result| (result.name(), result)))?,
        },
        search: query.text("q").map(Search::new),
        scope: call.usage_scope(),
    })
}

/// Takes the filter by session, given by name or by pseudonym.
fn sessions(app: &App, query: &mut Query) -> Vec<String> {
    let pseudonym = |name: &str| app.snapshot.load().key_hasher.session(name).into_string();
    query.text("session").map(|name| vec![pseudonym(&name), name]).unwrap_or_default()
}

const BOOLEAN: [(&str, bool); 2] = [("true", true), ("false", false)];

/// Returns the newest exchange with this id that the caller may see, or that of a time, including its trace.
async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (app, mut query) = (call.app, call.query()?);
    let wanted = NamedRequest {
        request_id: call.argument().to_owned(),
        started_at_ms: query.number("started_at_ms", 0, u64::MAX)?,
        scope: call.usage_scope(),
    };
    query.finish()?;
    app.writer.flush(FLUSH_TIME_MAX).await;
    let found: Option<RequestRow> = app.readers.ask(move |db| row(db, &wanted)).await?;
    let found =
        found.ok_or_else(|| ApiError::new(ErrorKind::NotFound, "There is no record of this request."))?;
    match call.standing.human() {
        Some(_) => json(&found.without_private_targets()),
        None => json(&found),
    }
}

/// Returns the captured exchange of a request, and records that it was read.
async fn exchange(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let id = call.argument();
    let found = call.app.telemetry.find(id.to_owned()).await;
    let exchange = found.ok_or_else(|| {
        let is_on = call.app.config.logging.bodies;
        ApiError::new(ErrorKind::NotFound, if is_on { NO_LONGER_CAPTURED } else { NOT_CAPTURED })
    })?;
    call.record(AuditEntry::done("request.exchange", "request", id)).await?;
    json(&exchange)
}

const NOT_CAPTURED: &str = "This request was not captured. To capture the requests that follow, set \
                            LLMGW_LOG_REQUEST_BODIES=true and restart the gateway.";
const NO_LONGER_CAPTURED: &str = "There is no captured exchange with this request ID. An exchange is stored when it has ended, and kept \
                                  for 24 hours at most. Requests from the console are not captured.";

/// Takes the filters by column that are present.
pub(crate) fn names(query: &mut Query) -> Vec<(Column, String)> {
    Column::ALL.iter().filter_map(|column| Some((*column, query.text(column.name())?))).collect()
}

/// Takes the filters by tag (`tag.NAME=VALUE`), by end user, given by name or by pseudonym, and by client.
pub(crate) fn marks(app: &App, query: &mut Query) -> Result<Marks, ApiError> {
    let tags = query.with_prefix("tag.");
    if tags.iter().any(|(name, _)| name.is_empty()) {
        return Err(ApiError::parameter("tag.", "A filter by tag must be tag.NAME=VALUE."));
    }
    let pseudonym = |name: &str| app.snapshot.load().key_hasher.pseudonym(name).into_string();
    let end_users = query.text(END_USER).map(|name| vec![pseudonym(&name), name]);
    Ok(Marks { tags, end_users: end_users.unwrap_or_default(), client: query.text(CLIENT) })
}

/// Ids with 20 digits at most.
const SHORT_IDS: u128 = 100_000_000_000_000_000_000;

fn cursor(text: &str) -> Result<RequestCursor, ApiError> {
    let parsed = text.split_once('-').and_then(|(started_at_ms, id)| {
        Some(RequestCursor { started_at_ms: started_at_ms.parse().ok()?, id: id.parse().ok()? })
    });
    parsed
        .ok_or_else(|| ApiError::parameter("cursor", "cursor must be the next_cursor of the previous page."))
}

/// A page of requests.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "RequestRecordPage"))]
struct RequestPage {
    data: Vec<RequestRow>,
    /// The `cursor` of the next page; null on the last one. A page without rows that has one stopped for time.
    next_cursor: Option<String>,
    /// The time since which requests are in a sorted list, in milliseconds since the Unix epoch, if reading older ones
    /// would take too long; null if none are left out.
    sorted_since_ms: Option<u64>,
}

/// A page that is not full after this time returns a cursor to continue from.
const LOOKING_TIME: Duration = Duration::from_secs(1);
/// The time to read what the first page of a sorted list has read in [`LOOKING_TIME`].
const AGAIN_TIME: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::usage::{UsageEvent, UsageLog as _};

    use super::*;
    use crate::usage::tests::{Process, event};

    /// Returns the costs on a page that is sorted by cost and read until `until`, and the page.
    fn dearest(db: &Db, query: &str, until: Instant) -> (Vec<f64>, Value) {
        let mut query = Query::parse(&format!("sort=cost&limit=2{query}")).unwrap();
        let page = PageOf::sortable(&mut query, COLUMNS).unwrap();
        let found = json!(sorted(db, RequestFilter::default(), &page, until).unwrap());
        let cost = |row: &Value| row["cost_micro_usd"].as_f64().unwrap();
        (found["data"].as_array().unwrap().iter().map(cost).collect(), found)
    }

    #[test]
    fn a_sorted_list_that_stops_early_says_since_when_it_is_sorted_and_keeps_to_it() {
        let home = tempfile::TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let mut log = process.journal.log().unwrap();
        // Each round makes a block of its own; the oldest requests are the dearest.
        for n in 0..12 {
            log.append(&UsageEvent { cost_nano_usd: Some((12 - n) * 1_000), ..event(n) });
            if n % 3 == 2 {
                process.settle();
                // The next round begins another block.
                process.meter.usage_mut();
            }
        }
        let db = process.meter.db_mut();
        let (past, far) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        let (costs, whole) = dearest(db, "", far);
        assert_eq!((costs, &whole["sorted_since_ms"]), (vec![12.0, 11.0], &Value::Null));
        let (costs, early) = dearest(db, "", past);
        assert_eq!(costs, [3.0, 2.0], "only the newest block was read");
        let since_ms = early["sorted_since_ms"].as_u64().unwrap();
        assert!(since_ms <= event(9).started_at_ms && since_ms > event(8).started_at_ms, "{early}");
        let next = format!("&cursor={}", early["next_cursor"].as_str().unwrap());
        let (costs, rest) = dearest(db, &next, far);
        assert_eq!((costs, &rest["sorted_since_ms"]), (vec![1.0], &early["sorted_since_ms"]));
        assert_eq!(rest["next_cursor"], Value::Null);
    }
}
