//! The targets of an endpoint: LiteLLM's ranks become tiers, and its weights those of llmgw.

use serde_json::{Map, Value, json};

use super::deployment::{Deployment, WEIGHT};
use super::draft::Draft;
use super::source::{Source, below};
use crate::routing::config::{TIER_MAX, WEIGHT_MAX};

/// A target of an endpoint.
#[derive(Clone)]
pub(super) struct Target {
    /// The index of its provider in the draft.
    pub(super) instance: usize,
    pub(super) model: String,
    /// Every target of a lower step comes before it.
    step: usize,
    /// Its share of the requests of its step, if LiteLLM weighs that.
    weight: Option<f64>,
}

impl Target {
    fn is(&self, other: &Self) -> bool {
        self.instance == other.instance && self.model == other.model
    }
}

/// Returns the targets of the deployments of a group, each with the index of its provider.
pub(super) fn of(source: &mut Source, mut deployments: Vec<(usize, Deployment)>) -> Vec<Target> {
    deployments.sort_by_key(|(_, deployment)| deployment.order);
    let mut targets: Vec<Target> = Vec::new();
    let mut is_spread = false;
    let ranks: Vec<&[(usize, Deployment)]> =
        deployments.chunk_by(|(_, a), (_, b)| a.order == b.order).collect();
    for rank in ranks {
        let first_step = targets.last().map_or(0, |last| last.step + 1);
        let is_weighted = weighs(source, rank);
        for (place, (instance, deployment)) in rank.iter().enumerate() {
            let step = if is_weighted { first_step } else { first_step + place };
            // In a rank with weights, a deployment without one has the weight 0 in LiteLLM.
            let weight = is_weighted.then(|| deployment.weight.unwrap_or(0.0));
            let target = Target { instance: *instance, model: deployment.model.clone(), step, weight };
            let known = targets.iter_mut().find(|known| known.is(&target));
            match known {
                None => {
                    if place > 0 && !is_weighted && !is_spread {
                        is_spread = true;
                        source.find(&below(&deployment.path, &["model_name"]), SPREAD);
                    }
                    targets.push(target);
                }
                Some(known) if deployment.is_further_key => {
                    known.weight = known.weight.zip(weight).map(|(one, other)| one + other);
                }
                Some(_) => source.find(
                    &below(&deployment.path, &["model_name"]),
                    "an earlier deployment has the same address, key and model; they are one target",
                ),
            }
        }
    }
    targets
}

const SPREAD: &str = "LiteLLM spreads requests over the deployments of this name; llmgw tries the first, and the others in order if it fails, unless \
     the endpoint has another order (docs/routing-and-failover.md#load-balancing)";

/// True if LiteLLM weighs the deployments of a rank. Names what differs from that.
fn weighs(source: &mut Source, rank: &[(usize, Deployment)]) -> bool {
    let with_weight: Vec<&Deployment> = rank
        .iter()
        .map(|(_, deployment)| deployment)
        .filter(|deployment| deployment.weight.is_some())
        .collect();
    let Some(first) = with_weight.first() else { return false };
    let place = below(&first.path, &WEIGHT);
    if rank.iter().all(|(_, deployment)| deployment.is_further_key || std::ptr::eq(deployment, *first)) {
        for deployment in with_weight {
            source.find(
                &below(&deployment.path, &WEIGHT),
                "not needed: no other target of this name has the same order",
            );
        }
        return false;
    }
    source.find(
        &place,
        "imported as order: weighted and the weights of the targets. A session stays with its target; write sticky: false at the \
         endpoint to draw for each request, as LiteLLM does",
    );
    true
}

/// Appends the targets of a fallback, each after all that are there.
pub(super) fn append(targets: &mut Vec<Target>, added: &[Target]) {
    let first_step = targets.iter().map(|target| target.step + 1).max().unwrap_or_default();
    for target in added {
        if !targets.iter().any(|known| known.is(target)) {
            targets.push(Target { step: first_step + target.step, ..target.clone() });
        }
    }
}

/// Returns the endpoint with these targets.
pub(super) fn endpoint(draft: &Draft, targets: &[&Target]) -> Value {
    let is_weighted = targets.len() > 1 && targets.iter().any(|target| target.weight.is_some());
    let steps = steps(targets);
    let member = |target: &&Target| {
        let mut member = Map::new();
        member.insert("provider".to_owned(), json!(draft.id(target.instance)));
        member.insert("model".to_owned(), json!(target.model));
        if is_weighted {
            if let Some(weight) = target.weight {
                let of_step = targets.iter().filter(|other| other.step == target.step);
                let weights: Vec<f64> = of_step.filter_map(|other| other.weight).collect();
                let factor = factor(&weights);
                member.insert("weight".to_owned(), json!(scaled(weight, factor)));
            }
            let tier = steps.iter().position(|step| *step == target.step).unwrap_or_default() + 1;
            if tier > 1 {
                member.insert("tier".to_owned(), json!(tier.min(usize::from(TIER_MAX))));
            }
        }
        Value::Object(member)
    };
    let failover: Vec<Value> = targets.iter().map(member).collect();
    if is_weighted {
        json!({"order": "weighted", "failover": failover})
    } else {
        json!({"failover": failover})
    }
}

fn steps(targets: &[&Target]) -> Vec<usize> {
    let mut steps: Vec<usize> = targets.iter().map(|target| target.step).collect();
    steps.sort_unstable();
    steps.dedup();
    steps
}

/// Returns what is lost of the order of these targets, if it is.
pub(super) fn lost_order(targets: &[&Target]) -> Option<String> {
    let has_tiers = targets.iter().any(|target| target.weight.is_some());
    let is_lost = has_tiers && steps(targets).len() > usize::from(TIER_MAX);
    is_lost.then(|| format!("llmgw has {TIER_MAX} tiers; the last targets of this name share the last tier"))
}

/// Returns the factor by which weights become whole numbers of at most `WEIGHT_MAX`: a power of ten if that makes them whole.
fn factor(weights: &[f64]) -> f64 {
    let (largest, weight_max) = (weights.iter().copied().fold(0.0, f64::max), f64::from(WEIGHT_MAX));
    let fits = |factor: &f64| {
        let is_whole = |weight: f64| ((weight * factor).round() - weight * factor).abs() < 1e-6;
        largest * factor <= weight_max && weights.iter().copied().all(is_whole)
    };
    let powers = [1.0, 10.0, 100.0, 1_000.0];
    powers.into_iter().find(fits).unwrap_or(weight_max / largest)
}

/// Returns a weight as a whole number, which is 0 only for 0.
fn scaled(weight: f64, factor: f64) -> Value {
    let whole = (weight * factor).round();
    let whole = if weight > 0.0 { whole.clamp(1.0, f64::from(WEIGHT_MAX)) } else { 0.0 };
    // `whole` has no fraction, so its text is that of an integer.
    format!("{whole:.0}").parse::<u16>().map_or(Value::Null, |whole| json!(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_become_whole_numbers_in_the_same_proportion() {
        for (weights, want) in [
            (&[2.0, 1.0][..], json!([2, 1])),
            (&[0.9, 0.1], json!([9, 1])),
            (&[0.25, 0.75, 0.0], json!([25, 75, 0])),
            (&[1_000.0, 1.0], json!([1_000, 1])),
            (&[5_000.0, 2_500.0], json!([1_000, 500])),
            (&[1.0 / 3.0, 2.0 / 3.0], json!([500, 1_000])),
            (&[1e9, 1.0], json!([1_000, 1])),
            (&[0.0, 0.0], json!([0, 0])),
        ] {
            let factor = factor(weights);
            let scaled: Vec<Value> = weights.iter().map(|weight| scaled(*weight, factor)).collect();
            assert_eq!(json!(scaled), want, "{weights:?}");
        }
    }
}
