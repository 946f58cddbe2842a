//! The process's memory budget for bodies (LIM-5). Dropping a reservation returns its bytes to the budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use shared::error_kind::ErrorKind;

use crate::bounds::HELD_BODIES;
use crate::error::Fault;

/// The bytes that all bodies held in memory may have together.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    bytes_max: u64,
    reserved: AtomicU64,
}

impl MemoryBudget {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, reserved: AtomicU64::new(0) }
    }

    /// Returns the bytes that are reserved now.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Reserves `bytes`; returns false and reserves nothing if they do not fit.
    fn reserve(&self, bytes: u64) -> bool {
        let before = self.reserved.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= self.bytes_max {
            return true;
        }
        self.release(bytes);
        HELD_BODIES.reach();
        false
    }

    fn release(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes reserved from the process's budget for bodies held in memory.
#[derive(Debug)]
pub(crate) struct MemoryReservation {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl MemoryReservation {
    /// Creates an empty reservation.
    pub(crate) fn new(budget: &Arc<MemoryBudget>) -> Self {
        Self { budget: Arc::clone(budget), bytes: 0 }
    }

    /// Returns the reserved bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves `bytes` more; returns false, and reserves nothing, if they exceed the budget.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let taken = self.budget.reserve(bytes);
        self.bytes = self.bytes.saturating_add(if taken { bytes } else { 0 });
        taken
    }

    /// Returns everything above `bytes` to the budget.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let over = self.bytes.saturating_sub(bytes);
        self.budget.release(over);
        self.bytes = self.bytes.saturating_sub(over);
    }

    /// Wraps `bytes` so that the reservation, shrunk to their length, is held until their last clone is dropped.
    pub(crate) fn around(mut self, bytes: Bytes) -> Bytes {
        struct Reserved(Bytes, #[expect(dead_code, reason = "it is there to be dropped")] MemoryReservation);
        impl AsRef<[u8]> for Reserved {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        self.shrink_to(bytes.len() as u64);
        Bytes::from_owner(Reserved(bytes, self))
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

/// Error: the budget for bodies held in memory is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryExhausted;

impl MemoryExhausted {
    /// Error message for clients.
    pub(crate) const MESSAGE: &str = "The gateway's memory for bodies is full. Try again.";
    /// Delay in the `Retry-After` header.
    pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);
}

impl From<MemoryExhausted> for Fault {
    fn from(_: MemoryExhausted) -> Self {
        Self::new(ErrorKind::Overloaded, MemoryExhausted::MESSAGE).retry_after(MemoryExhausted::RETRY_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::tests::passes;

    #[test]
    fn bytes_beyond_the_budget_are_refused_and_counted() {
        let mut held = MemoryReservation::new(&Arc::new(MemoryBudget::new(10)));
        assert!(held.take(10));
        assert!(!passes(&HELD_BODIES, || held.take(1)));
        assert_eq!(held.bytes(), 10);
    }
}
