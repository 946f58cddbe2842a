//! The lanes of a provider instance: one for each of its keys. An instance with one key is its own only lane, so that all
//! that looks at circuits and rests treats both alike.

use crate::clock::monotonic_ms;
use crate::health::Rest;
use crate::id::ModelId;
use crate::routing::{ProviderInstance, Target};

/// The maximum number of keys of an instance, and the minimum of a list.
pub const KEYS_MAX: usize = 64;
pub const KEYS_MIN: usize = 2;

impl ProviderInstance {
    /// Returns the instances that receive requests: one for each key, or this one.
    pub fn each_lane(&self) -> impl Iterator<Item = &Self> + Clone {
        let own = self.lanes.is_empty().then_some(self);
        own.into_iter().chain(self.lanes.iter().map(|lane| &**lane))
    }

    /// Returns the lane whose circuit is closed, or otherwise admits a request first. It represents the instance: while one
    /// key works, the instance does.
    pub fn best_lane(&self, now_ms: u64) -> &Self {
        let open_ms = |lane: &&Self| lane.circuits.instance().open_ms(now_ms, &lane.circuit_policy);
        let failures = |lane: &&Self| lane.circuits.instance().failures();
        self.each_lane().min_by_key(|lane| (open_ms(lane), failures(lane))).unwrap_or(self)
    }

    /// Returns a number that identifies the credential and the headers of the requests. It is part of a digest, and is used
    /// inside keyed or short hashes only.
    pub fn credential_mark(&self) -> u64 {
        self.identity.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    /// Returns the status with which the upstream rejected the credential in the last attempt, if it did.
    pub fn rejection(&self) -> Option<u16> {
        let circuit = self.circuits.instance();
        let status = circuit.trouble()?.status.filter(|status| [401, 403].contains(status));
        status.filter(|_| circuit.failures() > 0)
    }

    /// Returns the time in milliseconds for which no request for a model passes, or `None` if one would pass now.
    pub fn open_ms(&self, model_id: &ModelId, now_ms: u64) -> Option<u64> {
        self.circuits.open_ms(model_id, now_ms, &self.circuit_policy)
    }
}

impl Target {
    /// Returns the time in milliseconds for which the circuits refuse requests, with any of the keys. `None` if a request
    /// would pass.
    pub fn open_ms(&self, now_ms: u64) -> Option<u64> {
        let mut shortest = None;
        for lane in self.provider.each_lane() {
            let wait_ms = lane.open_ms(&self.model.id, now_ms)?;
            shortest = Some(shortest.map_or(wait_ms, |shortest: u64| shortest.min(wait_ms)));
        }
        shortest
    }

    /// Returns the rest of the model that is in force, if any. With several keys it rests while each of them rests or has
    /// an open circuit; the rest that ends first counts.
    pub fn rest(&self) -> Option<Rest> {
        self.rest_at(monotonic_ms)
    }

    /// Like [`rest`](Self::rest), on the clock `now_ms`, which is called only if needed.
    pub fn rest_at(&self, now_ms: impl FnOnce() -> u64) -> Option<Rest> {
        let model_id = &self.model.id;
        if self.provider.lanes.is_empty() {
            return self.provider.circuits.rests().of(model_id, now_ms);
        }
        let now_ms = now_ms();
        let mut first: Option<Rest> = None;
        for lane in &self.provider.lanes {
            match lane.circuits.rests().of(model_id, || now_ms) {
                _ if lane.open_ms(model_id, now_ms).is_some() => {}
                None => return None,
                Some(rest) if first.is_none_or(|first| ready_ms(rest) < ready_ms(first)) => {
                    first = Some(rest)
                }
                Some(_) => {}
            }
        }
        first
    }
}

/// Returns the time after which a request may be sent in spite of a rest.
fn ready_ms(rest: Rest) -> u64 {
    if rest.is_firm { rest.wait_ms } else { 0 }
}
