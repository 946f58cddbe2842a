//! The load of models: attempts in flight, and the time to the first content of their streams. Only models are measured that
//! an endpoint orders by it; while an instance has none, a look-up costs one atomic load.
//!
//! A count is a guard that is dropped with its attempt, so it cannot drift.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::per_model::PerModel;
use crate::id::ModelId;

/// The loads of the measured models of one instance and credential. Times are milliseconds on a monotonic clock.
#[derive(Debug, Default)]
pub struct Loads {
    models: PerModel<TargetLoad>,
}

/// The load of one model.
#[derive(Debug, Default)]
pub struct TargetLoad {
    in_flight: AtomicU32,
    /// The average in microseconds as the bits of an `f32`, then the time of the last sample as 32 bits; 0 if there was none.
    first_content: AtomicU64,
}

/// An attempt in flight. It counts until it is dropped.
#[derive(Debug)]
pub struct InFlight(Arc<TargetLoad>);

impl Loads {
    /// Returns the load of a model, if it is measured.
    pub fn of(&self, model_id: &ModelId) -> Option<Arc<TargetLoad>> {
        self.models.get(model_id)
    }

    /// Measures exactly these models. Called by publication only.
    pub fn measure(&self, wanted: &HashSet<&ModelId>) {
        for (model_id, _) in self.models.all().iter().filter(|(model_id, _)| !wanted.contains(model_id)) {
            self.models.remove(model_id);
        }
        for model_id in wanted {
            if self.models.get(model_id).is_none() {
                // One beyond the bound of models has no load, and counts as idle.
                self.models.get_or_new(model_id, |_| false);
            }
        }
    }
}

impl TargetLoad {
    /// Counts an attempt until the guard is dropped.
    pub fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// Returns the number of attempts in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Adds the time to the first content of a stream, or the duration of a failure.
    pub fn sample(&self, micros: u64, now_ms: u64) {
        let now = short(now_ms);
        let sample = as_f32(micros.max(1));
        let add = |kept| {
            let average = match unpack(kept) {
                Some((before, at)) => {
                    let weight = decay(now.wrapping_sub(at));
                    // The peak: a slower answer counts at once and in full.
                    sample.max(before.mul_add(weight, sample * (1.0 - weight)))
                }
                None => sample,
            };
            Some(pack(average, now))
        };
        // The update always applies.
        let _ = self.first_content.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Returns the average time to the first content in microseconds. It decays while there is no sample, so that a slow
    /// target is tried again; `None` without a sample in the last half minute.
    pub fn first_content_us(&self, now_ms: u64) -> Option<f32> {
        let (average, at) = unpack(self.first_content.load(Ordering::Relaxed))?;
        let age = short(now_ms).wrapping_sub(at);
        (age <= SAMPLE_AGE_MS_MAX).then(|| average * decay(age))
    }
}

impl InFlight {
    /// Adds the time to the first content of the attempt's stream.
    pub fn first_content(&self, micros: u64, now_ms: u64) {
        self.0.sample(micros, now_ms);
    }

    /// Adds the duration of the attempt, which failed.
    pub fn failed(&self, micros: u64, now_ms: u64) {
        self.0.sample(micros.max(FAILURE_US_MIN), now_ms);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The time in which a sample loses all but 1/e of its weight.
const DECAY_MS: f32 = 10_000.0;
/// The age from which on a sample says nothing about a target.
const SAMPLE_AGE_MS_MAX: u32 = 30_000;
/// The time that a failure counts as at least.
const FAILURE_US_MIN: u64 = 1_000_000;

fn decay(age_ms: u32) -> f32 {
    (-as_f32(u64::from(age_ms)) / DECAY_MS).exp()
}

/// Returns a time without its highest bits: differences of times up to 49 days apart stay exact.
fn short(now_ms: u64) -> u32 {
    u32::try_from(now_ms & u64::from(u32::MAX)).unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, clippy::as_conversions, reason = "an average needs no more digits")]
fn as_f32(number: u64) -> f32 {
    number as f32
}

fn pack(average: f32, at: u32) -> u64 {
    u64::from(average.to_bits()) << u32::BITS | u64::from(at)
}

fn unpack(kept: u64) -> Option<(f32, u32)> {
    let bits = u32::try_from(kept >> u32::BITS).unwrap_or_default();
    (bits != 0).then(|| (f32::from_bits(bits), short(kept)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_count_until_they_are_dropped() {
        let load = Arc::new(TargetLoad::default());
        let attempts: Vec<InFlight> = (0..10_000).map(|_| load.begin()).collect();
        assert_eq!(load.in_flight(), 10_000);
        std::thread::scope(|scope| {
            let mut attempts = attempts;
            while !attempts.is_empty() {
                let some = attempts.split_off(attempts.len().saturating_sub(2_500));
                scope.spawn(move || drop(some));
            }
        });
        assert_eq!(load.in_flight(), 0);
    }

    #[test]
    fn a_slower_sample_counts_at_once_and_a_faster_one_in_ten_seconds() {
        let load = TargetLoad::default();
        assert_eq!(load.first_content_us(0), None);
        load.sample(100_000, 1_000);
        load.sample(900_000, 1_010);
        assert_eq!(load.first_content_us(1_010), Some(900_000.0));
        load.sample(100_000, 11_010);
        let later = load.first_content_us(11_010).unwrap();
        assert!((390_000.0..400_000.0).contains(&later), "{later}");
        for second in 1..=20 {
            load.sample(100_000, 11_010 + second * 1_000);
        }
        let recovered = load.first_content_us(31_010).unwrap();
        assert!((100_000.0..145_000.0).contains(&recovered), "{recovered}");
    }

    #[test]
    fn an_average_decays_without_samples_and_is_forgotten() {
        let load = TargetLoad::default();
        load.sample(1_000_000, 5_000);
        let decayed = load.first_content_us(15_000).unwrap();
        assert!((367_000.0..369_000.0).contains(&decayed), "{decayed}");
        assert!(load.first_content_us(35_000).is_some());
        assert_eq!(load.first_content_us(35_001), None);
        let attempt = Arc::new(load).begin();
        attempt.failed(10, 50_000);
        assert_eq!(attempt.0.first_content_us(50_000), Some(1_000_000.0), "a quick failure is slow");
    }

    #[test]
    fn only_wanted_models_are_measured() {
        let loads = Loads::default();
        let [a, b] = ["a", "b"].map(ModelId::new);
        assert!(loads.of(&a).is_none());
        loads.measure(&HashSet::from([&a]));
        let attempt = loads.of(&a).unwrap().begin();
        loads.measure(&HashSet::from([&a, &b]));
        assert_eq!(loads.of(&a).unwrap().in_flight(), 1, "a publication keeps the counts");
        loads.measure(&HashSet::from([&b]));
        assert!(loads.of(&a).is_none() && loads.of(&b).is_some());
        drop(attempt);
    }
}
