//! The walk over the keys of one target's provider. What an upstream has against a key moves the request to the next key
//! at once; what is its own fault follows the retry settings with the same key, and then moves to the next target.

use std::sync::Arc;

use shared::operation::Dialect;
use shared::routing::{ProviderInstance, Target};

use super::budget::NextCandidates;
use super::verdict::KeyBlame;
use super::walk::{Again, Step, Walk};
use crate::plan::lanes::{LaneNeeds, LaneStanding, RankedLane, lanes};
use crate::plan::response_affinity::StateReference;
use crate::record::Record;

impl Walk<'_> {
    /// Tries a target whose provider has several keys. Keys that rest come after the others; if another candidate is left,
    /// they are not tried after those.
    pub(super) async fn lanes(
        &mut self,
        (planned, before): (&Target, u32),
        next: &NextCandidates<'_>,
        record: &mut Record,
    ) -> Step {
        let ranked = lanes(planned, self.lane_needs());
        // The request may try the target again with the key that is ready first.
        let mut again: Option<Again> = None;
        let (mut tried, mut rejected) = (0, 0);
        for (place, RankedLane { lane, standing }) in ranked.iter().enumerate() {
            if matches!(standing, LaneStanding::Resting { .. }) && place > 0 && !next.is_empty() {
                break;
            }
            let target = Target { provider: Arc::clone(lane), model: Arc::clone(&planned.model) };
            let before = if place == 0 { before } else { 0 };
            match self.attempts((&target, before), next, record).await {
                Step::Refused { blame, again: own } => {
                    tried += 1;
                    rejected += usize::from(blame == KeyBlame::Rejected);
                    let is_sooner = |own: &Again| again.is_none_or(|again| own.wait < again.wait);
                    again = own.filter(is_sooner).or(again);
                }
                Step::NotAdmitted => {}
                end => return end,
            }
        }
        if tried > 0 && rejected == tried {
            self.reasons.keys_rejected(&planned.provider, rejected + rejected_before(planned, &ranked));
        }
        again.map_or(Step::Moved, Step::Limited)
    }

    fn lane_needs(&self) -> LaneNeeds<'_> {
        let job = self.job;
        let affinity = &job.worker.process.response_affinity;
        // Known to the plan too, which need not be kept for requests without lanes.
        let reference = match job.head.dialect {
            Dialect::Responses => affinity.wanted(&job.head, &job.body.segments, &job.access),
            _ => StateReference::Nothing,
        };
        LaneNeeds::of(&job.head, job.session.as_deref(), (affinity, reference))
    }
}

/// Returns the number of keys, other than those of `tried`, that the upstream rejected when they were last used.
fn rejected_before(planned: &Target, tried: &[RankedLane<'_>]) -> usize {
    let is_open = |ranked: &RankedLane<'_>| matches!(ranked.standing, LaneStanding::Open { .. });
    let is_tried = |lane: &Arc<ProviderInstance>| {
        tried.iter().any(|ranked| Arc::ptr_eq(ranked.lane, lane) && !is_open(ranked))
    };
    let others = planned.provider.lanes.iter().filter(|lane| !is_tried(lane));
    others.filter(|lane| lane.rejection().is_some()).count()
}
