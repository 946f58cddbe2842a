//! The counter of a quota: one sum per calendar window, or the last minute in cells of one second.
//!
//! ```text
//!  taken    = settled + reserved      admission compares it with the limit; only a compare-and-swap adds to it
//!  reserved = holds that have not been settled
//! ```
//!
//! At most one unsettled hold may be smaller than wanted. So only one exchange at a time can use more than it holds,
//! even if others start while it runs.
//!
//! A hold refers to the window in which it was taken. Settling it corrects that window, even if the window is over
//! and no longer in use.
//!
//! If several nodes share the limit, admission compares with the share of this node instead (`allowance.rs`), and `taken`
//! also contains what was taken away from the share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

use super::allowance::{Allowance, ShortHold};
use super::counter_share::{CounterShare, SharedLimit};
use super::line::Line;
use super::minute::Minute;
use super::{Ask, Full, Period};
use crate::clock;

/// The counter of one quota. It outlives snapshots.
#[derive(Debug)]
pub struct Counter {
    since_ms: AtomicU64,
    kind: Kind,
    /// The one hold that may be smaller than wanted; of a shared limit, each window has its own.
    short: ShortHold,
    /// `None` if this process alone uses the limit.
    shared: Option<Box<SharedLimit>>,
    /// The requests that wait, once any may.
    pub(super) line: OnceLock<Box<Line>>,
}

#[derive(Debug)]
pub(super) enum Kind {
    Calendar(Period, ArcSwap<Window>),
    Sliding(Box<Minute>, SteadyClock),
}

/// The clock of a sliding minute. The wall clock may jump ahead and be set back: what is taken in between would count in one
/// second far ahead, until the clock is there again. The argument is the wall time, for tests.
type SteadyClock = fn(u64) -> u64;

/// A calendar window.
#[derive(Debug)]
pub(super) struct Window {
    start_ms: u64,
    end_ms: u64,
    pub(super) taken: AtomicU64,
    reserved: AtomicU64,
    /// The share of this node; `None` if this process alone uses the limit.
    pub(super) allowance: Option<Box<Allowance>>,
}

/// An amount of a quota that an exchange holds.
#[derive(Debug)]
pub struct Hold {
    amount: u64,
    place: Place,
    /// True if the hold is smaller than wanted.
    is_short: bool,
}

#[derive(Debug)]
enum Place {
    Window(Arc<Window>),
    Second(u64),
}

/// The state of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The settled amount.
    pub used: u64,
    /// The amount held by exchanges in progress.
    pub reserved: u64,
    /// The time at which the counted amounts expire, if ever, in milliseconds since the Unix epoch.
    pub resets_at_ms: Option<u64>,
}

impl Counter {
    /// Creates an empty counter. It covers everything that began at `since_ms` or later.
    pub fn new(period: Period, since_ms: u64) -> Self {
        Self::on_clock(period, since_ms, |_| clock::steady_unix_ms())
    }

    /// Like [`Counter::new`], with the clock of a sliding minute.
    pub(super) fn on_clock(period: Period, since_ms: u64, clock: SteadyClock) -> Self {
        let kind = match period.window(since_ms) {
            Some(window) => Kind::Calendar(period, ArcSwap::from_pointee(Window::new(window, None))),
            None => Kind::Sliding(Box::default(), clock),
        };
        let since_ms = AtomicU64::new(since_ms);
        Self { since_ms, kind, short: ShortHold::free(), shared: None, line: OnceLock::new() }
    }

    /// Creates a counter of currently held amounts, without windows.
    pub fn of_holds(since_ms: u64) -> Self {
        Self::new(Period::Total, since_ms)
    }

    /// Creates an empty counter of a limit that several nodes share; `None` counts what is held at the same time. It
    /// admits nothing until its [share](Self::share) is raised.
    pub fn of_shared(period: Option<Period>, since_ms: u64) -> Self {
        let limit = SharedLimit::new(period);
        Self::on_clock(period.unwrap_or(Period::Total), since_ms, |_| clock::steady_unix_ms())
            .shared_as(limit)
    }

    /// Makes an unused counter that of a shared limit.
    pub(super) fn shared_as(mut self, limit: SharedLimit) -> Self {
        if let Kind::Calendar(period, current) = &self.kind
            && let Some(window) = limit.window(*period, current.load().start_ms)
        {
            current.store(window);
        }
        self.shared = Some(Box::new(limit));
        self
    }

    /// Returns the share of this node; `None` if this process alone uses the limit.
    pub fn share(&self) -> Option<CounterShare<'_>> {
        self.shared.as_deref().map(|limit| CounterShare { limit, kind: &self.kind })
    }

    /// Returns the start of the current window; 0 for a counter without windows.
    pub fn window_start_ms(&self, now_ms: u64) -> u64 {
        self.window(now_ms).map_or(0, |window| window.start_ms)
    }

    /// Returns the time since which every exchange holds an amount of this counter before it uses anything.
    pub fn since_ms(&self) -> u64 {
        self.since_ms.load(Ordering::Relaxed)
    }

    /// Sets the time since which exchanges hold amounts of this counter.
    pub(super) fn held_since(&self, since_ms: u64) {
        self.since_ms.store(since_ms, Ordering::Relaxed);
    }

    /// Counts an amount that was used at `at_ms` without a hold, if that time still counts.
    pub fn add(&self, at_ms: u64, amount: u64, now_ms: u64) {
        match &self.kind {
            Kind::Calendar(..) => {
                if let Some(window) = self.window(now_ms)
                    && (window.start_ms..window.end_ms).contains(&at_ms)
                {
                    grow(&window.taken, amount);
                    window.allowance.iter().for_each(|allowance| allowance.settle(amount));
                }
            }
            Kind::Sliding(minute, clock) => {
                let steady_ms = clock(now_ms);
                minute.add(on_steady_clock(at_ms, now_ms, steady_ms), amount, steady_ms);
            }
        }
    }

    /// Adjusts the amount that was used at `at_ms` by `change`, if that time still counts; used to correct costs.
    pub fn correct(&self, at_ms: u64, change: i64, now_ms: u64) {
        let amount = change.unsigned_abs();
        if change >= 0 {
            return self.add(at_ms, amount, now_ms);
        }
        match &self.kind {
            Kind::Calendar(..) => {
                if let Some(window) = self.window(now_ms)
                    && (window.start_ms..window.end_ms).contains(&at_ms)
                {
                    let allowance = window.allowance.as_ref();
                    shrink(&window.taken, allowance.map_or(amount, |allowance| allowance.take_back(amount)));
                }
            }
            Kind::Sliding(minute, clock) => {
                minute.take_back(on_steady_clock(at_ms, now_ms, clock(now_ms)), amount);
            }
        }
    }

    /// Returns the current state.
    pub fn read(&self, now_ms: u64) -> Reading {
        match &self.kind {
            Kind::Calendar(..) => self.window(now_ms).map(|window| window.read()).unwrap_or_default(),
            Kind::Sliding(minute, clock) => {
                let steady_ms = clock(now_ms);
                let reading = minute.read(self.sliding_allowance(), steady_ms);
                let left_ms = reading.resets_at_ms.map(|end_ms| end_ms.saturating_sub(steady_ms));
                Reading { resets_at_ms: left_ms.map(|left_ms| now_ms.saturating_add(left_ms)), ..reading }
            }
        }
    }

    /// Returns the time until `amount` fits under `limit` if only settled amounts count. Returns 0 if only holds are
    /// in the way, because they may be released at any time, and `None` if it never fits.
    pub fn wait_ms(&self, amount: u64, limit: u64, now_ms: u64) -> Option<u64> {
        let reading = self.read(now_ms);
        if amount > limit {
            return None;
        }
        if amount <= limit.saturating_sub(reading.used) {
            return Some(0);
        }
        match &self.kind {
            Kind::Calendar(..) => reading.resets_at_ms.map(|end| end.saturating_sub(now_ms)),
            Kind::Sliding(minute, clock) => {
                let filled_max = self.sliding_allowance().map_or(limit, |allowance| {
                    limit.saturating_sub(allowance.elsewhere()).saturating_add(allowance.withdrawn())
                });
                Some(minute.wait_ms(amount, filled_max, clock(now_ms)))
            }
        }
    }

    /// Returns the current window; `None` for a sliding counter.
    fn window(&self, now_ms: u64) -> Option<Arc<Window>> {
        let Kind::Calendar(period, current) = &self.kind else { return None };
        loop {
            let window = current.load();
            // After a clock was set back, a past window is not reopened, because its count is gone. The table of a shared limit has it.
            let is_past = now_ms < window.start_ms && self.shared.is_some();
            if now_ms < window.end_ms && !is_past {
                return Some(Arc::clone(&window));
            }
            let next = match &self.shared {
                None => Arc::new(Window::new(period.window(now_ms)?, None)),
                Some(limit) => limit.window(*period, now_ms)?,
            };
            current.compare_and_swap(&*window, next);
        }
    }

    /// Returns the share in the last minute of a sliding counter.
    fn sliding_allowance(&self) -> Option<&Allowance> {
        self.shared.as_ref().map(|limit| &limit.sliding)
    }
}

/// Returns the steady time of a wall time. Differences below half a second are not applied: a clock that is slowly
/// corrected moves no amount to another second.
fn on_steady_clock(at_ms: u64, now_ms: u64, steady_ms: u64) -> u64 {
    let whole_seconds = |ms: u64| ms.saturating_add(500) / 1_000 * 1_000;
    let ahead_ms = whole_seconds(now_ms.saturating_sub(steady_ms));
    let behind_ms = whole_seconds(steady_ms.saturating_sub(now_ms));
    at_ms.saturating_sub(ahead_ms).saturating_add(behind_ms)
}

impl Counter {
    /// Grants the wanted amount, or as much of it as is left. The hold must be settled.
    pub fn take(&self, ask: Ask, now_ms: u64) -> Result<Hold, Full> {
        if ask.limit.is_some() && self.shared.as_ref().is_some_and(|limit| limit.is_cut_off()) {
            return Err(Full);
        }
        match &self.kind {
            Kind::Calendar(..) => {
                let window = self.window(now_ms).ok_or(Full)?;
                let (allowance, taken) = (window.allowance.as_deref(), &window.taken);
                let (amount, is_short) = self
                    .take_or_short(allowance, ask, |ask| take(taken, ask).map(|amount| (amount, amount)))?;
                grow(&window.reserved, amount);
                Ok(Hold { amount, place: Place::Window(window), is_short })
            }
            Kind::Sliding(minute, clock) => {
                let steady_ms = clock(now_ms);
                let ((second, amount), is_short) =
                    self.take_or_short(self.sliding_allowance(), ask, |ask| {
                        minute.take(ask, steady_ms).map(|taken| (taken, taken.1))
                    })?;
                Ok(Hold { amount, place: Place::Second(second), is_short })
            }
        }
    }

    /// Takes all that is wanted, or less as the one short hold. `part` takes an amount and returns it with what belongs
    /// to it. Returns the latter, and true if less was taken than was wanted.
    fn take_or_short<T>(
        &self,
        allowance: Option<&Allowance>,
        ask: Ask,
        part: impl Fn(Ask) -> Result<(T, u64), Full>,
    ) -> Result<(T, bool), Full> {
        let ask = Ask { limit: ask.limit.map(|limit| allowance.map_or(limit, Allowance::ceiling)), ..ask };
        let wanted = ask.wanted.min(AMOUNT_MAX);
        let all = part(Ask { least: wanted, ..ask });
        if all.is_ok() || ask.least >= ask.wanted {
            return all.map(|(all, _)| (all, false));
        }
        let short = allowance.map_or(&self.short, |allowance| &allowance.short);
        short.begin()?;
        let part = part(ask);
        let is_short = part.as_ref().is_ok_and(|(_, amount)| *amount < wanted);
        if !is_short {
            short.end();
        }
        part.map(|(part, _)| (part, is_short))
    }

    /// Settles a hold, of which `used` was used.
    pub fn settle(&self, hold: Hold, used: u64) {
        let (is_short, mut allowance) = (hold.is_short, self.sliding_allowance());
        let window;
        match (hold.place, &self.kind) {
            (Place::Window(its), _) => {
                window = its;
                shrink(&window.reserved, hold.amount);
                correct(&window.taken, hold.amount, used);
                allowance = window.allowance.as_deref();
                allowance.into_iter().for_each(|allowance| allowance.settle(used));
            }
            (Place::Second(second), Kind::Sliding(minute, _)) => minute.settle(second, hold.amount, used),
            (Place::Second(_), Kind::Calendar(..)) => {
                debug_assert!(false, "a hold goes back where it came from")
            }
        }
        // Reset only after the correction: the used amount must count before another short hold is granted.
        if is_short {
            allowance.map_or(&self.short, |allowance| &allowance.short).end();
        }
        self.freed();
    }
}

/// What the line of a quota asks about its counter.
impl Counter {
    /// Returns true if `amount` is left under `limit` now.
    pub(super) fn leaves(&self, amount: u64, limit: u64, now_ms: u64) -> bool {
        if limit == u64::MAX {
            return true;
        }
        if self.shared.as_ref().is_some_and(|limit| limit.is_cut_off()) {
            return false;
        }
        let left = |taken: &AtomicU64, allowance: Option<&Allowance>| {
            allowance.map_or(limit, Allowance::ceiling).saturating_sub(taken.load(Ordering::Relaxed))
        };
        amount
            <= match &self.kind {
                Kind::Calendar(..) => {
                    self.window(now_ms).map_or(0, |window| left(&window.taken, window.allowance.as_deref()))
                }
                Kind::Sliding(minute, clock) => left(minute.filled(clock(now_ms)), self.sliding_allowance()),
            }
    }

    /// Returns the time until a sliding minute leaves `amount` because its seconds expire; `None` for other counters.
    pub(super) fn sliding_wait_ms(&self, amount: u64, limit: u64, now_ms: u64) -> Option<u64> {
        let Kind::Sliding(minute, clock) = &self.kind else { return None };
        let limit = self.sliding_allowance().map_or(limit, Allowance::ceiling);
        let is_left = amount <= limit.saturating_sub(minute.filled(clock(now_ms)).load(Ordering::Relaxed));
        Some(if is_left { 0 } else { minute.wait_ms(amount, limit, clock(now_ms)) })
    }

    /// Returns the time at which to look whether `amount` is left, if nothing in this process may cause that.
    pub(super) fn look_at_ms(&self, amount: u64, limit: u64, now_ms: u64) -> Option<u64> {
        let expires_ms = self.sliding_wait_ms(amount, limit, now_ms).map(|wait_ms| wait_ms.max(1));
        // Another node may return what it holds.
        let returns_ms = self.shared.is_some().then_some(SHARE_PAUSE_MS);
        let wait_ms = expires_ms.into_iter().chain(returns_ms).min()?;
        Some(now_ms.saturating_add(wait_ms))
    }
}

impl Hold {
    /// Returns the held amount.
    pub fn amount(&self) -> u64 {
        self.amount
    }
}

impl Window {
    pub(super) fn new((start_ms, end_ms): (u64, u64), allowance: Option<Box<Allowance>>) -> Self {
        Self { start_ms, end_ms, taken: AtomicU64::new(0), reserved: AtomicU64::new(0), allowance }
    }

    fn read(&self) -> Reading {
        let reserved = self.reserved.load(Ordering::Relaxed);
        let (taken, elsewhere) = match &self.allowance {
            None => (self.taken.load(Ordering::Relaxed), 0),
            Some(allowance) => (allowance.taken(&self.taken), allowance.elsewhere()),
        };
        Reading {
            used: taken.saturating_sub(reserved).saturating_add(elsewhere),
            reserved,
            resets_at_ms: Some(self.end_ms).filter(|end| *end < u64::MAX),
        }
    }
}

/// Takes the wanted amount, or as much of it as is left between `taken` and the limit.
pub(super) fn take(taken: &AtomicU64, ask: Ask) -> Result<u64, Full> {
    take_within(taken, (ask.least, ask.wanted.min(AMOUNT_MAX)), ask.limit)
}

/// Like [`take`], for any amount. All decisions are made here; the sum never exceeds the limit through this function,
/// regardless of concurrency.
pub(super) fn take_within(
    taken: &AtomicU64,
    (least, wanted): (u64, u64),
    limit: Option<u64>,
) -> Result<u64, Full> {
    let mut before = taken.load(Ordering::Relaxed);
    loop {
        let amount = match limit {
            Some(limit) => {
                let left = limit.saturating_sub(before);
                if least > left {
                    return Err(Full);
                }
                wanted.min(left)
            }
            None => wanted.min(u64::MAX - before),
        };
        match taken.compare_exchange_weak(before, before + amount, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Ok(amount),
            Err(now) => before = now,
        }
    }
}

/// Replaces `before` with `after` in a sum.
pub(super) fn correct(sum: &AtomicU64, before: u64, after: u64) {
    if after < before {
        shrink(sum, before - after);
    } else if after > before {
        grow(sum, after - before);
    }
}

pub(super) fn grow(sum: &AtomicU64, amount: u64) {
    change(sum, |before| before.saturating_add(amount));
}

pub(super) fn shrink(sum: &AtomicU64, amount: u64) {
    change(sum, |before| before.saturating_sub(amount));
}

fn change(sum: &AtomicU64, change: impl Fn(u64) -> u64) {
    // Cannot fail: the closure always returns a new value.
    let _ = sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| Some(change(before)));
}

/// The time between two looks at what other nodes return, while requests wait.
const SHARE_PAUSE_MS: u64 = 1_000;
/// The maximum amount of a hold: a client may ask for any number of tokens.
pub(super) const AMOUNT_MAX: u64 = 1 << 44;
