//! The periodic jobs of the control plane: when each ran last, how that ended, and when it runs next. `GET state` shows them.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use shared::clock::unix_ms;

/// All periodic jobs of the process, in the order of their registration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jobs(Arc<Mutex<Vec<JobStatus>>>);

/// A periodic job.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Job"))]
pub(crate) struct JobStatus {
    /// The name, such as `backup`.
    pub(crate) name: &'static str,
    /// The interval in words, or a cron expression.
    interval: String,
    /// The start of the last run since the start of the gateway, in milliseconds since the Unix epoch; null before the first.
    last_started_at_ms: Option<u64>,
    /// The end of the last run, in milliseconds since the Unix epoch; null if it has not ended.
    pub(crate) last_ended_at_ms: Option<u64>,
    /// The error of the last run that ended; null if it succeeded.
    pub(crate) last_error: Option<String>,
    /// The next run, in milliseconds since the Unix epoch; null while the job runs.
    next_at_ms: Option<u64>,
}

/// The handle with which a job reports its runs.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    jobs: Jobs,
    place: usize,
}

impl Jobs {
    /// Adds a job to the table.
    pub(crate) fn register(&self, name: &'static str, interval: impl Into<String>) -> Job {
        let status = JobStatus {
            name,
            interval: interval.into(),
            last_started_at_ms: None,
            last_ended_at_ms: None,
            last_error: None,
            next_at_ms: None,
        };
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.push(status);
        Job { jobs: self.clone(), place: table.len() - 1 }
    }

    /// Returns the table.
    pub(crate) fn table(&self) -> Vec<JobStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Job {
    /// Sets the time of the next run.
    pub(crate) fn waits_until(&self, at_ms: u64) {
        self.change(|status| status.next_at_ms = Some(at_ms));
    }

    /// Reports that a run begins now.
    pub(crate) fn begins(&self) {
        self.change(|status| {
            status.last_started_at_ms = Some(unix_ms());
            status.last_ended_at_ms = None;
            status.next_at_ms = None;
        });
    }

    /// Reports that the run has ended now.
    pub(crate) fn ends(&self, outcome: Result<(), String>) {
        self.change(|status| {
            status.last_ended_at_ms = Some(unix_ms());
            status.last_error = outcome.err();
        });
    }

    fn change(&self, change: impl FnOnce(&mut JobStatus)) {
        let mut table = self.jobs.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(status) = table.get_mut(self.place) {
            change(status);
        }
    }
}
