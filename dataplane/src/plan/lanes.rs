//! Orders the lanes of a target, one for each key of its provider: those that can serve now come first. A session stays with
//! its lane by rendezvous hashing, because the prompt cache of the upstream may belong to the key; what has no session goes
//! to the lane with the fewest attempts in flight.
//!
//! State that an upstream stores belongs to the lane that made it: a request that refers to it has that lane alone.

use std::cmp::Reverse;
use std::sync::Arc;

use shared::backoff::random_fraction;
use shared::clock::monotonic_ms;
use shared::routing::{ProviderInstance, Target};
use wire::request::Head;

use super::response_affinity::{AccountHash, ResponseAffinity, StateReference};
use super::siphash::SipHash;

/// The maximum number of lanes that a request tries at one target.
pub(crate) const LANES_TRIED_MAX: usize = 3;

/// The parts of a request that decide its lane.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneNeeds<'a> {
    /// The key of the session.
    pub(crate) session: Option<&'a str>,
    /// The account of the provider state that the request refers to.
    pub(crate) account: Option<(&'a ResponseAffinity, AccountHash)>,
}

impl<'a> LaneNeeds<'a> {
    /// Returns the needs of a request that names this session beside its body.
    pub(crate) fn of(
        head: &'a Head,
        session: Option<&'a str>,
        (affinity, reference): (&'a ResponseAffinity, StateReference),
    ) -> Self {
        let session = head.affinity_key.as_deref().or(session).or(head.prompt_cache_key.as_deref());
        let account = match reference {
            StateReference::At(account) => Some((affinity, account)),
            StateReference::Nothing | StateReference::Unknown => None,
        };
        Self { session, account }
    }
}

/// Why a lane comes after others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LaneStanding {
    /// It can serve now.
    Ready,
    /// The model rests for this many milliseconds. What the upstream has only announced comes before a refusal, because it may
    /// be asked in spite of it.
    Resting { is_firm: bool, wait_ms: u64 },
    /// A circuit is open for this many milliseconds.
    Open { wait_ms: u64 },
}

/// A lane in the order of the attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankedLane<'t> {
    pub(crate) lane: &'t Arc<ProviderInstance>,
    pub(crate) standing: LaneStanding,
}

/// Returns the lanes of `target` that the request may try, in order. Empty if the provider has one key.
pub(crate) fn lanes<'t>(target: &'t Target, needs: LaneNeeds<'_>) -> Vec<RankedLane<'t>> {
    let now_ms = monotonic_ms();
    let provider = &target.provider;
    let only = needs.account.and_then(|(affinity, account)| affinity.lane_of(target, account));
    let allowed = provider.lanes.iter().filter(|lane| only.is_none_or(|only| Arc::ptr_eq(only, lane)));
    let mut ranked: Vec<_> = allowed
        .map(|lane| {
            let standing = standing(lane, target, now_ms);
            let place = match needs.session {
                Some(session) => Place::Session(Reverse(score(session, lane))),
                // The bits of positive fractions are in their order: a draw breaks ties.
                None => Place::Load(lane.circuits.load().in_flight(), random_fraction().to_bits()),
            };
            (standing, place, lane)
        })
        .collect();
    ranked.sort_by_key(|(standing, place, _)| (*standing, *place));
    ranked.truncate(LANES_TRIED_MAX);
    ranked.into_iter().map(|(standing, _, lane)| RankedLane { lane, standing }).collect()
}

/// Returns the instance for a request of the gateway's own, such as a count: that of the first lane that can serve.
pub(crate) fn any_lane(target: &Target) -> Arc<ProviderInstance> {
    let ranked = lanes(target, LaneNeeds::default());
    Arc::clone(ranked.first().map_or(&target.provider, |ranked| ranked.lane))
}

/// The place of a lane among those of the same standing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Session(Reverse<u64>),
    Load(u32, u64),
}

fn standing(lane: &ProviderInstance, target: &Target, now_ms: u64) -> LaneStanding {
    let model_id = &target.model.id;
    if let Some(wait_ms) = lane.open_ms(model_id, now_ms) {
        LaneStanding::Open { wait_ms }
    } else if let Some(rest) = lane.circuits.rests().of(model_id, || now_ms) {
        LaneStanding::Resting { is_firm: rest.is_firm, wait_ms: rest.wait_ms }
    } else {
        LaneStanding::Ready
    }
}

/// Returns the score of a lane for a session: the same at every node, and independent of the other lanes.
fn score(session: &str, lane: &ProviderInstance) -> u64 {
    let mark = lane.credential_mark().to_be_bytes();
    SipHash::new().text(session).text(lane.id.as_str()).bytes(&mark).finish()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shared::health::RateLimit;
    use shared::id::CredentialNumber;
    use shared::routing::{EchoOptions, Lane};

    use super::*;
    use crate::fixture::{echo, target};

    fn several(marks: &[u8]) -> Target {
        let lane = |(mark, number): (&u8, u32)| {
            let lane = Lane { number: CredentialNumber(number), hint: None, of_instance: Arc::default() };
            let lane = Some(lane);
            Arc::new(ProviderInstance { lane, identity: [*mark; 32], ..echo("p", EchoOptions::default()) })
        };
        let lanes = marks.iter().zip(1..).map(lane).collect();
        target(&Arc::new(ProviderInstance { lanes, ..echo("p", EchoOptions::default()) }))
    }

    fn of_session(target: &Target, session: &str) -> Vec<u8> {
        let needs = LaneNeeds { session: Some(session), account: None };
        lanes(target, needs).iter().map(|ranked| ranked.lane.identity[0]).collect()
    }

    #[test]
    fn a_target_with_one_key_has_no_order_of_lanes() {
        let one = target(&Arc::new(echo("p", EchoOptions::default())));
        assert!(lanes(&one, LaneNeeds::default()).is_empty());
        assert!(Arc::ptr_eq(&any_lane(&one), &one.provider));
    }

    #[test]
    fn a_session_has_one_order_at_every_node_and_a_removed_lane_moves_only_its_own() {
        let [all, turned, without] = [&[1, 2, 3, 4][..], &[4, 3, 2, 1], &[1, 2, 4]].map(several);
        let mut firsts = [0; 5];
        for session in 0..1_000 {
            let session = format!("session-{session}");
            let order = of_session(&all, &session);
            assert_eq!(order.len(), LANES_TRIED_MAX);
            assert_eq!(order, of_session(&turned, &session), "{session}");
            let left: Vec<u8> = order.iter().copied().filter(|mark| *mark != 3).collect();
            assert!(of_session(&without, &session).starts_with(&left), "{session}");
            firsts[usize::from(order[0])] += 1;
        }
        assert!(firsts[1..].iter().all(|count| (190..310).contains(count)), "{firsts:?}");
    }

    #[test]
    fn lanes_that_rest_or_are_open_come_last_also_for_their_sessions() {
        let target = several(&[1, 2, 3]);
        let [one, two, _] = &*target.provider.lanes else { panic!() };
        let limit = RateLimit { wait: Some(Duration::from_secs(60)), status: Some(429), at_ms: 0 };
        let bounds = (Duration::from_secs(600), 0.0);
        assert!(target.rest().is_none() && target.open_ms(monotonic_ms()).is_none());
        one.circuits.rests().limit(&target.model.id, limit, monotonic_ms(), bounds);
        let failed =
            shared::health::Failed { at_ms: 0, result: shared::usage::StepResult::Status, status: Some(401) };
        for _ in 0..two.circuit_policy.failure_threshold {
            let mut admission = two.circuits.unchecked(&target.model.id);
            admission.failed(
                (shared::health::Evidence::InstanceFailed, failed),
                monotonic_ms(),
                &two.circuit_policy,
            );
        }
        assert_eq!((two.rejection(), one.rejection()), (Some(401), None));
        for session in 0..50 {
            assert_eq!(of_session(&target, &session.to_string()), [3, 1, 2]);
        }
        assert!(target.rest().is_none(), "one lane serves");
        target.provider.lanes[2].circuits.rests().limit(&target.model.id, limit, monotonic_ms(), bounds);
        let rest = target.rest().unwrap();
        assert!(rest.is_firm && rest.wait_ms <= 60_000 && target.open_ms(monotonic_ms()).is_none());
        assert_eq!(target.provider.best_lane(monotonic_ms()).identity[0], 1);
    }

    /// Otherwise a refusal with the shortest wait would be repeated for as long as another key might serve.
    #[test]
    fn a_lane_that_may_be_asked_comes_before_one_that_was_refused() {
        let target = several(&[1, 2, 3]);
        for (place, status, seconds) in [(0, Some(429), 40), (1, None, 60), (2, Some(429), 50)] {
            let lane = &target.provider.lanes[place];
            let limit = RateLimit { wait: Some(Duration::from_secs(seconds)), status, at_ms: 0 };
            let bounds = (Duration::from_secs(600), 0.0);
            lane.circuits.rests().limit(&target.model.id, limit, monotonic_ms(), bounds);
        }
        assert_eq!(of_session(&target, "a session"), [2, 1, 3]);
        assert!(target.rest().is_some_and(|rest| !rest.is_firm));
    }

    #[test]
    fn a_request_without_a_session_goes_to_the_lane_with_the_fewest_attempts() {
        let target = several(&[1, 2, 3]);
        let mut attempts = Vec::new();
        for round in 0..30 {
            let lane = any_lane(&target);
            attempts.push(lane.circuits.load().begin());
            let most = target.provider.lanes.iter().map(|lane| lane.circuits.load().in_flight()).max();
            assert_eq!(most, Some(round / 3 + 1));
        }
        drop(attempts);
        assert!(target.provider.lanes.iter().all(|lane| lane.circuits.load().in_flight() == 0));
    }
}
