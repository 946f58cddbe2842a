//! One snapshot of a configuration: everything a request needs, computed before the request comes.

use std::collections::HashMap;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use ring::hmac;
use shared::access::{Access, AccessTable, KeyHash, Role};
use shared::health::Board;
use shared::id::{KeyId, ProviderId};
use shared::provider::Auth;
use shared::routing::{Endpoint, InstanceReach, ProviderInstance, Target};
use shared::secret::Secret;
use shared::snapshot::Snapshot;

use crate::config::{self, Config, Policies, Provider, Routing};

/// The snapshot of `routing` under the start-up settings of `config`.
pub fn snapshot(
    config: &Config,
    routing: &Routing,
    generation: u64,
    board: &Board,
    key_hash_key: &Secret<[u8; 32]>,
) -> Snapshot {
    let live = routing.providers.iter().filter(|provider| !provider.disabled);
    let mut providers: Vec<Arc<ProviderInstance>> =
        live.filter_map(|provider| instance(provider, &config.policies, board)).map(Arc::new).collect();
    providers.sort_by(|a, b| a.id.cmp(&b.id));
    let endpoints = endpoints(&routing.endpoints, &providers);
    Snapshot {
        generation,
        created: shared::clock::unix_ms() / 1_000,
        routes: Snapshot::routes_of(&providers, &endpoints),
        access: access(config, key_hash_key),
        providers,
        endpoints,
        key_hash_key: key_hash_key.clone(),
    }
}

/// What a presented key is looked up by: HMAC-SHA-256 over its bytes (AUTH-6).
pub fn key_hash(key_hash_key: &Secret<[u8; 32]>, presented: &str) -> KeyHash {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key_hash_key.expose());
    let tag = hmac::sign(&key, presented.as_bytes());
    let mut hash = [0; 32];
    for (to, from) in hash.iter_mut().zip(tag.as_ref()) {
        *to = *from;
    }
    KeyHash(hash)
}

fn instance(provider: &Provider, policies: &Policies, board: &Board) -> Option<ProviderInstance> {
    let (retry, circuit_policy) = policies.of(&provider.id);
    let reach = match (&provider.origin, &provider.base_url) {
        (Some(origin), _) => InstanceReach::Network(origin.clone()),
        (None, None) => InstanceReach::Echo(provider.echo.clone()),
        // An address that could not be read was a fault of the configuration and cannot get here.
        (None, Some(_)) => return None,
    };
    let credential = credential(provider);
    let fixed = provider.headers.iter().cloned();
    Some(ProviderInstance {
        id: provider.id.clone(),
        kind: provider.kind,
        reach,
        headers: credential.into_iter().chain(fixed).collect(),
        credential: provider.api_key.clone(),
        dialects: provider.dialects.clone(),
        timeout: provider.timeout,
        stream_idle_timeout: provider.stream_idle_timeout,
        retry,
        circuit_policy,
        circuit: board.circuit(&provider.id),
        models: provider.models.clone(),
    })
}

fn credential(provider: &Provider) -> Option<(HeaderName, HeaderValue)> {
    let key = provider.api_key.as_ref()?;
    match provider.kind.auth {
        Auth::Bearer => {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose())).ok()?;
            value.set_sensitive(true);
            Some((AUTHORIZATION, value))
        }
        Auth::None => None,
    }
}

/// Endpoints with the members that are not disabled. One that has none left stays: its name is configured, and
/// a request for it hears that nothing is eligible rather than that it does not exist.
fn endpoints(configured: &[config::Endpoint], providers: &[Arc<ProviderInstance>]) -> Vec<Arc<Endpoint>> {
    let by_id: HashMap<&ProviderId, &Arc<ProviderInstance>> =
        providers.iter().map(|provider| (&provider.id, provider)).collect();
    let target = |member: &config::Member| {
        let provider = by_id.get(&member.provider)?;
        let place = provider.models.binary_search_by(|model| model.id.cmp(&member.model)).ok()?;
        let model = Arc::clone(provider.models.get(place)?);
        Some(Target { provider: Arc::clone(provider), model })
    };
    let mut endpoints: Vec<_> = configured
        .iter()
        .map(|endpoint| {
            let targets = endpoint.failover.iter().filter_map(target).collect();
            Arc::new(Endpoint { name: endpoint.name.clone(), targets })
        })
        .collect();
    endpoints.sort_by(|a, b| a.name.cmp(&b.name));
    endpoints
}

fn access(config: &Config, key_hash_key: &Secret<[u8; 32]>) -> AccessTable {
    let of = |key: &str, role| {
        Arc::new(Access { key: KeyId::new(key), role, project: None, acts_as: None, expires_at_ms: None })
    };
    let administrator = of("admin", Role::Administrator);
    let keys = config
        .admin_keys
        .iter()
        .map(|key| (key_hash(key_hash_key, key.expose()), Arc::clone(&administrator)))
        .collect();
    let anonymous = config.server.unauthenticated_api.then(|| of("local", Role::Local));
    AccessTable { keys, anonymous }
}
