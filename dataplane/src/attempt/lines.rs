//! Targets whose quotas are used up for now, and have lines. Their lines are entered only when no other candidate can serve
//! the request: a line never keeps a request from another target. The request waits in all of them at once, and goes to
//! the target that is free first.

use shared::clock::monotonic_ms;
use shared::quota::{Exceeded, Quota};
use shared::routing::Target;
use shared::usage::StepResult;

use super::Served;
use super::budget::NextCandidates;
use super::waiting::Waiting;
use super::walk::{Step, Walk};
use crate::admit::line::{LinePlace, LineTerms, LineTurn, ended, next_turn};
use crate::error::Fault;
use crate::record::Record;

/// A target with a line that the request may enter.
#[derive(Debug)]
pub(super) struct LineCandidate<'t> {
    pub(super) target: &'t Target,
    pub(super) exceeded: Box<Exceeded>,
}

impl<'a> Walk<'a> {
    /// Returns the step of a target whose quota has a line, unless it could not serve the request anyway.
    pub(super) fn put_off(
        &mut self,
        target: &Target,
        exceeded: Box<Exceeded>,
        next: &NextCandidates<'_>,
        record: &mut Record,
    ) -> Step {
        if let Some(wait_ms) = target.open_ms(monotonic_ms()).filter(|_| !self.job.forced) {
            self.reasons.shortest_wait_ms = self.reasons.shortest_wait_ms.min(wait_ms);
            record.skip_open(target, wait_ms);
            return Step::NotAdmitted;
        }
        if let Some(rejection) = next.rejection(target) {
            record.skip(target, StepResult::Unsupported);
            self.reasons.rejection.get_or_insert_with(|| Box::new(rejection));
            return Step::Moved;
        }
        if !next.is_empty() {
            record.skip(target, StepResult::OverQuota);
        }
        Step::MustWait(exceeded)
    }

    /// Waits in the lines of the candidates, and tries the one that is called first. If that does not serve the request, waits
    /// for the others.
    pub(super) async fn lines(
        &mut self,
        mut candidates: Vec<LineCandidate<'_>>,
        record: &mut Record,
    ) -> Option<Served> {
        while let Some(target) = self.turn(&mut candidates, record).await {
            let others: Vec<&Target> = candidates.iter().map(|candidate| candidate.target).collect();
            // A target that limits the request may be tried again, without the line.
            let mut waiting = Waiting::default();
            let next = self.next_candidates(&others, &waiting);
            let step = self.held((target, 0), &next, record).await;
            if let Some(end) = self.after((step, target), &mut waiting, record).break_value() {
                return end;
            }
            if !waiting.is_empty() {
                let end = Box::pin(self.waiting(&mut waiting, record)).await;
                if let Some(end) = end.break_value() {
                    return end;
                }
                candidates.append(&mut waiting.lines);
            }
        }
        None
    }

    /// Waits until one of the candidates is called, and holds its quotas. Removes that one, and those that refuse the request.
    async fn turn<'t>(
        &mut self,
        candidates: &mut Vec<LineCandidate<'t>>,
        record: &mut Record,
    ) -> Option<&'t Target> {
        let terms: LineTerms<'a> = self.job.line_terms(record.started());
        let mut places = Vec::new();
        for LineCandidate { target, exceeded } in candidates.drain(..) {
            let place = LinePlace::enter(exceeded, target, terms, record);
            places.extend(self.unless_refused((place, target), record));
        }
        let first = places.first()?;
        record.begin_wait(first.target, first.quota());
        let mut called = None;
        while called.is_none() && !places.is_empty() {
            match next_turn(&mut places, terms).await {
                LineTurn::Called(index) => {
                    let place = places.remove(index);
                    match self.reserve(place.target, (record, Some(place.called()))) {
                        Ok(()) => called = Some(place),
                        Err(exceeded) => {
                            let target = place.target;
                            let moved = place.moved(exceeded, terms, record);
                            places.extend(self.unless_refused((moved, target), record));
                        }
                    }
                }
                LineTurn::TooLate(index) => {
                    let place = places.remove(index);
                    let refused = Err(place.too_late(record));
                    self.unless_refused((refused, place.target), record);
                }
                LineTurn::Ended => {
                    for place in places.drain(..) {
                        let refused = Err(ended(place.quota()));
                        self.unless_refused((refused, place.target), record);
                    }
                }
            }
        }
        let shown: Option<(&Target, &Quota)> = called.as_ref().map(|place| (place.target, place.quota()));
        record.end_wait(shown);
        candidates.extend(places.into_iter().map(LinePlace::leave).map(|(target, exceeded)| {
            // The request leaves the other lines while it is served: a turn there would be lost on it.
            LineCandidate { target, exceeded }
        }));
        called.map(|place| place.target)
    }

    fn unless_refused<'t>(
        &mut self,
        (place, target): (Result<LinePlace<'t>, Fault>, &Target),
        record: &mut Record,
    ) -> Option<LinePlace<'t>> {
        place
            .map_err(|fault| {
                self.reasons.keep_over_quota(fault, target);
                record.skip(target, StepResult::OverQuota);
            })
            .ok()
    }
}
