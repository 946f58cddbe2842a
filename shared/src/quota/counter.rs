//! What a quota has given out: one number for each calendar window, or the last minute in cells of a second.
//!
//! ```text
//!  taken    = settled + reserved      what admission compares with the limit; only a compare-and-swap adds to it
//!  reserved = holds that have not been settled
//! ```
//!
//! Of the holds that are out at a time, one alone may be less than was wanted. So only one exchange can use more than it
//! holds, though others come while it runs.
//!
//! A hold knows the window that it was taken in. Settling it corrects that window, also when it is over by then
//! and nobody asks for it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;

use super::minute::Minute;
use super::{Ask, Full, Ledger, Period};

/// The state of one quota. It outlives snapshots.
#[derive(Debug)]
pub struct Counter {
    since_ms: u64,
    kind: Kind,
    /// The hold that is less than was wanted is out.
    is_short: AtomicBool,
}

#[derive(Debug)]
enum Kind {
    Calendar(Period, ArcSwap<Window>),
    Sliding(Box<Minute>),
}

/// A calendar window.
#[derive(Debug)]
struct Window {
    start_ms: u64,
    end_ms: u64,
    taken: AtomicU64,
    reserved: AtomicU64,
}

/// A part of a quota that an exchange holds.
#[derive(Debug)]
pub struct Hold {
    amount: u64,
    place: Place,
    /// It is less than was wanted.
    is_short: bool,
}

#[derive(Debug)]
enum Place {
    Window(Arc<Window>),
    Second(u64),
}

/// What a counter shows of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Settled.
    pub used: u64,
    /// Held by exchanges that go on.
    pub reserved: u64,
    /// When nothing of it counts any more, if ever.
    pub resets_at_ms: Option<u64>,
}

impl Counter {
    /// A counter that has given out nothing. It knows of everything that began at `since_ms` or later.
    pub fn new(period: Period, since_ms: u64) -> Self {
        let kind = match period.window(since_ms) {
            Some(window) => Kind::Calendar(period, ArcSwap::from_pointee(Window::new(window))),
            None => Kind::Sliding(Box::default()),
        };
        Self { since_ms, kind, is_short: AtomicBool::new(false) }
    }

    /// A counter of what is held at the moment, in no window.
    pub fn of_holds(since_ms: u64) -> Self {
        Self::new(Period::Total, since_ms)
    }

    /// From when on everybody who begins holds a part of it before anything is used.
    pub fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// Counts something that was used at `at_ms` without being held, as far as it still counts.
    pub fn add(&self, at_ms: u64, amount: u64, now_ms: u64) {
        match &self.kind {
            Kind::Calendar(..) => {
                if let Some(window) = self.window(now_ms)
                    && (window.start_ms..window.end_ms).contains(&at_ms)
                {
                    grow(&window.taken, amount);
                }
            }
            Kind::Sliding(minute) => minute.add(at_ms, amount, now_ms),
        }
    }

    /// Changes what was used at `at_ms`, as far as it still counts: its cost was more or less by `change`.
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
                    shrink(&window.taken, amount);
                }
            }
            Kind::Sliding(minute) => minute.take_back(at_ms, amount),
        }
    }

    /// What it has given out.
    pub fn read(&self, now_ms: u64) -> Reading {
        match &self.kind {
            Kind::Calendar(..) => self.window(now_ms).map(|window| window.read()).unwrap_or_default(),
            Kind::Sliding(minute) => minute.read(now_ms),
        }
    }

    /// How long until `amount` fits under `limit`, if what is settled is all there is: nothing while holds alone
    /// stand in the way, for they may be given back at any moment.
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
            Kind::Sliding(minute) => Some(minute.wait_ms(amount, limit, now_ms)),
        }
    }

    /// As much as is wanted and left.
    fn part(&self, ask: Ask, now_ms: u64) -> Result<Hold, Full> {
        let (amount, place) = match &self.kind {
            Kind::Calendar(..) => {
                let window = self.window(now_ms).ok_or(Full)?;
                let amount = take(&window.taken, ask)?;
                grow(&window.reserved, amount);
                (amount, Place::Window(window))
            }
            Kind::Sliding(minute) => {
                let (second, amount) = minute.take(ask, now_ms)?;
                (amount, Place::Second(second))
            }
        };
        Ok(Hold { amount, place, is_short: false })
    }

    /// The window that is current; nothing for a sliding one.
    fn window(&self, now_ms: u64) -> Option<Arc<Window>> {
        let Kind::Calendar(period, current) = &self.kind else { return None };
        loop {
            let window = current.load();
            if now_ms < window.end_ms {
                // Also where the clock was set back: a window that has been left is not begun again.
                return Some(Arc::clone(&window));
            }
            let next = Arc::new(Window::new(period.window(now_ms)?));
            current.compare_and_swap(&*window, next);
        }
    }
}

impl Ledger for Counter {
    type Hold = Hold;

    fn take(&self, ask: Ask, now_ms: u64) -> Result<Hold, Full> {
        let all = self.part(Ask { least: ask.wanted.min(AMOUNT_MAX), ..ask }, now_ms);
        if all.is_ok() || ask.least >= ask.wanted {
            return all;
        }
        if self.is_short.swap(true, Ordering::Acquire) {
            return Err(Full);
        }
        let part = self.part(ask, now_ms);
        let is_short = part.as_ref().is_ok_and(|hold| hold.amount < ask.wanted.min(AMOUNT_MAX));
        if !is_short {
            self.is_short.store(false, Ordering::Relaxed);
        }
        part.map(|hold| Hold { is_short, ..hold })
    }

    fn settle(&self, hold: Hold, used: u64) {
        let is_short = hold.is_short;
        match (hold.place, &self.kind) {
            (Place::Window(window), _) => {
                shrink(&window.reserved, hold.amount);
                correct(&window.taken, hold.amount, used);
            }
            (Place::Second(second), Kind::Sliding(minute)) => minute.settle(second, hold.amount, used),
            (Place::Second(_), Kind::Calendar(..)) => {
                debug_assert!(false, "a hold goes back where it came from")
            }
        }
        // Only now: what it used counts before another one may take less than it wants.
        if is_short {
            self.is_short.store(false, Ordering::Release);
        }
    }
}

impl Hold {
    /// How much.
    pub fn amount(&self) -> u64 {
        self.amount
    }
}

impl Window {
    fn new((start_ms, end_ms): (u64, u64)) -> Self {
        Self { start_ms, end_ms, taken: AtomicU64::new(0), reserved: AtomicU64::new(0) }
    }

    fn read(&self) -> Reading {
        let reserved = self.reserved.load(Ordering::Relaxed);
        Reading {
            used: self.taken.load(Ordering::Relaxed).saturating_sub(reserved),
            reserved,
            resets_at_ms: Some(self.end_ms).filter(|end| *end < u64::MAX),
        }
    }
}

/// Takes what `ask` wants, or as much of it as is left, from what `taken` leaves of the limit. This is the one
/// place that decides; the sum never passes the limit here, however many ask at the same time.
pub(super) fn take(taken: &AtomicU64, ask: Ask) -> Result<u64, Full> {
    let wanted = ask.wanted.min(AMOUNT_MAX);
    let mut before = taken.load(Ordering::Relaxed);
    loop {
        let amount = match ask.limit {
            Some(limit) => {
                let left = limit.saturating_sub(before);
                if ask.least > left {
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

/// Puts `after` in the place of `before` in a sum.
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
    // It cannot fail: there is always a new value.
    let _ = sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| Some(change(before)));
}

/// No exchange holds more than this: a client may ask for any number of tokens.
pub(super) const AMOUNT_MAX: u64 = 1 << 44;
