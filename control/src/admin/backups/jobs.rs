//! The periodic jobs of backups: backups by `LLMGW_BACKUP_SCHEDULE`, and the rehearsal of a restore once a day.

use std::sync::Arc;

use shared::clock::unix_ms;
use tokio::sync::oneshot;

use super::Backups;
use crate::common::background::{Job, sleep_until, spawn_low};
use crate::routing::config::{Config, Schedule};
use crate::state::backup;
use crate::writer::{FLUSH_TIME_MAX, WriterHandle};

/// Makes backups at the times of a schedule.
#[derive(Debug)]
pub(crate) struct ScheduledBackups {
    pub(crate) backups: Backups,
    pub(crate) schedule: Schedule,
    pub(crate) writer: WriterHandle,
}

impl ScheduledBackups {
    /// Makes backups for as long as the future is polled.
    pub(crate) async fn run(self) {
        while let Some(next) = self.schedule.next(unix_ms()) {
            self.backups.job.waits_until(next);
            sleep_until(next).await;
            self.make().await;
        }
        tracing::warn!(
            "LLMGW_BACKUP_SCHEDULE: no time within four years matches it; no backups are made by schedule"
        );
        std::future::pending().await
    }

    async fn make(&self) {
        let Some(making) = self.backups.begin() else {
            tracing::info!("no backup is made by schedule, because another one is running");
            return;
        };
        self.writer.flush(FLUSH_TIME_MAX).await;
        let (done, end) = oneshot::channel();
        match making.spawn(self.writer.clone(), done) {
            Ok(()) => drop(end.await),
            Err(error) => tracing::error!("the backup failed: {error}"),
        }
    }
}

/// Rehearses the restore of the newest archive: shortly after the start, once a day, and hourly after a failure.
#[derive(Debug)]
pub(crate) struct Rehearsals {
    pub(crate) config: Arc<Config>,
    pub(crate) job: Job,
}

impl Rehearsals {
    /// Rehearses for as long as the future is polled.
    pub(crate) async fn run(self) {
        let mut next = unix_ms().saturating_add(AFTER_START_MS);
        loop {
            let pause_ms = if self.job.run_at(next, self.rehearse()).await { DAY_MS } else { RETRY_MS };
            next = unix_ms().saturating_add(pause_ms);
        }
    }

    async fn rehearse(&self) -> Result<(), String> {
        let (result, outcome) = oneshot::channel();
        let config = Arc::clone(&self.config);
        let rehearse = move || {
            let rehearsed = backup::rehearse(&config.state_dir, &config.credential_encryption_key);
            let _ = result.send(rehearsed.map_err(|error| error.to_string()));
        };
        spawn_low("llmgw-rehearsal", rehearse).map_err(|error| error.to_string())?;
        match outcome.await.unwrap_or_else(|_| Err("the rehearsal was interrupted".to_owned())) {
            Ok(Some(name)) => {
                tracing::info!("the restore of {name} was rehearsed: it opens, and its rows are complete");
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(why) => {
                tracing::error!("the rehearsal of a restore failed: {why}");
                Err(why)
            }
        }
    }
}

/// The first rehearsal does not compete with the start.
const AFTER_START_MS: u64 = 10_000;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// A newer archive may be sound.
const RETRY_MS: u64 = 60 * 60 * 1_000;
