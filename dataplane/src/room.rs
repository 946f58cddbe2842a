//! Room in the process's budget of bodies that are held in memory (LIM-5). It is given back when it is dropped.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shared::error_kind::ErrorKind;

use crate::error::Fault;
use crate::plane::Plane;

/// See the module.
#[derive(Debug)]
pub(crate) struct Room {
    plane: Arc<Plane>,
    bytes: u64,
}

impl Room {
    /// None yet.
    pub(crate) fn new(plane: &Arc<Plane>) -> Self {
        Self { plane: Arc::clone(plane), bytes: 0 }
    }

    /// How much it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes room for so many bytes more; false if there is none.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let taken = self.plane.hold(bytes);
        self.bytes = self.bytes.saturating_add(if taken { bytes } else { 0 });
        taken
    }

    /// Gives back what is not needed any more.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let over = self.bytes.saturating_sub(bytes);
        self.plane.release(over);
        self.bytes = self.bytes.saturating_sub(over);
    }

    /// `bytes`, which keep their room for as long as anybody has them.
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

/// Every body that may be held is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl NoRoom {
    /// For clients.
    pub(crate) const MESSAGE: &str = "The gateway holds as many bodies as it may. Try again.";
    /// When that makes sense.
    pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);
}

impl From<NoRoom> for Fault {
    fn from(_: NoRoom) -> Self {
        Self::new(ErrorKind::Overloaded, NoRoom::MESSAGE).retry_after(NoRoom::RETRY_AFTER)
    }
}
