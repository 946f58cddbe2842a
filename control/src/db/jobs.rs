//! The table `job_runs`: the last run of each periodic job.

use crate::common::background::JobRun;
use crate::db::engine::{Db, DbResult, Row, named_params};

/// Returns the last run of each job.
pub(crate) fn all(db: &Db) -> DbResult<Vec<JobRun>> {
    let run = |row: Row<'_>| {
        Ok(JobRun {
            job: row.get("job")?,
            started_at_ms: row.get("started_at_ms")?,
            ended_at_ms: row.get("ended_at_ms")?,
            error: row.get("error")?,
        })
    };
    db.rows(ALL, (), run)
}

/// Stores runs in place of earlier ones of their jobs.
pub(crate) fn put(tx: &Db, runs: &[JobRun]) -> DbResult<()> {
    for run in runs {
        tx.execute(
            PUT,
            named_params! {
                ":job": run.job,
                ":started": run.started_at_ms,
                ":ended": run.ended_at_ms,
                ":error": run.error,
            },
        )?;
    }
    Ok(())
}

const ALL: &str = "SELECT job, started_at_ms, ended_at_ms, error FROM job_runs";
const PUT: &str = "INSERT INTO job_runs (job, started_at_ms, ended_at_ms, error) VALUES (:job, :started, :ended, :error) \
     ON CONFLICT (job) DO UPDATE SET started_at_ms = excluded.started_at_ms, ended_at_ms = excluded.ended_at_ms, \
     error = excluded.error";
