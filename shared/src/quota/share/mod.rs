//! The shares of one node in the limits of a cluster: how much of each limit the requests of this node may use without
//! asking the database that all nodes share.
//!
//! [`NodeShares`] is a state machine without clock, input or output. A thread of `control` owns it: it passes the current
//! time, runs the [`ShareTransaction`]s that it gets, and passes their answers back. The counters of the request path are
//! reached through [`Allowances`]; a request only compares and swaps the sum of its counter.
//!
//! ```text
//!  I1  granted of a window = the sum of the shares of all nodes, also of those that are gone
//!  I2  a grant raises it only up to the limit
//!  I3  taken <= allowed <= granted as last acknowledged, except for what a request used beyond its hold,
//!      which raises granted at once
//! ```
//!
//! It follows:
//!
//! - G1: a limit of a calendar window is never exceeded by more than what the one short hold of the cluster uses beyond
//!   itself. If the database loses acknowledged commits in a failover: nor by more than the shares granted in them to
//!   nodes that do not return within [`PAUSE_MS`].
//! - G2: a request that fits is refused only while the rest lies in shares of other nodes; what they do not use is back
//!   within 2 s. The share of a node that is gone counts until it returns or the window ends.
//! - G3: no 60 seconds contain more than a limit by the minute, and concurrent requests stay within their limit. A node
//!   admits nothing under such limits once it was not heard of for [`CUT_OFF_MS`]; its share by the minute is free
//!   [`MINUTE_LEFT_MS`] after that, its permits [`PERMITS_FREE_MS`] after it was last heard of.
//!
//! ```text
//!            +------ next ------> Running ---- Done ----> Idle
//!            |                       | unknown, Fenced
//!          Idle                      v
//!            ^                    Unsure --Resynchronize--> Running --Resynchronized--> Idle
//!            |                                                 | Lost                | Superseded
//!            +-- Asserted -- Running <----- Assert -- Forgotten <                    > Ended
//! ```
//!
//! The sliding minute needs no rule of its own: its counter lets an amount be taken away only if what was taken in the
//! last 61 s fits into the rest, so the node stays within its lower share from then on, and the next one gets it after
//! that.

mod allowances;
mod demand;
mod held;
mod transaction;

#[cfg(test)]
mod model;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use self::demand::Demand;
use self::held::HeldShare;
use super::Period;

pub use self::allowances::{Allowances, ShareTime};
pub use self::demand::Waiter;
pub use self::transaction::{
    AssertedShare, Fence, FoundFence, GrantAnswer, GrantAsk, GrantNeed, ShareAction, ShareAnswer,
    ShareChange, ShareRow, ShareTransaction, WindowKey,
};

/// The shares of this node.
#[derive(Debug)]
pub struct NodeShares {
    /// `seq` is the number of the last acknowledged transaction.
    fence: Fence,
    lane: Lane,
    /// A time at which the node was certainly heard of: before the last acknowledged renewal was sent. Steady milliseconds.
    heard_ms: u64,
    /// The steady time of the next renewal.
    renew_ms: u64,
    shares: BTreeMap<WindowKey, HeldShare>,
    is_draining: bool,
    woken: Vec<Woken>,
}

/// The transactions of the shares, of which one at a time is in progress.
#[derive(Debug)]
enum Lane {
    Idle,
    /// A transaction was sent at this steady time.
    Running(u64, ShareTransaction),
    /// The outcome of the last transaction is unknown, or the fence did not pass.
    Unsure,
    /// The database has lost acknowledged commits.
    Forgotten(FoundFence),
    /// A later process has the ID of this node.
    Ended,
}

/// A request that waited, and how it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Woken {
    /// The number of the request.
    pub id: u64,
    /// True if it should try again; false if it is refused.
    pub may_retry: bool,
}

impl NodeShares {
    /// Creates the shares of a process whose incarnation was committed. `sent_ms` is the steady time before that.
    pub fn new(fence: Fence, sent_ms: u64) -> Self {
        let (shares, woken) = (BTreeMap::new(), Vec::new());
        Self {
            fence,
            lane: Lane::Idle,
            heard_ms: sent_ms,
            renew_ms: sent_ms,
            shares,
            is_draining: false,
            woken,
        }
    }

    /// Takes over a share that the node had before its start. Its counter must already contain what was used and what
    /// interrupted requests held. The rest goes back at once, and so does the short hold.
    pub fn resume(
        &mut self,
        row: &ShareRow,
        period: Option<Period>,
        now: ShareTime,
        all: &mut dyn Allowances,
    ) {
        let demand = Demand::new(all.taken(&row.key), now.steady_ms);
        let mut share = HeldShare::new(&row.key, period, demand);
        share.resynchronized(&row.key, Some(row), now, all);
        share.is_pressed = true;
        if share.is_timed() {
            all.admit_until(&row.key, self.heard_ms.saturating_add(CUT_OFF_MS));
        }
        self.shares.insert(row.key.clone(), share);
    }

    /// Lets a request wait for a larger share after its counter was full. Returns false if it is refused at once.
    pub fn wait(
        &mut self,
        (key, period): (&WindowKey, Option<Period>),
        waiter: Waiter,
        now: ShareTime,
        all: &mut dyn Allowances,
    ) -> bool {
        if self.is_draining || matches!(self.lane, Lane::Ended) || waiter.until_ms <= now.steady_ms {
            return false;
        }
        let is_cut_off = self.is_cut_off(now);
        let share = share_of(&mut self.shares, key, period, Demand::new(all.taken(key), now.steady_ms));
        if share.is_timed() {
            if is_cut_off {
                return false;
            }
            all.admit_until(key, self.heard_ms.saturating_add(CUT_OFF_MS));
        }
        !share.is_empty_for(waiter.need, now) && share.demand.wait(waiter)
    }

    /// Returns the next transaction if one is due and none is in progress. Call it at least every [`LOOK_MS`], and when
    /// a request waits.
    pub fn next(&mut self, now: ShareTime, all: &mut dyn Allowances) -> Option<ShareTransaction> {
        self.shares.retain(|_, share| !share.is_over(now) || share.demand.is_awaited());
        for (key, share) in &mut self.shares {
            wake(&mut self.woken, share.release_waiters(key, now, all));
        }
        let transaction = match &self.lane {
            Lane::Running(..) | Lane::Ended => return None,
            Lane::Unsure => ShareTransaction::Resynchronize(self.fence),
            Lane::Forgotten(found) => self.assertion(*found, now, all),
            Lane::Idle if self.is_cut_off(now) => ShareTransaction::Resynchronize(self.fence),
            Lane::Idle => self.work(now, all)?,
        };
        self.lane = Lane::Running(now.steady_ms, transaction.clone());
        Some(transaction)
    }

    /// Applies the answer to the transaction in progress.
    pub fn answered(&mut self, answer: ShareAnswer, now: ShareTime, all: &mut dyn Allowances) {
        let lane = std::mem::replace(&mut self.lane, Lane::Unsure);
        let Lane::Running(sent_ms, transaction) = lane else {
            debug_assert!(false, "an answer without a transaction");
            self.lane = lane;
            return;
        };
        self.lane = match (transaction, answer) {
            (_, ShareAnswer::Superseded) => Lane::Ended,
            (ShareTransaction::Work(_, actions), ShareAnswer::Done { grants, pressed }) => {
                self.fence.seq += 1;
                self.done(actions, (grants, &pressed), (sent_ms, now), all);
                Lane::Idle
            }
            (ShareTransaction::Resynchronize(_), ShareAnswer::Resynchronized { seq, rows }) => {
                self.fence.seq = seq;
                self.resynchronized(&rows, now, all);
                self.heard(sent_ms, all);
                Lane::Idle
            }
            (ShareTransaction::Resynchronize(_), ShareAnswer::Lost(found)) => Lane::Forgotten(found),
            (ShareTransaction::Assert { shares, .. }, ShareAnswer::Asserted) => {
                self.fence.seq += 1;
                for asserted in &shares {
                    if let Some(share) = self.shares.get_mut(&asserted.key) {
                        share.asserted(asserted);
                    }
                }
                self.heard(sent_ms, all);
                Lane::Idle
            }
            (_, ShareAnswer::Fenced) => Lane::Unsure,
            (_, answer) => {
                debug_assert!(false, "{answer:?} answers another transaction");
                Lane::Unsure
            }
        };
    }

    /// Records that the outcome of the transaction in progress is unknown. The next one must use another connection.
    pub fn unknown(&mut self) {
        if let Lane::Running(..) = self.lane {
            self.lane = Lane::Unsure;
        }
    }

    /// Gives back the part of a lowered limit that no request holds.
    pub fn limit_lowered(&mut self, quota: &str) {
        let lowered = self.shares.iter_mut().filter(|(key, _)| &*key.quota == quota);
        lowered.for_each(|(_, share)| share.is_pressed = true);
    }

    /// Ends the use of limits before the process stops: gives back at once what no request holds, the rest as requests end, and
    /// asks for no more.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Returns the windows in which the node has a share, or asks for one, in their order.
    pub fn windows(&self) -> impl Iterator<Item = &WindowKey> {
        self.shares.keys()
    }

    /// Returns true if a later process has the ID of this node, so that this one must end.
    pub fn has_ended(&self) -> bool {
        matches!(self.lane, Lane::Ended)
    }

    /// Returns the requests that need not wait any more.
    pub fn woken(&mut self) -> Vec<Woken> {
        std::mem::take(&mut self.woken)
    }

    /// Returns true if others may believe that the node is gone.
    fn is_cut_off(&self, now: ShareTime) -> bool {
        now.steady_ms >= self.heard_ms.saturating_add(CUT_OFF_MS)
    }

    fn work(&mut self, now: ShareTime, all: &mut dyn Allowances) -> Option<ShareTransaction> {
        self.ask_for_next_windows(now);
        let mut actions = Vec::new();
        if now.steady_ms >= self.renew_ms {
            self.renew_ms = now.steady_ms.saturating_add(RENEW_MS);
            actions.push(ShareAction::Renew);
        }
        for (key, share) in &mut self.shares {
            if actions.len() >= ACTIONS_MAX {
                break;
            }
            actions.extend(share.next(key, now, self.is_draining, all));
        }
        (!actions.is_empty()).then_some(ShareTransaction::Work(self.fence, actions))
    }

    /// Creates the shares of windows that begin soon, if this node uses the current ones. Nodes ask at different times.
    fn ask_for_next_windows(&mut self, now: ShareTime) {
        let mut next = Vec::new();
        for (key, share) in &self.shares {
            let ahead_ms = NEXT_WINDOW_MS.saturating_sub(self.spread_ms(key));
            let is_soon = now.wall_ms < share.end_ms && now.wall_ms.saturating_add(ahead_ms) >= share.end_ms;
            let expected = share.demand.of_ten_seconds(share.period);
            if is_soon && expected > 0 && share.end_ms < u64::MAX {
                let key = WindowKey { quota: Arc::clone(&key.quota), start_ms: share.end_ms };
                next.push((key, share.period, share.demand.of_next(now.steady_ms)));
            }
        }
        for (key, period, demand) in next {
            share_of(&mut self.shares, &key, period, demand);
        }
    }

    /// Returns the delay of this node when all ask for a window, below [`SPREAD_MS`].
    fn spread_ms(&self, key: &WindowKey) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&key.quota, self.fence.node).hash(&mut hasher);
        hasher.finish() % SPREAD_MS
    }

    fn assertion(&mut self, found: FoundFence, now: ShareTime, all: &mut dyn Allowances) -> ShareTransaction {
        let is_cut_off = self.is_cut_off(now);
        let mut shares = Vec::new();
        for (key, share) in &mut self.shares {
            if is_cut_off && share.is_timed() {
                // Other nodes may have it by now.
                share.lower_to(key, 0, all);
            }
            shares.push(share.assertion(key, all));
        }
        ShareTransaction::Assert { fence: self.fence, found, shares }
    }

    fn done(
        &mut self,
        actions: Vec<ShareAction>,
        (grants, pressed): (Vec<GrantAnswer>, &[WindowKey]),
        (sent_ms, now): (u64, ShareTime),
        all: &mut dyn Allowances,
    ) {
        let mut grants = grants.into_iter();
        for action in actions {
            match action {
                ShareAction::Renew => {
                    self.heard(sent_ms, all);
                    for (key, share) in &mut self.shares {
                        share.is_pressed = pressed.binary_search(key).is_ok();
                    }
                }
                ShareAction::Grant(key, ask) => {
                    let answer = grants.next().unwrap_or_default();
                    if let Some(share) = self.shares.get_mut(&key) {
                        wake(&mut self.woken, share.granted(&key, (ask, answer), now, all));
                    }
                }
                ShareAction::GiveBack(key, change) => {
                    self.shares.get_mut(&key).into_iter().for_each(|share| share.gave_back(change));
                }
                ShareAction::Report(key, change) => {
                    self.shares.get_mut(&key).into_iter().for_each(|share| share.reported(change));
                }
            }
        }
    }

    fn resynchronized(&mut self, rows: &[ShareRow], now: ShareTime, all: &mut dyn Allowances) {
        let rows: BTreeMap<&WindowKey, &ShareRow> = rows.iter().map(|row| (&row.key, row)).collect();
        for (key, share) in &mut self.shares {
            share.resynchronized(key, rows.get(key).copied(), now, all);
        }
    }

    /// Records that the node was heard of after this steady time.
    fn heard(&mut self, sent_ms: u64, all: &mut dyn Allowances) {
        self.heard_ms = sent_ms;
        for (key, _) in self.shares.iter().filter(|(_, share)| share.is_timed()) {
            all.admit_until(key, sent_ms.saturating_add(CUT_OFF_MS));
        }
    }
}

fn share_of<'a>(
    shares: &'a mut BTreeMap<WindowKey, HeldShare>,
    key: &WindowKey,
    period: Option<Period>,
    demand: Demand,
) -> &'a mut HeldShare {
    shares.entry(key.clone()).or_insert_with(|| HeldShare::new(key, period, demand))
}

fn wake(woken: &mut Vec<Woken>, [retry, refused]: [Vec<u64>; 2]) {
    woken.extend(retry.into_iter().map(|id| Woken { id, may_retry: true }));
    woken.extend(refused.into_iter().map(|id| Woken { id, may_retry: false }));
}

/// The time for which nothing is granted after the server of the database changed, so that all nodes can assert first.
pub const PAUSE_MS: u64 = 5_000;
/// The longest time between two calls of [`NodeShares::next`].
pub const LOOK_MS: u64 = 100;
/// The longest time that a request waits for a share.
pub const WAIT_MS: u64 = 250;
/// The requests that wait for one window at a node; further ones are refused.
pub const WAITERS_MAX: usize = 64;
/// The time for which a starving node is known to the others.
pub const STARVED_MS: u64 = 3_000;
/// The time after which a node that was not heard of admits nothing under timed limits: 60 s, less a second for the
/// difference of clocks.
pub const CUT_OFF_MS: u64 = 59_000;
/// The time after the node was last heard of when its shares by the minute are free: 60 s, and the 61 s in which what it
/// took counts.
pub const MINUTE_LEFT_MS: u64 = 121_000;
/// The time after the node was last heard of when its permits of concurrent requests are free.
pub const PERMITS_FREE_MS: u64 = 600_000;

/// The time between two signs of life.
const RENEW_MS: u64 = 1_000;
/// The time for which an empty window is remembered.
const EMPTY_MS: u64 = 100;
/// The time after which something is asked for in advance again, if nothing was granted.
const RETRY_MS: u64 = 1_000;
/// The time without use after which a share goes back.
const IDLE_MS: u64 = 60_000;
/// The time before the end of a window when the next one is asked for.
const NEXT_WINDOW_MS: u64 = 5_000;
/// The part of that time over which the nodes spread.
const SPREAD_MS: u64 = 4_000;
/// The time after its end for which a window is kept; more than the clocks of nodes may differ.
const WINDOW_LEFT_MS: u64 = 60_000;
/// The actions of one transaction; the other ones follow in the next.
const ACTIONS_MAX: usize = 256;
