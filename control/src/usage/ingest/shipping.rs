//! The fence of the transactions in which a node stores usage in a database that nodes share.
//!
//! Invariant: a batch whose commit had no answer is decided before the next one is stored, and what the database forgot in a
//! failover is stored again from the journal. So each record is there once.
//!
//! ```text
//!  pass -> store -> commit -> acknowledged
//!   |                  | no answer
//!   v                  v
//!  resynchronize: the fence decides what was sent -> read positions -> each file goes on from there
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use records::frame::FileId;
use shared::clock::monotonic_ms;
use shared::quota::share::Fence;

use super::{Meter, Round};
use crate::common::node_figures::NodeFigures;
use crate::db::cluster::fences::{self, Lane, Resynchronized};
use crate::db::engine::{Db, DbResult};
use crate::usage::gauge::add;
use crate::usage::journal::resting::RestingFiles;
use crate::usage::journal::tracked::Tracked;
use crate::usage::periods::Follower;
use crate::usage::read_positions;
use crate::usage::recent::feed::RowPlace;
use crate::usage::request_index::RequestIndex;
use crate::usage::table::Stored;

/// The fence of this process.
#[derive(Debug)]
pub(super) struct ShippingFence {
    /// `seq` is the number of the last acknowledged transaction.
    fence: Fence,
    /// True if the outcome of the last transaction is unknown, or the fence did not pass.
    is_unsure: bool,
    figures: Arc<NodeFigures>,
    /// The start of the last acknowledged transaction. The server has been the same since the last resynchronization.
    acknowledged_at: Instant,
}

/// What a transaction stores, between two places of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) from: RowPlace,
    pub(super) to: RowPlace,
    pub(super) stored: Stored,
    pub(super) garbage: u64,
}

/// What is known of the events of a file before they are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventState {
    /// True if the database has charged them to limits.
    pub(super) is_charged: bool,
    /// True if this process has counted them: the database has lost them since.
    pub(super) is_counted: bool,
    pub(super) counted_at_ms: Option<u64>,
}

impl EventState {
    pub(super) fn of(tracked: &Tracked, counted_at_ms: Option<u64>) -> Self {
        let (is_charged, is_counted) = (tracked.is_charged, tracked.is_counted());
        let counted_at_ms = counted_at_ms.filter(|_| tracked.counted.is_some());
        Self {
            is_charged,
            is_counted,
            counted_at_ms: if is_counted { Some(u64::MAX) } else { counted_at_ms },
        }
    }
}

impl ShippingFence {
    /// Returns the fence of a process before its first transaction.
    pub(super) fn new(process: Fence, figures: Arc<NodeFigures>) -> Self {
        figures.shipped(monotonic_ms());
        Self { fence: process, is_unsure: true, figures, acknowledged_at: Instant::now() }
    }

    /// True if the transactions before must be decided first.
    pub(super) fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    /// True if a transaction is due, with or without records: a server that has forgotten some is noticed by it.
    pub(super) fn is_due(&self) -> bool {
        self.is_unsure || self.acknowledged_at.elapsed() >= PASS_EVERY
    }

    /// Begins a transaction. Returns false if it must not store anything.
    pub(super) fn pass(&mut self, tx: &Db) -> DbResult<bool> {
        self.is_unsure = true;
        Ok(fences::pass(tx, Lane::Shipping, &self.fence)?.is_some())
    }

    /// Notes that the transaction that passed, which began at `began`, has committed.
    pub(super) fn committed(&mut self, began: Instant) {
        self.figures.shipping.passed.add(1);
        self.acknowledged(self.next(), began);
    }

    fn acknowledged(&mut self, seq: u64, began: Instant) {
        self.fence.seq = seq;
        (self.is_unsure, self.acknowledged_at) = (false, began);
    }

    fn next(&self) -> u64 {
        self.fence.seq.saturating_add(1)
    }

    /// Notes that all records from before `ms` of the monotonic clock are stored.
    pub(super) fn shipped(&self, ms: u64) {
        self.figures.shipped(ms);
    }

    /// Returns the time until which the database certainly had all that was acknowledged.
    pub(super) fn acknowledged_at(&self) -> Instant {
        self.acknowledged_at
    }
}

impl Meter {
    /// Lets each transaction that stores usage pass the fence of this process.
    pub(crate) fn with_fence(&mut self, process: Fence, figures: Arc<NodeFigures>) {
        self.fence = Some(ShippingFence::new(process, figures));
        self.resting = RestingFiles::of_node();
    }

    /// Lets the next round compare what is stored with the database once more: the process is about to end.
    pub(crate) fn recheck(&mut self) {
        self.fence.iter_mut().for_each(|shipping| shipping.is_unsure = true);
    }

    /// True if the transactions before must be decided first.
    pub(super) fn is_unsure(&self) -> bool {
        self.fence.as_ref().is_some_and(ShippingFence::is_unsure)
    }

    /// True if a transaction is due: events wait, or the fence must pass.
    pub(super) fn must_store(&self) -> bool {
        self.is_waiting() || self.fence.as_ref().is_some_and(ShippingFence::is_due)
    }

    /// Decides the transactions before, and goes on from the read positions in the database. Files whose records the database
    /// has forgotten are read again.
    pub(super) fn resynchronize(&mut self) -> DbResult<Round> {
        let Some(shipping) = &mut self.fence else { return Ok(Round::Idle) };
        let began = Instant::now();
        let tx = self.db.transaction()?;
        let seq = match fences::resynchronize(&tx, Lane::Shipping, &shipping.fence)? {
            Resynchronized::Superseded => return Ok(Round::Superseded),
            Resynchronized::Current(seq) => seq,
            Resynchronized::Lost(found) => {
                shipping.figures.shipping.lost.add(1);
                fences::assert(&tx, Lane::Shipping, &shipping.fence, found)?;
                shipping.next()
            }
        };
        let marks = read_positions::all(&tx)?;
        tx.commit()?;
        shipping.acknowledged(seq, began);
        shipping.figures.shipping.resynchronized.add(1);
        self.decide(&marks);
        let again = self.follow_marks(&marks);
        // Those that are stored are known by their request IDs.
        self.inbox.notes.extend(self.resting_notes.take().into_iter().flat_map(|(_, paths)| paths));
        if again > 0 {
            tracing::warn!(
                "the database has lost {again} usage records in a failover; they are stored again"
            );
        }
        // What they have written may be lost as well.
        (self.index, self.follower) = (RequestIndex::new(), Follower::new());
        Ok(Round::More)
    }

    /// Decides the batch whose commit had no answer: its transaction has moved all its read positions, or none.
    fn decide(&mut self, marks: &HashMap<FileId, u64>) {
        let is_stored = self
            .tracked
            .iter()
            .any(|tracked| tracked.mark().is_some_and(|(_, to)| marks.get(&tracked.segment.id) == Some(&to)));
        match self.doubtful.take().filter(|_| is_stored) {
            Some(batch) => self.committed(batch, None),
            None => self.abandon(),
        }
    }

    /// Goes on from the read positions in the database. Returns the number of records that are stored again.
    pub(super) fn follow_marks(&mut self, marks: &HashMap<FileId, u64>) -> u64 {
        let mark_of = |tracked: &Tracked| marks.get(&tracked.segment.id).copied().unwrap_or(0);
        for tracked in self.resting.take_if(|tracked| tracked.is_ahead_of(mark_of(tracked))) {
            add(&self.gauge.segments, 1);
            add(&self.gauge.sealed_bytes, tracked.segment.bytes());
            self.tracked.push(tracked);
        }
        let Self { tracked, buffer, .. } = self;
        tracked.iter_mut().map(|tracked| tracked.follow(buffer, mark_of(tracked))).sum()
    }
}

/// The longest time between two transactions of an idle node.
const PASS_EVERY: Duration = Duration::from_secs(5);
