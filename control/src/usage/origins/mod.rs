//! The origins of stored state: which provider instance created a response or a conversation, and for whom. They arrive
//! with the usage events and are stored in their transaction (`table.rs`). One thread answers the data plane's look-ups,
//! each once, with a connection of its own: neither a query of an administrator nor the writer delays them. Their number is
//! bounded for each owner and for all (`allowance.rs`).

mod allowance;
mod table;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use shared::alarm::Alarm;
use shared::clock::unix_ms;
use shared::port::{BoxFuture, LookupRefusal, StateOrigin, StateOrigins, WantedState};
use tokio::sync::oneshot;

use self::allowance::{Allowances, Permit};
pub(crate) use self::table::{KEPT_DAYS, add, forget};
use super::gauge::Gauge;
use crate::db::engine::{Db, DbResult};
use crate::db::storage::Storage;

/// The thread before its start. Look-ups that are made already wait in its queue.
#[derive(Debug)]
pub(crate) struct OriginQueue {
    port: Arc<OriginPort>,
    orders: Receiver<OriginOrder>,
    gauge: Arc<Gauge>,
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct OriginThread {
    orders: Sender<OriginOrder>,
    thread: JoinHandle<()>,
}

/// The port of the data plane.
#[derive(Debug)]
struct OriginPort {
    orders: Sender<OriginOrder>,
    allowances: Arc<Allowances>,
}

#[derive(Debug)]
enum OriginOrder {
    Find(Lookup),
    Stop,
}

/// A look-up that waits.
#[derive(Debug)]
struct Lookup {
    wanted: WantedState,
    reply: oneshot::Sender<Result<StateOrigin, LookupRefusal>>,
    permit: Permit,
}

impl OriginQueue {
    /// Creates the queue of a state whose metering is described by `gauge`.
    pub(crate) fn new(gauge: Arc<Gauge>) -> Self {
        let (sender, orders) = bounded(WAITING_MAX);
        let port = Arc::new(OriginPort { orders: sender, allowances: Arc::default() });
        Self { port, orders, gauge }
    }

    /// Returns the port for the data plane.
    pub(crate) fn port(&self) -> Arc<dyn StateOrigins> {
        Arc::<OriginPort>::clone(&self.port)
    }

    /// Starts the thread.
    pub(crate) fn start(self, storage: &Storage, alarm: &Alarm) -> io::Result<OriginThread> {
        let Self { port, orders, gauge } = self;
        let db = storage.reader().map_err(io::Error::other)?;
        let thread = alarm.spawn("llmgw-origins", move || {
            OriginReader { db, gauge, is_failing: false }.serve(&orders);
            Ok(())
        })?;
        Ok(OriginThread { orders: port.orders.clone(), thread })
    }
}

impl OriginThread {
    /// Answers what was asked before, and ends the thread.
    pub(crate) fn stop(self) {
        if self.orders.send(OriginOrder::Stop).is_err() || self.thread.join().is_err() {
            tracing::error!("the thread of stored state had ended unexpectedly");
        }
    }
}

impl StateOrigins for OriginPort {
    fn find(&self, wanted: WantedState) -> BoxFuture<Result<StateOrigin, LookupRefusal>> {
        let Some(permit) = self.allowances.enter(&wanted.owner, Instant::now()) else {
            return Box::pin(std::future::ready(Err(LookupRefusal::Busy)));
        };
        let (reply, answer) = oneshot::channel();
        let queued = self.orders.try_send(OriginOrder::Find(Lookup { wanted, reply, permit }));
        let is_full = queued.is_err_and(|error| error.is_full());
        Box::pin(async move {
            let lost = if is_full { LookupRefusal::Busy } else { LookupRefusal::Failed };
            answer.await.unwrap_or(Err(lost))
        })
    }
}

/// The thread's connection.
struct OriginReader {
    db: Db,
    gauge: Arc<Gauge>,
    /// True if the last look-up failed.
    is_failing: bool,
}

impl OriginReader {
    fn serve(mut self, orders: &Receiver<OriginOrder>) {
        while let Ok(OriginOrder::Find(Lookup { wanted, reply, permit })) = orders.recv() {
            if reply.is_closed() {
                continue;
            }
            let found = self.find(&wanted);
            permit.end(matches!(found, Ok(StateOrigin::Unknown | StateOrigin::Foreign)), Instant::now());
            let _ = reply.send(found);
        }
    }

    fn find(&mut self, wanted: &WantedState) -> Result<StateOrigin, LookupRefusal> {
        // Read before the table: what is stored after that is found.
        let is_behind = self.gauge.is_behind.load(Ordering::Acquire);
        let found = self.read(wanted);
        let was_failing = std::mem::replace(&mut self.is_failing, found.is_err());
        match found {
            Ok(StateOrigin::Unknown) if is_behind => Err(LookupRefusal::Behind),
            Ok(origin) => Ok(origin),
            Err(error) => {
                if !was_failing {
                    tracing::error!("the origins of stored responses cannot be read: {error}");
                }
                Err(LookupRefusal::Failed)
            }
        }
    }

    fn read(&mut self, wanted: &WantedState) -> DbResult<StateOrigin> {
        self.db.limit_time(Instant::now() + READING_TIME)?;
        table::find(&self.db, wanted, unix_ms())
    }
}

/// The maximum number of look-ups that wait, of all owners.
const WAITING_MAX: usize = 256;
/// A look-up reads for this time at most, because others wait for it.
const READING_TIME: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests;
