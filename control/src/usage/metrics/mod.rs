//! Distributions and counts of exchanges by operation, provider and model, since the start of the process: for
//! `GET /metrics`, and for any other exporter.
//!
//! The writer thread adds the groups of a transaction when it has committed, so a record counts once and a request pays
//! nothing.
//! A figure is therefore up to half a second old, and stands still while records cannot be stored. The instruments
//! ([`Figure`], [`Count`]) carry their names in OpenTelemetry and in Prometheus, their units and their buckets; an exporter
//! reads a copy of the sums ([`ExchangeMetrics::read`]) and goes through [`ExchangeSums::distributions`] and
//! [`ExchangeSums::counts`].
//!
//! Names of providers and models come from strangers, so the number of label sets is bounded ([`METRIC_LABEL_SETS`], [`METRIC_PROVIDER_SETS`]).

mod distribution;
mod instrument;
mod observe;
mod variants;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

pub(crate) use self::distribution::{Distribution, Scale};
pub(crate) use self::instrument::{BOUNDS_REACHED, Count, Figure, Instrument};
pub(crate) use self::variants::{LabelBound, Variants};
use crate::common::bounds::{METRIC_LABEL_SETS, METRIC_PROVIDER_SETS};

/// The sums of all exchanges since the start of the process.
#[derive(Debug, Default)]
pub(crate) struct ExchangeMetrics(Mutex<ExchangeSums>);

/// The sums of a set of exchanges, by label set.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExchangeSums {
    /// By the texts of the labels, joined.
    sets: HashMap<Box<str>, LabelledSums>,
    /// Space for the key of a look-up.
    key: String,
}

/// The labels that all instruments have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SetLabels {
    /// The operation, as OpenTelemetry names it.
    pub(crate) operation: Box<str>,
    /// The provider instance; [`NONE`] if the exchange reached none.
    pub(crate) provider: Box<str>,
    /// The model of that instance; [`NONE`] if the exchange reached none.
    pub(crate) model: Box<str>,
}

/// The sums of one label set.
#[derive(Clone, Debug)]
struct LabelledSums {
    labels: SetLabels,
    figures: [Variants<Distribution>; Figure::ALL.len()],
    counts: [Variants<u64>; Count::ALL.len()],
}

impl ExchangeMetrics {
    /// Adds the sums of what a transaction has stored.
    pub(crate) fn add(&self, stored: &ExchangeSums) {
        self.lock().merge(stored);
    }

    /// Returns a copy.
    pub(crate) fn read(&self) -> ExchangeSums {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ExchangeSums> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ExchangeSums {
    /// Returns the distributions of a figure, each with its labels and the value of the figure's own
    /// label, which is empty if there is none; in the order of the labels.
    pub(crate) fn distributions(&self, figure: Figure) -> Vec<(&SetLabels, &str, &Distribution)> {
        self.sorted(|set| set.figures.get(figure as usize))
    }

    /// Returns the sums of a count in the same way.
    pub(crate) fn counts(&self, count: Count) -> Vec<(&SetLabels, &str, &u64)> {
        self.sorted(|set| set.counts.get(count as usize))
    }

    fn sorted<'a, T>(
        &'a self,
        pick: impl Fn(&'a LabelledSums) -> Option<&'a Variants<T>>,
    ) -> Vec<(&'a SetLabels, &'a str, &'a T)> {
        let mut all: Vec<_> = self
            .sets
            .values()
            .filter_map(|set| Some((&set.labels, pick(set)?)))
            .flat_map(|(labels, variants)| variants.iter().map(move |(name, value)| (labels, name, value)))
            .collect();
        all.sort_unstable_by_key(|(labels, name, _)| (*labels, *name));
        all
    }

    /// Adds the sums of `other`: first those with the names of a provider and a model, so that sets of [`OTHER`] models
    /// leave them room.
    fn merge(&mut self, other: &Self) {
        let mut sets: Vec<_> = other.sets.values().collect();
        sets.sort_unstable_by_key(|set| {
            (*set.labels.model == *OTHER, *set.labels.provider == *OTHER, &set.labels)
        });
        for theirs in sets {
            let SetLabels { operation, provider, model } = &theirs.labels;
            let mine = self.set(operation, provider, model);
            for (mine, theirs) in mine.figures.iter_mut().zip(&theirs.figures) {
                theirs
                    .iter()
                    .for_each(|(name, distribution)| mine.update(name, |sum| sum.merge(distribution)));
            }
            for (mine, theirs) in mine.counts.iter_mut().zip(&theirs.counts) {
                theirs.iter().for_each(|(name, count)| mine.update(name, |sum| *sum += count));
            }
        }
    }

    /// Returns the sums of these labels, or those of [`OTHER`] models or providers if there are too many sets.
    fn set(&mut self, operation: &str, provider: &str, model: &str) -> &mut LabelledSums {
        let labels = [
            (&METRIC_LABEL_SETS, [operation, provider, model]),
            (&METRIC_PROVIDER_SETS, [operation, provider, OTHER]),
        ];
        let room = labels.into_iter().find(|(bound, labels)| {
            self.make_key(labels);
            self.sets.contains_key(&*self.key) || !bound.is_full(self.sets.len())
        });
        let labels = room.map_or([operation, OTHER, OTHER], |(_, labels)| labels);
        self.make_key(&labels);
        self.sets.entry(self.key.as_str().into()).or_insert_with(|| LabelledSums::new(labels))
    }

    fn make_key(&mut self, labels: &[&str; 3]) {
        self.key.clear();
        for label in labels {
            self.key.push_str(label);
            self.key.push('\0');
        }
    }
}

impl LabelledSums {
    fn new([operation, provider, model]: [&str; 3]) -> Self {
        Self {
            labels: SetLabels { operation: operation.into(), provider: provider.into(), model: model.into() },
            figures: Default::default(),
            counts: Default::default(),
        }
    }
}

/// The label of models and providers beyond the maximum.
pub(crate) const OTHER: &str = "other";
/// The label of a provider or model if the exchange reached none.
pub(crate) const NONE: &str = "none";

#[cfg(test)]
mod tests;
