//! Circuits: the process-local failure memory of provider instances and of their models (FAIL-4, FAIL-5).
//!
//! The data plane writes, anyone reads, and no request waits for another one.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use crate::id::ProviderId;

mod circuit;
mod instance;

pub use self::circuit::{Circuit, CircuitState, Refused, Trouble};
pub use self::instance::{Admission, Circuits, Evidence, Failed, Opened};

/// Tells one upstream and credential from another: a digest of address and headers.
pub type UpstreamIdentity = [u8; 32];

/// All circuits of the process, by provider instance. A new snapshot takes its circuits from here, so that a
/// reload forgets nothing; an instance with another address or credential starts with closed circuits (FAIL-4).
#[derive(Debug, Default)]
pub struct Board {
    circuits: Mutex<HashMap<ProviderId, (UpstreamIdentity, Arc<Circuits>)>>,
}

impl Board {
    /// The circuits of `provider` as long as it is `identity`. Never called on the request path.
    pub fn circuits(&self, provider: &ProviderId, identity: UpstreamIdentity) -> Arc<Circuits> {
        let mut circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, own) = circuits.entry(provider.clone()).or_insert_with(|| (identity, Arc::default()));
        if *known != identity {
            (*known, *own) = (identity, Arc::default());
        }
        Arc::clone(own)
    }

    /// Forgets the circuits of all instances but these.
    pub fn keep<'a>(&self, providers: impl IntoIterator<Item = &'a ProviderId>) {
        let ids: HashSet<&ProviderId> = providers.into_iter().collect();
        let mut circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
        circuits.retain(|id, _| ids.contains(id));
    }
}

#[cfg(test)]
mod tests;
