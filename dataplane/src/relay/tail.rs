//! The rest of an answer whose client has left. Some protocols report usage after the end of the answer, and reasoning
//! that no client sees shows in it alone. So the upstream is read for a bounded moment more, and closed as soon as
//! its usage has come.

use std::cell::RefCell;
use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::stream::Relay;

/// Relays of one worker on their way to the task that reads them on.
#[derive(Debug)]
pub(crate) struct Tails {
    door: mpsc::Sender<Box<Relay>>,
    inbox: RefCell<Option<mpsc::Receiver<Box<Relay>>>>,
}

impl Default for Tails {
    fn default() -> Self {
        let (door, inbox) = mpsc::channel(TAILS_MAX);
        Self { door, inbox: RefCell::new(Some(inbox)) }
    }
}

impl Tails {
    /// Has `relay` read on; one too many is dropped, and so recorded as it stands.
    pub(super) fn take(&self, relay: Box<Relay>) {
        drop(self.door.try_send(relay));
    }

    /// Reads on for up to `grace` each. Runs as long as the worker does; what is left then is recorded as it stands.
    pub(crate) async fn keep(inbox: Option<mpsc::Receiver<Box<Relay>>>, grace: Duration) {
        let Some(mut inbox) = inbox else { return };
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                relay = inbox.recv(), if running.len() < TAILS_MAX => match relay {
                    Some(relay) => drop(running.spawn_local(read_on(relay, Instant::now() + grace))),
                    None => return,
                },
                Some(_) = running.join_next() => {}
            }
        }
    }

    /// The other end, once.
    pub(crate) fn inbox(&self) -> Option<mpsc::Receiver<Box<Relay>>> {
        self.inbox.take()
    }
}

/// Reads `relay` until its usage has come, its answer ends or it is `end`.
async fn read_on(mut relay: Box<Relay>, end: Instant) {
    let mut bytes = 0_usize;
    while relay.is_owed() && bytes < TAIL_BYTES_MAX {
        match timeout_at(end, poll_fn(|cx| relay.poll_piece(cx))).await {
            Ok(Some(length)) => bytes = bytes.saturating_add(length),
            Ok(None) | Err(_) => return,
        }
    }
}

/// Answers of one worker that are read on at the same time, and as many may wait for that.
const TAILS_MAX: usize = 256;
/// Bytes that are read of each.
const TAIL_BYTES_MAX: usize = 256 << 10;
