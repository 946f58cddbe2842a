//! Notices circuits that open and close, by comparing their states with those of the look before. A look costs the data
//! plane nothing. A circuit that opens and closes between two looks is missed; so is the end of one that is open when the
//! process ends.

use std::collections::BTreeMap;

use shared::clock::monotonic_ms;
use shared::health::{Circuit, CircuitState};
use shared::routing::ProviderInstance;
use shared::snapshot::SnapshotReader;

use crate::db::circuit_changes::CircuitChange;

/// The circuits that were open at the last look.
#[derive(Debug)]
pub(super) struct CircuitWatch {
    snapshot: SnapshotReader,
    /// By provider and model; the model is `None` for the circuit of the provider instance itself.
    open: BTreeMap<CircuitPlace, OpenedCircuit>,
}

type CircuitPlace = (String, Option<String>);

/// A circuit that is not closed.
#[derive(Clone, Copy, Debug)]
struct OpenedCircuit {
    /// In milliseconds since the Unix epoch.
    opened_at_ms: u64,
    result: &'static str,
    status: Option<u16>,
}

impl CircuitWatch {
    pub(super) fn new(snapshot: SnapshotReader) -> Self {
        Self { snapshot, open: BTreeMap::new() }
    }

    /// Returns the changes since the last look, in the order of their times.
    pub(super) fn look(&mut self, now_ms: u64) -> Vec<CircuitChange> {
        let mut open = BTreeMap::new();
        self.snapshot.load().providers.iter().for_each(|provider| collect_open(provider, &mut open));
        let changes = changes(&self.open, &open, now_ms);
        self.open = open;
        changes
    }
}

/// Adds the circuits of a provider that are not closed.
fn collect_open(provider: &ProviderInstance, open: &mut BTreeMap<CircuitPlace, OpenedCircuit>) {
    let now_ms = monotonic_ms();
    let id = || provider.id.as_str().to_owned();
    // With several keys, the provider works while one of them does.
    let provider = provider.best_lane(now_ms);
    let instance = provider.circuits.instance();
    if instance.state(now_ms, &provider.circuit_policy) != CircuitState::Closed {
        open.extend(opened(instance).map(|opened| ((id(), None), opened)));
    }
    for (model, circuit) in provider.circuits.models(now_ms, &provider.circuit_policy) {
        open.extend(opened(&circuit).map(|opened| ((id(), Some(model.as_str().to_owned())), opened)));
    }
}

/// Returns the opening of a circuit; `None` if it is being noted at this moment.
fn opened(circuit: &Circuit) -> Option<OpenedCircuit> {
    let trouble = circuit.trouble()?;
    let opened_at_ms = trouble.opened_at_ms?;
    Some(OpenedCircuit { opened_at_ms, result: trouble.result.name(), status: trouble.status })
}

/// Returns the changes between two looks. A circuit with another time of opening has closed in between.
fn changes(
    before: &BTreeMap<CircuitPlace, OpenedCircuit>,
    after: &BTreeMap<CircuitPlace, OpenedCircuit>,
    now_ms: u64,
) -> Vec<CircuitChange> {
    let is_in = |circuits: &BTreeMap<CircuitPlace, OpenedCircuit>, place, opened: &OpenedCircuit| {
        circuits.get(place).is_some_and(|other| other.opened_at_ms == opened.opened_at_ms)
    };
    let closed = before.iter().filter(|(place, opened)| !is_in(after, place, opened)).map(|(place, _)| {
        let at_ms = after.get(place).map_or(now_ms, |again| again.opened_at_ms.min(now_ms));
        CircuitChange {
            at_ms,
            provider: place.0.clone(),
            model: place.1.clone(),
            is_open: false,
            result: None,
            status: None,
        }
    });
    let opened =
        after.iter().filter(|(place, opened)| !is_in(before, place, opened)).map(|(place, opened)| {
            CircuitChange {
                at_ms: opened.opened_at_ms,
                provider: place.0.clone(),
                model: place.1.clone(),
                is_open: true,
                result: Some(opened.result.to_owned()),
                status: opened.status,
            }
        });
    let mut changes: Vec<_> = closed.chain(opened).collect();
    changes.sort_by_key(|change| change.at_ms);
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(circuits: &[(&str, Option<&str>, u64)]) -> BTreeMap<CircuitPlace, OpenedCircuit> {
        let all = circuits.iter().map(|(provider, model, opened_at_ms)| {
            let opened = OpenedCircuit { opened_at_ms: *opened_at_ms, result: "status", status: Some(503) };
            (((*provider).to_owned(), model.map(str::to_owned)), opened)
        });
        all.collect()
    }

    #[test]
    fn changes_are_the_differences_of_two_looks() {
        let before = open(&[("a", None, 10), ("b", None, 20), ("c", None, 30)]);
        let after = open(&[("a", None, 10), ("b", None, 70), ("c", Some("m"), 60)]);
        let shown: Vec<_> = changes(&before, &after, 100)
            .into_iter()
            .map(|change| (change.at_ms, change.provider, change.model, change.is_open, change.status))
            .collect();
        let of = |at_ms, provider: &str, model: Option<&str>, is_open: bool| {
            (at_ms, provider.to_owned(), model.map(str::to_owned), is_open, is_open.then_some(503))
        };
        let want = [
            of(60, "c", Some("m"), true),
            of(70, "b", None, false),
            of(70, "b", None, true),
            of(100, "c", None, false),
        ];
        assert_eq!(shown, want, "it closed and opened again");
        assert_eq!(changes(&after, &after, 100), []);
    }
}
