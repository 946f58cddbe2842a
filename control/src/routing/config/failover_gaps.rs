//! Settings that keep an endpoint from failing over, or from failing over in time. `config check`, `doctor`, the log of a
//! start and the API show them as warnings.

use std::collections::HashMap;
use std::time::Duration;

use shared::id::{ModelId, ProviderId};
use shared::operation::Dialect;
use shared::policy::FAILOVER_BUDGET_DEFAULT;
use shared::routing::Target;
use shared::usage::TargetOrder;

use super::model::{Endpoint, Policies, Provider, Routing};

/// The facts about a target of an endpoint that matter here.
#[derive(Clone, Copy, Debug)]
struct FailoverTarget<'a> {
    provider: &'a str,
    timeout: Duration,
    /// The timeout of providers of its type.
    usual_timeout: Duration,
    /// True if failures open no circuit.
    is_without_circuit: bool,
}

/// Returns the warnings for the endpoints of the configuration file.
pub(super) fn of_routing(routing: &Routing, policies: &Policies) -> Vec<String> {
    let providers: HashMap<&ProviderId, &Provider> =
        routing.providers.iter().map(|provider| (&provider.id, &**provider)).collect();
    let of_endpoint = |endpoint: &Endpoint| {
        let members = endpoint.failover.iter().filter_map(|member| providers.get(&member.provider));
        let targets: Vec<_> = members
            .map(|provider| FailoverTarget {
                provider: provider.id.as_str(),
                timeout: provider.timeout,
                usual_timeout: provider.kind.timeout,
                is_without_circuit: policies.of(&provider.id).1.failure_threshold == 0,
            })
            .collect();
        let place = format!("endpoints.{}", endpoint.name);
        let first_only = endpoint.failover.iter().filter(|member| {
            providers.get(&member.provider).is_some_and(|provider| is_single(provider, &member.model))
        });
        let first_only = first_only.map(|member| format!("{}/{}", member.provider, member.model));
        let unordered = (endpoint.order != TargetOrder::Listed).then(|| unordered(first_only)).flatten();
        gaps(&targets)
            .into_iter()
            .chain(unordered)
            .map(move |gap| format!("{place}: {gap}"))
            .collect::<Vec<_>>()
    };
    routing.endpoints.iter().flat_map(of_endpoint).collect()
}

/// Returns the warnings for an endpoint in use.
pub(crate) fn failover_gaps(endpoint: &shared::routing::Endpoint) -> Vec<String> {
    let facts = endpoint.targets.iter().map(|Target { provider, .. }| FailoverTarget {
        provider: provider.id.as_str(),
        timeout: provider.timeout,
        usual_timeout: provider.kind.timeout,
        is_without_circuit: provider.circuit_policy.failure_threshold == 0,
    });
    let is_single = |target: &&Target| {
        !Dialect::ALL.iter().any(|dialect| dialect.is_conversation() && target.speaks(*dialect))
    };
    let first_only = endpoint.targets.iter().filter(is_single);
    let first_only = first_only.map(|target| format!("{}/{}", target.provider.id, target.model.id));
    let is_ordered = endpoint.balance.as_ref().is_some_and(|balance| balance.order != TargetOrder::Listed);
    let unordered = is_ordered.then(|| unordered(first_only)).flatten();
    gaps(&facts.collect::<Vec<_>>()).into_iter().chain(unordered).collect()
}

/// True for a model that is known to serve no conversations.
fn is_single(provider: &Provider, model: &ModelId) -> bool {
    let own =
        provider.models.iter().find(|known| known.id == *model).and_then(|known| known.dialects.as_deref());
    let own = own.or_else(|| provider.kind.dialects_of(model.as_str()));
    let speaks = |dialect: &Dialect| {
        provider.dialects.contains(dialect) && own.is_none_or(|own| own.contains(dialect))
    };
    !Dialect::ALL.iter().any(|dialect| dialect.is_conversation() && speaks(dialect))
}

/// Returns the warning about targets for which the order of their endpoint has no effect.
fn unordered(first_only: impl Iterator<Item = String>) -> Option<String> {
    let named: Vec<String> = first_only.collect();
    (!named.is_empty()).then(|| {
        format!(
            "order has no effect on the requests that {} can serve: embeddings, speech, transcriptions, images and videos go \
             to the first target as listed",
            named.join(", ")
        )
    })
}

fn gaps(targets: &[FailoverTarget<'_>]) -> Vec<String> {
    let Some((last, before)) = targets.split_last().filter(|(_, before)| !before.is_empty()) else {
        return Vec::new();
    };
    if before.iter().all(|target| target.provider == last.provider) {
        let provider = last.provider;
        return vec![format!(
            "all targets are models of the provider '{provider}': while it fails, no target is left"
        )];
    }
    let mut gaps = Vec::new();
    let share = FAILOVER_BUDGET_DEFAULT / 2;
    for (place, target) in before.iter().enumerate() {
        if before.iter().take(place).any(|earlier| earlier.provider == target.provider) {
            continue;
        }
        let FailoverTarget { provider, timeout, .. } = target;
        if *timeout > share && *timeout != target.usual_timeout {
            gaps.push(format!(
                "the timeout of '{provider}' ({} s) exceeds half of the default failover budget: an answer that does \
                 not begin within {} s moves to the next target. Put the provider last, or let clients set \
                 X-LLMGW-Fallback-Timeout-Ms",
                timeout.as_secs_f64(),
                share.as_secs()
            ));
        }
        let wait = (*timeout).min(share);
        if target.is_without_circuit && wait >= LONG_WAIT {
            gaps.push(format!(
                "'{provider}' has no circuit (circuit_failure_threshold: 0): while it hangs, every request waits {} s \
                 for it",
                wait.as_secs_f64()
            ));
        }
    }
    if let Some(place) = (0..before.len()).find(|place| share_at(*place) < SHORT_SHARE) {
        gaps.push(format!(
            "it has {} targets: if all before them hang, those from number {} on have less than {} s",
            targets.len(),
            place + 1,
            SHORT_SHARE.as_secs()
        ));
    }
    gaps
}

/// Returns the time of the target at `place` if all before it hang.
fn share_at(place: usize) -> Duration {
    let halvings = u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1);
    FAILOVER_BUDGET_DEFAULT / 2_u32.saturating_pow(halvings)
}

/// The wait for a hanging target from which on a circuit is missed.
const LONG_WAIT: Duration = Duration::from_secs(10);
/// A share of the budget in which few upstreams answer.
const SHORT_SHARE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_that_defeat_failover_are_named() {
        let usual = Duration::from_secs(300);
        let target = |provider, timeout_s, is_without_circuit| FailoverTarget {
            provider,
            timeout: Duration::from_secs(timeout_s),
            usual_timeout: usual,
            is_without_circuit,
        };
        let many: Vec<_> = ["a", "b", "c", "d", "e", "f"].map(|provider| target(provider, 300, false)).into();
        for (targets, want) in [
            (vec![target("a", 900, true)], vec![]),
            (vec![target("a", 300, false), target("b", 900, true)], vec![]),
            (vec![target("a", 60, false), target("b", 300, false)], vec![]),
            (vec![target("a", 300, false), target("a", 300, false)], vec!["all targets are models of"]),
            (vec![target("a", 600, false), target("b", 300, false)], vec!["the timeout of 'a' (600 s)"]),
            (vec![target("a", 300, true), target("b", 300, false)], vec!["every request waits 60 s"]),
            (vec![target("a", 12, true), target("b", 300, false)], vec!["every request waits 12 s"]),
            (vec![target("a", 2, true), target("b", 300, false)], vec![]),
            (many, vec!["it has 6 targets: if all before them hang, those from number 5 on have"]),
        ] {
            let found = gaps(&targets);
            let fits = |(gap, want): (&String, &&str)| gap.contains(want);
            assert!(
                found.len() == want.len() && found.iter().zip(&want).all(fits),
                "{found:?}, not {want:?}"
            );
        }
    }

    #[test]
    fn targets_for_which_an_order_has_no_effect_are_named() {
        assert_eq!(unordered(std::iter::empty()), None);
        let warning = unordered(["a/embed", "b/speak"].map(str::to_owned).into_iter()).unwrap();
        assert!(
            warning.starts_with("order has no effect on the requests that a/embed, b/speak can serve"),
            "{warning}"
        );
    }
}
