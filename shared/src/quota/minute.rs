//! The sliding minute: a ring of cells, one a second, and their sum.
//!
//! A cell is one atomic: the upper bits say whose turn of the ring it is, the lower ones how much. So a cell
//! changes hands and is added to in one step, and a hold that comes back late finds its second or does not. What
//! a second took counts until 60 whole seconds have passed after it, so no 60 seconds ever hold more than the
//! limit.
//!
//! The sum is never below what the cells hold: it is added to before them and taken from after them.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

use super::counter::{Reading, correct, grow, shrink, take};
use super::{Ask, Full};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Minute {
    /// Settled and reserved.
    taken: Ring,
    /// Of that, what is reserved.
    reserved: Ring,
}

/// A sum over the last minute.
#[derive(Debug)]
struct Ring {
    sum: AtomicU64,
    /// The second up to which old cells have been emptied.
    swept: AtomicU64,
    cells: [AtomicU64; CELLS],
}

impl Minute {
    /// Takes from the second that runs now; tells which one that is.
    pub(super) fn take(&self, ask: Ask, now_ms: u64) -> Result<(u64, u64), Full> {
        let second = self.taken.sweep(now_ms);
        let amount = take(&self.taken.sum, ask)?;
        let placed = self.taken.place(second, amount);
        self.reserved.sweep(now_ms);
        self.reserved.add(second, placed);
        Ok((second, placed))
    }

    /// Counts what was used at a moment that may be over.
    pub(super) fn add(&self, at_ms: u64, amount: u64, now_ms: u64) {
        let now = self.taken.sweep(now_ms);
        let second = (at_ms / 1_000).min(now);
        if now - second <= SECONDS {
            self.taken.add(second, amount);
        }
    }

    /// Takes `amount` off what was used at a moment, as far as that still counts.
    pub(super) fn take_back(&self, at_ms: u64, amount: u64) {
        self.taken.correct(at_ms / 1_000, amount, 0);
    }

    /// Puts `used` in the place of an `amount` that was taken in `second`.
    pub(super) fn settle(&self, second: u64, amount: u64, used: u64) {
        self.reserved.correct(second, amount, 0);
        self.taken.correct(second, amount, used);
    }

    pub(super) fn read(&self, now_ms: u64) -> Reading {
        let now = self.taken.sweep(now_ms);
        self.reserved.sweep(now_ms);
        let reserved = self.reserved.sum.load(Ordering::Relaxed);
        let newest = seconds_before(now).rev().find(|second| self.taken.sum_of(*second) > 0);
        Reading {
            used: self.taken.sum.load(Ordering::Relaxed).saturating_sub(reserved),
            reserved,
            resets_at_ms: Some(newest.map_or(now_ms, end_ms)),
        }
    }

    /// How long until old seconds have made room for `amount` under `limit`.
    pub(super) fn wait_ms(&self, amount: u64, limit: u64, now_ms: u64) -> u64 {
        let now = self.taken.sweep(now_ms);
        let taken = self.taken.sum.load(Ordering::Relaxed);
        let mut missing = taken.saturating_add(amount).saturating_sub(limit);
        for second in seconds_before(now) {
            missing = missing.saturating_sub(self.taken.sum_of(second));
            if missing == 0 {
                return end_ms(second).saturating_sub(now_ms);
            }
        }
        end_ms(now).saturating_sub(now_ms)
    }
}

impl Default for Ring {
    fn default() -> Self {
        let cells = array::from_fn(|_| AtomicU64::new(0));
        Self { sum: AtomicU64::new(0), swept: AtomicU64::new(0), cells }
    }
}

impl Ring {
    /// Empties the cells whose second no longer counts. Tells which second it is, never an earlier one than
    /// before: a clock that is set back frees nothing.
    fn sweep(&self, now_ms: u64) -> u64 {
        let swept = self.swept.load(Ordering::Relaxed);
        let now = (now_ms / 1_000).max(swept);
        if now > swept {
            // Each of the last 64 seconds has a cell of its own, so this looks at every cell once.
            for second in now.saturating_sub(SECONDS + 3)..=now {
                let Some(cell) = self.cell(second) else { continue };
                let held = cell.load(Ordering::Relaxed);
                let counts = parts(held).0 == turn_of(second) && now - second <= SECONDS;
                if !counts && parts(held).1 > 0 {
                    // If it fails, its second has been settled at the same time; the next sweep finds it again.
                    let _ = self.replace(cell, held, 0);
                }
            }
            self.swept.fetch_max(now, Ordering::Relaxed);
        }
        now
    }

    fn add(&self, second: u64, amount: u64) {
        grow(&self.sum, amount);
        self.place(second, amount);
    }

    /// Writes what the sum has taken in into its second, as far as its cell goes; the rest leaves the sum again.
    /// Tells how much was written.
    fn place(&self, second: u64, amount: u64) -> u64 {
        let placed = self.write(second, amount);
        shrink(&self.sum, amount - placed);
        placed
    }

    fn write(&self, second: u64, amount: u64) -> u64 {
        let Some(cell) = self.cell(second) else { return 0 };
        let turn = turn_of(second);
        let mut held = cell.load(Ordering::Relaxed);
        loop {
            let (its_turn, sum) = parts(held);
            if its_turn != turn {
                if self.swept.load(Ordering::Relaxed).saturating_sub(second) > SECONDS {
                    // Whoever writes has slept for a minute, and the cell is another second's.
                    return 0;
                }
                held = self.replace(cell, held, packed(turn, 0)).map_or_else(|now| now, |()| packed(turn, 0));
                continue;
            }
            let placed = amount.min(SUM_MAX - sum);
            let more = packed(turn, sum + placed);
            match cell.compare_exchange_weak(held, more, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return placed,
                Err(now) => held = now,
            }
        }
    }

    /// Puts `after` in the place of `before` in a second, if that still counts.
    fn correct(&self, second: u64, before: u64, after: u64) {
        let Some(cell) = self.cell(second) else { return };
        let more = after.saturating_sub(before);
        grow(&self.sum, more);
        let mut changed = 0;
        let found = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            let (turn, sum) = parts(held);
            changed = sum.saturating_sub(before).saturating_add(after).min(SUM_MAX);
            (turn == turn_of(second)).then(|| packed(turn, changed))
        });
        match found.map(parts) {
            // The second is over, and what was taken in it has left the sum.
            Err(_) => shrink(&self.sum, more),
            Ok((_, sum)) => correct(&self.sum, sum.saturating_add(more), changed),
        }
    }

    /// Takes what a cell held out of the sum, and gives the cell to another second.
    fn replace(&self, cell: &AtomicU64, held: u64, next: u64) -> Result<(), u64> {
        cell.compare_exchange(held, next, Ordering::Relaxed, Ordering::Relaxed)?;
        shrink(&self.sum, parts(held).1);
        Ok(())
    }

    fn cell(&self, second: u64) -> Option<&AtomicU64> {
        self.cells.get(usize::try_from(second).unwrap_or(usize::MAX) % CELLS)
    }

    fn sum_of(&self, second: u64) -> u64 {
        let (turn, sum) = parts(self.cell(second).map_or(0, |cell| cell.load(Ordering::Relaxed)));
        if turn == turn_of(second) { sum } else { 0 }
    }
}

/// The seconds that count at `now`, oldest first.
fn seconds_before(now: u64) -> std::ops::RangeInclusive<u64> {
    now.saturating_sub(SECONDS)..=now
}

/// The first moment at which a second does not count any more.
fn end_ms(second: u64) -> u64 {
    second.saturating_add(SECONDS + 1).saturating_mul(1_000)
}

/// Which turn of the ring a second falls into, from 1 on; it comes again after 48 days.
fn turn_of(second: u64) -> u64 {
    (second / CELLS as u64) % (TURN_MAX - 1) + 1
}

fn packed(turn: u64, sum: u64) -> u64 {
    turn << SUM_BITS | sum.min(SUM_MAX)
}

fn parts(held: u64) -> (u64, u64) {
    (held >> SUM_BITS, held & SUM_MAX)
}

/// Seconds that count, besides the one that runs.
const SECONDS: u64 = 60;
/// More than count at the same time.
const CELLS: usize = 64;
const SUM_BITS: u32 = 48;
const SUM_MAX: u64 = (1 << SUM_BITS) - 1;
const TURN_MAX: u64 = 1 << (64 - SUM_BITS);
