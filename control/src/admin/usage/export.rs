//! `GET /admin/api/usage/export`: all exchanges that match the filters, as CSV or JSON Lines. The export reads over
//! its own connection at the pace of the client, in bounded memory, and ends when the client disconnects.

use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderValue, Response};
use records::{Record, Trace, rare_fields};
use serde::{Deserialize, Serialize};
use shared::port::Body;

use super::charge::{Charge, ChargeQuery};
use super::csv;
use crate::admin::requests::{RequestQuery, filter};
use crate::admin::shares::{CallerShare, CallerShares, ShareBound};
use crate::admin::stream::{self, Feed};
use crate::admin::{ApiError, Call};
use crate::common::bounds;
use crate::db::engine::{Db, DbError, DbResult};
use crate::db::error::QueryError;
use crate::db::names::{Labels, OwnerNames};
use crate::db::storage::Storage;
use crate::usage::export::Progress;
use crate::usage::requests::RequestRow;
use crate::writer::FLUSH_TIME_MAX;

/// The database that exports read, and the limit on concurrent exports.
#[derive(Debug)]
pub(crate) struct Exports {
    pub(crate) storage: Storage,
    shares: CallerShares,
}

impl Exports {
    /// Exports of the usage in this database.
    pub(crate) fn new(storage: Storage) -> Self {
        Self { storage, shares: CallerShares::new(EXPORTS) }
    }
}

/// The output format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum ExportFormat {
    Csv,
    #[serde(rename = "jsonl")]
    JsonLines,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ExportQuery {
    /// The format of the file. CSV if absent.
    format: Option<ExportFormat>,
}

pub(super) type ExportList = (ExportQuery, ChargeQuery, RequestQuery);

pub(super) async fn export(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let app = call.app;
    let (ExportQuery { format }, charge, query): ExportList = call.query()?;
    let format = format.unwrap_or(ExportFormat::Csv);
    let (charge, filter) = (Charge::of(charge)?, filter(&call, query)?);
    let share = app.exports.shares.take(&call.actor.who)?;
    app.writer.flush(FLUSH_TIME_MAX).await;
    let storage = app.exports.storage.clone();
    // A session blocks the thread that uses it.
    let begun = tokio::task::spawn_blocking(move || {
        let db = storage.reader()?;
        let progress = Progress::start(&db, &filter)?;
        Ok::<_, DbError>((db, progress))
    });
    let (db, progress) = begun.await.map_err(|_| QueryError::Stopping)?.map_err(QueryError::from)?;
    let (out, body) = stream::channel();
    tokio::spawn(write(Writing { db, progress, labels: Labels::default(), format, charge, share }, out));
    let mut response = Response::new(body);
    let (content_type, attachment) = match format {
        ExportFormat::Csv => {
            ("text/csv; charset=utf-8; header=present", "attachment; filename=\"llmgw-usage.csv\"")
        }
        ExportFormat::JsonLines => ("application/x-ndjson", "attachment; filename=\"llmgw-usage.jsonl\""),
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static(attachment));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// A running export.
struct Writing {
    db: Db,
    progress: Progress,
    labels: Labels,
    format: ExportFormat,
    /// The mark-up and currency of the amounts, if requested.
    charge: Option<Charge>,
    share: CallerShare,
}

/// Produces one piece after another, each when the queue has room. The export is aborted when the client disconnects or
/// takes nothing for [`STALL_MAX`].
async fn write(mut writing: Writing, out: Feed) {
    let mut piece = Vec::new();
    if writing.format == ExportFormat::Csv {
        csv::head(&mut piece, writing.charge.is_some());
    }
    loop {
        let made = tokio::task::spawn_blocking(move || writing.fill(piece)).await;
        let Ok((given_back, made)) = made else { return };
        writing = given_back;
        let (full, goes_on) = match made {
            Ok(made) => made,
            Err(error) => {
                tracing::error!("cannot read usage: {error}");
                return out.fail("the export of usage failed").await;
            }
        };
        let sent = tokio::time::timeout(STALL_MAX, out.send(full.into())).await;
        if !matches!(sent, Ok(Ok(()))) {
            return drop(writing.share);
        }
        if !goes_on {
            return out.finish();
        }
        piece = Vec::with_capacity(PIECE_BYTES);
    }
}

impl Writing {
    /// Appends exchanges to `piece` until it is large enough to send. The bool is true if there may be more.
    fn fill(mut self, mut piece: Vec<u8>) -> (Self, DbResult<(Vec<u8>, bool)>) {
        let Self { db, progress, labels, format, charge, .. } = &mut self;
        while piece.len() < PIECE_BYTES {
            let each = |record: &Record<'_>, trace: Trace<'_>| {
                let owners = OwnerNames::of_record(db, labels, record)?;
                line(*format, (record, trace), (owners, charge.as_ref()), &mut piece);
                Ok(())
            };
            match progress.step(db, each) {
                Ok(true) => {}
                Ok(false) => return (self, Ok((piece, false))),
                Err(error) => return (self, Err(error)),
            }
        }
        (self, Ok((piece, true)))
    }
}

fn line(
    format: ExportFormat,
    (record, trace): (&Record<'_>, Trace<'_>),
    (owners, charge): (OwnerNames, Option<&Charge>),
    out: &mut Vec<u8>,
) {
    let charged = charge.map(|charge| ChargedExchange::of(charge, record));
    match format {
        ExportFormat::Csv => csv::line(out, (record, trace), &owners, charged.as_ref()),
        ExportFormat::JsonLines => {
            // Writing into memory cannot fail.
            let _ = serde_json::to_writer(
                &mut *out,
                &ExportLine { row: RequestRow::of(record, owners, trace), charged },
            );
            out.push(b'\n');
        }
    }
}

#[derive(Serialize)]
struct ExportLine<'a> {
    #[serde(flatten)]
    row: RequestRow,
    #[serde(flatten)]
    charged: Option<ChargedExchange<'a>>,
}

/// The charge for an exchange, including its failed attempts.
#[derive(Serialize)]
pub(super) struct ChargedExchange<'a> {
    /// `None` if the cost is unknown or the amount overflows.
    pub(super) amount: Option<String>,
    pub(super) currency: &'a str,
}

impl<'a> ChargedExchange<'a> {
    fn of(charge: &'a Charge, record: &Record<'_>) -> Self {
        let lost = rare_fields::lost(&record.lost).filter_map(|(_, lost)| lost.cost_nano_usd);
        let known = record.cost_nano_usd.into_iter().chain(lost).reduce(u64::saturating_add);
        Self { amount: known.and_then(|cost| charge.amount(cost)), currency: charge.currency() }
    }
}

const EXPORTS: ShareBound = ShareBound {
    what: "exports",
    bound: &bounds::EXPORTS,
    humans: 2,
    human: 1,
    administrator: 2,
    retry_after: 10,
};
/// The size at which a piece is sent; its last block may exceed it.
const PIECE_BYTES: usize = 64 << 10;
const STALL_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::shares::tests::fill;
    use crate::common::bounds::tests::passes;

    #[test]
    fn exports_beyond_the_maximum_are_refused_and_counted() {
        passes(&bounds::EXPORTS, || fill(EXPORTS));
    }
}
