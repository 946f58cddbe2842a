//! `GET /admin/api/requests` and `requests/{request_id}`: finished exchanges, newest first (FAIL-8).

use std::time::{Duration, Instant};

use http::{Method, Response};
use records::Record;
use serde::{Deserialize, Serialize};
use shared::error_kind::ErrorKind;
use shared::id::CredentialNumber;
use shared::port::Body;
use shared::usage::{ChosenBy, StepResult};

use super::list::{PageOf, PageRows, SortValue, SortedPaging};
use super::query::{Count, Number, Span};
use super::{ApiError, App, Call, Route, json, route_of};
use crate::admin::permission::Permission;
use crate::cluster::board::{NodeBoard, NodeQuestion, Replies, last_heard};
use crate::common::recorded::RecordedExchange;
use crate::db::audit::AuditEntry;
use crate::db::cluster::nodes::{NodeRow, NodeStanding};
use crate::db::engine::{Db, DbResult};
use crate::db::names::OwnerNames;
use crate::usage::dimension::Marks;
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
        .query::<(SortedPaging<RequestColumn>, RequestQuery)>()
        .permits(Permission::SeeUsage),
    route_of(Method::GET, "requests/{}", |call| Box::pin(show(call)))
        .answers::<RequestRow>(
            "Shows the record of a request, with its trace; of several with its ID, the newest one.",
        )
        .query::<NamedQuery>()
        .permits(Permission::SeeUsage),
    route_of(Method::GET, "requests/{}/exchange", |call| Box::pin(exchange(call)))
        .answers::<RecordedExchange>(
            "Shows what was captured of a request on both sides of the gateway. The audit records it.",
        ),
];

/// Returns a page of exchanges, without their traces.
async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let app = call.app;
    let (paging, query): (SortedPaging<RequestColumn>, RequestQuery) = call.query()?;
    let wanted = PageOf::of(paging)?;
    let start = Some(wanted.after.as_str()).filter(|text| !text.is_empty()).map(cursor).transpose()?;
    let filter = filter(&call, query)?;
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
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum RequestColumn {
    Time,
    Cost,
    Duration,
    FirstToken,
    Tokens,
}

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

/// The time and the filters of requests.
pub(crate) type RequestQuery = (Span, RequestFilters);

/// The filters of requests.
pub(crate) type RequestFilters = (ColumnQuery, MarkQuery, RecordQuery);

/// The filters by what the sums of usage contain.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ColumnQuery {
    /// Only those of this model, by its ID at the provider.
    model: Option<String>,
    /// Only those of this provider, by ID.
    provider: Option<String>,
    /// Only requests to this endpoint.
    endpoint: Option<String>,
    /// Only those of this key, by ID.
    key: Option<String>,
    /// Only those of this project, by ID.
    project: Option<String>,
    /// Only those of this human, by ID.
    principal: Option<String>,
    /// Only requests of this operation.
    operation: Option<String>,
    /// Only requests with this outcome.
    outcome: Option<String>,
}

/// The filters by what clients say about their requests.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct MarkQuery {
    /// Only requests with these tags: `tag.team=search` for the tag `team` with the value `search`.
    #[serde(rename = "tag.NAME")]
    #[cfg_attr(test, schemars(with = "Option<std::collections::BTreeMap<String, String>>"))]
    tags: Vec<(String, String)>,
    /// Only requests of this end user, by name or pseudonym.
    end_user: Option<String>,
    /// Only requests of this client, such as an SDK or agent.
    client: Option<String>,
}

/// The filters by what only records contain.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RecordQuery {
    /// Only requests that were answered with this status.
    status: Option<Number<100, 999>>,
    /// Only requests with this error code.
    error: Option<String>,
    /// The beginning of the request ID.
    request_id_prefix: Option<String>,
    /// Only requests that took at least so many microseconds.
    duration_us_min: Option<Count>,
    /// Only requests that cost at least so many micro-dollars.
    cost_micro_usd_min: Option<Count>,
    /// Only requests that cost at most so many micro-dollars.
    cost_micro_usd_max: Option<Count>,
    /// Only requests whose status begins with this digit.
    status_class: Option<Number<1, 9>>,
    /// Only requests that failed, or only those that did not.
    failed: Option<bool>,
    /// Only requests that another target answered than the first one, or only the others.
    failed_over: Option<bool>,
    /// Only requests with an attempt at this provider, by ID.
    attempted: Option<String>,
    /// Only requests with an attempt with this one of several keys of a provider, such as `c2`: of the provider `attempted`, if
    /// that is given.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    credential: Option<CredentialNumber>,
    /// Only requests with an attempt that ended so.
    #[cfg_attr(test, schemars(with = "Option<crate::common::shared_shapes::StepResult>"))]
    result: Option<StepResult>,
    /// Only requests whose first content took at least so many microseconds.
    first_content_us_min: Option<Count>,
    /// Only requests whose first target came first for this reason.
    #[cfg_attr(test, schemars(with = "Option<crate::common::shared_shapes::ChosenBy>"))]
    chosen_by: Option<ChosenBy>,
    /// Only requests of this session, by name or pseudonym.
    session: Option<String>,
    /// A part of the name, in any case.
    q: Option<String>,
}

/// Returns the filter of a query.
pub(crate) fn filter(call: &Call<'_>, (span, filters): RequestQuery) -> Result<RequestFilter, ApiError> {
    filter_in(call, span.ms()?, filters)
}

/// Returns the filter of a query about a time.
pub(super) fn filter_in(
    call: &Call<'_>,
    (from_ms, to_ms): (Option<u64>, Option<u64>),
    (columns, marks, query): RequestFilters,
) -> Result<RequestFilter, ApiError> {
    let app = call.app;
    let nano = |micro: Count| micro.0.saturating_mul(1_000);
    let status = |number: u64| u16::try_from(number).unwrap_or(u16::MAX);
    Ok(RequestFilter {
        from_ms,
        to_ms,
        status: query.status.map(|number| status(number.0)),
        names: columns.names(),
        marks: marks.marks(app)?,
        error: query.error,
        request_id_prefix: query.request_id_prefix,
        duration_us_min: query.duration_us_min.map(|min| min.0),
        cost_min: query.cost_micro_usd_min.map(nano),
        cost_max: query.cost_micro_usd_max.map(nano),
        status_class: query.status_class.map(|number| status(number.0)),
        is_failed: query.failed,
        first_content_us_min: query.first_content_us_min.map(|min| min.0),
        chosen_by: query.chosen_by,
        sessions: query.session.map_or_else(Vec::new, |name| sessions(app, name)),
        attempts: AttemptFilter {
            failed_over: query.failed_over,
            attempted: query.attempted,
            credential: query.credential,
            result: query.result,
        },
        search: query.q.map(Search::new),
        scope: call.usage_scope(),
    })
}

/// Returns the values of a session, given by name or by pseudonym.
fn sessions(app: &App, name: String) -> Vec<String> {
    vec![app.snapshot.load().key_hasher.session(&name).into_string(), name]
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NamedQuery {
    /// The start of the request, in milliseconds since the Unix epoch, if several have its ID.
    started_at_ms: Option<Count>,
}

/// Returns the newest exchange with this id that the caller may see, or that of a time, including its trace.
async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (app, NamedQuery { started_at_ms }) = (call.app, call.query()?);
    let wanted = NamedRequest {
        request_id: call.argument().to_owned(),
        started_at_ms: started_at_ms.map(|at| at.0),
        scope: call.usage_scope(),
    };
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
    let exchange = match (call.app.telemetry.find(id.to_owned()).await, call.app.board()) {
        (Some(exchange), _) => exchange,
        (None, Some(board)) => exchange_elsewhere(&call, board).await?,
        (None, None) => return Err(not_captured(&call)),
    };
    call.record(AuditEntry::done("request.exchange", "request", id)).await?;
    json(&exchange)
}

/// Returns the captured exchange that another node keeps.
async fn exchange_elsewhere(call: &Call<'_>, board: &NodeBoard) -> Result<RecordedExchange, ApiError> {
    let request_id = call.argument().to_owned();
    let question = NodeQuestion::Exchange { request_id: request_id.clone() };
    let Replies { found, silent } = board.ask(&question).await?;
    if let Some((_, exchange)) = found {
        return serde_json::from_slice(exchange.expose()).map_err(|_| other_release());
    }
    let wanted = NamedRequest::newest(request_id);
    let holder = call.app.readers.ask(move |db| Ok(row(db, &wanted)?.and_then(|row| row.node))).await?;
    let all = board.all_nodes().await?;
    let is_away = |row: &&NodeRow| row.node.number() != board.me().node && row.standing != NodeStanding::Live;
    let away =
        holder.and_then(|holder| all.iter().filter(is_away).find(|row| row.node.number() == holder.node));
    match (away, silent.as_slice()) {
        (Some(node), _) => Err(kept_by(&last_heard(node))),
        (None, []) => Err(not_captured(call)),
        (None, silent) => Err(kept_by(&silent.iter().map(last_heard).collect::<Vec<_>>().join(", or by "))),
    }
}

fn not_captured(call: &Call<'_>) -> ApiError {
    let is_on = call.app.config.logging.bodies;
    ApiError::new(ErrorKind::NotFound, if is_on { NO_LONGER_CAPTURED } else { NOT_CAPTURED })
}

/// The exchange cannot be read now, because the node that keeps it does not answer.
fn kept_by(node: &str) -> ApiError {
    let message = format!("The exchange is kept by {node}. Retry when it serves again.");
    ApiError::new(ErrorKind::Overloaded, message).retry_after(RETRY_SECONDS)
}

/// The answer of another node cannot be read.
pub(super) fn other_release() -> ApiError {
    let message =
        "Another node keeps the exchange, and its release writes it in another form. Ask that node.";
    ApiError::new(ErrorKind::Conflict, message)
}

const RETRY_SECONDS: u64 = 5;
const NOT_CAPTURED: &str = "This request was not captured. To capture the requests that follow, set \
                            LLMGW_LOG_REQUEST_BODIES=true and restart the gateway.";
const NO_LONGER_CAPTURED: &str = "There is no captured exchange with this request ID. An exchange is stored when it has ended, and kept \
                                  for 24 hours at most. Requests from the console are not captured.";

impl ColumnQuery {
    /// Returns the filters that are present.
    pub(crate) fn names(self) -> Vec<(Column, String)> {
        let named = [
            (Column::Model, self.model),
            (Column::Provider, self.provider),
            (Column::Endpoint, self.endpoint),
            (Column::Key, self.key),
            (Column::Project, self.project),
            (Column::Principal, self.principal),
            (Column::Operation, self.operation),
            (Column::Outcome, self.outcome),
        ];
        named.into_iter().filter_map(|(column, name)| Some((column, name?))).collect()
    }
}

impl MarkQuery {
    /// Returns the filters by tag, by end user, given by name or by pseudonym, and by client.
    pub(crate) fn marks(self, app: &App) -> Result<Marks, ApiError> {
        if self.tags.iter().any(|(name, _)| name.is_empty()) {
            return Err(ApiError::parameter("tag.", "A filter by tag must be tag.NAME=VALUE."));
        }
        let pseudonym = |name: &str| app.snapshot.load().key_hasher.pseudonym(name).into_string();
        let end_users = self.end_user.map(|name| vec![pseudonym(&name), name]);
        Ok(Marks { tags: self.tags, end_users: end_users.unwrap_or_default(), client: self.client })
    }
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
    use crate::admin::query::Query;
    use crate::usage::tests::{Process, event};

    /// Returns the costs on a page that is sorted by cost and read until `until`, and the page.
    fn dearest(db: &Db, query: &str, until: Instant) -> (Vec<f64>, Value) {
        let query = Query::parse(&format!("sort=cost&limit=2{query}")).unwrap();
        let page = PageOf::of(query.take_all().unwrap()).unwrap();
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
