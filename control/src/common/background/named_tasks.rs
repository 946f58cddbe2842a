//! Concurrent tasks that are each for an object. A task that panics ends as a failure of its object, which would
//! otherwise remain busy until the next start.

use std::collections::HashMap;
use std::future::Future;

use tokio::task::{Id, JoinError, JoinSet};

/// Running tasks, each with the name `N` of its object.
#[derive(Debug)]
pub(crate) struct NamedTasks<N, T> {
    running: JoinSet<T>,
    names: HashMap<Id, N>,
}

/// The outcome of a task that panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

impl Panicked {
    /// The text that the failed run of a job shows.
    pub(crate) const TEXT: &'static str = "the gateway failed to do this: its log has a panic. Report it";
}

impl<N, T: Send + 'static> NamedTasks<N, T> {
    pub(crate) fn new() -> Self {
        Self { running: JoinSet::new(), names: HashMap::new() }
    }

    /// Starts a task for the object `name`.
    pub(crate) fn spawn(&mut self, name: N, task: impl Future<Output = T> + Send + 'static) {
        let id = self.running.spawn(task).id();
        self.names.insert(id, name);
    }

    /// Waits for the next task to end. Returns `None` if no task is running.
    pub(crate) async fn next(&mut self) -> Option<(N, Result<T, Panicked>)> {
        let ended = self.running.join_next_with_id().await?;
        self.named(ended)
    }

    /// Returns a task that has ended, without waiting for one.
    pub(crate) fn try_next(&mut self) -> Option<(N, Result<T, Panicked>)> {
        let ended = self.running.try_join_next_with_id()?;
        self.named(ended)
    }

    /// Returns the number of running tasks.
    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    fn named(&mut self, ended: Result<(Id, T), JoinError>) -> Option<(N, Result<T, Panicked>)> {
        let (id, outcome) = match ended {
            Ok((id, outcome)) => (id, Ok(outcome)),
            Err(error) => (error.id(), Err(Panicked)),
        };
        Some((self.names.remove(&id)?, outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_ends_with_the_name_of_its_object() {
        let mut tasks = NamedTasks::new();
        tasks.spawn("sound", async { 1 });
        tasks.spawn("broken", async { panic!("a defect") });
        let mut ended = vec![tasks.next().await.unwrap(), tasks.next().await.unwrap()];
        ended.sort_unstable_by_key(|(name, _)| *name);
        assert_eq!(ended, [("broken", Err(Panicked)), ("sound", Ok(1))]);
        assert_eq!((tasks.len(), tasks.next().await, tasks.try_next()), (0, None, None));
    }
}
