//! A job that consists of concurrent tasks: a run lasts from the first task to the end of the last one.

use super::Job;

/// Reports the runs of a job that consists of tasks.
#[derive(Debug)]
pub(crate) struct JobTasks {
    job: Job,
    is_running: bool,
    /// The first failure of the run.
    error: Option<String>,
}

impl JobTasks {
    pub(crate) fn of(job: Job) -> Self {
        Self { job, is_running: false, error: None }
    }

    /// Reports that a task begins.
    pub(crate) fn begins(&mut self) {
        if !self.is_running {
            self.is_running = true;
            self.job.begins();
        }
    }

    /// Reports the outcome of a task, after which `left` tasks are running.
    pub(crate) fn ends(&mut self, outcome: Result<(), String>, left: usize) {
        if let Err(error) = outcome {
            self.error.get_or_insert(error);
        }
        if left == 0 && self.is_running {
            self.is_running = false;
            self.job.ends(self.error.take().map_or(Ok(()), Err));
        }
    }

    /// Sets the time of the next task; `None` if none is planned.
    pub(crate) fn waits_until(&self, at_ms: Option<u64>) {
        self.job.waits_until(at_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Jobs;
    use super::*;

    #[test]
    fn a_run_ends_with_its_last_task_and_has_the_first_error() {
        let jobs = Jobs::default();
        let mut tasks = JobTasks::of(jobs.register("renewal", "when due"));
        tasks.begins();
        tasks.begins();
        tasks.ends(Err("first".into()), 1);
        assert_eq!(jobs.table()[0].last_ended_at_ms, None);
        tasks.ends(Err("second".into()), 0);
        assert_eq!(jobs.table()[0].last_error.as_deref(), Some("first"));
        tasks.begins();
        tasks.ends(Ok(()), 0);
        assert_eq!(jobs.table()[0].last_error, None);
    }
}
