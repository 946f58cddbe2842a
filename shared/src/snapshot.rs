//! The immutable routing view and how it becomes current: control publishes, the data plane reads, nobody
//! waits.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::id::EndpointName;
use crate::key_hash::KeyHasher;
use crate::key_table::AccessTable;
use crate::operation_id::OperationIds;
use crate::routing::{Endpoint, ProviderInstance, Target};
use crate::secret::Secret;

/// All that a request may ask about routing and access. Never changed once published; what did not change is
/// shared with the snapshot before.
#[derive(Debug)]
pub struct Snapshot {
    /// Counts publications, from 1; 0 is the empty snapshot before the first one.
    pub generation: u64,
    /// When it was made, in seconds since the Unix epoch; the `created` of listed models.
    pub created: u64,
    /// Provider instances that are not disabled, sorted by id.
    pub providers: Arc<Vec<Arc<ProviderInstance>>>,
    /// Endpoints, sorted by name.
    pub endpoints: Arc<Vec<Arc<Endpoint>>>,
    /// What each selector means: exact model ids, endpoint names and safe aliases (SEL-1, SEL-3).
    pub routes: Arc<HashMap<Box<str>, Route>>,
    /// Keys. Shared between snapshots that differ in routing alone.
    pub access: Arc<AccessTable>,
    /// Hashes presented keys, to look them up in `access` (AUTH-6).
    pub key_hasher: KeyHasher,
    /// Seals and opens the ids of operations.
    pub operation_ids: OperationIds,
}

/// What a selector resolves to.
#[derive(Clone, Debug)]
pub enum Route {
    /// An endpoint's name.
    Endpoint(Arc<Endpoint>),
    /// `<provider id>/<model>`.
    Model(Target),
    /// A bare model name that exactly one target has.
    Alias(Target),
    /// A bare model name that several targets have: an alias for a caller who may use only one of them.
    Ambiguous(Arc<[Target]>),
}

impl Route {
    /// The targets in order; none of an ambiguous name, which stands for no list.
    pub fn targets(&self) -> &[Target] {
        match self {
            Self::Endpoint(endpoint) => &endpoint.targets,
            Self::Model(target) | Self::Alias(target) => std::slice::from_ref(target),
            Self::Ambiguous(_) => &[],
        }
    }

    /// The endpoint's name, if it is one.
    pub fn endpoint(&self) -> Option<&EndpointName> {
        match self {
            Self::Endpoint(endpoint) => Some(&endpoint.name),
            Self::Model(_) | Self::Alias(_) | Self::Ambiguous(_) => None,
        }
    }
}

impl Snapshot {
    /// The snapshot before the first publication: no key opens it and nothing is routed.
    pub fn empty() -> Self {
        Self {
            generation: 0,
            created: 0,
            providers: Arc::default(),
            endpoints: Arc::default(),
            routes: Arc::default(),
            access: Arc::default(),
            key_hasher: KeyHasher::new(&Secret::new([0; 32])),
            operation_ids: OperationIds::default(),
        }
    }

    /// Builds the selector table: exact ids, endpoint names, and bare model names that no endpoint, provider or
    /// exact id is called by (SEL-3).
    pub fn routes_of(
        providers: &[Arc<ProviderInstance>],
        endpoints: &[Arc<Endpoint>],
    ) -> HashMap<Box<str>, Route> {
        let mut routes = HashMap::new();
        let mut aliases: HashMap<&str, Vec<Target>> = HashMap::new();
        for provider in providers {
            for model in &provider.models {
                let target = Target { provider: Arc::clone(provider), model: Arc::clone(model) };
                let exact = format!("{}/{}", provider.id, model.id).into_boxed_str();
                aliases.entry(model.id.as_str()).or_default().push(target.clone());
                routes.insert(exact, Route::Model(target));
            }
        }
        for endpoint in endpoints {
            routes.insert(endpoint.name.as_str().into(), Route::Endpoint(Arc::clone(endpoint)));
        }
        let ids: HashSet<&str> = providers.iter().map(|provider| provider.id.as_str()).collect();
        for (name, mut targets) in aliases {
            let taken = routes.contains_key(name) || ids.contains(name);
            let route = match (targets.pop(), targets.is_empty()) {
                _ if taken => continue,
                (None, _) => continue,
                (Some(only), true) => Route::Alias(only),
                (Some(last), false) => Route::Ambiguous(targets.into_iter().chain([last]).collect()),
            };
            routes.insert(name.into(), route);
        }
        routes
    }
}

/// Makes a new snapshot current.
#[derive(Clone, Debug)]
pub struct SnapshotPublisher(Arc<ArcSwap<Snapshot>>);

/// Reads the current snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotReader(Arc<ArcSwap<Snapshot>>);

/// A publisher and its reader, with the empty snapshot current.
pub fn channel() -> (SnapshotPublisher, SnapshotReader) {
    let cell = Arc::new(ArcSwap::from_pointee(Snapshot::empty()));
    (SnapshotPublisher(Arc::clone(&cell)), SnapshotReader(cell))
}

impl SnapshotPublisher {
    /// Makes `snapshot` current; requests that began under the old one keep it.
    pub fn publish(&self, snapshot: Snapshot) {
        self.0.store(Arc::new(snapshot));
    }

    /// The generation that is current now.
    pub fn generation(&self) -> u64 {
        self.0.load().generation
    }
}

impl SnapshotReader {
    /// The current snapshot, to be held for one request and no longer than that.
    pub fn load(&self) -> Arc<Snapshot> {
        self.0.load_full()
    }
}
