//! `POST /admin/api/usage/reprice`: recomputes the cost of recorded exchanges with the prices in force when they
//! started, or with prices from the body. Idempotent. It runs in short steps, so that records and administrators wait
//! a few milliseconds at most; if it takes too long, the response contains a cursor to continue from.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Response, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shared::port::Body;
use shared::prices::Prices;

use crate::admin::field::any_moment;
use crate::admin::{ApiError, App, Call, dry_run};
use crate::common::money::MicroUsd;
use crate::db::audit::AuditEntry;
use crate::db::engine::Db;
use crate::db::overrides;
use crate::db::record_id::RecordId;
use crate::routing::catalog::facts::Priced;
use crate::routing::catalog::history::History;
use crate::routing::publish::Touched;
use crate::usage::reprice::{Repriced, RepricedRequest, Repricing, RowTime};
use crate::writer::FLUSH_TIME_MAX;
use crate::writer::command::Done;
use crate::writer::command::audit_only::AuditOnly;

/// The requests to reprice.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RepriceRequest {
    /// A time: milliseconds since the Unix epoch, or RFC 3339.
    from: Value,
    /// A time: milliseconds since the Unix epoch, or RFC 3339. Exclusive.
    to: Value,
    /// Only exchanges of this provider.
    #[serde(default)]
    provider: Option<String>,
    /// Only exchanges of this model.
    #[serde(default)]
    model: Option<String>,
    /// Prices to use instead of the known ones; for one model of one provider.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Option<crate::common::shared_shapes::Prices>"))]
    prices: Option<Prices>,
    /// The cursor of an earlier response.
    #[serde(default)]
    cursor: Option<String>,
}

/// The result of repricing.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Repriced"))]
pub(super) struct RepriceAnswer {
    /// Exchanges that were examined.
    records: u64,
    /// Exchanges whose cost or label changed.
    changed: u64,
    /// Exchanges whose cost is still unknown.
    unpriced: u64,
    cost_micro_usd_before: MicroUsd,
    cost_micro_usd: MicroUsd,
    /// Exchanges that were changed, by their price label before and after.
    prices: Vec<LabelChange>,
    /// The first exchanges that were changed, at most 100.
    requests: Vec<RequestChange>,
    /// The `cursor` to continue from; null when finished.
    next_cursor: Option<String>,
}

/// Exchanges with the same change of their price label.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LabelChange {
    /// Null if the prices were unknown.
    before: Option<String>,
    /// Null if the prices are unknown.
    after: Option<String>,
    records: u64,
}

/// An exchange whose cost or label changed.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RequestChange {
    request_id: String,
    /// In milliseconds since the Unix epoch.
    started_at_ms: u64,
    /// The ID of the provider.
    provider: String,
    model: String,
    /// With the cost of its failed attempts; null if it was unknown.
    cost_micro_usd_before: Option<MicroUsd>,
    /// With the cost of its failed attempts; null if it is unknown.
    cost_micro_usd: Option<MicroUsd>,
}

impl From<RepricedRequest> for RequestChange {
    fn from(changed: RepricedRequest) -> Self {
        let RepricedRequest { request_id, started_at_ms, provider, model, cost_before, cost_after } = changed;
        let (cost_micro_usd_before, cost_micro_usd) = (cost_before.map(MicroUsd), cost_after.map(MicroUsd));
        Self { request_id, started_at_ms, provider, model, cost_micro_usd_before, cost_micro_usd }
    }
}

pub(super) async fn reprice(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let body: RepriceRequest = call.json()?;
    let mut repricing = repricing(call.app, &body).await?;
    call.app.writer.flush(FLUSH_TIME_MAX).await;
    if call.dry_run {
        return preview(call.app, repricing).await;
    }
    let mut audited = json!({
        "from_ms": repricing.from_ms,
        "to_ms": repricing.to_ms,
        "provider": repricing.provider,
        "model": repricing.model,
        "price": given(&body, &repricing),
    });
    // Audit the intent first, so that it is recorded even if the process dies halfway.
    call.record(AuditEntry::done("usage.reprice", "usage", "").after(audited.clone())).await?;
    let until = Instant::now() + ANSWER_TIME;
    let mut done = Repriced::default();
    let next_cursor = loop {
        let step = move |db: &mut Db| {
            let finished = repricing.step(db, &mut done, Instant::now() + STEP)?;
            Ok((repricing, done, finished))
        };
        let finished;
        (repricing, done, finished) = call.app.writer.run_on_usage(step).await?;
        if finished {
            break None;
        }
        if Instant::now() >= until {
            break Some(cursor_of(repricing.after));
        }
        tokio::time::sleep(BETWEEN_STEPS).await;
    };
    let answer = RepriceAnswer::of(done, next_cursor);
    if let (Some(audited), Ok(Value::Object(figures))) =
        (audited.as_object_mut(), serde_json::to_value(&answer))
    {
        audited.extend(figures);
        audited.remove("requests");
    }
    let audit = AuditEntry::done("usage.repriced", "usage", "").after(audited);
    call.execute(StatusCode::OK, AuditOnly(Done::new(&answer, audit, Touched::NOTHING)?)).await
}

/// Answers with what a repricing would change.
async fn preview(app: &App, mut repricing: Repricing) -> Result<Response<Body>, ApiError> {
    let until = Instant::now() + ANSWER_TIME;
    let mut done = Repriced::default();
    let next_cursor = loop {
        let step = move |db: &Db| {
            let finished = repricing.preview(db, &mut done, Instant::now() + PREVIEW_STEP)?;
            Ok((repricing, done, finished))
        };
        let finished;
        (repricing, done, finished) = app.readers.ask(step).await?;
        if finished {
            break None;
        }
        if Instant::now() >= until {
            break Some(cursor_of(repricing.after));
        }
    };
    dry_run::without_effects(&RepriceAnswer::of(done, next_cursor))
}

async fn repricing(app: &App, body: &RepriceRequest) -> Result<Repricing, ApiError> {
    let (from_ms, to_ms) = (any_moment("from", &body.from)?, any_moment("to", &body.to)?);
    if from_ms > to_ms {
        return Err(ApiError::parameter("from", "from must not be after to."));
    }
    let after = body.cursor.as_deref().map_or_else(|| Some(RowTime::default()), row_of);
    let after = after.ok_or_else(|| ApiError::parameter("cursor", BAD_CURSOR))?;
    let (provider, model) = (body.provider.clone(), body.model.clone());
    let prices = Arc::new(prices(app, body).await?);
    let counters = Arc::clone(&app.counters);
    Ok(Repricing { from_ms, to_ms, provider, model, prices, counters, after })
}

fn cursor_of(row: RowTime) -> String {
    format!("{}-{}", row.last_ms, row.id)
}

fn row_of(cursor: &str) -> Option<RowTime> {
    let (last_ms, id) = cursor.split_once('-')?;
    Some(RowTime { last_ms: last_ms.parse().ok()?, id: RecordId::of_stored(id.parse().ok()?)? })
}

const BAD_CURSOR: &str = "cursor must be the next_cursor of an earlier response. Those of releases that went through the records \
                          in another order are not valid any more: start again without a cursor; what is repriced already stays.";

/// Returns the history of known prices, or the prices from the body.
async fn prices(app: &App, body: &RepriceRequest) -> Result<History, ApiError> {
    let Some(given) = &body.prices else {
        let overrides = app.readers.ask(overrides::all).await?;
        return Ok(History::new(&app.catalog.known(), overrides));
    };
    let (Some(provider), Some(model)) = (&body.provider, &body.model) else {
        let message = "prices apply to one model: send provider and model too.";
        return Err(ApiError::parameter("prices", message));
    };
    let prices = given.clone().by_operator();
    let label = prices.label(&format!("given {}", Timestamp::now().strftime("%F")));
    Ok(History::of_one(provider, model, Priced { prices, label }))
}

/// Returns the label of the prices in the body.
fn given(body: &RepriceRequest, repricing: &Repricing) -> Option<String> {
    body.prices.as_ref()?;
    let priced = repricing.prices.at(body.provider.as_ref()?, body.model.as_ref()?, repricing.from_ms);
    priced.map(|(_, label)| label.to_owned())
}

impl RepriceAnswer {
    fn of(done: Repriced, next_cursor: Option<String>) -> Self {
        let known = |label: String| Some(label).filter(|label| !label.is_empty());
        let change =
            |((before, after), records)| LabelChange { before: known(before), after: known(after), records };
        Self {
            records: done.records,
            changed: done.changed,
            unpriced: done.unpriced,
            cost_micro_usd_before: MicroUsd(done.cost_before),
            cost_micro_usd: MicroUsd(done.cost_after),
            prices: done.labels.into_iter().map(change).collect(),
            requests: done.requests.into_iter().map(RequestChange::from).collect(),
            next_cursor,
        }
    }
}

/// The maximum time for which one step holds the writer.
const STEP: Duration = Duration::from_millis(5);
/// The maximum time for which one step of a preview keeps other queries from a reading thread.
const PREVIEW_STEP: Duration = Duration::from_millis(50);
const BETWEEN_STEPS: Duration = Duration::from_millis(2);
const ANSWER_TIME: Duration = Duration::from_secs(20);
