//! The sliding minute: a ring of cells, one per second, and their sum.
//!
//! A cell is one atomic: its upper bits contain the number of the turn of the ring, its lower bits the amount. So
//! reusing a cell and adding to it are single steps, and a late settlement either finds its second or detects that
//! the cell was reused. The amount of a second counts until 60 full seconds have passed after it, so no 60 seconds
//! ever contain more than the limit.
//!
//! The sum is never below the total of the cells: it is increased before them and decreased after them. Of a shared limit it
//! also contains what was taken away from the share of this node, which is in no cell.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

use super::allowance::Allowance;
use super::counter::{Reading, correct, grow, shrink, take};
use super::{Ask, Full};

/// The amounts taken in the last minute.
#[derive(Debug, Default)]
pub(super) struct Minute {
    /// Settled and reserved amounts.
    taken: Ring,
    /// The reserved part of `taken`.
    reserved: Ring,
}

/// A sum over the last minute.
#[derive(Debug)]
struct Ring {
    sum: AtomicU64,
    /// The second up to which expired cells have been cleared.
    swept: AtomicU64,
    cells: [AtomicU64; CELLS],
}

impl Minute {
    /// Takes an amount in the current second. Returns that second and the amount.
    pub(super) fn take(&self, ask: Ask, now_ms: u64) -> Result<(u64, u64), Full> {
        let second = self.taken.sweep(now_ms);
        let amount = take(&self.taken.sum, ask)?;
        let placed = self.taken.place(second, amount);
        self.reserved.sweep(now_ms);
        self.reserved.add(second, placed);
        Ok((second, placed))
    }

    /// Counts an amount that was used at `at_ms`, which may be in the past.
    pub(super) fn add(&self, at_ms: u64, amount: u64, now_ms: u64) {
        let now = self.taken.sweep(now_ms);
        let second = (at_ms / 1_000).min(now);
        if now - second <= SECONDS {
            self.taken.add(second, amount);
        }
    }

    /// Subtracts `amount` from the usage at `at_ms`, if that second still counts.
    pub(super) fn take_back(&self, at_ms: u64, amount: u64) {
        self.taken.correct(at_ms / 1_000, amount, 0);
    }

    /// Replaces an `amount` that was taken in `second` with `used`.
    pub(super) fn settle(&self, second: u64, amount: u64, used: u64) {
        self.reserved.correct(second, amount, 0);
        self.taken.correct(second, amount, used);
    }

    /// Returns the sum that admission compares, as of now.
    pub(super) fn filled(&self, now_ms: u64) -> &AtomicU64 {
        self.taken.sweep(now_ms);
        &self.taken.sum
    }

    /// Returns the state; `allowance` is the share of this node in a shared limit.
    pub(super) fn read(&self, allowance: Option<&Allowance>, now_ms: u64) -> Reading {
        let now = self.taken.sweep(now_ms);
        self.reserved.sweep(now_ms);
        let reserved = self.reserved.sum.load(Ordering::Relaxed);
        let filled = self.taken.sum.load(Ordering::Relaxed);
        let taken = filled.saturating_sub(allowance.map_or(0, Allowance::withdrawn));
        let newest = seconds_before(now).rev().find(|second| self.taken.sum_of(*second) > 0);
        Reading {
            used: taken.saturating_sub(reserved).saturating_add(allowance.map_or(0, Allowance::elsewhere)),
            reserved,
            resets_at_ms: Some(newest.map_or(now_ms, end_ms)),
        }
    }

    /// Returns the time until enough seconds expire for `amount` to fit under `limit`.
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
    /// Clears the cells whose second no longer counts. Returns the current second, which never decreases: a clock
    /// that is set back frees nothing.
    fn sweep(&self, now_ms: u64) -> u64 {
        let swept = self.swept.load(Ordering::Relaxed);
        let now = (now_ms / 1_000).max(swept);
        if now > swept {
            // Each of the last 64 seconds has its own cell, so this visits every cell once.
            for second in now.saturating_sub(SECONDS + 3)..=now {
                let Some(cell) = self.cell(second) else { continue };
                let held = cell.load(Ordering::Relaxed);
                let counts = parts(held).0 == turn_of(second) && now - second <= SECONDS;
                if !counts && parts(held).1 > 0 {
                    // Fails if the second was settled concurrently; the next sweep finds it again.
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

    /// Moves an amount that is already in the sum to the cell of its second, up to the cell's capacity; the rest is
    /// removed from the sum. Returns the amount written.
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
                    // The writer was suspended for a minute, and the cell belongs to another second now.
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

    /// Replaces `before` with `after` in a second, if that second still counts.
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
            // The second has expired, and its amount is no longer in the sum.
            Err(_) => shrink(&self.sum, more),
            Ok((_, sum)) => correct(&self.sum, sum.saturating_add(more), changed),
        }
    }

    /// Removes the amount of a cell from the sum and reuses the cell for another second.
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

/// Returns the seconds that count at `now`, oldest first.
fn seconds_before(now: u64) -> std::ops::RangeInclusive<u64> {
    now.saturating_sub(SECONDS)..=now
}

/// Returns the first moment at which a second no longer counts.
fn end_ms(second: u64) -> u64 {
    second.saturating_add(SECONDS + 1).saturating_mul(1_000)
}

/// Returns the turn of the ring that contains a second, from 1 on; it repeats after 48 days.
fn turn_of(second: u64) -> u64 {
    (second / CELLS as u64) % (TURN_MAX - 1) + 1
}

fn packed(turn: u64, sum: u64) -> u64 {
    turn << SUM_BITS | sum.min(SUM_MAX)
}

fn parts(held: u64) -> (u64, u64) {
    (held >> SUM_BITS, held & SUM_MAX)
}

/// The number of seconds that count, in addition to the current one.
const SECONDS: u64 = 60;
/// The number of cells; more than the seconds that count at the same time.
const CELLS: usize = 64;
const SUM_BITS: u32 = 48;
const SUM_MAX: u64 = (1 << SUM_BITS) - 1;
const TURN_MAX: u64 = 1 << (64 - SUM_BITS);
