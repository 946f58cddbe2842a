//! `backups`: lists and creates backups; [`archive`] has the routes of one of them. Creating a backup and verifying
//! archives may take long, so each runs on its own thread.

mod archive;
pub(crate) mod jobs;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use shared::clock::unix_ms;
use shared::error_kind::ErrorKind;
use shared::port::Body;
use tokio::sync::{Semaphore, oneshot};

use super::list::{ListPage, PageOf, SortValue, SortedBy};
use super::reference::{FileContent, NoContent, NoMembers};
use super::{ApiError, Call, Route, json, route_of};
use crate::common::actor::Actor;
use crate::common::background::{Job, Jobs, spawn_low};
use crate::db::audit::AuditEntry;
use crate::routing::config::{Config, Schedule};
use crate::routing::publish::Touched;
use crate::state::backup::{self, Archive, BackupError};
use crate::writer::WriterHandle;
use crate::writer::command::audit_only::AuditOnly;
use crate::writer::command::{AdminWrite, Done};

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "backups", |call| Box::pin(list(call)))
        .answers::<BackupPage>(
            "Lists the archives in `<state>/backups`, newest first, or in order of `time` or `size`.",
        )
        .query::<SortedBy<ArchiveColumn>>(),
    route_of(Method::POST, "backups", |call| Box::pin(create(call)))
        .answers::<BackupStarted>("Begins a backup.")
        .statuses(&[202])
        .takes::<NoMembers>(),
    route_of(Method::GET, "backups/{}", |call| Box::pin(archive::download(call)))
        .answers::<FileContent>("Sends an archive. The audit records it."),
    route_of(Method::DELETE, "backups/{}", |call| Box::pin(archive::delete(call)))
        .answers::<NoContent>("Deletes an archive."),
    route_of(Method::POST, "backups/{}/verify", |call| Box::pin(archive::verify(call)))
        .answers::<archive::CheckedArchive>(
            "Compares an archive with its checksums; 202 if that takes over 20 s.",
        )
        .statuses(&[200, 202])
        .takes::<NoMembers>(),
];

/// The backups of the state and the status of a running one.
#[derive(Clone, Debug)]
pub(crate) struct Backups {
    dir: PathBuf,
    kept: u32,
    /// True if the state is in files; PostgreSQL's own tools back up the other.
    is_of_files: bool,
    now: Arc<Mutex<Now>>,
    /// Reports each backup, also those that are not made by schedule.
    job: Job,
    /// One permit for each download that may run.
    downloads: Arc<Semaphore>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Now {
    is_running: bool,
    is_checking: bool,
    last_good_at_ms: Option<u64>,
}

/// The last backups of the state.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct BackupState {
    /// The time of the newest intact archive, in milliseconds since the Unix epoch; null if no archive is intact.
    last_good_at_ms: Option<u64>,
    /// The failure of the last backup; null if it succeeded, and if an archive made since it began is intact.
    last_failure: Option<BackupFailure>,
}

/// A backup that failed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct BackupFailure {
    /// In milliseconds since the Unix epoch.
    at_ms: u64,
    message: String,
}

impl Backups {
    /// Backups of the configured state. Deletes the copies of a state that killed commands have left.
    pub(crate) fn of(config: &Config, jobs: &Jobs) -> Self {
        backup::remove_left();
        let interval = config.backup_schedule.as_ref().map_or("on request", Schedule::text);
        let backups = Self {
            dir: config.state_dir.clone(),
            kept: config.lifetimes.backups_kept,
            is_of_files: config.database.is_none(),
            now: Arc::default(),
            job: jobs.register("backup", interval),
            downloads: Arc::new(Semaphore::new(DOWNLOADS_MAX)),
        };
        backups.look();
        backups
    }

    /// Returns the last backups that are known.
    pub(crate) fn state(&self) -> BackupState {
        BackupState { last_good_at_ms: self.now().last_good_at_ms, last_failure: self.last_failure() }
    }

    fn last_failure(&self) -> Option<BackupFailure> {
        let failure = self.job.failure_unless_done(self.now().last_good_at_ms);
        failure.map(|(at_ms, message)| BackupFailure { at_ms, message })
    }

    /// Reads which archive is the last intact one.
    fn look(&self) {
        match backup::list(&self.dir) {
            Ok(archives) => self.see(&archives),
            Err(error) => tracing::warn!("the backups cannot be read: {error}"),
        }
    }

    /// Takes over which of all archives, newest first, is the last intact one.
    fn see(&self, archives: &[Archive]) {
        let last_good_at_ms = archives.iter().find(|archive| archive.is_good()).and_then(Archive::made_at_ms);
        self.now.lock().unwrap_or_else(PoisonError::into_inner).last_good_at_ms = last_good_at_ms;
    }

    /// Returns the reason why the last backup failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.last_failure().map(|failure| failure.message)
    }

    fn now(&self) -> Now {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a backup as running. Returns `None` if one already is.
    fn begin(&self) -> Option<RunningBackup> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = !std::mem::replace(&mut now.is_running, true);
        drop(now);
        is_first.then(|| {
            self.job.begins();
            RunningBackup { backups: self.clone(), outcome: Err("the backup was interrupted".to_owned()) }
        })
    }

    /// Starts a thread that verifies archives of the state, whose directory `work` receives. Returns a receiver that
    /// fires when it ends, or `None` if a check is already running or the thread cannot be started.
    fn check(&self, work: impl FnOnce(&Path) + Send + 'static) -> Option<oneshot::Receiver<()>> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = !std::mem::replace(&mut now.is_checking, true);
        drop(now);
        let checking = is_first.then(|| RunningCheck(self.clone()))?;
        let (done, end) = oneshot::channel();
        let check = move || {
            work(&checking.0.dir);
            checking.0.look();
            drop(checking);
            let _ = done.send(());
        };
        let started = spawn_low("llmgw-backup-check", check);
        started.map_err(|error| tracing::warn!("backups cannot be checked: {error}")).ok()?;
        Some(end)
    }
}

/// A running backup. Dropping it reports its outcome and allows the next one to start.
#[derive(Debug)]
struct RunningBackup {
    backups: Backups,
    outcome: Result<(), String>,
}

impl Drop for RunningBackup {
    fn drop(&mut self) {
        self.backups.job.ends(std::mem::replace(&mut self.outcome, Ok(())));
        self.backups.now.lock().unwrap_or_else(PoisonError::into_inner).is_running = false;
    }
}

/// A running check of archives. Dropping it allows the next one to start.
#[derive(Debug)]
struct RunningCheck(Backups);

impl Drop for RunningCheck {
    fn drop(&mut self) {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner).is_checking = false;
    }
}

impl RunningBackup {
    /// Runs the backup on its own thread, and drops `done` when it has ended.
    fn spawn(mut self, writer: WriterHandle, done: oneshot::Sender<()>) -> io::Result<()> {
        let make = move || {
            let outcome = backup::create(&self.backups.dir, self.backups.kept);
            if let Err(error) = &outcome {
                tracing::error!("the backup failed: {error}");
            }
            self.outcome = outcome.as_ref().map(drop).map_err(BackupError::to_string);
            self.backups.look();
            drop((self, done));
            let audit = match outcome {
                Ok(archive) => AuditEntry::done("backup.finish", "backup", &archive.name),
                Err(error) => AuditEntry::done("backup.finish", "backup", "")
                    .refused()
                    .after(json!({"error": error.to_string()})),
            };
            let actor = Actor::gateway();
            let _ = writer.queue(AdminWrite::unanswered(AuditOnly::of(audit), actor));
        };
        spawn_low("llmgw-backup", make)
    }
}

/// The archives of the gateway's state.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Backups"))]
struct BackupPage {
    /// All archives.
    data: Vec<Archive>,
    /// Always null: the list has one page.
    next_cursor: Option<String>,
    /// True while a backup is being created.
    is_running: bool,
    /// True while archives are being verified; until that ends, `fault` and `checked_at_ms` are those of the last
    /// check.
    is_checking: bool,
    /// The failure of the last backup; null if it succeeded.
    last_failure: Option<BackupFailure>,
    /// The number of archives that are kept.
    kept: u32,
}

/// A backup that has begun.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct BackupStarted {
    /// Always `running`.
    status: &'static str,
    /// In milliseconds since the Unix epoch.
    started_at_ms: u64,
}

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let sorting = call.query::<SortedBy<ArchiveColumn>>()?.sorting()?;
    let backups = &call.app.backups;
    let mut data = archives(backups).await?;
    if data.iter().any(|archive| archive.is_unchecked)
        && let Some(end) = backups.check(check_changed)
        && tokio::time::timeout(CHECK_WAIT_MAX, end).await.is_ok()
    {
        data = archives(backups).await?;
    }
    let page = PageOf::whole(sorting);
    let (data, _) = ListPage::sorted(data, &page, |archive| &archive.name, value).into_parts();
    let Now { is_running, is_checking, .. } = backups.now();
    let last_failure = backups.last_failure();
    json(&BackupPage { data, next_cursor: None, is_running, is_checking, last_failure, kept: backups.kept })
}

/// A column by which the list can be sorted.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum ArchiveColumn {
    Time,
    Size,
}

fn value(archive: &Archive, column: ArchiveColumn) -> Option<SortValue> {
    Some(match column {
        ArchiveColumn::Time => archive.made_at_ms()?.into(),
        ArchiveColumn::Size => archive.bytes.into(),
    })
}

/// Verifies the archives that have changed since their last check.
fn check_changed(dir: &Path) {
    if let Err(error) = backup::check_unchecked(dir) {
        tracing::warn!("backups cannot be checked: {error}");
    }
}

async fn archives(backups: &Backups) -> Result<Vec<Archive>, ApiError> {
    let archives =
        backup::list_beside(backups.dir.clone()).await.map_err(|error| failed(&error.to_string()))?;
    backups.see(&archives);
    Ok(archives)
}

async fn create(mut call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    call.no_fields()?;
    // Must precede the check for a running backup, which may have been started by this very request.
    if let Some(answer) = call.replayed().await? {
        return Ok(answer);
    }
    let backups = &call.app.backups;
    if !backups.is_of_files {
        return Err(ApiError::new(ErrorKind::Conflict, IN_POSTGRES));
    }
    let making = backups.begin();
    let making = making.ok_or_else(|| ApiError::new(ErrorKind::Conflict, "A backup is already running."))?;
    let audit = AuditEntry::done("backup.begin", "backup", "");
    let started = BackupStarted { status: "running", started_at_ms: unix_ms() };
    let begun = AuditOnly(Done::new(&started, audit, Touched::NOTHING)?);
    let begun = call.execute(StatusCode::ACCEPTED, begun).await?;
    call.app.writer.flush(crate::writer::FLUSH_TIME_MAX).await;
    // Requests learn the outcome from `GET backups`.
    let (done, _) = oneshot::channel();
    if let Err(error) = making.spawn(call.app.writer.clone(), done) {
        return Err(failed(&error.to_string()));
    }
    Ok(begun)
}

fn failed(why: &str) -> ApiError {
    tracing::error!("backups: {why}");
    ApiError::new(ErrorKind::Internal, "Backups are not available at the moment; see the log of the gateway.")
}

const IN_POSTGRES: &str = "The state is in PostgreSQL, which its own tools back up: pg_dump, or pg_basebackup with an archive \
                           of its log.";
/// The maximum time that a list request waits for the check that it starts, enough to verify a few hundred MiB.
const CHECK_WAIT_MAX: Duration = Duration::from_secs(1);
/// The maximum number of downloads at the same time; each has a thread.
const DOWNLOADS_MAX: usize = 4;
