//! The part of a window that this node may use, if several nodes share the limits. It belongs to the counter of the window.
//!
//! ```text
//!  filled  = taken + withdrawn     the sum that admission compares; only a compare-and-swap adds to it
//!  allowed = ceiling - withdrawn   the share of this node
//!  left    = ceiling - filled      = allowed - taken
//! ```
//!
//! Invariant: `ceiling` never falls. An amount is taken away as a request would take it, by adding to `filled`, so a
//! request that has read an older `ceiling` cannot use what was taken away at the same time. The thread of the shares
//! alone changes `ceiling` and `withdrawn`.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::Full;
use super::counter::{grow, shrink, take_within};

#[derive(Debug, Default)]
pub(super) struct Allowance {
    ceiling: AtomicU64,
    withdrawn: AtomicU64,
    /// The settled part of `taken`. Corrections take back no more than this: the rest belongs to running requests.
    settled: AtomicU64,
    /// What other nodes have used, for those who read the counter.
    elsewhere: AtomicU64,
    pub(super) short: ShortHold,
}

/// The one hold that may be smaller than wanted.
#[derive(Debug)]
pub(super) struct ShortHold(AtomicU8);

impl Allowance {
    /// Returns the limit with which `filled` is compared.
    pub(super) fn ceiling(&self) -> u64 {
        self.ceiling.load(Ordering::Relaxed)
    }

    /// Returns the part of `filled` that nothing has taken.
    pub(super) fn withdrawn(&self) -> u64 {
        self.withdrawn.load(Ordering::Relaxed)
    }

    /// Returns what was used and is held of the window.
    pub(super) fn taken(&self, filled: &AtomicU64) -> u64 {
        filled.load(Ordering::Relaxed).saturating_sub(self.withdrawn())
    }

    /// Allows `amount` more: first what was taken away, so that `ceiling` does not grow with each change of hands.
    pub(super) fn raise(&self, filled: &AtomicU64, amount: u64) {
        let again = amount.min(self.withdrawn());
        shrink(&self.withdrawn, again);
        shrink(filled, again);
        grow(&self.ceiling, amount - again);
    }

    /// Takes up to `most` away that nothing has taken. Returns the amount.
    pub(super) fn lower(&self, filled: &AtomicU64, most: u64) -> u64 {
        let amount = take_within(filled, (0, most), Some(self.ceiling())).unwrap_or(0);
        grow(&self.withdrawn, amount);
        amount
    }

    /// Notes an amount of `taken` that no running request holds.
    pub(super) fn settle(&self, amount: u64) {
        grow(&self.settled, amount);
    }

    /// Removes up to `amount` from the settled part. Returns the amount.
    pub(super) fn take_back(&self, amount: u64) -> u64 {
        let settled = |before: u64| Some(before - amount.min(before));
        let before = self.settled.fetch_update(Ordering::Relaxed, Ordering::Relaxed, settled);
        amount.min(before.unwrap_or(0))
    }

    pub(super) fn elsewhere(&self) -> u64 {
        self.elsewhere.load(Ordering::Relaxed)
    }

    pub(super) fn set_elsewhere(&self, amount: u64) {
        self.elsewhere.store(amount, Ordering::Relaxed);
    }
}

impl ShortHold {
    /// Permits such a hold.
    pub(super) const fn free() -> Self {
        Self(AtomicU8::new(FREE))
    }

    /// Takes the permission for a hold. Fails while another one is unsettled, and where none is permitted.
    pub(super) fn begin(&self) -> Result<(), Full> {
        let taken = self.0.compare_exchange(FREE, OUT, Ordering::Acquire, Ordering::Relaxed);
        taken.map(drop).map_err(|_| Full)
    }

    /// Permits another one after the hold was settled.
    pub(super) fn end(&self) {
        self.0.store(FREE, Ordering::Release);
    }

    /// Permits such a hold; has no effect while one is unsettled.
    pub(super) fn open(&self) {
        let _ = self.0.compare_exchange(CLOSED, FREE, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Permits no other one. Returns false, and changes nothing, while one is unsettled.
    pub(super) fn close(&self) -> bool {
        self.0.compare_exchange(FREE, CLOSED, Ordering::AcqRel, Ordering::Acquire) != Err(OUT)
    }
}

/// A share begins without the permission.
impl Default for ShortHold {
    fn default() -> Self {
        Self(AtomicU8::new(CLOSED))
    }
}

const CLOSED: u8 = 0;
const FREE: u8 = 1;
const OUT: u8 = 2;
