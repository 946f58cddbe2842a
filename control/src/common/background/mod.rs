//! The periodic jobs of the control plane: when each ran last, how that ended, and when it runs next. `GET state` shows
//! them. Runs are stored, so that a restart forgets neither the last run of a job nor its error.

mod low_thread;
mod named_tasks;
mod tasks;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use shared::clock::unix_ms;
use shared::sanitize::guarded;
use tokio::sync::Notify;

pub(crate) use self::low_thread::spawn_low;
pub(crate) use self::named_tasks::{NamedTasks, Panicked};
pub(crate) use self::tasks::JobTasks;

/// All periodic jobs of the process, in the order of their registration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jobs(Arc<JobTable>);

#[derive(Debug, Default)]
struct JobTable {
    rows: Mutex<Vec<JobRow>>,
    /// The runs that earlier processes stored.
    earlier: Vec<JobRun>,
    /// Notified when a run has ended.
    ended: Notify,
}

#[derive(Debug)]
struct JobRow {
    status: JobStatus,
    /// The run that is stored.
    stored: Option<JobRun>,
    /// The start of the run that `last_error` belongs to.
    failed_from_ms: Option<u64>,
}

/// A periodic job.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Job"))]
pub(crate) struct JobStatus {
    /// The name, such as `backup`.
    pub(crate) name: &'static str,
    /// The interval in words, or a cron expression.
    interval: String,
    /// The start of the last run, in milliseconds since the Unix epoch; null before the first.
    last_started_at_ms: Option<u64>,
    /// The end of the last run, in milliseconds since the Unix epoch; null if it has not ended.
    pub(crate) last_ended_at_ms: Option<u64>,
    /// The error of the last run that ended; null if it succeeded.
    pub(crate) last_error: Option<String>,
    /// The next run, in milliseconds since the Unix epoch; null while the job runs, and if no run is planned.
    next_at_ms: Option<u64>,
}

/// A run that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobRun {
    /// The name of the job.
    pub(crate) job: String,
    /// In milliseconds since the Unix epoch.
    pub(crate) started_at_ms: u64,
    /// In milliseconds since the Unix epoch.
    pub(crate) ended_at_ms: u64,
    /// The reason of the failure; `None` for a success.
    pub(crate) error: Option<String>,
}

/// The handle with which a job reports its runs.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    jobs: Jobs,
    place: usize,
}

impl Jobs {
    /// Returns an empty table, whose jobs continue after the runs of earlier processes.
    pub(crate) fn after(earlier: Vec<JobRun>) -> Self {
        Self(Arc::new(JobTable { earlier, ..JobTable::default() }))
    }

    /// Adds a job to the table, unless it is there.
    pub(crate) fn register(&self, name: &'static str, interval: impl Into<String>) -> Job {
        if let Some(place) = self.rows().iter().position(|row| row.status.name == name) {
            return Job { jobs: self.clone(), place };
        }
        let stored = self.0.earlier.iter().find(|run| run.job == name).cloned();
        let status = JobStatus {
            name,
            interval: interval.into(),
            last_started_at_ms: stored.as_ref().map(|run| run.started_at_ms),
            last_ended_at_ms: stored.as_ref().map(|run| run.ended_at_ms),
            last_error: stored.as_ref().and_then(|run| run.error.clone()),
            next_at_ms: None,
        };
        let mut rows = self.rows();
        let failed = stored.as_ref().filter(|run| run.error.is_some());
        let failed_from_ms = failed.map(|run| run.started_at_ms);
        rows.push(JobRow { status, stored, failed_from_ms });
        Job { jobs: self.clone(), place: rows.len() - 1 }
    }

    /// Returns the table.
    pub(crate) fn table(&self) -> Vec<JobStatus> {
        self.rows().iter().map(|row| row.status.shown()).collect()
    }

    /// Returns the runs that must be stored: those that ended otherwise than the stored run of their job, or a while
    /// after it.
    pub(crate) fn unstored(&self) -> Vec<JobRun> {
        self.rows().iter().filter_map(JobRow::unstored).collect()
    }

    /// Notes that these runs are stored.
    pub(crate) fn mark_stored(&self, runs: Vec<JobRun>) {
        let mut rows = self.rows();
        for run in runs {
            if let Some(row) = rows.iter_mut().find(|row| row.status.name == run.job) {
                row.stored = Some(run);
            }
        }
    }

    /// Waits until a run has ended.
    pub(crate) async fn ended(&self) {
        self.0.ended.notified().await;
    }

    fn rows(&self) -> MutexGuard<'_, Vec<JobRow>> {
        self.0.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    /// Sets the time of the next run; `None` if none is planned.
    pub(crate) fn waits_until(&self, at_ms: impl Into<Option<u64>>) {
        self.change(|status| status.next_at_ms = at_ms.into());
    }

    /// Reports that a run begins now.
    pub(crate) fn begins(&self) {
        self.change(|status| {
            status.last_started_at_ms = Some(unix_ms());
            status.last_ended_at_ms = None;
        });
    }

    /// Reports that the run has ended now.
    pub(crate) fn ends(&self, outcome: Result<(), String>) {
        let error = outcome.err().map(|error| guarded(&error).chars().take(ERROR_CHARS_MAX).collect());
        if let Some(row) = self.jobs.rows().get_mut(self.place) {
            row.failed_from_ms = row.status.last_started_at_ms.filter(|_| error.is_some());
            row.status.last_ended_at_ms = Some(unix_ms());
            row.status.last_error = error;
        }
        self.jobs.0.ended.notify_one();
    }

    /// Waits for the time of a run, carries it out and reports it. Returns true if it succeeded.
    pub(crate) async fn run_at(&self, at_ms: u64, run: impl Future<Output = Result<(), String>>) -> bool {
        self.waits_until(at_ms);
        sleep_until(at_ms).await;
        self.begins();
        let outcome = run.await;
        let succeeded = outcome.is_ok();
        self.ends(outcome);
        succeeded
    }

    /// Returns the end and the error of the last run, if it failed. While the job runs, this is the run before, and the time
    /// is the start of the current one.
    pub(crate) fn failure(&self) -> Option<(u64, String)> {
        let rows = self.jobs.rows();
        let status = &rows.get(self.place)?.status;
        let at_ms = status.last_ended_at_ms.or(status.last_started_at_ms)?;
        Some((at_ms, status.last_error.clone()?))
    }

    /// Returns the failure of the last run, unless its work is known to have been done at `done_at_ms`, since that run
    /// began. A process that is killed can complete a run without reporting it.
    pub(crate) fn failure_unless_done(&self, done_at_ms: Option<u64>) -> Option<(u64, String)> {
        let from_ms = self.jobs.rows().get(self.place)?.failed_from_ms;
        let is_done = done_at_ms.zip(from_ms).is_some_and(|(done_at_ms, from_ms)| done_at_ms >= from_ms);
        self.failure().filter(|_| !is_done)
    }

    fn change(&self, change: impl FnOnce(&mut JobStatus)) {
        if let Some(row) = self.jobs.rows().get_mut(self.place) {
            change(&mut row.status);
        }
    }
}

impl JobStatus {
    fn shown(&self) -> Self {
        let is_running = self.last_started_at_ms.is_some() && self.last_ended_at_ms.is_none();
        Self { next_at_ms: self.next_at_ms.filter(|_| !is_running), ..self.clone() }
    }
}

impl JobRow {
    fn unstored(&self) -> Option<JobRun> {
        let status = &self.status;
        let run = JobRun {
            job: status.name.to_owned(),
            started_at_ms: status.last_started_at_ms?,
            ended_at_ms: status.last_ended_at_ms?,
            error: status.last_error.clone(),
        };
        let is_old = |stored: &JobRun| {
            stored.error != run.error || run.ended_at_ms.abs_diff(stored.ended_at_ms) >= SAME_OUTCOME_MS
        };
        self.stored.as_ref().is_none_or(is_old).then_some(run)
    }
}

/// Waits until the clock shows `at_ms`. Bounded sleeps, so that a clock that is set is noticed.
pub(crate) async fn sleep_until(at_ms: u64) {
    loop {
        let left = at_ms.saturating_sub(unix_ms());
        if left == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(left).min(PAUSE_MAX)).await;
    }
}

const ERROR_CHARS_MAX: usize = 500;
/// A job that runs often, with the same outcome, is stored at this interval.
const SAME_OUTCOME_MS: u64 = 600_000;
/// The longest sleep; bounds how late a step of the clock is noticed.
const PAUSE_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_completed_but_not_reported_ends_the_failure_before_it() {
        let failed =
            JobRun { job: "backup".into(), started_at_ms: 7, ended_at_ms: 9, error: Some("full".into()) };
        let job = Jobs::after(vec![failed]).register("backup", "daily");
        assert_eq!(job.failure_unless_done(None), Some((9, "full".to_owned())));
        assert_eq!(job.failure_unless_done(Some(6)).unwrap().1, "full", "it was done before that run");
        assert_eq!(job.failure_unless_done(Some(8)), None, "the run itself has done it");
        job.begins();
        assert_eq!(job.failure_unless_done(Some(8)), None, "nor does the next run bring it back");
        job.ends(Err("busy".to_owned()));
        assert_eq!(job.failure_unless_done(Some(8)).unwrap().1, "busy");
    }

    #[test]
    fn a_job_goes_on_where_the_process_before_ended() {
        let failed =
            JobRun { job: "backup".into(), started_at_ms: 7, ended_at_ms: 9, error: Some("full".into()) };
        let jobs = Jobs::after(vec![failed]);
        let job = jobs.register("backup", "daily");
        let other = jobs.register("other", "daily");
        assert_eq!((job.failure(), other.failure()), (Some((9, "full".to_owned())), None));
        assert!(jobs.unstored().is_empty());
        job.waits_until(20);
        job.begins();
        assert_eq!(jobs.table()[0].next_at_ms, None, "it runs");
        assert_eq!(job.failure().unwrap().1, "full", "until the run has ended");
        job.ends(Ok(()));
        assert_eq!((jobs.table()[0].next_at_ms, job.failure()), (Some(20), None));
    }

    #[test]
    fn runs_with_the_same_outcome_are_stored_at_intervals() {
        let jobs = Jobs::default();
        let job = jobs.register("often", "every 2 s");
        let run = |outcome: Result<(), String>| {
            job.begins();
            job.ends(outcome);
            let runs = jobs.unstored();
            jobs.mark_stored(runs.clone());
            runs.len()
        };
        assert_eq!((run(Ok(())), run(Ok(()))), (1, 0));
        assert_eq!((run(Err("down".into())), run(Err("down".into())), run(Ok(()))), (1, 0, 1));
        let mut long_ago = jobs.rows()[0].stored.clone().unwrap();
        long_ago.ended_at_ms -= SAME_OUTCOME_MS;
        jobs.mark_stored(vec![long_ago]);
        assert_eq!(run(Ok(())), 1);
    }
}
