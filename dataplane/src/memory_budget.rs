//! Share of the process's memory budget for bodies (LIM-5). Dropping it returns its bytes to the budget.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shared::error_kind::ErrorKind;

use crate::error::Fault;
use crate::settings::Plane;

/// Bytes reserved from the process's budget for bodies held in memory.
#[derive(Debug)]
pub(crate) struct Room {
    plane: Arc<Plane>,
    bytes: u64,
}

impl Room {
    /// Creates an empty reservation.
    pub(crate) fn new(plane: &Arc<Plane>) -> Self {
        Self { plane: Arc::clone(plane), bytes: 0 }
    }

    /// Returns the reserved bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves `bytes` more; returns false, and reserves nothing, if they exceed the budget.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let taken = self.plane.hold(bytes);
        self.bytes = self.bytes.saturating_add(if taken { bytes } else { 0 });
        taken
    }

    /// Returns everything above `bytes` to the budget.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let over = self.bytes.saturating_sub(bytes);
        self.plane.release(over);
        self.bytes = self.bytes.saturating_sub(over);
    }

    /// Wraps `bytes` so that the reservation, shrunk to their length, is held until their last clone is dropped.
    pub(crate) fn around(mut self, bytes: Bytes) -> Bytes {
        struct Kept(Bytes, #[expect(dead_code, reason = "it is there to be dropped")] Room);
        impl AsRef<[u8]> for Kept {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        self.shrink_to(bytes.len() as u64);
        Bytes::from_owner(Kept(bytes, self))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.plane.release(self.bytes);
    }
}

/// Error: the budget for bodies held in memory is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl NoRoom {
    /// Error message for clients.
    pub(crate) const MESSAGE: &str = "The gateway holds as many bodies as it may. Try again.";
    /// Delay in the `Retry-After` header.
    pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);
}

impl From<NoRoom> for Fault {
    fn from(_: NoRoom) -> Self {
        Self::new(ErrorKind::Overloaded, NoRoom::MESSAGE).retry_after(NoRoom::RETRY_AFTER)
    }
}
