//! `backups/{name}`: verifies, downloads and deletes one archive. The name must have the form of an
//! archive's name, so it cannot refer to any other file.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};
use serde::Serialize;
use serde_json::json;
use shared::error_kind::ErrorKind;
use shared::port::{Body, full};
use tokio::sync::OwnedSemaphorePermit;

use super::failed;
use crate::admin::stream::{self, ClientGone, Feed};
use crate::admin::{ApiError, Call};
use crate::db::audit::AuditEntry;
use crate::routing::publish::Touched;
use crate::state::backup::{self, Archive, BackupError};
use crate::writer::command::Done;
use crate::writer::command::audit_only::AuditOnly;

/// An archive and the state of its verification.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "CheckedBackup"))]
pub(super) struct CheckedArchive {
    #[serde(flatten)]
    archive: Archive,
    /// True if the verification has not ended (202); `GET backups` shows its result later.
    is_checking: bool,
}

/// Reads the archive to its end and compares it with its checksums.
pub(super) async fn verify(mut call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    call.no_fields()?;
    if let Some(answer) = call.replayed().await? {
        return Ok(answer);
    }
    let Archive { name, .. } = find(&call).await?;
    let checked = name.clone();
    let end = call.app.backups.check(move |dir| {
        if let Err(error) = backup::check_one(dir, &checked) {
            tracing::warn!("{error}");
        }
    });
    let end = end.ok_or_else(|| ApiError::new(ErrorKind::Conflict, BUSY).retry_after(RETRY_SECONDS))?;
    let is_checking = tokio::time::timeout(VERIFY_WAIT_MAX, end).await.is_err();
    let archive = find(&call).await?;
    let detail = json!({"fault": archive.fault, "is_checking": is_checking});
    let audit = AuditEntry::done("backup.verify", "backup", &name).after(detail);
    let status = if is_checking { StatusCode::ACCEPTED } else { StatusCode::OK };
    let done = Done::new(&CheckedArchive { archive, is_checking }, audit, Touched::NOTHING)?;
    call.execute(status, AuditOnly(done)).await
}

/// Sends the archive at the pace of the client.
pub(super) async fn download(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let Archive { name, .. } = find(&call).await?;
    let backups = &call.app.backups;
    let (file, bytes) = backup::open_beside(backups.dir.clone(), &name).await.map_err(unavailable)?;
    let (feed, body) = stream::channel();
    if call.parts.method == Method::GET {
        let permit = Arc::clone(&backups.downloads).try_acquire_owned();
        let permit =
            permit.map_err(|_| ApiError::new(ErrorKind::Overloaded, MANY).retry_after(RETRY_SECONDS))?;
        call.record(AuditEntry::done("backup.download", "backup", &name)).await?;
        spawn(file, bytes, feed, permit)?;
    } else {
        feed.finish();
    }
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/zstd"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    let disposition = format!("attachment; filename=\"{name}\"");
    let disposition = HeaderValue::from_str(&disposition).map_err(|error| failed(&error.to_string()))?;
    headers.insert(CONTENT_DISPOSITION, disposition);
    Ok(response)
}

fn spawn(file: File, bytes: u64, feed: Feed, permit: OwnedSemaphorePermit) -> Result<(), ApiError> {
    let send = move || {
        send(file, bytes, feed);
        drop(permit);
    };
    #[expect(clippy::disallowed_methods, reason = "its end is the end of one download, not of the gateway")]
    let started = thread::Builder::new().name("llmgw-backup-send".into()).spawn(send);
    started.map(drop).map_err(|error| failed(&error.to_string()))
}

/// Sends the first `bytes` of `file`. A file that has become shorter aborts the body.
fn send(file: File, bytes: u64, feed: Feed) {
    let mut file = file.take(bytes);
    while file.limit() > 0 {
        let mut piece = vec![0; PIECE_BYTES];
        let Ok(length @ 1..) = file.read(&mut piece) else {
            return feed.fail_blocking("a backup could not be read to its end");
        };
        piece.truncate(length);
        if feed.send_blocking(Bytes::from(piece)) == Err(ClientGone) {
            return;
        }
    }
    feed.finish();
}

/// Deletes the archive. The audit has the row before the file is gone.
pub(super) async fn delete(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let archive = find(&call).await?;
    let audit = AuditEntry::done("backup.delete", "backup", &archive.name).before(json!(archive));
    call.record(audit).await?;
    if let Err(error) = backup::remove_beside(call.app.backups.dir.clone(), &archive.name).await {
        let audit = AuditEntry::done("backup.delete", "backup", &archive.name).refused();
        call.record(audit.after(json!({"error": error.to_string()}))).await?;
        return Err(unavailable(error));
    }
    super::archives(&call.app.backups).await?;
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// Returns the archive that the path names.
async fn find(call: &Call<'_>) -> Result<Archive, ApiError> {
    let found = backup::find_beside(call.app.backups.dir.clone(), call.argument().to_owned()).await;
    let missing = || ApiError::new(ErrorKind::NotFound, "There is no such backup. GET backups lists them.");
    found.map_err(unavailable)?.ok_or_else(missing)
}

#[expect(clippy::needless_pass_by_value, reason = "it is the function that maps an error")]
fn unavailable(error: BackupError) -> ApiError {
    failed(&error.to_string())
}

/// The maximum time that a request waits for the verification that it starts.
const VERIFY_WAIT_MAX: Duration = Duration::from_secs(20);
const RETRY_SECONDS: u64 = 5;
const PIECE_BYTES: usize = 256 << 10;
const BUSY: &str = "Archives are being verified. Try again when GET backups shows is_checking false.";
const MANY: &str = "Too many backups are being downloaded. Try again when one has ended.";
