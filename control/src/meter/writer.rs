//! The writer thread: the only one that writes to the database. It looks at the journal on a timer, so that an
//! exchange wakes nobody.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use tokio::sync::oneshot;

use super::ingest::{Meter, Round};

/// The writer thread's handle.
#[derive(Debug)]
pub(crate) struct Writer {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

/// Asks the writer thread to store at once what there is.
#[derive(Clone, Debug)]
pub(crate) struct Flusher(Sender<Job>);

#[derive(Debug)]
enum Job {
    /// Store now, then answer.
    Flush(oneshot::Sender<()>),
    /// Store all there is and end.
    Stop,
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn start(meter: Meter) -> io::Result<Self> {
        let (jobs, waiting) = bounded(JOBS_MAX);
        let thread =
            thread::Builder::new().name("llmgw-writer".into()).spawn(move || run(meter, &waiting))?;
        Ok(Self { jobs, thread })
    }

    /// For those who want to see what has just ended.
    pub(crate) fn flusher(&self) -> Flusher {
        Flusher(self.jobs.clone())
    }

    /// Stores all that is queued and ends the thread; gives up after [`STOP_TIME_MAX`] if storing fails.
    pub(crate) fn stop(self) {
        if self.jobs.send(Job::Stop).is_err() || self.thread.join().is_err() {
            tracing::error!("the writer thread had ended before its time");
        }
    }
}

impl Flusher {
    /// Returns when all events that were queued before are stored, or storing fails, or `time_max` is over.
    pub(crate) async fn flush(&self, time_max: Duration) {
        let (reply, stored) = oneshot::channel();
        match self.0.try_send(Job::Flush(reply)) {
            Ok(()) => {
                let _ = tokio::time::timeout(time_max, stored).await;
            }
            // The timer stores soon enough.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

fn run(mut meter: Meter, jobs: &Receiver<Job>) {
    let mut pause = PAUSE_MIN;
    loop {
        let job = jobs.recv_timeout(pause);
        let is_asked = !matches!(job, Err(RecvTimeoutError::Timeout));
        let round = if is_asked || meter.is_due() { meter.round() } else { Round::Idle };
        pause = match round {
            Round::More => Duration::ZERO,
            Round::Worked => PAUSE_MIN,
            Round::Idle if meter.is_waiting() => PAUSE_MIN,
            Round::Idle => (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX),
            Round::Failing(wait) => wait,
        };
        // Nothing here is urgent: whoever relays on this core goes first.
        thread::yield_now();
        match job {
            Ok(Job::Flush(reply)) => {
                flush(&mut meter, round);
                let _ = reply.send(());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Job::Stop) | Err(RecvTimeoutError::Disconnected) => return finish(&mut meter),
        }
    }
}

/// Goes on while there is more, within bounds: others wait too.
fn flush(meter: &mut Meter, mut round: Round) {
    for _ in 0..FLUSH_ROUNDS_MAX {
        if round != Round::More {
            return;
        }
        round = meter.round();
    }
}

fn finish(meter: &mut Meter) {
    let until = Instant::now() + STOP_TIME_MAX;
    loop {
        let round = meter.round();
        if meter.is_done() {
            break;
        }
        if Instant::now() > until {
            let count = meter.unstored();
            tracing::error!(
                "{count} usage records are not in the database; the next start reads them from the journal"
            );
            break;
        }
        match round {
            Round::More | Round::Worked => {}
            Round::Idle => thread::park_timeout(PAUSE_MIN),
            Round::Failing(wait) => thread::park_timeout(wait),
        }
    }
    meter.checkpoint();
}

const JOBS_MAX: usize = 64;
/// How often the journal is looked at while events come.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// And while none come.
const PAUSE_MAX: Duration = Duration::from_millis(250);
const FLUSH_ROUNDS_MAX: usize = 64;
/// How long a stop waits for a database that fails.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);
