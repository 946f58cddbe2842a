//! Orders the candidates of an endpoint that is no plain list: by tier, then by the endpoint's order, with the target of the
//! request's session first.
//!
//! Only the eligible targets are ordered, so shares follow from what is left. A target of weight 0 comes after all others of
//! its tier.

use std::cmp::Ordering;

use shared::backoff::random_fraction;
use shared::clock::monotonic_ms;
use shared::routing::{Balance, Endpoint, Share, Target};
use shared::usage::{ChosenBy, TargetChoice, TargetOrder};

use super::response_affinity::{SessionHash, StateReference};
use super::siphash::SipHash;
use super::{Needs, affinity};
use crate::admit::demand::Demand;

/// The choice of the first target, and the session that stays with the target that serves it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) recorded: TargetChoice,
    /// The session whose target is remembered.
    pub(crate) session: Option<SessionHash>,
}

/// The share of a candidate and what decides its place, for display.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShownShare {
    pub(crate) tier: u8,
    pub(crate) weight: u16,
    /// Its share of the draws among the candidates of its tier, with the order `weighted`.
    pub(crate) share: Option<f64>,
    /// With the orders `least_busy` and `fastest`.
    pub(crate) in_flight: Option<u32>,
    /// With the order `fastest`; `None` also without a sample.
    pub(crate) first_content_us: Option<f32>,
    /// In nano-dollars, with the order `cheapest`; `None` also if a price is unknown.
    pub(crate) cost_nano_usd: Option<u64>,
}

impl ShownShare {
    /// Returns the share of a candidate, which is one of `candidates`.
    pub(crate) fn of(
        target: &Target,
        candidates: &[&Target],
        (endpoint, balance): (&Endpoint, &Balance),
        demand: Demand<'_>,
    ) -> Option<Self> {
        let share_of = |target: &Target| {
            let mut listed = endpoint.targets.iter().zip(&balance.shares);
            listed.find(|(listed, _)| std::ptr::eq(*listed, target)).map(|(_, share)| share)
        };
        let own = share_of(target)?;
        let of_tier = candidates.iter().filter_map(|target| share_of(target));
        let of_tier = of_tier.filter(|share| share.tier == own.tier);
        let total: f64 = of_tier.map(|share| f64::from(share.weight)).sum();
        let order = balance.order;
        let depends_on_load = matches!(order, TargetOrder::LeastBusy | TargetOrder::Fastest);
        Some(Self {
            tier: own.tier,
            weight: own.weight,
            share: (order == TargetOrder::Weighted && total > 0.0).then(|| f64::from(own.weight) / total),
            in_flight: depends_on_load.then(|| own.in_flight()),
            first_content_us: own.first_content_us(monotonic_ms()).filter(|_| order == TargetOrder::Fastest),
            cost_nano_usd: demand.probable_cost(target).filter(|_| order == TargetOrder::Cheapest),
        })
    }
}

/// A candidate and what decides its place.
#[derive(Clone, Copy, Debug)]
struct Ranked<'a> {
    target: &'a Target,
    share: &'a Share,
    /// A draw by weight: the smaller, the earlier.
    draw: f64,
}

/// Orders `candidates`, which are in the order of the endpoint's list.
pub(super) fn rank<'a>(
    candidates: &mut Vec<&'a Target>,
    (endpoint, balance): (&'a Endpoint, &'a Balance),
    needs: &Needs<'_>,
) -> Choice {
    rank_at(candidates, (endpoint, balance), needs, monotonic_ms())
}

fn rank_at<'a>(
    candidates: &mut Vec<&'a Target>,
    (endpoint, balance): (&'a Endpoint, &'a Balance),
    needs: &Needs<'_>,
    now_ms: u64,
) -> Choice {
    let session_name = || needs.session.or(needs.demand.head.prompt_cache_key.as_deref());
    let named = needs.affinity_key.or_else(|| session_name().filter(|_| balance.sticky));
    let by_key = match needs.affinity_key {
        Some(_) => ChosenBy::Affinity,
        None => ChosenBy::Session,
    };
    let (mut chosen_by, mut session) = (ChosenBy::Order, None);
    match (balance.order, named, needs.affinity_key) {
        (TargetOrder::Listed, _, Some(key)) => {
            affinity::rotate(candidates, key);
            chosen_by = ChosenBy::Affinity;
        }
        (TargetOrder::Weighted, Some(key), _) => {
            let draw = |target: &Target| hashed_fraction(key, target);
            *candidates = ordered(shares(candidates, endpoint, balance, &draw), balance.order, needs, now_ms);
            chosen_by = by_key;
        }
        (order, named, _) => {
            let random = |_: &Target| random_fraction();
            *candidates = ordered(shares(candidates, endpoint, balance, &random), order, needs, now_ms);
            session = named.map(|key| needs.response_affinity.session(needs.access, &endpoint.name, key));
            if session.is_some_and(|session| is_resumed(candidates, session, needs, now_ms)) {
                chosen_by = by_key;
            }
        }
    }
    if matches!(needs.reference, StateReference::At(_)) {
        chosen_by = ChosenBy::State;
    }
    Choice { recorded: TargetChoice { order: balance.order, chosen_by }, session }
}

/// Moves the target that the session was served by last to the front, if it can serve now. Returns true if it did.
fn is_resumed(candidates: &mut [&Target], session: SessionHash, needs: &Needs<'_>, now_ms: u64) -> bool {
    let is_its = |target: &&Target| needs.response_affinity.is_target_of(session, target);
    let place = candidates.iter().position(is_its).filter(|place| {
        candidates
            .get(*place)
            .is_some_and(|target| target.open_ms(now_ms).is_none() && target.rest_at(|| now_ms).is_none())
    });
    if let Some(front) = place.and_then(|place| candidates.get_mut(..=place)) {
        front.rotate_right(1);
    }
    place.is_some()
}

/// Pairs the candidates with their shares; `fraction` is a uniform number from 0 to 1 for each.
fn shares<'a>(
    candidates: &[&'a Target],
    endpoint: &'a Endpoint,
    balance: &'a Balance,
    fraction: &dyn Fn(&Target) -> f64,
) -> Vec<Ranked<'a>> {
    let mut listed = endpoint.targets.iter().zip(&balance.shares);
    let found = candidates.iter().filter_map(|target| {
        // The candidates are in the order of the list.
        let (_, share) = listed.find(|(listed, _)| std::ptr::eq(*listed, *target))?;
        // The minimum of exponential variables with the weights as rates: each draw is in proportion to what is left.
        let draw = -(1.0 - fraction(target)).max(f64::MIN_POSITIVE).ln() / f64::from(share.weight.max(1));
        Some(Ranked { target, share, draw })
    });
    found.collect()
}

fn ordered<'a>(
    mut ranked: Vec<Ranked<'a>>,
    order: TargetOrder,
    needs: &Needs<'_>,
    now_ms: u64,
) -> Vec<&'a Target> {
    match order {
        TargetOrder::Listed => {}
        TargetOrder::Weighted => ranked.sort_by(|a, b| group(a, b).then(a.draw.total_cmp(&b.draw))),
        TargetOrder::LeastBusy => ranked.sort_by(|a, b| {
            let (a_busy, b_busy) = (busy(a.share), busy(b.share));
            group(a, b).then(a_busy.total_cmp(&b_busy)).then(a.draw.total_cmp(&b.draw))
        }),
        TargetOrder::Fastest => {
            ranked.sort_by(|a, b| group(a, b).then(a.draw.total_cmp(&b.draw)));
            ranked.chunk_by_mut(|a, b| group(a, b).is_eq()).for_each(|drawn| by_speed(drawn, now_ms));
        }
        TargetOrder::Cheapest => ranked.sort_by_cached_key(|ranked| {
            let cost = needs.demand.probable_cost(ranked.target);
            (ranked.share.tier, ranked.share.weight == 0, cost.is_none(), cost)
        }),
    }
    ranked.into_iter().map(|ranked| ranked.target).collect()
}

/// Compares the tiers, and sets those of weight 0 apart.
fn group(a: &Ranked<'_>, b: &Ranked<'_>) -> Ordering {
    (a.share.tier, a.share.weight == 0).cmp(&(b.share.tier, b.share.weight == 0))
}

/// Returns the attempts in flight for each unit of weight.
fn busy(share: &Share) -> f64 {
    f64::from(share.in_flight()) / f64::from(share.weight.max(1))
}

/// Puts the faster of the first two first, and the others in the order of their speed.
fn by_speed(drawn: &mut [Ranked<'_>], now_ms: u64) {
    let best = drawn.iter().filter_map(|ranked| ranked.share.first_content_us(now_ms)).reduce(f32::min);
    let score = |ranked: &Ranked<'_>| {
        let first_content = ranked.share.first_content_us(now_ms).or(best).unwrap_or(1.0);
        f64::from(first_content) * (f64::from(ranked.share.in_flight()) + 1.0)
    };
    if let [one, other, ..] = drawn
        && score(other) < score(one)
    {
        std::mem::swap(one, other);
    }
    if let Some(rest) = drawn.get_mut(1..) {
        // A score is read once for each: others change it meanwhile.
        let mut scored: Vec<_> = rest.iter().map(|ranked| (score(ranked), *ranked)).collect();
        scored.sort_by(|a, b| a.0.total_cmp(&b.0));
        rest.iter_mut().zip(scored).for_each(|(slot, (_, ranked))| *slot = ranked);
    }
}

/// Returns a number from 0 to 1 that is the same for a key and a target in every release and at every node.
#[expect(
    clippy::cast_precision_loss,
    clippy::as_conversions,
    reason = "the shifted hash has the digits of an f64"
)]
fn hashed_fraction(key: &str, target: &Target) -> f64 {
    let (provider, model) = (target.provider.id.as_str(), target.model.id.as_str());
    let hash = SipHash::new().text(key).text(provider).text(model).finish();
    (hash >> (u64::BITS - f64::MANTISSA_DIGITS)) as f64 / (1_u64 << f64::MANTISSA_DIGITS) as f64
}

#[cfg(test)]
mod tests;
