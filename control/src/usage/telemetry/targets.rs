//! What the thread of `telemetry.db` keeps of targets: the sums of each minute and the changes of circuits. They wait in
//! memory while the file cannot be written, and are bounded there; nothing else waits for them.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::clock::unix_ms;
use shared::snapshot::SnapshotReader;

use super::circuits::CircuitWatch;
use crate::db::engine::DbResult;
use crate::db::telemetry::TelemetryDb;
use crate::db::telemetry_targets::{CircuitChange, MINUTE_MS, TargetFilter, TargetMinuteRow};
use crate::usage::metrics::OTHER;
use crate::usage::minutes::{MinuteSums, TargetMinutes, TargetSums};

/// The figures of targets by minute and the changes of circuits that are not stored yet.
#[derive(Debug)]
pub(crate) struct TargetWatch {
    minutes: Arc<TargetMinutes>,
    circuits: CircuitWatch,
    /// Changes that are not stored yet.
    changes: Vec<CircuitChange>,
    /// True from a failure to store until the next success.
    is_failing: bool,
    /// No attempt to store before this moment.
    rests_until: Option<Instant>,
}

/// The minutes and changes of circuits of one transaction.
pub(super) struct TargetBatch {
    sums: MinuteSums,
    pub(super) rows: Vec<TargetMinuteRow>,
    pub(super) changes: Vec<CircuitChange>,
}

/// A query for figures of targets.
#[derive(Clone, Debug)]
pub(crate) struct TargetQuestion {
    /// Whole steps, in milliseconds since the Unix epoch.
    pub(crate) time_ms: Range<u64>,
    /// A multiple of a minute.
    pub(crate) step_ms: u64,
    pub(crate) filter: TargetFilter,
    /// The maximum number of changes of circuits.
    pub(crate) changes_max: usize,
}

/// The result of a query.
#[derive(Debug)]
pub(crate) struct TargetFigures {
    /// The sums of the targets by the start of the step in milliseconds since the Unix epoch, without empty steps.
    pub(crate) points: BTreeMap<u64, TargetSums>,
    /// The exchanges of each provider and model, and those of them that were not completed.
    pub(crate) targets: BTreeMap<(String, String), (u64, u64)>,
    /// The changes of circuits, the latest first.
    pub(crate) changes: Vec<CircuitChange>,
    /// Exchanges that ended before this moment may be missing.
    pub(crate) complete_from_ms: u64,
}

impl TargetWatch {
    pub(crate) fn new(minutes: &Arc<TargetMinutes>, snapshot: &SnapshotReader) -> Self {
        Self {
            minutes: Arc::clone(minutes),
            circuits: CircuitWatch::new(snapshot.clone()),
            changes: Vec::new(),
            is_failing: false,
            rests_until: None,
        }
    }

    /// Notes the last answers that earlier processes stored, to the minute, from the newest rows.
    pub(super) fn recall_answers(&self, db: &TelemetryDb) -> DbResult<()> {
        let mut rows = 0;
        db.target_minutes(&(0..u64::MAX >> 1), &TargetFilter::default(), |minute, target, packed| {
            if TargetSums::unpack(packed).is_some_and(|sums| sums.has_answered()) {
                self.minutes.answers().note(target, minute.saturating_mul(MINUTE_MS));
            }
            rows += 1;
            if rows < RECALLED_ROWS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    }

    /// Notices changes of circuits. Beyond [`CHANGES_MAX`] that are not stored, the earliest are dropped.
    pub(super) fn look(&mut self) {
        self.changes.extend(self.circuits.look(unix_ms()));
        let excess = self.changes.len().saturating_sub(CHANGES_MAX);
        self.changes.drain(..excess);
    }

    /// Returns what is due to be stored: the minutes that are over, and changes.
    pub(super) fn due(&mut self) -> Option<TargetBatch> {
        if self.rests_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        self.take_before(unix_ms().saturating_sub(LATE_MS) / MINUTE_MS)
    }

    /// Returns all that is not stored.
    pub(super) fn rest(&mut self) -> Option<TargetBatch> {
        self.take_before(u64::MAX)
    }

    fn take_before(&mut self, minute: u64) -> Option<TargetBatch> {
        let (sums, changes) = (self.minutes.take_before(minute), std::mem::take(&mut self.changes));
        let batch = TargetBatch { rows: sums.rows(), sums, changes };
        (!batch.sums.is_empty() || !batch.changes.is_empty()).then_some(batch)
    }

    /// Notes the outcome of storing a batch. One that was not stored is due again after a pause.
    pub(super) fn stored(&mut self, batch: TargetBatch, is_stored: bool) {
        if !is_stored {
            self.minutes.add(&batch.sums);
            self.changes.splice(..0, batch.changes);
            self.rests_until = Some(Instant::now() + PAUSE);
            if !self.is_failing {
                tracing::warn!("telemetry.db cannot be written; the figures of targets wait in memory");
            }
        } else if self.is_failing {
            tracing::info!("telemetry.db is written again");
        }
        self.is_failing = !is_stored;
    }

    /// Answers a query from the database and from what is not stored yet. Reading stops at `until`.
    pub(super) fn figures(
        &self,
        db: &TelemetryDb,
        question: &TargetQuestion,
        until: Instant,
    ) -> DbResult<TargetFigures> {
        let TargetQuestion { time_ms, filter, changes_max, .. } = question;
        let mut found = TargetFigures {
            points: BTreeMap::new(),
            targets: BTreeMap::new(),
            changes: self.unstored_changes(question),
            complete_from_ms: time_ms.start,
        };
        let minutes = time_ms.start / MINUTE_MS..time_ms.end / MINUTE_MS;
        self.minutes.read(|minute, target, sums| {
            if minutes.contains(&minute) && filter.fits(target.0, target.1) {
                found.add(question, minute, target, sums);
            }
        });
        db.target_minutes(&minutes, filter, |minute, target, packed| {
            if Instant::now() >= until {
                found.complete_from_ms = (minute + 1) * MINUTE_MS;
                return ControlFlow::Break(());
            }
            if let Some(sums) = TargetSums::unpack(packed) {
                found.add(question, minute, target, &sums);
            }
            ControlFlow::Continue(())
        })?;
        let left = changes_max.saturating_sub(found.changes.len());
        found.changes.extend(db.circuit_changes(time_ms, filter, left)?);
        Ok(found)
    }

    /// Returns the changes that are not stored, the latest first.
    fn unstored_changes(&self, question: &TargetQuestion) -> Vec<CircuitChange> {
        let TargetQuestion { time_ms, filter, changes_max, .. } = question;
        let fits = |change: &&CircuitChange| {
            let model = change.model.as_deref().or(filter.model.as_deref()).unwrap_or_default();
            time_ms.contains(&change.at_ms) && filter.fits(&change.provider, model)
        };
        self.changes.iter().rev().filter(fits).take(*changes_max).cloned().collect()
    }
}

impl TargetFigures {
    fn add(&mut self, question: &TargetQuestion, minute: u64, target: (&str, &str), sums: &TargetSums) {
        let step = (minute * MINUTE_MS).saturating_sub(question.time_ms.start) / question.step_ms.max(1);
        let start_ms = question.time_ms.start.saturating_add(step.saturating_mul(question.step_ms));
        self.points.entry(start_ms).or_default().merge(sums);
        let mut target = (target.0.to_owned(), target.1.to_owned());
        if self.targets.len() >= TARGETS_MAX && !self.targets.contains_key(&target) {
            target = (OTHER.to_owned(), OTHER.to_owned());
        }
        let (requests, errors) = self.targets.entry(target).or_default();
        *requests = requests.saturating_add(sums.requests);
        *errors = errors.saturating_add(sums.errors.sum());
    }
}

/// The maximum number of targets that an answer counts; further ones are counted together.
const TARGETS_MAX: usize = 10_000;
/// A minute is stored when it has been over for this time, because records arrive late.
const LATE_MS: u64 = 5_000;
/// The pause after a failure to store.
const PAUSE: Duration = Duration::from_secs(10);
/// The maximum number of rows from which answers are recalled at a start.
const RECALLED_ROWS: usize = 4_096;
/// The maximum number of changes that wait to be stored.
const CHANGES_MAX: usize = 1_000;
