//! Counts of the work of this node in the database that nodes share, since the process started. The threads that do the work
//! count it, and `GET /metrics` shows the counts.

use std::sync::atomic::{AtomicU64, Ordering};

use shared::clock::monotonic_ms;

/// The counts of a node.
#[derive(Debug, Default)]
pub(crate) struct NodeFigures {
    /// The fence of the session of the shares.
    pub(crate) shares: FenceFigures,
    /// The fence of the session that stores usage.
    pub(crate) shipping: FenceFigures,
    /// Shares in limits that were made larger.
    pub(crate) granted: Count,
    /// Shares in limits that were given back, in part or whole.
    pub(crate) returned: Count,
    /// Requests that waited for a share and went on.
    pub(crate) waited: Count,
    /// Requests that were refused for want of a share.
    pub(crate) refused: Count,
    /// The number of nodes that were live at the last transaction of the shares.
    live: AtomicU64,
    /// The time of the last look for changes, in milliseconds of the monotonic clock.
    looked_ms: AtomicU64,
    /// The time before which all records are stored, on the same clock.
    shipped_ms: AtomicU64,
}

/// The transactions of a fence.
#[derive(Debug, Default)]
pub(crate) struct FenceFigures {
    /// Transactions that passed, and were acknowledged.
    pub(crate) passed: Count,
    /// Times that earlier transactions had to be decided.
    pub(crate) resynchronized: Count,
    /// Times that the database had lost acknowledged commits.
    pub(crate) lost: Count,
}

/// A number that grows.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl NodeFigures {
    pub(crate) fn set_live(&self, nodes: u64) {
        self.live.store(nodes, Ordering::Relaxed);
    }

    pub(crate) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Notes that the node knows all changes that were made before `ms`.
    pub(crate) fn looked(&self, ms: u64) {
        self.looked_ms.store(ms, Ordering::Relaxed);
    }

    /// Notes that all records from before `ms` are stored.
    pub(crate) fn shipped(&self, ms: u64) {
        self.shipped_ms.store(ms, Ordering::Relaxed);
    }

    /// Returns the time since the last look, in milliseconds.
    pub(crate) fn look_age_ms(&self) -> u64 {
        age_ms(&self.looked_ms)
    }

    /// Returns an upper bound for the age of the oldest record that is not stored, in milliseconds.
    pub(crate) fn shipping_lag_ms(&self) -> u64 {
        age_ms(&self.shipped_ms)
    }
}

fn age_ms(at: &AtomicU64) -> u64 {
    monotonic_ms().saturating_sub(at.load(Ordering::Relaxed))
}
