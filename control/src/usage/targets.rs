//! The figures of targets over a time, from the periods, and from the records that those do not count.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::time::Instant;

use super::metrics::OTHER;
use super::periods::{
    Grain, PeriodSpan, PeriodTally, Plan, RecordReading, Section, TargetSums, first_period, followed, rows,
};
use super::report::only_days_before;
use crate::common::bounds::TELEMETRY_COUNTED;
use crate::db::circuit_changes::TargetFilter;
use crate::db::engine::{Db, DbResult};

/// A query for figures of targets.
#[derive(Clone, Debug)]
pub(crate) struct TargetQuestion {
    /// Whole steps, in milliseconds since the Unix epoch.
    pub(crate) time_ms: Range<u64>,
    /// A multiple of a minute.
    pub(crate) step_ms: u64,
    pub(crate) filter: TargetFilter,
}

/// The result of a query.
#[derive(Debug)]
pub(crate) struct TargetFigures {
    /// The sums of the targets by the start of the step in milliseconds since the Unix epoch, without empty steps.
    pub(crate) points: BTreeMap<u64, TargetSums>,
    /// The exchanges of each provider and model, and those of them that were not completed.
    pub(crate) targets: BTreeMap<(String, String), (u64, u64)>,
    /// Exchanges that started before this moment may be missing.
    pub(crate) complete_from_ms: u64,
}

/// Answers a query. Reading records stops at `until`.
pub(crate) fn target_figures(db: &Db, question: &TargetQuestion, until: Instant) -> DbResult<TargetFigures> {
    // One transaction, so that periods and records are of one moment.
    let tx = db.read_transaction()?;
    let time = &question.time_ms;
    let complete_from_ms = time.start;
    let mut found = TargetFigures { points: BTreeMap::new(), targets: BTreeMap::new(), complete_from_ms };
    let plan = plan(&tx, question)?;
    for span in &plan.spans {
        let Some(grain) = span.grain else { continue };
        let span = PeriodSpan { grain, section: Section::Target, time_ms: span.time_ms.clone() };
        rows(&tx, &span, |row| {
            let target = (row.name, row.model);
            if question.filter.fits(target.0, target.1)
                && let Some(sums) = row.sums()
            {
                found.add(question, row.start_ms, target, &sums.target);
            }
            ControlFlow::Continue(())
        })?;
    }
    found.add_records(&tx, question, (&plan, until))?;
    Ok(found)
}

/// Cuts the time into periods that no step divides.
fn plan(db: &Db, question: &TargetQuestion) -> DbResult<Plan> {
    let step = usize::try_from(question.step_ms.max(1)).unwrap_or(usize::MAX);
    let edges: Vec<u64> = (question.time_ms.start..=question.time_ms.end).step_by(step).collect();
    let mut grains = Vec::new();
    for grain in [Grain::Day, Grain::Hour, Grain::Minute] {
        grains.extend(first_period(db, grain, Section::Target)?.map(|first_ms| (grain, first_ms)));
    }
    Ok(Plan::of(&edges, &grains))
}

impl TargetFigures {
    /// Adds the records that no period counts.
    fn add_records(&mut self, db: &Db, question: &TargetQuestion, plan: (&Plan, Instant)) -> DbResult<()> {
        let (time, (plan, until)) = (&question.time_ms, plan);
        let reading = RecordReading { db, until, may_have: &|_, _| true };
        let mut tally = PeriodTally::default();
        let mut stopped_ms = time.start;
        let followed = followed(db)?;
        if let Some(from_ms) = followed.values().map(|followed| followed.from_ms).max() {
            stopped_ms = reading.uncounted(&followed, time, |record, trace| {
                if !plan.reads_records_of(record.started_at_ms) {
                    tally.add(record, trace);
                }
                true
            })?;
            let counted_ms = from_ms.min(time.end);
            self.complete_from_ms = self.complete_from_ms.max(counted_ms);
        }
        for rest in plan.of_records().rev() {
            if stopped_ms > time.start {
                break;
            }
            let reached = reading.between(rest, |record, trace| {
                tally.add(record, trace);
                true
            })?;
            stopped_ms = if reached > rest.start { reached } else { time.start };
        }
        self.complete_from_ms = self.complete_from_ms.max(stopped_ms);
        if let (Some(kept_ms), Some(rest)) = (only_days_before(db)?, plan.of_records().next())
            && rest.start < kept_ms
        {
            self.complete_from_ms = self.complete_from_ms.max(rest.end.min(kept_ms));
        }
        for (key, sums) in tally.rolled_up(|_, names| Ok(names))? {
            let is_row = key.grain == Grain::Minute && question.filter.fits(&key.name, &key.model);
            if is_row {
                self.add(question, key.start_ms(), (&key.name, &key.model), &sums.target);
            }
        }
        Ok(())
    }

    fn add(&mut self, question: &TargetQuestion, at_ms: u64, target: (&str, &str), sums: &TargetSums) {
        let step = at_ms.saturating_sub(question.time_ms.start) / question.step_ms.max(1);
        let start_ms = question.time_ms.start.saturating_add(step.saturating_mul(question.step_ms));
        self.points.entry(start_ms).or_default().merge(sums);
        let mut target = (target.0.to_owned(), target.1.to_owned());
        if !self.targets.contains_key(&target) && TELEMETRY_COUNTED.is_full(self.targets.len()) {
            target = (OTHER.to_owned(), OTHER.to_owned());
        }
        let (requests, errors) = self.targets.entry(target).or_default();
        *requests = requests.saturating_add(sums.requests);
        *errors = errors.saturating_add(sums.errors.sum());
    }
}
