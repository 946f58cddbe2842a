//! `audit`: the audit log, newest first, in pages or as a file, single records, and the verification of its chain.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use shared::error_kind::ErrorKind;
use shared::port::Body;

use super::cursor::Cursor;
use super::list::{Containing, SortedPaging, Sorting};
use super::query::Span;
use super::reference::{FileContent, NoMembers};
use super::stream::{self, Feed};
use super::{ApiError, App, Call, Route, csv, json, route_of};
use crate::db::audit::AuditEntry;
use crate::db::audit_pages::{AuditExtent, AuditFilter, AuditRow, AuditStart, extent, find, page};
use crate::db::chain;
use crate::db::readers::Readers;
use crate::routing::publish::Touched;
use crate::writer::command::Done;
use crate::writer::command::audit_only::AuditOnly;

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "audit", |call| Box::pin(list(call)))
        .answers::<AuditPage>(
            "Lists the audit records, newest first; with `sort=time` and `order=asc`, oldest first.",
        )
        .query::<(SortedPaging<AuditColumn>, AuditQuery)>(),
    route_of(Method::GET, "audit/export", |call| Box::pin(export(call)))
        .answers::<FileContent>("Sends the audit records as a file.")
        .query::<(AuditExport, AuditQuery)>(),
    route_of(Method::GET, "audit/verify", |call| Box::pin(show_verification(call)))
        .answers::<AuditVerification>(
            "Verifies the chain of the audit records. The audit does not record it.",
        ),
    route_of(Method::POST, "audit/verify", |call| Box::pin(verify(call)))
        .answers::<AuditVerification>(
            "Verifies the chain of the audit records. The audit records the result.",
        )
        .takes::<NoMembers>(),
    route_of(Method::GET, "audit/{}", |call| Box::pin(show(call)))
        .answers::<AuditRow>("Shows an audit record."),
];

/// A page of audit records.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AuditPage {
    data: Vec<AuditRow>,
    /// The `cursor` of the next page; null on the last one.
    next_cursor: Option<String>,
}

/// The result of verifying the chain of audit records.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AuditVerification {
    /// True if no record was changed, removed or inserted.
    ok: bool,
    /// The number of records that are kept.
    rows: u64,
    /// The time of the oldest record that is kept, in milliseconds since the Unix epoch; null if the audit is empty.
    since_ms: Option<u64>,
    /// The ID of the first record that was changed, removed or inserted. Null if `ok`, and if the sealed ends of the
    /// chain were changed.
    broken_at: Option<i64>,
    /// A description of the first fault; null if `ok`.
    fault: Option<String>,
}

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let ((paging, sorted), query): (SortedPaging<AuditColumn>, AuditQuery) = call.query()?;
    let (limit, cursor) = (paging.limit(), paging.cursor().map(Cursor::<i64>::read).transpose()?);
    let start = match sorted.sorting()? {
        Some(Sorting { descending: false, .. }) => AuditStart::After(cursor.unwrap_or(0)),
        Some(_) | None => AuditStart::Before(cursor.unwrap_or(i64::MAX)),
    };
    let filter = filter(query)?;
    let rows = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut data = call.app.readers.ask(move |db| page(db, &filter, start, rows)).await?;
    let more = data.len() > limit;
    data.truncate(limit);
    let next_cursor = data.last().filter(|_| more).map(|row| Cursor(row.id).text());
    json(&AuditPage { data, next_cursor })
}

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let missing = || ApiError::new(ErrorKind::NotFound, "There is no such audit record.");
    let id: i64 = call.argument().parse().map_err(|_| missing())?;
    let found = call.app.readers.ask(move |db| find(db, id)).await?;
    json(&found.ok_or_else(missing)?)
}

async fn show_verification(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    json(&verification(call.app).await?)
}

/// Verifies the chain, of which the record of this verification becomes the next link.
async fn verify(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    call.no_fields()?;
    let verification = verification(call.app).await?;
    let audit = AuditEntry::done("audit.verify", "audit", "").after(serde_json::json!(verification));
    call.execute(StatusCode::OK, AuditOnly(Done::new(&verification, audit, Touched::NOTHING)?)).await
}

async fn verification(app: &App) -> Result<AuditVerification, ApiError> {
    let keys = Arc::clone(&app.keys);
    let verified = app.readers.ask(move |db| {
        // One transaction, so that no record is added meanwhile.
        let tx = db.read_transaction()?;
        Ok((chain::verify(&tx, &keys)?, extent(&tx)?))
    });
    let (verdict, AuditExtent { rows, since_ms }) = verified.await?;
    let broken = verdict.err();
    Ok(AuditVerification {
        ok: broken.is_none(),
        rows,
        since_ms,
        broken_at: broken.and_then(|broken| broken.first_id()),
        fault: broken.map(|broken| broken.to_string()),
    })
}

/// The filters of records.
type AuditQuery = (RecordQuery, Span, Containing);

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RecordQuery {
    /// Only actions of this actor, as the records name it.
    actor: Option<String>,
    /// Only this action, such as `key.create`.
    action: Option<String>,
    /// Only actions on this object: its kind, its ID, or `KIND/ID`.
    object: Option<String>,
    /// Only actions that were done, or only those that were refused.
    outcome: Option<AuditOutcome>,
}

#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum AuditOutcome {
    Done,
    Refused,
}

/// The only column by which the list can be sorted.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum AuditColumn {
    Time,
}

fn filter((query, span, Containing { q: text }): AuditQuery) -> Result<AuditFilter, ApiError> {
    let RecordQuery { actor, action, object, outcome } = query;
    let (from_ms, to_ms) = span.ms()?;
    let outcome = outcome.map(|outcome| match outcome {
        AuditOutcome::Done => "done",
        AuditOutcome::Refused => "refused",
    });
    Ok(AuditFilter { actor, action, object, outcome, text, from_ms, to_ms })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum AuditFormat {
    #[serde(rename = "jsonl")]
    Lines,
    Csv,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AuditExport {
    /// The format of the file. JSON Lines if absent.
    format: Option<AuditFormat>,
}

/// Streams rows page by page at the pace of the client.
async fn export(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (AuditExport { format }, query): (AuditExport, AuditQuery) = call.query()?;
    let (format, filter) = (format.unwrap_or(AuditFormat::Lines), filter(query)?);
    let readers = call.app.readers.clone();
    // Fetch the first page before answering, so that a database failure yields an error response.
    let first = ask(&readers, &filter, i64::MAX).await?;
    let (feed, body) = stream::channel();
    tokio::spawn(write(readers, filter, format, first, feed));
    let (content_type, disposition) = match format {
        AuditFormat::Lines => ("application/x-ndjson", "attachment; filename=\"audit.jsonl\""),
        AuditFormat::Csv => ("text/csv; charset=utf-8", "attachment; filename=\"audit.csv\""),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static(disposition));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn ask(readers: &Readers, filter: &AuditFilter, before: i64) -> Result<Vec<AuditRow>, ApiError> {
    let filter = filter.clone();
    Ok(readers.ask(move |db| page(db, &filter, AuditStart::Before(before), PAGE_ROWS)).await?)
}

/// Returns when everything is written, the client has disconnected, or the database fails, which aborts the body.
async fn write(readers: Readers, filter: AuditFilter, format: AuditFormat, first: Vec<AuditRow>, feed: Feed) {
    let mut rows = first;
    let mut text = String::new();
    if format == AuditFormat::Csv {
        csv::line(&mut text, &COLUMNS);
    }
    while let Some(last) = rows.last().map(|row| row.id) {
        rows.iter().for_each(|row| put(&mut text, row, format));
        if feed.send(Bytes::from(std::mem::take(&mut text))).await.is_err() {
            return;
        }
        match ask(&readers, &filter, last).await {
            Ok(next) => rows = next,
            Err(_) => return feed.fail("exporting the audit log failed").await,
        }
    }
    if feed.send(Bytes::from(text)).await.is_ok() {
        feed.finish();
    }
}

fn put(text: &mut String, row: &AuditRow, format: AuditFormat) {
    match format {
        AuditFormat::Lines => {
            if let Ok(line) = serde_json::to_string(row) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        AuditFormat::Csv => {
            let at = Timestamp::from_millisecond(row.at_ms).unwrap_or_default().to_string();
            let (id, detail) = (row.id.to_string(), row.detail.get());
            let (address, request) = (row.address.as_deref(), row.request_id.as_deref());
            csv::line(
                text,
                &[
                    &id,
                    &at,
                    &row.actor,
                    &row.action,
                    &row.object_kind,
                    &row.object_id,
                    &row.outcome,
                    address.unwrap_or_default(),
                    request.unwrap_or_default(),
                    detail,
                ],
            );
        }
    }
}

const COLUMNS: [&str; 10] =
    ["id", "at", "actor", "action", "object_kind", "object_id", "outcome", "address", "request_id", "detail"];
/// Rows held in memory at the same time for one export.
const PAGE_ROWS: i64 = 500;
