//! Circuits: the process-local failure memory of provider instances and of their models (FAIL-4, FAIL-5); the rests of models
//! whose upstream limits the rate of requests; and the limits that upstreams report.
//!
//! The data plane writes them, both planes read them, and no request blocks another.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use crate::id::ProviderId;

mod circuit;
mod instance;
mod limits;
mod loads;
mod per_model;
mod rests;

pub use self::circuit::{Circuit, CircuitState, Refused, Trouble};
pub use self::instance::{Admission, Circuits, Evidence, Failed, Opened};
pub use self::limits::{ReportedLimit, ReportedLimits};
pub use self::loads::{InFlight, Loads, TargetLoad};
pub use self::rests::{RateLimit, Rest, Rests, ShownRest};

/// A digest of address and headers that identifies an upstream and its credential.
pub type UpstreamIdentity = [u8; 32];

type IdentifiedCircuits = (UpstreamIdentity, Arc<Circuits>);

/// All circuits of the process, by provider instance. A new snapshot takes its circuits from here, so that they
/// survive a reload; an instance with another address or credential starts with closed circuits (FAIL-4).
#[derive(Debug, Default)]
pub struct Board {
    circuits: Mutex<HashMap<ProviderId, IdentifiedCircuits>>,
    /// The circuits of each key of the instances that have several.
    lanes: Mutex<HashMap<ProviderId, Vec<IdentifiedCircuits>>>,
}

impl Board {
    /// Returns the circuits of `provider`; new ones if its identity has changed. Never called on the request path.
    pub fn circuits(&self, provider: &ProviderId, identity: UpstreamIdentity) -> Arc<Circuits> {
        let mut circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, own) = circuits.entry(provider.clone()).or_insert_with(|| (identity, Arc::default()));
        if *known != identity {
            (*known, *own) = (identity, Arc::default());
        }
        Arc::clone(own)
    }

    /// Returns the circuits of each key of `provider`, in the order of `identities`; those of other keys are removed.
    pub fn lanes(&self, provider: &ProviderId, identities: &[UpstreamIdentity]) -> Vec<Arc<Circuits>> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lanes.remove(provider).unwrap_or_default();
        let of = |identity: &UpstreamIdentity| {
            let found = known.iter().find(|(known, _)| known == identity);
            found.map_or_else(Arc::default, |(_, circuits)| Arc::clone(circuits))
        };
        let kept: Vec<_> = identities.iter().map(|identity| (*identity, of(identity))).collect();
        let circuits = kept.iter().map(|(_, circuits)| Arc::clone(circuits)).collect();
        if !kept.is_empty() {
            lanes.insert(provider.clone(), kept);
        }
        circuits
    }

    /// Removes the circuits of all other instances.
    pub fn keep<'a>(&self, providers: impl IntoIterator<Item = &'a ProviderId>) {
        let ids: HashSet<&ProviderId> = providers.into_iter().collect();
        let mut circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
        circuits.retain(|id, _| ids.contains(id));
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|id, _| ids.contains(id));
    }
}

#[cfg(test)]
mod tests;
