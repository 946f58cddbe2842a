//! Read-only connections, each on a separate thread, so that a slow query blocks neither the control thread nor the
//! writer.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shared::alarm::Alarm;
use tokio::sync::oneshot;

use super::error::QueryError;
use super::read_queue::{Full, ReadQueue, ReaderQuestion, THREADS};
use super::storage::Storage;
use crate::db::engine::{Db, DbResult};

/// A handle to the reader threads. Clones share the threads, which end when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Readers {
    questions: Arc<Questions>,
}

/// A handle to the reader threads that does not keep them from ending.
#[derive(Clone, Debug, Default)]
pub(crate) struct WeakReaders(Weak<Questions>);

/// Closes the queue when it is dropped.
#[derive(Debug)]
struct Questions(Arc<ReadQueue>);

tokio::task_local! {
    /// The human for whom the current task works.
    static ASKING_HUMAN: Arc<str>;
}

/// Runs `work`, whose questions are those of `human`; `None` for an administrator or the gateway itself.
pub(crate) async fn asking_as<F: Future>(human: Option<Arc<str>>, work: F) -> F::Output {
    match human {
        Some(human) => ASKING_HUMAN.scope(human, work).await,
        None => work.await,
    }
}

impl Drop for Questions {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl WeakReaders {
    /// Returns the readers, unless the gateway is stopping.
    pub(crate) fn get(&self) -> Result<Readers, QueryError> {
        self.0.upgrade().map(|questions| Readers { questions }).ok_or(QueryError::Stopping)
    }
}

impl Readers {
    /// Opens the connections and starts their threads.
    pub(crate) fn start(storage: &Storage, alarm: &Alarm) -> Result<(Self, Vec<JoinHandle<()>>), QueryError> {
        let queue = Arc::<ReadQueue>::default();
        let questions = Arc::new(Questions(Arc::clone(&queue)));
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let mut db = storage.reader()?;
            let queue = Arc::clone(&queue);
            let thread = alarm.spawn("llmgw-reader", move || {
                serve(&mut db, &queue);
                Ok(())
            });
            threads.push(thread.map_err(|_| QueryError::Busy)?);
        }
        Ok((Self { questions }, threads))
    }

    /// Returns a handle that does not keep the threads from ending.
    pub(crate) fn weak(&self) -> WeakReaders {
        WeakReaders(Arc::downgrade(&self.questions))
    }

    /// Runs one query on a reader thread, in its turn. The query is aborted after [`ANSWER_TIME_MAX`], and is
    /// skipped if its caller has dropped the future before it begins.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Db) -> DbResult<T> + Send + 'static,
    ) -> Result<T, QueryError> {
        let (reply, answer) = oneshot::channel();
        let job: ReaderQuestion = Box::new(move |db| {
            if !reply.is_closed() {
                let _ = reply.send(answer_until(Instant::now() + ANSWER_TIME_MAX, db, question));
            }
        });
        let human = ASKING_HUMAN.try_with(Arc::clone).ok();
        self.questions.0.push(human, job).map_err(|full| match full {
            Full::OfHuman => QueryError::BusyForHuman,
            Full::OfAll => QueryError::Busy,
        })?;
        answer.await.map_err(|_| QueryError::Stopping)?
    }
}

fn serve(db: &mut Db, queue: &ReadQueue) {
    while let Some(mut turn) = queue.next() {
        if let Some(question) = turn.question.take() {
            question(db);
        }
    }
}

fn answer_until<T>(
    until: Instant,
    db: &mut Db,
    question: impl FnOnce(&Db) -> DbResult<T>,
) -> Result<T, QueryError> {
    db.limit_time(until)?;
    Ok(question(db)?)
}

const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use crate::db::sqlite_state::files::Files;
    use crossbeam_channel::bounded;

    use super::*;
    use crate::common::bounds::QUESTIONS_WAITING;

    const COUNT: &str =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";

    #[test]
    fn an_endless_query_is_interrupted_and_the_next_one_runs() {
        let mut db = Db::in_memory().unwrap();
        let count = |sql| move |db: &Db| db.row(sql, (), |row| row.get::<i64>(0));
        let given_up = answer_until(Instant::now(), &mut db, count(COUNT)).unwrap_err();
        assert!(matches!(given_up, QueryError::TooSlow), "{given_up:?}");
        let until = Instant::now() + ANSWER_TIME_MAX;
        assert_eq!(answer_until(until, &mut db, count("SELECT 7")).unwrap(), 7);
    }

    #[test]
    fn a_query_over_the_queue_limit_is_rejected_at_once() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("test.db");
        Db::create(&path).unwrap().batch("CREATE TABLE t (a INTEGER) STRICT").unwrap();
        let (readers, threads) =
            Readers::start(&Files { main: path, usage: None }.into(), &Alarm::default()).unwrap();
        let (go, wait) = bounded::<()>(0);
        let (started, starts) = bounded(THREADS);
        for _ in 0..THREADS {
            let (wait, started) = (wait.clone(), started.clone());
            let hold = move |_: &mut Db| {
                started.send(()).unwrap();
                let _ = wait.recv();
            };
            readers.questions.0.push(None, Box::new(hold)).unwrap();
        }
        (0..THREADS).for_each(|_| starts.recv().unwrap());
        (0..QUESTIONS_WAITING.max()).for_each(|_| readers.questions.0.push(None, Box::new(|_| ())).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let refused = runtime.block_on(readers.ask(|_| Ok(())));
        assert!(matches!(refused, Err(QueryError::Busy)), "{refused:?}");
        drop(go);
        let written = loop {
            // The queue gets free places as the earlier queries are answered.
            match runtime.block_on(readers.ask(|db| db.execute("DELETE FROM t", ()))) {
                Err(QueryError::Busy) => std::thread::yield_now(),
                other => break other,
            }
        };
        assert!(matches!(written, Err(QueryError::Sql(_))), "readers do not write: {written:?}");
        drop(readers);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
