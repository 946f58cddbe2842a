//! The changes of circuits that the thread of `telemetry.db` stores. They wait in memory while the file cannot be written,
//! and are bounded there; nothing else waits for them.

use std::ops::Range;
use std::time::{Duration, Instant};

use shared::clock::unix_ms;
use shared::snapshot::SnapshotReader;

use super::circuits::CircuitWatch;
use crate::common::bounds::CHANGES_WAITING;
use crate::db::circuit_changes::{CircuitChange, TargetFilter};
use crate::db::engine::DbResult;
use crate::db::telemetry::TelemetryDb;

/// The changes of circuits that are not stored yet.
#[derive(Debug)]
pub(crate) struct ChangeWatch {
    circuits: CircuitWatch,
    changes: Vec<CircuitChange>,
    /// True from a failure to store until the next success.
    is_failing: bool,
    /// No attempt to store before this moment.
    rests_until: Option<Instant>,
}

/// A query for changes of circuits.
#[derive(Clone, Debug)]
pub(crate) struct ChangeQuestion {
    /// In milliseconds since the Unix epoch.
    pub(crate) time_ms: Range<u64>,
    pub(crate) filter: TargetFilter,
    /// The maximum number of changes.
    pub(crate) max: usize,
}

impl ChangeWatch {
    pub(crate) fn new(snapshot: &SnapshotReader) -> Self {
        let circuits = CircuitWatch::new(snapshot.clone());
        Self { circuits, changes: Vec::new(), is_failing: false, rests_until: None }
    }

    /// Notices changes of circuits. Beyond [`CHANGES_WAITING`] that are not stored, the earliest are dropped.
    pub(super) fn look(&mut self) {
        self.changes.extend(self.circuits.look(unix_ms()));
        let excess = CHANGES_WAITING.excess(self.changes.len());
        self.changes.drain(..excess);
    }

    /// Returns the changes that are due to be stored.
    pub(super) fn due(&mut self) -> Vec<CircuitChange> {
        if self.rests_until.is_some_and(|until| Instant::now() < until) {
            return Vec::new();
        }
        self.rest()
    }

    /// Returns all changes that are not stored.
    pub(super) fn rest(&mut self) -> Vec<CircuitChange> {
        std::mem::take(&mut self.changes)
    }

    /// Notes the outcome of storing changes. Those that were not stored are due again after a pause.
    pub(super) fn stored(&mut self, changes: Vec<CircuitChange>, is_stored: bool) {
        if !is_stored {
            self.changes.splice(..0, changes);
            self.rests_until = Some(Instant::now() + PAUSE);
            if !self.is_failing {
                tracing::warn!("telemetry.db cannot be written; the changes of circuits wait in memory");
            }
        } else if self.is_failing {
            tracing::info!("telemetry.db is written again");
        }
        self.is_failing = !is_stored;
    }

    /// Returns changes from the database and those that are not stored yet, the latest first.
    pub(super) fn found(&self, db: &TelemetryDb, question: &ChangeQuestion) -> DbResult<Vec<CircuitChange>> {
        let ChangeQuestion { time_ms, filter, max } = question;
        let fits = |change: &&CircuitChange| {
            let model = change.model.as_deref().or(filter.model.as_deref()).unwrap_or_default();
            time_ms.contains(&change.at_ms) && filter.fits(&change.provider, model)
        };
        let mut found: Vec<_> = self.changes.iter().rev().filter(fits).take(*max).cloned().collect();
        found.extend(db.circuit_changes(time_ms, filter, max.saturating_sub(found.len()))?);
        Ok(found)
    }
}

/// The pause after a failure to store.
const PAUSE: Duration = Duration::from_secs(10);
