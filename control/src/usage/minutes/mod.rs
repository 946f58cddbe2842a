//! Times, errors and results of attempts by target and by the minute in which the exchanges ended, until the telemetry
//! thread stores them.
//!
//! The writer thread adds the groups of a transaction when it has committed, so a record counts once and a request pays
//! nothing. Names of models come from strangers, so the number of targets of a minute is bounded
//! ([`TARGETS_MAX`]), as is the number of minutes ([`MINUTES_MAX`]).

mod answers;
mod target;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use records::block::BlockNames;

pub(crate) use self::answers::LastAnswers;
pub(crate) use self::target::{TargetSums, TargetTime};
use super::metrics::OTHER;
use super::target_groups::{GroupFigures, TargetGroup};
use crate::db::telemetry_targets::TargetMinuteRow;

/// The sums that are not stored yet, and the last answers.
#[derive(Debug, Default)]
pub(crate) struct TargetMinutes {
    sums: Mutex<MinuteSums>,
    answers: LastAnswers,
}

/// Sums by minute and target.
#[derive(Debug, Default)]
pub(crate) struct MinuteSums {
    /// By minutes since the Unix epoch, then by provider and model, joined.
    minutes: BTreeMap<u64, HashMap<Box<str>, TargetSums>>,
    /// Space for the key of a look-up.
    key: String,
}

impl TargetMinutes {
    /// Adds the sums of a transaction, or those that could not be written.
    pub(crate) fn add(&self, sums: &MinuteSums) {
        self.lock().merge(sums);
        for (key, sums) in sums.minutes.values().flatten() {
            self.answers.note(target_of(key), sums.answered_at_ms);
        }
    }

    /// The times of the last answers.
    pub(crate) fn answers(&self) -> &LastAnswers {
        &self.answers
    }

    /// Removes and returns the sums of the minutes before `minute`.
    pub(crate) fn take_before(&self, minute: u64) -> MinuteSums {
        let mut kept = self.lock();
        let later = kept.minutes.split_off(&minute);
        MinuteSums { minutes: std::mem::replace(&mut kept.minutes, later), key: String::new() }
    }

    /// Passes all sums to `take`, each with its minute, provider and model.
    pub(crate) fn read(&self, mut take: impl FnMut(u64, (&str, &str), &TargetSums)) {
        for (minute, targets) in &self.lock().minutes {
            targets.iter().for_each(|(key, sums)| take(*minute, target_of(key), sums));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, MinuteSums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MinuteSums {
    /// Adds a group of exchanges.
    pub(super) fn add_group(&mut self, group: &TargetGroup, figures: &GroupFigures, names: &BlockNames) {
        let target = (names.get(group.provider), names.get(group.model));
        self.change(group.minute, target, |sums| sums.add_group(figures, names));
    }

    /// True if there are no sums.
    pub(crate) fn is_empty(&self) -> bool {
        self.minutes.is_empty()
    }

    /// Returns the sums as rows of the database.
    pub(crate) fn rows(&self) -> Vec<TargetMinuteRow> {
        let rows = self.minutes.iter().flat_map(|(minute, targets)| {
            targets.iter().map(|(key, sums)| {
                let (provider, model) = target_of(key);
                TargetMinuteRow {
                    minute: *minute,
                    provider: provider.into(),
                    model: model.into(),
                    sums: sums.pack(),
                }
            })
        });
        rows.collect()
    }

    /// Adds other sums: first those of named targets, so that those of [`OTHER`] targets leave them room. Beyond
    /// [`MINUTES_MAX`] minutes, the earliest are dropped.
    fn merge(&mut self, other: &Self) {
        for (minute, targets) in &other.minutes {
            for others in [false, true] {
                let chosen = targets.iter().filter(|(key, _)| (target_of(key) == (OTHER, OTHER)) == others);
                chosen.for_each(|(key, sums)| self.change(*minute, target_of(key), |mine| mine.merge(sums)));
            }
        }
        while self.minutes.len() > MINUTES_MAX {
            self.minutes.pop_first();
        }
    }

    /// Changes the sums of a target, or those of the other targets if the minute has too many.
    fn change(&mut self, minute: u64, (provider, model): (&str, &str), change: impl FnOnce(&mut TargetSums)) {
        let Self { minutes, key } = self;
        let targets = minutes.entry(minute).or_default();
        join(key, provider, model);
        if let Some(sums) = targets.get_mut(key.as_str()) {
            return change(sums);
        }
        if targets.len() >= TARGETS_MAX {
            join(key, OTHER, OTHER);
        }
        change(targets.entry(key.as_str().into()).or_default());
    }
}

/// Writes the key of a target. IDs of providers contain no slash.
fn join(key: &mut String, provider: &str, model: &str) {
    key.clear();
    key.push_str(provider);
    key.push('/');
    key.push_str(model);
}

/// Returns the provider and the model of a key.
fn target_of(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or((key, ""))
}

/// The maximum number of targets of a minute; later ones are counted together, as [`OTHER`].
pub(crate) const TARGETS_MAX: usize = 128;
/// The maximum number of minutes that wait to be stored.
const MINUTES_MAX: usize = 60;

#[cfg(test)]
mod tests;
