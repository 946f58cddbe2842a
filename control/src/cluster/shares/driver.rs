//! Runs the state machine of the shares against the database.
//!
//! While the database cannot be reached, the counters admit what they hold, and requests that need more are refused.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::clock::{since_boot_ms, unix_ms};
use shared::quota::share::{
    Fence, NodeShares, ShareAction, ShareAnswer, ShareTime, ShareTransaction, Waiter, WindowKey, Woken,
};
use shared::quota::{Counters, ShareNeed};
use tokio::sync::oneshot;

use super::allowances::CounterAllowances;
use crate::common::node_figures::NodeFigures;
use crate::db::engine::{Db, DbResult};
use crate::db::quotas::shares::{self, Ran};

/// Opens the session of the shares with the database that all nodes share.
pub(crate) type OpenSession = Box<dyn Fn() -> DbResult<Db> + Send>;

/// The shares of this node and their session.
pub(super) struct ShareDriver {
    /// This process before its first transaction.
    process: Fence,
    figures: Arc<NodeFigures>,
    open: OpenSession,
    session: Option<Db>,
    allowances: CounterAllowances,
    /// `None` until the process has begun.
    shares: Option<NodeShares>,
    /// The requests that wait, by their numbers.
    waiting: HashMap<u64, oneshot::Sender<bool>>,
    next_id: u64,
    /// The transactions that have failed since one succeeded, and the time before which none is tried.
    failures: u32,
    pause_until_ms: u64,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing was due.
    Idle,
    /// A transaction was run; another one may be due.
    Ran,
    /// The database did not answer, or a pause after that is not over.
    Failed,
    /// A later process has the ID of the node.
    Superseded,
}

impl ShareDriver {
    pub(super) fn new(
        (process, figures): (Fence, Arc<NodeFigures>),
        open: OpenSession,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            process,
            figures,
            open,
            session: None,
            allowances: CounterAllowances(counters),
            shares: None,
            waiting: HashMap::new(),
            next_id: 0,
            failures: 0,
            pause_until_ms: 0,
        }
    }

    /// Lets a request wait, or refuses it at once.
    pub(super) fn wait(&mut self, need: &ShareNeed, until_ms: u64, reply: oneshot::Sender<bool>) {
        let now = time();
        let is_paused = now.steady_ms < self.pause_until_ms;
        let Some(shares) = self.shares.as_mut().filter(|_| !is_paused) else {
            self.figures.refused.add(1);
            let _ = reply.send(false);
            return;
        };
        let id = self.next_id;
        self.next_id += 1;
        let waiter = Waiter { id, need: need.need, until_ms };
        if shares.wait((&need.key, need.period), waiter, now, &mut self.allowances) {
            self.waiting.insert(id, reply);
        } else {
            self.figures.refused.add(1);
            let _ = reply.send(false);
        }
    }

    /// Runs the next transaction, if one is due.
    pub(super) fn turn(&mut self) -> Turn {
        let now = time();
        if now.steady_ms < self.pause_until_ms {
            return Turn::Failed;
        }
        let Some(shares) = &mut self.shares else { return self.begin(now) };
        if shares.has_ended() {
            return Turn::Superseded;
        }
        let Some(transaction) = shares.next(now, &mut self.allowances) else {
            self.wake();
            return Turn::Idle;
        };
        let held: Vec<WindowKey> = shares.windows().cloned().collect();
        let held: Vec<&WindowKey> = held.iter().collect();
        let ran = session(&mut self.session, &self.open).and_then(|db| shares::run(db, &transaction, &held));
        let turn = match ran {
            Ok(ran) => {
                count(&self.figures, &transaction, &ran);
                for news in ran.news {
                    let start_ms = news.key.start_ms;
                    self.allowances.with(&news.key, |share| share.set_elsewhere(start_ms, news.elsewhere));
                }
                shares.answered(ran.answer, time(), &mut self.allowances);
                self.failures = 0;
                Turn::Ran
            }
            Err(error) => {
                shares.unknown();
                self.failed(&error)
            }
        };
        self.wake();
        turn
    }

    /// Begins with the shares that the node had before.
    fn begin(&mut self, now: ShareTime) -> Turn {
        let since_ms = now.wall_ms.saturating_sub(LONGEST_WINDOW_MS);
        let process = self.process;
        let begun =
            session(&mut self.session, &self.open).and_then(|db| shares::begin(db, process, since_ms));
        match begun {
            Ok(None) => Turn::Superseded,
            Ok(Some(begun)) => {
                let mut shares = NodeShares::new(begun.fence, now.steady_ms);
                for row in &begun.rows {
                    if let Some(quota) = self.allowances.0.quota(&row.key.quota) {
                        shares.resume(row, quota.period, time(), &mut self.allowances);
                    }
                }
                self.shares = Some(shares);
                self.failures = 0;
                Turn::Ran
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Notes a failure. The session is not used again: a transaction on it may still be in progress.
    fn failed(&mut self, error: &dyn std::fmt::Display) -> Turn {
        self.session = None;
        if self.failures == 0 {
            tracing::warn!(
                "the shares of limits cannot be renewed, requests use what this node has: {error}"
            );
        }
        self.failures = self.failures.saturating_add(1);
        let pause_ms = FIRST_PAUSE_MS.saturating_mul(u64::from(self.failures)).min(PAUSE_MS_MAX);
        // The first try after a failure is made at once: often only the connection was lost.
        let pause_ms = if self.failures == 1 { 0 } else { pause_ms };
        self.pause_until_ms = since_boot_ms().saturating_add(pause_ms);
        Turn::Failed
    }

    /// Answers the requests that need not wait any more.
    fn wake(&mut self) {
        let Some(shares) = &mut self.shares else { return };
        for Woken { id, may_retry } in shares.woken() {
            if let Some(reply) = self.waiting.remove(&id) {
                let outcome = if may_retry { &self.figures.waited } else { &self.figures.refused };
                outcome.add(1);
                let _ = reply.send(may_retry);
            }
        }
    }

    /// Gives unused shares back before the process ends. Takes [`DRAIN_TIME`] at most.
    pub(super) fn drain(&mut self) {
        self.shares.iter_mut().for_each(NodeShares::drain);
        let end = Instant::now() + DRAIN_TIME;
        while self.shares.is_some() && self.turn() == Turn::Ran && Instant::now() < end {}
    }
}

/// Counts a transaction that was answered.
fn count(figures: &NodeFigures, transaction: &ShareTransaction, ran: &Ran) {
    let fence = &figures.shares;
    match (transaction, &ran.answer) {
        (ShareTransaction::Work(_, actions), ShareAnswer::Done { grants, .. }) => {
            fence.passed.add(1);
            figures.granted.add(grants.iter().filter(|grant| grant.amount > 0).count());
            let returned = |action: &&ShareAction| matches!(action, ShareAction::GiveBack(..));
            figures.returned.add(actions.iter().filter(returned).count());
        }
        (_, ShareAnswer::Resynchronized { .. } | ShareAnswer::Asserted) => fence.resynchronized.add(1),
        (_, ShareAnswer::Lost(_)) => fence.lost.add(1),
        _ => {}
    }
    ran.live.into_iter().for_each(|nodes| figures.set_live(nodes));
}

/// Returns the session, and opens it if there is none. Its next statements must end within [`TRANSACTION_TIME`].
fn session<'a>(session: &'a mut Option<Db>, open: &OpenSession) -> DbResult<&'a mut Db> {
    let db = match session {
        Some(db) => db,
        None => session.insert(open()?),
    };
    db.limit_time(Instant::now() + TRANSACTION_TIME)?;
    Ok(db)
}

fn time() -> ShareTime {
    ShareTime { steady_ms: since_boot_ms(), wall_ms: unix_ms() }
}

/// The time after which the outcome of a transaction is unknown.
const TRANSACTION_TIME: Duration = Duration::from_secs(1);
const DRAIN_TIME: Duration = Duration::from_secs(2);
/// The pause after two failures in a row; it grows by this with each further one, up to the longest.
const FIRST_PAUSE_MS: u64 = 50;
const PAUSE_MS_MAX: u64 = 1_000;
/// A month has 31 days; windows that began earlier are over.
const LONGEST_WINDOW_MS: u64 = 32 * 24 * 3_600_000;
