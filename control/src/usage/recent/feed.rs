//! Carries the exchanges that the writer thread stores to the recent usage, while a live stream is open: they are summed
//! as they are stored and need not be read back. A batch names its place in the table. If one is missing, the table is
//! read instead, so that no exchange counts twice or is left out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::ended::EndedExchanges;
use crate::db::record_id::{NodeId, RecordId};

/// A place among the rows of a node: all exchanges of its earlier rows, and the first ones of this row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowPlace {
    pub(crate) id: RecordId,
    pub(crate) taken: u32,
}

/// The exchanges that one transaction stored.
#[derive(Debug)]
pub(super) struct StoredBatch {
    pub(super) from: RowPlace,
    pub(super) to: RowPlace,
    pub(super) ended: EndedExchanges,
}

/// The batches between the writer thread and the recent usage.
#[derive(Debug)]
pub(crate) struct RecentFeed {
    /// The node whose writer it is.
    pub(super) node: NodeId,
    followers: AtomicUsize,
    stored: Mutex<StoredBatches>,
}

/// What was stored since the last reading.
#[derive(Debug, Default)]
pub(super) struct StoredBatches {
    /// The end of the last transaction; `None` if nothing has been stored since the start of the process.
    pub(super) end: Option<RowPlace>,
    pub(super) batches: VecDeque<StoredBatch>,
}

/// A reader of the feed, until this is dropped.
#[derive(Debug)]
pub(crate) struct Following(Arc<RecentFeed>);

impl RecentFeed {
    /// A feed of the writer of this node.
    pub(crate) fn of(node: NodeId) -> Self {
        Self { node, followers: AtomicUsize::default(), stored: Mutex::default() }
    }

    /// Makes the writer thread sum what it stores until the returned value is dropped.
    pub(crate) fn follow(self: &Arc<Self>) -> Following {
        self.followers.fetch_add(1, Ordering::Relaxed);
        Following(Arc::clone(self))
    }

    /// Returns the sums for the next transaction; `None` without followers.
    pub(crate) fn begin(&self) -> Option<EndedExchanges> {
        (self.followers.load(Ordering::Relaxed) > 0).then(EndedExchanges::default)
    }

    /// Adds what a transaction stored between two places.
    pub(crate) fn committed(&self, from: RowPlace, to: RowPlace, ended: Option<EndedExchanges>) {
        let mut stored = self.lock();
        stored.end = Some(to);
        if let Some(ended) = ended {
            stored.batches.push_back(StoredBatch { from, to, ended });
        }
        if stored.batches.len() > BATCHES_MAX {
            stored.batches.clear();
        }
    }

    /// Takes the batches.
    pub(super) fn take(&self) -> StoredBatches {
        let mut stored = self.lock();
        StoredBatches { end: stored.end, batches: std::mem::take(&mut stored.batches) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, StoredBatches> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if self.0.followers.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.lock().batches.clear();
        }
    }
}

/// The batches that wait to be taken. A frame takes them every second, and a busy writer stores some hundred in it.
const BATCHES_MAX: usize = 512;
