//! The share of one node in one window, and the next change that it needs.
//!
//! ```text
//!  taken <= allowed <= granted
//!
//!  grant       granted and allowed rise after the commit
//!  give back   allowed falls by what nothing holds, then the row, then granted
//!  report      taken > granted, because a request used more than it held: the row rises at once, then granted
//! ```

use super::demand::{Demand, Waiter};
use super::transaction::{
    AssertedShare, GrantAnswer, GrantAsk, GrantNeed, ShareAction, ShareChange, ShareRow, WindowKey,
};
use super::{Allowances, EMPTY_MS, IDLE_MS, RETRY_MS, ShareTime, WAIT_MS, WINDOW_LEFT_MS};
use crate::quota::Period;

#[derive(Debug)]
pub(super) struct HeldShare {
    pub(super) period: Option<Period>,
    /// The end of the window in wall milliseconds.
    pub(super) end_ms: u64,
    pub(super) demand: Demand,
    /// The share as last acknowledged.
    granted: u64,
    /// The part of it that the counter may use.
    allowed: u64,
    short: Short,
    /// The smallest request that was refused, and the steady time until which this is remembered.
    empty: Option<(GrantNeed, u64)>,
    /// The steady time before which nothing is asked for in advance.
    ask_ms: u64,
    /// True if everything that nothing holds must go back.
    pub(super) is_pressed: bool,
}

/// The short hold of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Short {
    /// It is not this node's.
    Elsewhere,
    /// A request of this node may take it, since this steady time.
    Open(u64),
    /// It was settled, or not taken; the row still names this node.
    Settled,
}

impl HeldShare {
    pub(super) fn new(key: &WindowKey, period: Option<Period>, demand: Demand) -> Self {
        let end_ms =
            period.and_then(|period| period.window(key.start_ms)).map_or(u64::MAX, |(_, end_ms)| end_ms);
        let (granted, allowed, short, empty) = (0, 0, Short::Elsewhere, None);
        Self { period, end_ms, demand, granted, allowed, short, empty, ask_ms: 0, is_pressed: false }
    }

    /// Returns true if the share may be used only while the node is heard of.
    pub(super) fn is_timed(&self) -> bool {
        matches!(self.period, None | Some(Period::Minute))
    }

    /// Returns true if nothing can use the window any more.
    pub(super) fn is_over(&self, now: ShareTime) -> bool {
        now.wall_ms >= self.end_ms.saturating_add(WINDOW_LEFT_MS)
    }

    /// Returns true if a request that needs so much was refused a moment ago.
    pub(super) fn is_empty_for(&self, need: GrantNeed, now: ShareTime) -> bool {
        self.empty.is_some_and(|(refused, until_ms)| {
            now.steady_ms < until_ms && need.least >= refused.least && need.wanted >= refused.wanted
        })
    }

    /// Lets requests that fit into what is allowed by now try again. Returns them, and those that have waited too long.
    pub(super) fn release_waiters(
        &mut self,
        key: &WindowKey,
        now: ShareTime,
        all: &dyn Allowances,
    ) -> [Vec<u64>; 2] {
        if !self.demand.is_awaited() {
            return [Vec::new(), Vec::new()];
        }
        let late = self.demand.release(|waiter| waiter.until_ms <= now.steady_ms);
        let free = self.allowed.saturating_sub(all.taken(key));
        let fits = self.demand.first().is_some_and(|waiter| waiter.need.wanted <= free);
        [self.demand.release(|_| fits), late]
    }

    /// Returns the change that the share needs next, if any.
    pub(super) fn next(
        &mut self,
        key: &WindowKey,
        now: ShareTime,
        is_draining: bool,
        all: &mut dyn Allowances,
    ) -> Option<ShareAction> {
        // The order matters: what the short hold used beyond itself is in `taken` before the hold counts as settled.
        if let Short::Open(since_ms) = self.short
            && now.steady_ms.saturating_sub(since_ms) >= WAIT_MS
            && all.close_short(key)
        {
            self.short = Short::Settled;
        }
        self.demand.look(all.taken(key), now);
        let is_unused = self.is_pressed || self.demand.is_idle(IDLE_MS, now);
        if is_draining || is_unused && !self.demand.is_awaited() {
            self.lower_to(key, 0, all);
        }
        let floor = self.allowed.max(all.taken(key));
        let frees_short = self.short == Short::Settled;
        let key = key.clone();
        if floor > self.granted {
            return Some(ShareAction::Report(key, ShareChange { amount: floor - self.granted, frees_short }));
        }
        if floor < self.granted || frees_short {
            return Some(ShareAction::GiveBack(
                key,
                ShareChange { amount: self.granted - floor, frees_short },
            ));
        }
        let ask = self.ask(now).filter(|_| !is_draining)?;
        Some(ShareAction::Grant(key, ask))
    }

    /// Returns the request for a larger share, if less is left than half of 10 s of use, or if a request waits.
    fn ask(&self, now: ShareTime) -> Option<GrantAsk> {
        let free = self.allowed.saturating_sub(self.demand.taken());
        let waiting = self.demand.first().map(|Waiter { need, .. }| GrantNeed {
            least: need.least.saturating_sub(free),
            wanted: need.wanted.saturating_sub(free),
        });
        let expected = self.demand.of_ten_seconds(self.period);
        // Under pressure, what is asked for in advance would only go back.
        let is_low = expected > 0 && free <= expected / 2 && now.steady_ms >= self.ask_ms && !self.is_pressed;
        let is_current = now.wall_ms < self.end_ms;
        (waiting.is_some() || is_low && is_current).then(|| GrantAsk {
            wanted: expected.max(self.demand.awaited()).saturating_sub(free),
            claim: self.demand.claim(),
            waiting,
        })
    }

    /// Applies a grant. Returns the requests that may try again, and those that are refused.
    pub(super) fn granted(
        &mut self,
        key: &WindowKey,
        (ask, answer): (GrantAsk, GrantAnswer),
        now: ShareTime,
        all: &mut dyn Allowances,
    ) -> [Vec<u64>; 2] {
        self.granted = self.granted.saturating_add(answer.amount);
        if answer.amount > 0 || answer.has_short {
            // The window is within its limit, so what was reported beyond the allowed amount fits into it.
            self.raise(key, self.granted.saturating_sub(self.allowed), all);
        }
        if answer.has_short {
            self.open_short(key, now, all);
        }
        if answer.amount > 0 || answer.has_short {
            self.empty = None;
            return [self.demand.release(|_| true), Vec::new()];
        }
        self.ask_ms = now.steady_ms.saturating_add(RETRY_MS.max(answer.pause_ms));
        if answer.pause_ms > 0 || ask.waiting.is_none() {
            return [Vec::new(), Vec::new()];
        }
        // The first request is the one that was asked for.
        self.empty = self.demand.first().map(|first| (first.need, now.steady_ms.saturating_add(EMPTY_MS)));
        let Some((refused, _)) = self.empty else { return [Vec::new(), Vec::new()] };
        let is_larger =
            |waiter: &Waiter| waiter.need.least >= refused.least && waiter.need.wanted >= refused.wanted;
        [Vec::new(), self.demand.release(is_larger)]
    }

    /// Applies a change of the row downwards.
    pub(super) fn gave_back(&mut self, change: ShareChange) {
        self.granted = self.granted.saturating_sub(change.amount);
        self.freed_short(change);
    }

    /// Applies a change of the row upwards. The counter is not allowed more: the window may be above its limit.
    pub(super) fn reported(&mut self, change: ShareChange) {
        self.granted = self.granted.saturating_add(change.amount);
        self.freed_short(change);
    }

    fn freed_short(&mut self, change: ShareChange) {
        if change.frees_short {
            self.short = Short::Elsewhere;
        }
    }

    /// Takes over the row after all transactions are decided; `None` if there is no row.
    pub(super) fn resynchronized(
        &mut self,
        key: &WindowKey,
        row: Option<&ShareRow>,
        now: ShareTime,
        all: &mut dyn Allowances,
    ) {
        self.granted = row.map_or(0, |row| row.granted);
        // What was reported beyond the allowed amount stays disallowed.
        let excess = all.taken(key).saturating_sub(self.allowed);
        let usable = self.granted.saturating_sub(excess);
        self.raise(key, usable.saturating_sub(self.allowed), all);
        self.lower_to(key, self.granted, all);
        match (self.short, row.is_some_and(|row| row.has_short)) {
            (Short::Elsewhere, true) => self.open_short(key, now, all),
            (Short::Settled, false) => self.short = Short::Elsewhere,
            (Short::Open(_), false) => {
                if all.close_short(key) {
                    self.short = Short::Elsewhere;
                }
            }
            (Short::Elsewhere, false) | (Short::Open(_) | Short::Settled, true) => {}
        }
    }

    /// Returns the share as it must be in the database after commits were lost.
    pub(super) fn assertion(&self, key: &WindowKey, all: &dyn Allowances) -> AssertedShare {
        let granted = self.allowed.max(all.taken(key));
        AssertedShare { key: key.clone(), granted, has_short: self.short != Short::Elsewhere }
    }

    /// Applies an assertion.
    pub(super) fn asserted(&mut self, asserted: &AssertedShare) {
        self.granted = asserted.granted;
    }

    /// Takes the allowance of everything that nothing holds away, down to `least`.
    pub(super) fn lower_to(&mut self, key: &WindowKey, least: u64, all: &mut dyn Allowances) {
        let most = self.allowed.saturating_sub(least);
        if most > 0 {
            self.allowed = self.allowed.saturating_sub(all.lower(key, most));
        }
    }

    fn raise(&mut self, key: &WindowKey, amount: u64, all: &mut dyn Allowances) {
        if amount > 0 {
            self.allowed = self.allowed.saturating_add(amount);
            all.raise(key, amount);
        }
    }

    fn open_short(&mut self, key: &WindowKey, now: ShareTime, all: &mut dyn Allowances) {
        self.short = Short::Open(now.steady_ms);
        all.open_short(key);
    }
}
