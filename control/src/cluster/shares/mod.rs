//! The shares of this node in the limits that the nodes of a cluster share ([`shared::quota::share`]): a thread renews them
//! in the database, and gets more when a counter of the request path is full.

mod allowances;
mod driver;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use shared::alarm::Alarm;
use shared::port::{BoxFuture, ShareGrants};
use shared::quota::share::{Fence, LOOK_MS};
use shared::quota::{Counters, ShareNeed};
use tokio::sync::oneshot;

pub(crate) use self::driver::OpenSession;
use self::driver::{ShareDriver, Turn};
use super::superseded;
use crate::common::node_figures::NodeFigures;

/// The thread before its start. Requests that wait already are answered after it.
#[derive(Debug)]
pub(crate) struct ShareQueue {
    /// This process before its first transaction.
    process: Fence,
    figures: Arc<NodeFigures>,
    port: Arc<SharePort>,
    orders: Receiver<ShareOrder>,
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct ShareThread {
    orders: Sender<ShareOrder>,
    thread: JoinHandle<()>,
}

/// The port of the data plane.
#[derive(Debug)]
struct SharePort {
    orders: Sender<ShareOrder>,
}

#[derive(Debug)]
enum ShareOrder {
    Wait {
        need: ShareNeed,
        until_ms: u64,
        reply: oneshot::Sender<bool>,
    },
    Stop,
    /// Ends the thread as a kill of the process does.
    #[cfg(test)]
    Abandon,
}

impl ShareQueue {
    /// Creates the queue of a process that is registered.
    pub(crate) fn new(process: Fence, figures: Arc<NodeFigures>) -> Self {
        let (sender, orders) = bounded(ORDERS_MAX);
        Self { process, figures, port: Arc::new(SharePort { orders: sender }), orders }
    }

    /// Returns the port for the data plane.
    pub(crate) fn port(&self) -> Arc<dyn ShareGrants> {
        Arc::<SharePort>::clone(&self.port)
    }

    /// Starts the thread of the node that `counters` belong to. They must already contain what an earlier process of the
    /// node has used, and what its interrupted requests held.
    pub(crate) fn start(
        self,
        counters: Arc<Counters>,
        open: OpenSession,
        alarm: &Alarm,
    ) -> io::Result<ShareThread> {
        let Self { process, figures, port, orders } = self;
        let mut driver = ShareDriver::new((process, figures), open, counters);
        // The first request finds the shares that the node had before.
        driver.turn();
        let thread = alarm.spawn("llmgw-shares", move || run(driver, &orders))?;
        Ok(ShareThread { orders: port.orders.clone(), thread })
    }
}

impl ShareThread {
    /// True if the thread has ended, because another process has the ID of the node.
    #[cfg(test)]
    fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Gives back what no request holds, and ends the thread.
    pub(crate) fn stop(self) {
        if self.orders.send(ShareOrder::Stop).is_err() || self.thread.join().is_err() {
            tracing::error!("the thread of shares had ended unexpectedly");
        }
    }
}

impl ShareGrants for SharePort {
    fn wait(&self, need: ShareNeed, until_ms: u64) -> BoxFuture<bool> {
        let (reply, answer) = oneshot::channel();
        match self.orders.try_send(ShareOrder::Wait { need, until_ms, reply }) {
            Ok(()) => Box::pin(async { answer.await.unwrap_or(false) }),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Box::pin(std::future::ready(false)),
        }
    }
}

/// Runs the shares until the thread is stopped.
fn run(mut driver: ShareDriver, orders: &Receiver<ShareOrder>) -> io::Result<()> {
    let mut pause = Duration::ZERO;
    loop {
        let mut next = match orders.recv_timeout(pause) {
            Ok(order) => Some(order),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(ShareOrder::Stop),
        };
        while let Some(order) = next {
            match order {
                ShareOrder::Wait { need, until_ms, reply } => driver.wait(&need, until_ms, reply),
                ShareOrder::Stop => {
                    driver.drain();
                    return Ok(());
                }
                #[cfg(test)]
                ShareOrder::Abandon => return Ok(()),
            }
            next = orders.try_recv().ok();
        }
        pause = match driver.turn() {
            // More may be due, and requests may have come in the meantime.
            Turn::Ran => Duration::ZERO,
            Turn::Idle => Duration::from_millis(LOOK_MS),
            Turn::Failed => FAILED_PAUSE,
            Turn::Superseded => {
                return Err(superseded());
            }
        };
    }
}

/// Orders that wait; a request that finds more is refused.
const ORDERS_MAX: usize = 1_024;
/// The time between two looks while the database does not answer.
const FAILED_PAUSE: Duration = Duration::from_millis(10);
