//! Reads the rest of an answer whose client has disconnected. Some protocols report usage after the end of the answer,
//! and only there hidden reasoning is counted. The upstream is read for a bounded time and closed as soon as its usage
//! has arrived.

use std::cell::RefCell;
use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::stream::Relay;
use crate::bounds::LATE_USAGE;

/// Queue of one worker's relays for the task that reads them without a client.
#[derive(Debug)]
pub(crate) struct LateUsageQueue {
    sender: mpsc::Sender<Box<Relay>>,
    receiver: RefCell<Option<mpsc::Receiver<Box<Relay>>>>,
}

impl Default for LateUsageQueue {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(LATE_USAGE.max());
        Self { sender, receiver: RefCell::new(Some(receiver)) }
    }
}

impl LateUsageQueue {
    /// Queues `relay`. If the queue is full, the relay is dropped and recorded with the usage reported so far.
    pub(super) fn take(&self, relay: Box<Relay>) {
        if self.sender.try_send(relay).is_err() {
            LATE_USAGE.reach();
        }
    }

    /// Reads queued relays for up to `grace` each, until the worker ends. The remaining ones are then recorded with the
    /// usage reported so far.
    pub(crate) async fn read_all(inbox: Option<mpsc::Receiver<Box<Relay>>>, grace: Duration) {
        let Some(mut inbox) = inbox else { return };
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                relay = inbox.recv(), if running.len() < LATE_USAGE.max() => match relay {
                    Some(relay) => drop(running.spawn_local(read_on(relay, Instant::now() + grace))),
                    None => return,
                },
                Some(_) = running.join_next() => {}
            }
        }
    }

    /// Returns the receiver on the first call, then `None`.
    pub(crate) fn take_receiver(&self) -> Option<mpsc::Receiver<Box<Relay>>> {
        self.receiver.take()
    }
}

/// Reads `relay` until its usage has arrived, its answer ends or `end` is reached.
async fn read_on(mut relay: Box<Relay>, end: Instant) {
    let mut bytes = 0_usize;
    while relay.awaits_usage() && bytes < BYTES_MAX {
        match timeout_at(end, poll_fn(|cx| relay.poll_piece(cx))).await {
            Ok(Some(length)) => bytes = bytes.saturating_add(length),
            Ok(None) | Err(_) => return,
        }
    }
}

/// Maximum bytes read per answer.
const BYTES_MAX: usize = 256 << 10;
