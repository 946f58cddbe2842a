//! One of several nodes works for the usage of all: it merges sums of closed hours and periods, and the shares of nodes that
//! have left, into those of node 0, so that tables do not grow with nodes and their restarts; and it counts and indexes the
//! records of absent nodes, and those that a copied state has of node 0.
//!
//! A row that a node changes after it was merged begins again, and is merged again. So nothing depends on how long a node
//! may be late, nor on how many nodes merge at the same time.

use std::time::{Duration, Instant};

use shared::clock::unix_ms;

use super::last_rows::last_rows;
use super::periods::{self, Grain, MINUTE_MS, RecordCounting};
use super::request_index::{RunDraft, RunStep};
use super::rollup::{self, SumsTable, first_hour_of_day};
use crate::db::HOUR_MS;
use crate::db::cluster::nodes;
use crate::db::engine::{Db, DbError, DbResult};
use crate::db::key_use;
use crate::db::quotas::shares::merge as shares;
use crate::db::record_id::{NodeId, RecordId};

/// The job: repeated passes over all that can be merged, in small steps on the writer thread.
#[derive(Debug)]
pub(crate) struct UsageMerging {
    due: Instant,
    stage: MergeStage,
    /// The last period that this pass has merged.
    merged_to: u64,
    /// The nodes that are left to this pass, with the last row of each.
    nodes: Vec<RecordId>,
    counting: RecordCounting,
    draft: Option<RunDraft>,
}

/// The stages of a pass, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MergeStage {
    Hours,
    Days,
    Periods(Grain),
    Shares,
    Records,
}

impl UsageMerging {
    pub(crate) fn new() -> Self {
        Self {
            due: Instant::now(),
            stage: MergeStage::Hours,
            merged_to: 0,
            nodes: Vec::new(),
            counting: RecordCounting::new(),
            draft: None,
        }
    }

    /// True if a step is due.
    pub(crate) fn is_due(&self) -> bool {
        self.due <= Instant::now()
    }

    /// Merges for [`STEP`].
    pub(crate) fn step(&mut self, db: &mut Db) {
        let began = Instant::now();
        match self.work(db, unix_ms(), began + STEP) {
            Ok(true) => self.due = Instant::now() + BETWEEN_PASSES,
            Ok(false) => self.due = Instant::now() + began.elapsed() * REST,
            Err(error) => {
                tracing::warn!("cannot merge the usage of nodes: {error}");
                self.draft = None;
                self.due = Instant::now() + BETWEEN_PASSES;
            }
        }
    }

    /// Works until it is `until` or the pass has ended. Returns true if it has ended.
    fn work(&mut self, db: &mut Db, now_ms: u64, until: Instant) -> DbResult<bool> {
        loop {
            if !self.part(db, now_ms)? {
                self.stage = match self.stage {
                    MergeStage::Hours => MergeStage::Days,
                    MergeStage::Days => MergeStage::Periods(Grain::Minute),
                    MergeStage::Periods(Grain::Minute) => MergeStage::Periods(Grain::Hour),
                    MergeStage::Periods(Grain::Hour) => MergeStage::Periods(Grain::Day),
                    MergeStage::Periods(Grain::Day) => MergeStage::Shares,
                    MergeStage::Shares => MergeStage::Records,
                    MergeStage::Records => MergeStage::Hours,
                };
                self.merged_to = 0;
                match self.stage {
                    MergeStage::Hours => return Ok(true),
                    MergeStage::Records => self.nodes = absent_nodes(db)?,
                    _ => {}
                }
            }
            if Instant::now() >= until {
                return Ok(false);
            }
        }
    }

    /// Does some work of the stage, in one transaction. Returns false if there is nothing left to do.
    fn part(&mut self, db: &mut Db, now_ms: u64) -> DbResult<bool> {
        let closed_ms = now_ms.saturating_sub(OPEN_MS);
        match self.stage {
            MergeStage::Hours => {
                db.lazily(|tx| rollup::merge_some(tx, SumsTable::Hours, closed_ms / HOUR_MS))
            }
            MergeStage::Days => {
                let day = first_hour_of_day(closed_ms / HOUR_MS);
                db.lazily(|tx| rollup::merge_some(tx, SumsTable::Days, day))
            }
            MergeStage::Periods(grain) => {
                let closed = closed_ms / MINUTE_MS;
                let before = closed - closed % grain.minutes();
                let merged_to = &mut self.merged_to;
                db.lazily(|tx| periods::merge_next(tx, grain, merged_to, before))
            }
            MergeStage::Shares => merge_shares(db).map(|()| false),
            MergeStage::Records => self.records(db, now_ms),
        }
    }

    /// Counts or indexes some records of an absent node.
    fn records(&mut self, db: &mut Db, now_ms: u64) -> DbResult<bool> {
        let Some(last) = self.nodes.last().copied() else { return Ok(false) };
        let node = last.node();
        if !self.counting.step(db, node, now_ms)?.1 {
            return Ok(true);
        }
        let draft = self.draft.take().filter(|draft| draft.node() == node);
        let mut draft = draft.unwrap_or_else(|| RunDraft::new(node, INDEXED_MIN));
        // A process that was stopped for long and goes on may still add to the last row.
        match draft.step(db, last)? {
            RunStep::More => self.draft = Some(draft),
            RunStep::Complete => {}
            RunStep::TooFew { .. } => drop(self.nodes.pop()),
        }
        Ok(true)
    }
}

/// Merges what absent nodes had of limits and of keys.
fn merge_shares(db: &mut Db) -> DbResult<()> {
    db.lazily(|tx| key_use::merge_absent(tx, nodes::ABSENT_MS))?;
    for node in shares::absent_holders(db)? {
        while in_transaction(db, |tx| shares::merge_some(tx, node))? {}
    }
    Ok(())
}

fn in_transaction<T>(db: &mut Db, work: impl FnOnce(&Db) -> Result<T, DbError>) -> DbResult<T> {
    let tx = db.transaction()?;
    let worked = work(&tx)?;
    tx.commit().map(|()| worked)
}

/// Returns the last rows of nodes that are absent, and of node 0, which is none.
fn absent_nodes(db: &Db) -> DbResult<Vec<RecordId>> {
    let absent = nodes::absent(db)?;
    let mut last_rows = last_rows(db)?;
    last_rows.retain(|last| last.node() == NodeId::FIRST || absent.contains(&last.node()));
    Ok(last_rows)
}

/// Sums are closed so long after the end of their time, so that most are merged once.
const OPEN_MS: u64 = 5 * 60_000;
/// A node that has left gets another run of the index of request IDs for so many exchanges; fewer are searched one by one.
const INDEXED_MIN: u64 = 2_048;
/// The time of a step, in which other jobs of the writer thread wait.
const STEP: Duration = Duration::from_millis(10);
/// The pause after a step, as a multiple of its duration.
const REST: u32 = 4;
const BETWEEN_PASSES: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests;
