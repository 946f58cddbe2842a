//! The writer thread: the only thread that writes to the database and publishes snapshots. It polls the journal on a
//! timer, so that an exchange never wakes it; changes by administrators are executed immediately.

pub(crate) mod alerts;
pub(crate) mod command;
pub(crate) mod webhook;

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use shared::alarm::Alarm;
use shared::clock::unix_ms;
use tokio::sync::oneshot;

use crate::cluster::follow::Follower;
use crate::cluster::superseded;
use crate::common::actor::Actor;
use crate::common::bounds::WRITER_JOBS;
use crate::common::vault::VaultKeys;
use crate::db::documents::{self, PackedDocument};
use crate::db::engine::{Db, DbResult};
use crate::db::error::QueryError;
use crate::routing::config::Routing;
use crate::routing::publish::{Publisher, ReloadReport, Touched};
use crate::usage::ingest::{Meter, Round};
use crate::usage::retention::RetentionPass;
use crate::writer::command::{
    AdminWrite, Command, CommandRefusal, DryRun, QueuedDryRun, QueuedWrite, WriteOutcome, dry_run, execute,
    publish,
};

/// The running writer thread.
#[derive(Debug)]
pub(crate) struct Writer {
    jobs: Sender<WriterJob>,
    thread: JoinHandle<()>,
}

/// Sends jobs to the writer thread; cloneable.
#[derive(Clone, Debug)]
pub(crate) struct WriterHandle(Sender<WriterJob>);

/// The state that the writer thread owns.
#[derive(Debug)]
pub(crate) struct WriterState {
    pub(crate) meter: Meter,
    pub(crate) publisher: Publisher,
    pub(crate) keys: Arc<VaultKeys>,
    pub(crate) retention: RetentionPass,
    /// Follows the changes of the other nodes that share the database, if there are any.
    pub(crate) follower: Option<Follower>,
}

enum WriterJob {
    /// Store queued usage now, then reply.
    Flush(oneshot::Sender<()>),
    /// Execute a change of the state.
    Write(Box<QueuedWrite>),
    /// Apply a change, and roll it back.
    DryRun(Box<QueuedDryRun>),
    /// Publish the changed configuration file, and report when it is in force.
    File(Box<Routing>, ReloadReport),
    /// Store a document, which other nodes then reread.
    Document(Box<PackedDocument>, oneshot::Sender<DbResult<()>>),
    /// Look for changes of other nodes now, and reply at once.
    Look(oneshot::Sender<()>),
    /// Publish again, because something outside the database has changed.
    Publish(Touched),
    /// Run a short operation on the usage rows.
    UsageTask(WriterTask),
    /// Run a short operation on other rows.
    Task(WriterTask),
    /// Store everything that is queued and stop.
    Stop,
}

type WriterTask = Box<dyn FnOnce(&mut Db) + Send>;

impl Writer {
    /// Starts the writer thread.
    pub(crate) fn start(state: WriterState, alarm: &Alarm) -> io::Result<Self> {
        let (jobs, waiting) = bounded(WRITER_JOBS.max());
        let thread = alarm.spawn("llmgw-writer", move || run(state, &waiting))?;
        Ok(Self { jobs, thread })
    }

    /// Returns a handle that sends jobs to this thread.
    pub(crate) fn handle(&self) -> WriterHandle {
        WriterHandle(self.jobs.clone())
    }

    /// Stores everything in the queue and ends the thread; times out after [`STOP_TIME_MAX`] if storing fails.
    pub(crate) fn stop(self) {
        if self.jobs.send(WriterJob::Stop).is_err() || self.thread.join().is_err() {
            tracing::error!("the writer thread had ended unexpectedly");
        }
    }
}

impl WriterHandle {
    /// Waits until all events that were queued before are stored, storing fails, or `time_max` has passed.
    pub(crate) async fn flush(&self, time_max: Duration) {
        let (reply, stored) = oneshot::channel();
        match self.0.try_send(WriterJob::Flush(reply)) {
            Ok(()) => {
                let _ = tokio::time::timeout(time_max, stored).await;
            }
            // The queue is full or closed; the timer will store the events soon.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }

    /// Runs `task` on the usage rows. It must take a few milliseconds at most, because other jobs wait for it.
    pub(crate) async fn run_on_usage<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Db) -> DbResult<T> + Send + 'static,
    ) -> Result<T, QueryError> {
        self.run_as(WriterJob::UsageTask, task).await
    }

    /// Runs `task`, which must take a few milliseconds at most, on rows that are neither usage nor published. For work of
    /// the gateway itself that is not audited.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Db) -> DbResult<T> + Send + 'static,
    ) -> Result<T, QueryError> {
        self.run_as(WriterJob::Task, task).await
    }

    async fn run_as<T: Send + 'static>(
        &self,
        job: fn(WriterTask) -> WriterJob,
        task: impl FnOnce(&mut Db) -> DbResult<T> + Send + 'static,
    ) -> Result<T, QueryError> {
        let (reply, done) = oneshot::channel();
        self.send(job(Box::new(move |db| {
            let _ = reply.send(task(db));
        })))?;
        Ok(done.await.map_err(|_| QueryError::Stopping)??)
    }

    /// Executes a change; returns when it is committed and published.
    pub(crate) async fn write(&self, write: AdminWrite) -> WriteOutcome {
        self.queue(write)?.await.unwrap_or(Err(CommandRefusal::Failed(QueryError::Stopping)))
    }

    /// Applies a change, rolls it back, and returns its preview.
    pub(crate) async fn dry_run(
        &self,
        command: Box<dyn Command>,
        actor: Actor,
    ) -> Result<DryRun, CommandRefusal> {
        let (caller, outcome) = oneshot::channel();
        self.send(WriterJob::DryRun(Box::new((command, actor, caller))))?;
        outcome.await.unwrap_or(Err(CommandRefusal::Failed(QueryError::Stopping)))
    }

    /// Queues a change and returns the receiver of its outcome.
    pub(crate) fn queue(&self, write: AdminWrite) -> Result<oneshot::Receiver<WriteOutcome>, QueryError> {
        let (caller, outcome) = oneshot::channel();
        self.send(WriterJob::Write(Box::new((write, caller))))?;
        Ok(outcome)
    }

    fn send(&self, job: WriterJob) -> Result<(), QueryError> {
        self.0.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => {
                WRITER_JOBS.reach();
                QueryError::Busy
            }
            TrySendError::Disconnected(_) => QueryError::Stopping,
        })
    }

    /// Requests publication of what `touched` names. Returns false if the caller must try again.
    pub(crate) fn publish(&self, touched: Touched) -> bool {
        self.0.try_send(WriterJob::Publish(touched)).is_ok()
    }

    /// Stores a document. Returns when it is committed.
    pub(crate) async fn store_document(&self, document: PackedDocument) -> Result<(), QueryError> {
        let (reply, done) = oneshot::channel();
        self.send(WriterJob::Document(Box::new(document), reply))?;
        Ok(done.await.map_err(|_| QueryError::Stopping)??)
    }

    /// Lets the thread look for changes of other nodes, and waits until it begins to. Blocks the caller. Returns false if the
    /// thread has ended.
    pub(crate) fn look(&self) -> bool {
        let (reply, begun) = oneshot::channel();
        match self.0.send(WriterJob::Look(reply)) {
            Ok(()) => {
                let _ = begun.blocking_recv();
                true
            }
            Err(_) => false,
        }
    }

    /// Requests publication of the changed configuration file. Returns false if the caller must try again.
    pub(crate) fn replace_file(&self, routing: Routing, report: ReloadReport) -> bool {
        self.0.try_send(WriterJob::File(Box::new(routing), report)).is_ok()
    }
}

/// Works until it is stopped. Fails if another process has started with the identity of this node.
fn run(mut state: WriterState, jobs: &Receiver<WriterJob>) -> io::Result<()> {
    let mut pause = PAUSE_MIN;
    loop {
        let until_followed = state.meter.until_followed().unwrap_or(pause);
        let job = state.serve(jobs, pause.min(until_followed));
        state.follow();
        let WriterState { meter, keys, retention, follower, .. } = &mut state;
        let is_ordered =
            matches!(job, Ok(WriterJob::Flush(_) | WriterJob::Stop) | Err(RecvTimeoutError::Disconnected));
        let round = if is_ordered || meter.is_due() { meter.round() } else { Round::Idle };
        pause = match round {
            Round::More => Duration::ZERO,
            Round::Worked => PAUSE_MIN,
            Round::Idle if meter.is_waiting() => PAUSE_MIN,
            Round::Idle => (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX),
            Round::Failing(wait) => wait,
            Round::Superseded => return Err(superseded()),
        };
        if round != Round::More {
            meter.index_requests();
            meter.follow_records();
            if retention.is_due() && follower.as_ref().is_none_or(|follower| follower.duty().is_held()) {
                retention.step(meter.usage_mut(), keys);
            }
            if let Some(follower) = follower {
                follower.merge_usage(meter.db_mut());
            }
        }
        // Nothing here is urgent: let data-plane threads on this core run first.
        thread::yield_now();
        match job {
            Ok(WriterJob::Flush(reply)) => {
                flush(meter, round);
                let _ = reply.send(());
            }
            Ok(WriterJob::Stop) | Err(RecvTimeoutError::Disconnected) => {
                finish(meter, follower.as_ref());
                return Ok(());
            }
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

impl WriterState {
    /// Waits up to `pause` for a job. Executes changes and the changes queued behind them, for [`TURN_TIME_MAX`], or one
    /// job of another kind. Then usage has its turn, however many jobs wait. `Flush` and `Stop` are returned to the caller.
    fn serve(&mut self, jobs: &Receiver<WriterJob>, pause: Duration) -> Result<WriterJob, RecvTimeoutError> {
        let look = self.follower.as_ref().map(Follower::wait);
        let mut job = jobs.recv_timeout(look.map_or(pause, |look| look.min(pause)));
        let until = Instant::now() + TURN_TIME_MAX;
        let mut writes = Vec::new();
        while let Ok(WriterJob::Write(write)) = job {
            writes.push(*write);
            if writes.len() >= WRITES_MAX {
                self.execute(std::mem::take(&mut writes));
                if Instant::now() > until {
                    return Err(RecvTimeoutError::Timeout);
                }
            }
            job = jobs.try_recv().map_err(|_| RecvTimeoutError::Timeout);
        }
        // The changes before a job are part of the state that it starts from.
        self.execute(writes);
        match job {
            Ok(WriterJob::DryRun(dry_run)) => self.dry_run(*dry_run),
            Ok(WriterJob::File(routing, report)) => {
                self.publisher.replace_file(*routing, report);
                self.publish();
            }
            Ok(WriterJob::Document(document, reply)) => {
                let _ = reply.send(self.store_document(&document));
            }
            Ok(WriterJob::Look(begun)) => {
                self.follower.iter_mut().for_each(Follower::hurry);
                let _ = begun.send(());
            }
            Ok(WriterJob::Publish(touched)) => {
                self.publisher.owe(touched);
                self.publish();
            }
            Ok(WriterJob::UsageTask(task)) => task(self.meter.usage_mut()),
            Ok(WriterJob::Task(task)) => task(self.meter.db_mut()),
            other => return other,
        }
        Err(RecvTimeoutError::Timeout)
    }

    fn execute(&mut self, writes: Vec<QueuedWrite>) {
        if writes.is_empty() && !self.publisher.is_owing() {
            return;
        }
        let Self { meter, publisher, keys, follower, .. } = self;
        let access = execute(meter.db_mut(), keys, publisher, follower.as_mut(), writes);
        meter.access_changed(&access);
    }

    /// Publishes what other nodes have changed, if it is time to look.
    fn follow(&mut self) {
        let Self { meter, publisher, follower: Some(follower), .. } = self else { return };
        if follower.wait().is_zero() {
            let access = follower.follow(meter.db_mut(), publisher);
            meter.access_changed(&access);
        }
    }

    fn dry_run(&mut self, (command, actor, caller): QueuedDryRun) {
        let Self { meter, publisher, keys, .. } = self;
        let outcome = dry_run(meter.db_mut(), keys, publisher, (command, &actor));
        // A caller that has left needs no outcome.
        let _ = caller.send(outcome);
    }

    fn store_document(&mut self, document: &PackedDocument) -> DbResult<()> {
        let Self { meter, publisher, follower, .. } = self;
        let tx = meter.db_mut().transaction()?;
        let before = follower.as_ref().map(|_| Follower::begin(&tx)).transpose()?;
        let is_new = documents::put(&tx, document, unix_ms())?;
        let others = follower.as_ref().zip(before).filter(|_| is_new);
        let own =
            others.map(|(follower, before)| follower.note(&tx, before, &Touched::DOCUMENTS)).transpose()?;
        tx.commit()?;
        if own.is_none() {
            return Ok(());
        }
        // This node knows the document.
        let access = publish(meter.db_mut(), publisher, follower.as_mut(), Touched::NOTHING, own.as_ref())?;
        meter.access_changed(&access);
        Ok(())
    }

    /// Publishes what is owed. If it fails, the next turn tries again.
    fn publish(&mut self) {
        let Self { meter, publisher, follower, .. } = self;
        match publish(meter.db_mut(), publisher, follower.as_mut(), Touched::NOTHING, None) {
            Ok(access) => meter.access_changed(&access),
            Err(error) => tracing::error!("cannot publish a change yet: {error}"),
        }
    }
}

/// Repeats rounds while more usage is queued, up to a bound, because other jobs wait.
fn flush(meter: &mut Meter, mut round: Round) {
    for _ in 0..FLUSH_ROUNDS_MAX {
        if round != Round::More {
            return;
        }
        round = meter.round();
    }
}

fn finish(meter: &mut Meter, follower: Option<&Follower>) {
    let until = Instant::now() + STOP_TIME_MAX;
    meter.recheck();
    loop {
        let round = meter.round();
        if meter.is_done() {
            break;
        }
        if Instant::now() > until {
            let count = meter.unstored();
            tracing::error!(
                "{count} usage records, or more, may not be in the database yet; the next start reads them from the \
                 journal"
            );
            break;
        }
        match round {
            Round::More | Round::Worked => {}
            Round::Idle => thread::park_timeout(PAUSE_MIN),
            Round::Failing(wait) => thread::park_timeout(wait),
            Round::Superseded => {
                tracing::error!("{}", superseded());
                return;
            }
        }
    }
    if let Some(Err(error)) = follower.map(|follower| follower.leave(meter.db_mut())) {
        tracing::warn!(
            "other nodes will wait for this one for some seconds, because it cannot say that it stops: {error}"
        );
    }
    meter.end();
}

/// The time after which waiting changes let usage have its turn.
const TURN_TIME_MAX: Duration = Duration::from_millis(50);
/// The maximum number of changes in one commit.
const WRITES_MAX: usize = 64;
/// The poll interval of the journal while events arrive.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest poll interval of the journal while no events arrive.
const PAUSE_MAX: Duration = Duration::from_millis(250);
const FLUSH_ROUNDS_MAX: usize = 64;
/// The maximum time that a query waits for recent usage to be stored; the query runs in any case.
pub(crate) const FLUSH_TIME_MAX: Duration = Duration::from_millis(500);
/// The maximum time that a stop waits for a failing database.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::bounds::tests::passes;

    #[test]
    fn jobs_beyond_the_queue_are_refused_and_counted() {
        let (jobs, _waiting) = bounded(WRITER_JOBS.max());
        let handle = WriterHandle(jobs);
        let send = || handle.send(WriterJob::Publish(Touched::ACCESS));
        (0..WRITER_JOBS.max()).for_each(|_| send().unwrap());
        assert!(matches!(passes(&WRITER_JOBS, send), Err(QueryError::Busy)));
    }
}
