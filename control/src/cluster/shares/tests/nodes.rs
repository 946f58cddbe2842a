//! A node of the tests: its counters, the thread of its shares, its connection, and what would be on its disk.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postgres_server::{PostgresProxy, ProxyMode};
use shared::alarm::Alarm;
use shared::clock::{since_boot_ms, unix_ms};
use shared::port::ShareGrants;
use shared::quota::share::{Fence, WAIT_MS};
use shared::quota::{Claim, Counters, Metric, Period, Quota, Reservation, Scope, ShareNeed, Spent, Subject};

use super::super::{OpenSession, ShareOrder, ShareQueue, ShareThread};
use super::cluster::Budgets;
use crate::db::testing::connect;

/// The metrics and periods of the two limits that each request uses.
pub(super) type Kinds = [(Metric, Option<Period>); 2];

pub(super) const BUDGETS: Kinds =
    [(Metric::Requests, Some(Period::Total)), (Metric::TotalTokens, Some(Period::Total))];
pub(super) const TIMED: Kinds =
    [(Metric::ConcurrentRequests, None), (Metric::TotalTokens, Some(Period::Minute))];
/// The ID of each limit.
pub(super) const IDS: [&str; 2] = ["a", "b"];

pub(super) struct Node {
    pub(super) id: u32,
    pub(super) proxy: PostgresProxy,
    /// `None` while the node is down.
    pub(super) process: Option<Arc<Process>>,
    pub(super) thread: Option<ShareThread>,
}

/// A running process of a node.
pub(super) struct Process {
    pub(super) id: u32,
    quotas: Vec<Arc<Quota>>,
    port: Arc<dyn ShareGrants>,
    pub(super) disk: Mutex<Disk>,
}

/// The journal of a node, summed up.
#[derive(Clone, Copy, Default)]
pub(super) struct Disk {
    is_dead: bool,
    pub(super) used: [u64; 2],
    held: [u64; 2],
}

/// A request that runs.
pub(super) struct Running {
    process: Arc<Process>,
    reservation: Reservation,
    pub(super) held: [u64; 2],
    wanted: u64,
}

impl Node {
    pub(super) fn new(id: u32, server: std::net::SocketAddr) -> Self {
        Self { id, proxy: PostgresProxy::start(server), process: None, thread: None }
    }

    /// Starts a process that has found this disk.
    pub(super) fn start(&mut self, process: Fence, url: String, kinds: Kinds, disk: Disk) {
        let counters = Arc::new(Counters::of_node(self.id));
        let now_ms = unix_ms();
        let quotas = (0..2).map(|budget| {
            let (metric, period) = kinds[budget];
            let quota = Quota {
                id: IDS[budget].into(),
                subject: Subject::Gateway,
                scope: Scope::default(),
                metric,
                period,
                // The limit in the database is the one that holds.
                limit: 1 << 40,
                is_hard: true,
                wait_ms: 0,
                counter: Arc::new(counters.create(period, now_ms)),
            };
            if period.is_some() {
                quota.counter.add(now_ms, disk.used[budget], now_ms);
            }
            counters.put(quota)
        });
        let quotas = quotas.collect();
        let open: OpenSession = Box::new(move || Ok(connect(&url)));
        let queue = ShareQueue::new(process, Arc::default());
        let port = queue.port();
        self.thread = Some(queue.start(counters, open, &Alarm::default()).unwrap());
        let disk = Mutex::new(Disk { is_dead: false, held: [0; 2], ..disk });
        self.process = Some(Arc::new(Process { id: self.id, quotas, port, disk }));
    }

    /// Returns what the node has used and may use, for messages.
    pub(super) fn state(&self) -> String {
        let is_over = self.thread.as_ref().is_none_or(|thread| thread.thread.is_finished());
        let process = self.process.as_ref().unwrap();
        let used = process.disk.lock().unwrap().used;
        let taken: Vec<u64> =
            process.quotas.iter().map(|quota| quota.counter.share().unwrap().taken(0)).collect();
        format!("node {}: thread ended: {is_over}, used {used:?}, taken {taken:?}", self.id)
    }

    /// Kills the process. Returns its disk, on which interrupted requests count with what they held.
    pub(super) fn kill(&mut self) -> Option<Disk> {
        let process = self.process.take()?;
        let disk = {
            let mut disk = process.disk.lock().unwrap();
            disk.is_dead = true;
            let held = disk.held;
            for (used, held) in disk.used.iter_mut().zip(held) {
                *used += held;
            }
            *disk
        };
        // A transaction may be on its way.
        self.proxy.set(ProxyMode::Cut);
        let thread = self.thread.take().unwrap();
        thread.orders.send(ShareOrder::Abandon).unwrap();
        thread.thread.join().unwrap();
        self.proxy.set(ProxyMode::Pass);
        Some(disk)
    }
}

impl Process {
    /// Returns what the counter of a limit has taken, `None` after the end of the process.
    pub(super) fn taken(&self, at: usize) -> Option<u64> {
        let taken = self.quotas[at].counter.share().unwrap().taken(0);
        (!self.disk.lock().unwrap().is_dead).then_some(taken)
    }

    /// Begins a request as the data plane does: it waits for a share where one is missing.
    pub(super) fn begin(
        self: &Arc<Self>,
        claim: &Claim,
        only: Option<usize>,
        budgets: &Budgets,
    ) -> Option<Running> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let until_ms = since_boot_ms() + WAIT_MS;
        loop {
            let need = match self.take(claim, only, budgets) {
                Ok(running) => return running,
                Err(need) => need?,
            };
            let left_ms = until_ms.saturating_sub(since_boot_ms());
            let waiting = self.port.wait(need, until_ms);
            let woken = runtime
                .block_on(async { tokio::time::timeout(Duration::from_millis(left_ms), waiting).await });
            if !woken.unwrap_or(false) {
                budgets.figures.refused();
                return None;
            }
            budgets.figures.waited();
        }
    }

    fn take(
        self: &Arc<Self>,
        claim: &Claim,
        only: Option<usize>,
        budgets: &Budgets,
    ) -> Result<Option<Running>, Option<ShareNeed>> {
        let mut disk = self.disk.lock().unwrap();
        if disk.is_dead {
            return Ok(None);
        }
        let quotas = self.quotas.iter().enumerate();
        let quotas = quotas.filter(|(at, _)| only.is_none_or(|only| only == *at)).map(|(_, quota)| quota);
        let reservation =
            Reservation::take(quotas, claim, unix_ms()).map_err(|exceeded| exceeded.share_need(unix_ms()))?;
        let held = [0, 1].map(|at| reservation.held(self.quotas[at].metric).unwrap_or(0));
        for (sum, held) in disk.held.iter_mut().zip(held) {
            *sum += held;
        }
        drop(disk);
        budgets.took(held);
        let wanted = claim.input_wanted;
        Ok(Some(Running { process: Arc::clone(self), reservation, held, wanted }))
    }
}

impl Running {
    /// Ends the request, which used a request and so many per cent of what it wanted, and at most what it held unless that
    /// was less than it wanted.
    pub(super) fn end(self, percent: u64, budgets: &Budgets) {
        let Self { process, reservation, held, wanted } = self;
        let tokens = if held[1] == 0 { 0 } else { wanted * percent / 100 };
        let is_concurrent = process.quotas[0].metric == Metric::ConcurrentRequests;
        let used = [if is_concurrent { 0 } else { held[0] }, tokens];
        let mut disk = process.disk.lock().unwrap();
        if disk.is_dead {
            // It was interrupted, and counts with what it held.
            return reservation.release();
        }
        budgets.settles(held, used);
        for at in 0..2 {
            disk.held[at] -= held[at];
            disk.used[at] += used[at];
        }
        reservation.settle(&Spent {
            requests: used[0],
            input_tokens: used[1],
            output_tokens: 0,
            cost_nano_usd: None,
        });
    }
}
