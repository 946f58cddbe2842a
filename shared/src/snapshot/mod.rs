//! The immutable routing view and its publication: the control service publishes, the data plane reads, and neither blocks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

pub use self::selector_patterns::{SelectorPatterns, fault_of_name, is_pattern};
use crate::access::Access;
use crate::freshness::Freshness;
use crate::id::EndpointName;
use crate::key_hash::KeyHasher;
use crate::key_table::AccessTable;
use crate::operation_id::OperationIds;
use crate::reasoning_seal::ReasoningKey;
use crate::routing::{Balance, Endpoint, ProviderInstance, Target};
use crate::secret::Secret;

mod selector_patterns;

/// The routing and access data of a request. Immutable once published; unchanged parts are shared with the previous snapshot.
#[derive(Debug)]
pub struct Snapshot {
    /// The number of the publication, from 1; 0 is the empty snapshot before the first one.
    pub generation: u64,
    /// The creation time in seconds since the Unix epoch; also the `created` of listed models.
    pub created: u64,
    /// Provider instances that are not disabled, sorted by id.
    pub providers: Arc<Vec<Arc<ProviderInstance>>>,
    /// Endpoints, sorted by name.
    pub endpoints: Arc<Vec<Arc<Endpoint>>>,
    /// The route of each selector: exact model IDs, names of endpoints and safe aliases (SEL-1, SEL-3).
    pub routes: Arc<HashMap<Box<str>, Route>>,
    /// The patterns of selectors that have no route of their own.
    pub patterns: Arc<SelectorPatterns>,
    /// The keys. Snapshots that differ only in routing share them.
    pub access: Arc<AccessTable>,
    /// Hashes presented keys for the lookup in `access` (AUTH-6).
    pub key_hasher: KeyHasher,
    /// Seals and opens the IDs of operations.
    pub operation_ids: OperationIds,
    /// Seals the reasoning of adapted answers.
    pub reasoning_key: ReasoningKey,
    /// Tells whether the snapshot may lack changes that other nodes have made.
    pub freshness: Freshness,
}

/// The result of resolving a selector.
#[derive(Clone, Debug)]
pub enum Route {
    /// An endpoint name.
    Endpoint(Arc<Endpoint>),
    /// `<provider id>/<model>`.
    Model(Target),
    /// A bare model name that exactly one target has.
    Alias(Target),
    /// A bare model name that several targets have: an alias for a caller who may use only one of them.
    Ambiguous(Arc<[Target]>),
}

impl Route {
    /// Returns the targets in order; empty for an ambiguous name.
    pub fn targets(&self) -> &[Target] {
        match self {
            Self::Endpoint(endpoint) => &endpoint.targets,
            Self::Model(target) | Self::Alias(target) => std::slice::from_ref(target),
            Self::Ambiguous(_) => &[],
        }
    }

    /// Returns the endpoint and the choice among its targets, if it is no plain list.
    pub fn balanced(&self) -> Option<(&Endpoint, &Balance)> {
        match self {
            Self::Endpoint(endpoint) => Some((endpoint, endpoint.balance.as_deref()?)),
            Self::Model(_) | Self::Alias(_) | Self::Ambiguous(_) => None,
        }
    }

    /// Returns the time in which a stream of `target` must have content, if there is a limit.
    pub fn first_content_timeout(&self, target: &Target) -> Option<Duration> {
        let own = match self {
            Self::Endpoint(endpoint) => endpoint.first_content_timeout(target),
            Self::Model(_) | Self::Alias(_) | Self::Ambiguous(_) => None,
        };
        own.or(target.provider.first_content_timeout)
    }

    /// Returns the endpoint's name, if the route is an endpoint.
    pub fn endpoint(&self) -> Option<&EndpointName> {
        match self {
            Self::Endpoint(endpoint) => Some(&endpoint.name),
            Self::Model(_) | Self::Alias(_) | Self::Ambiguous(_) => None,
        }
    }

    /// Returns the route that this one becomes for a caller: a name that several models have is an alias if the caller
    /// may use exactly one of them (SEL-3). Returns `None` if the caller may use none of the targets, or more than one
    /// of an ambiguous name.
    pub fn usable(&self, access: &Access) -> Option<Self> {
        let endpoint = self.endpoint().map(EndpointName::as_str);
        let may_use = |target: &&Target| access.refusal(endpoint, target).is_none();
        match self {
            Self::Endpoint(_) | Self::Model(_) | Self::Alias(_) => {
                self.targets().iter().find(may_use).map(|_| self.clone())
            }
            Self::Ambiguous(targets) => {
                let mut usable = targets.iter().filter(may_use);
                let first = usable.next()?;
                usable.next().is_none().then(|| Self::Alias(first.clone()))
            }
        }
    }
}

impl Snapshot {
    /// Returns the snapshot before the first publication: it has no keys and no routes.
    pub fn empty() -> Self {
        Self {
            generation: 0,
            created: 0,
            providers: Arc::default(),
            endpoints: Arc::default(),
            routes: Arc::default(),
            patterns: Arc::default(),
            access: Arc::default(),
            key_hasher: KeyHasher::new(&Secret::new([0; 32])),
            operation_ids: OperationIds::default(),
            reasoning_key: ReasoningKey::default(),
            freshness: Freshness::default(),
        }
    }

    /// Returns every selector and pattern with its route.
    pub fn selectors(&self) -> impl Iterator<Item = (&str, &Route)> {
        self.routes.iter().map(|(name, route)| (&**name, route)).chain(self.patterns.iter())
    }

    /// Builds the selector table: exact IDs, endpoint names, further names of endpoints, and bare model names. Each of these
    /// takes precedence over those after it, and a bare model name never equals a provider ID (SEL-3).
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
                if !provider.is_anonymous {
                    aliases.entry(model.id.as_str()).or_default().push(target.clone());
                }
                routes.insert(exact, Route::Model(target));
            }
        }
        for endpoint in endpoints {
            routes.insert(endpoint.name.as_str().into(), Route::Endpoint(Arc::clone(endpoint)));
        }
        let ids: HashSet<&str> = providers.iter().map(|provider| provider.id.as_str()).collect();
        for endpoint in endpoints {
            for name in endpoint.also.iter().filter(|name| !is_pattern(name) && !ids.contains(&***name)) {
                routes.entry(name.clone()).or_insert_with(|| Route::Endpoint(Arc::clone(endpoint)));
            }
        }
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

/// Publishes snapshots.
#[derive(Clone, Debug)]
pub struct SnapshotPublisher(Arc<ArcSwap<Snapshot>>);

/// Reads the current snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotReader(Arc<ArcSwap<Snapshot>>);

/// Creates a publisher and its reader; the empty snapshot is current.
pub fn channel() -> (SnapshotPublisher, SnapshotReader) {
    let cell = Arc::new(ArcSwap::from_pointee(Snapshot::empty()));
    (SnapshotPublisher(Arc::clone(&cell)), SnapshotReader(cell))
}

impl SnapshotPublisher {
    /// Makes `snapshot` current. Requests in progress keep the snapshot that they loaded.
    pub fn publish(&self, snapshot: Snapshot) {
        self.0.store(Arc::new(snapshot));
    }

    /// Returns the current generation.
    pub fn generation(&self) -> u64 {
        self.0.load().generation
    }
}

impl SnapshotReader {
    /// Returns the current snapshot. The caller must hold it for one request only.
    pub fn load(&self) -> Arc<Snapshot> {
        self.0.load_full()
    }
}
