//! `GET /admin/api/usage`: sums over a time, in total or by group and time bucket.

mod csv;
pub(crate) mod export;
mod reprice;

use std::collections::BTreeMap;

use http::{Method, Response};
use serde::Serialize;
use shared::clock::unix_ms;
use shared::port::Body;

use super::query::{Query, choose};
use super::requests::{FLUSH_TIME_MAX, names};
use super::{ApiError, Call, Route, json, route_of};
use crate::money::MicroUsd;
use crate::store::report::{GROUPS_MAX, Question, sums};
use crate::store::requests::Column;
use crate::store::sums::Sums;
use crate::store::window::Bucket;

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "usage", |call| Box::pin(report(call))),
    route_of(Method::GET, "usage/export", |call| Box::pin(export::export(call))),
    route_of(Method::POST, "usage/reprice", |call| Box::pin(reprice::reprice(call))),
];

/// Sums of the exchanges that began from `from` up to before `to`.
async fn report(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (app, mut query) = (call.app, call.query()?);
    let (from_ms, to_ms) = query.span()?;
    let from_ms = from_ms.unwrap_or(0);
    let to_ms = to_ms.unwrap_or_else(|| unix_ms().saturating_add(1));
    if from_ms > to_ms {
        return Err(ApiError::parameter("from", "from must not be after to."));
    }
    let bucket = query.choice("bucket", BUCKETS)?;
    let group_by = group_by(&mut query)?;
    let filters = names(&mut query);
    query.finish()?;
    app.scribe.flush(FLUSH_TIME_MAX).await;
    let question = Question { from_ms, to_ms, bucket, group_by: group_by.clone(), filters };
    let mut lines = app.readers.ask(move |db| sums(db, &question)).await?;
    if lines.len() > GROUPS_MAX {
        return Err(ApiError::parameter(
            "group_by",
            format!("The answer has more than {GROUPS_MAX} lines; ask for a shorter time or fewer groups."),
        ));
    }
    let mut totals = Sums::default();
    lines.iter().for_each(|line| totals.add(&line.sums));
    if bucket.is_none() && group_by.is_empty() {
        // The only line is the totals.
        lines.clear();
    }
    let data = lines.into_iter().map(|line| Line {
        bucket_start_ms: line.bucket_start_ms,
        group: group_by.iter().map(Column::name).zip(line.group).collect(),
        figures: Figures::of(line.sums),
    });
    json(&Answer { from_ms, to_ms, totals: Figures::of(totals), data: data.collect(), next_cursor: None })
}

fn group_by(query: &mut Query) -> Result<Vec<Column>, ApiError> {
    let text = query.text("group_by").unwrap_or_default();
    let choices: Vec<(&str, Column)> = Column::ALL.iter().map(|column| (column.name(), *column)).collect();
    let mut columns = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let column = choose("group_by", name, &choices)?;
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    Ok(columns)
}

#[derive(Serialize)]
struct Answer {
    from_ms: u64,
    to_ms: u64,
    totals: Figures,
    data: Vec<Line>,
    /// An answer is never cut into pages; too many groups are refused.
    next_cursor: Option<String>,
}

#[derive(Serialize)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    bucket_start_ms: Option<u64>,
    /// The names of the group; null where an exchange has none.
    group: BTreeMap<&'static str, Option<String>>,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Serialize)]
struct Figures {
    requests: u64,
    /// Of those, the ones whose cost is not known and not in the sum.
    requests_unpriced: u64,
    cost_micro_usd: MicroUsd,
    tokens: Tokens,
    duration_us_avg: Option<u64>,
    first_content_us_avg: Option<u64>,
}

#[derive(Serialize)]
struct Tokens {
    input: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
    reasoning: u64,
    total: u64,
}

impl Figures {
    fn of(sums: Sums) -> Self {
        let classes = [sums.input, sums.cache_read, sums.cache_write, sums.output, sums.reasoning];
        Self {
            requests: sums.requests,
            requests_unpriced: sums.unpriced,
            cost_micro_usd: MicroUsd(sums.cost_nano_usd),
            tokens: Tokens {
                input: sums.input,
                cache_read: sums.cache_read,
                cache_write: sums.cache_write,
                output: sums.output,
                reasoning: sums.reasoning,
                total: classes.into_iter().fold(0, u64::saturating_add),
            },
            duration_us_avg: sums.duration_us.checked_div(sums.requests),
            first_content_us_avg: sums.first_content_us.checked_div(sums.first_contents),
        }
    }
}

const BUCKETS: &[(&str, Bucket)] = &[("hour", Bucket::Hour), ("day", Bucket::Day), ("month", Bucket::Month)];
