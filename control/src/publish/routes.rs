//! The routing half of a snapshot: everything a request needs of providers and endpoints, computed before the
//! request comes.

use std::collections::HashMap;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use ring::digest::{Context, SHA256};
use shared::health::{Board, UpstreamIdentity};
use shared::id::ProviderId;
use shared::provider::Auth;
use shared::routing::{Endpoint, InstanceReach, ProviderInstance, Target};
use shared::snapshot::{Route, Snapshot};

use crate::catalog::merge::Merger;
use crate::config::{self, ConnectionAuth, Policies, Provider, Routing};

/// Provider instances, endpoints, and what each selector means.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    pub(crate) providers: Arc<Vec<Arc<ProviderInstance>>>,
    pub(crate) endpoints: Arc<Vec<Arc<Endpoint>>>,
    pub(crate) routes: Arc<HashMap<Box<str>, Route>>,
}

/// What `routing` means under the policies of the start.
pub(crate) fn routes(routing: &Routing, policies: &Policies, board: &Board, merger: &mut Merger) -> Routes {
    let live = routing.providers.iter().filter(|provider| !provider.disabled);
    let mut providers: Vec<Arc<ProviderInstance>> =
        live.filter_map(|provider| instance(provider, policies, board, merger)).map(Arc::new).collect();
    providers.sort_by(|a, b| a.id.cmp(&b.id));
    board.keep(&providers);
    let endpoints = endpoints(&routing.endpoints, &providers);
    let routes = Arc::new(Snapshot::routes_of(&providers, &endpoints));
    Routes { providers: Arc::new(providers), endpoints: Arc::new(endpoints), routes }
}

fn instance(
    provider: &Provider,
    policies: &Policies,
    board: &Board,
    merger: &mut Merger,
) -> Option<ProviderInstance> {
    let (retry, circuit_policy) = policies.of(&provider.id);
    let reach = match (&provider.origin, &provider.base_url) {
        (Some(origin), _) => InstanceReach::Network(origin.clone()),
        (None, None) => InstanceReach::Echo(provider.echo.clone()),
        // An address that could not be read was a fault of the configuration and cannot get here.
        (None, Some(_)) => return None,
    };
    let credential = credential(provider);
    let headers: Vec<_> = credential.into_iter().chain(provider.headers.iter().cloned()).collect();
    Some(ProviderInstance {
        id: provider.id.clone(),
        kind: provider.kind,
        unready: unready(provider),
        circuit: board.circuit(&provider.id, identity(&reach, &headers)),
        reach,
        headers,
        credential: provider.api_key.clone(),
        dialects: provider.dialects.clone(),
        timeout: provider.timeout,
        stream_idle_timeout: provider.stream_idle_timeout,
        retry,
        circuit_policy,
        models: merger.models_of(provider),
        owner: provider.owner.clone(),
        shared_with: provider.shared_with.clone(),
    })
}

/// Why nothing can be sent to an instance that is switched on.
fn unready(provider: &Provider) -> Option<&'static str> {
    match provider.auth {
        ConnectionAuth::Oauth => Some("nobody has signed in for it yet"),
        ConnectionAuth::ApiKey | ConnectionAuth::Local => {
            provider.lacks_key().then_some("its API key is missing in the configuration")
        }
    }
}

/// Tells one upstream and credential from another: what failed with an old key says nothing about a new one
/// (FAIL-4).
fn identity(reach: &InstanceReach, headers: &[(HeaderName, HeaderValue)]) -> UpstreamIdentity {
    let mut digest = Context::new(&SHA256);
    let mut field = |bytes: &[u8]| {
        digest.update(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
        digest.update(bytes);
    };
    if let InstanceReach::Network(origin) = reach {
        field(if origin.tls { b"https" } else { b"http" });
        field(origin.authority.as_str().as_bytes());
        origin.paths.texts().for_each(|path| field(path.as_bytes()));
    }
    for (name, value) in headers {
        field(name.as_str().as_bytes());
        field(value.as_bytes());
    }
    let mut identity = UpstreamIdentity::default();
    identity.copy_from_slice(digest.finish().as_ref());
    identity
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
            let preamble = endpoint.preamble.as_deref().map(Arc::from);
            Arc::new(Endpoint { name: endpoint.name.clone(), targets, preamble })
        })
        .collect();
    endpoints.sort_by(|a, b| a.name.cmp(&b.name));
    endpoints
}
