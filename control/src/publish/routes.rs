//! The routing half of a snapshot: everything a request needs of providers and endpoints, computed before the
//! request comes.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use ring::digest::{Context, SHA256};
use shared::health::{Board, UpstreamIdentity};
use shared::id::ProviderId;
use shared::provider::sigv4::Signer;
use shared::provider::{Inside, Reach};
use shared::routing::{Endpoint, InstanceReach, ProviderInstance, Renew, Target};
use shared::sanitize::Guarded;
use shared::secret::Secret;
use shared::snapshot::{Route, Snapshot};

use crate::catalog::merge::Merger;
use crate::config::{self, ConnectionAuth, Policies, Provider, Routing};
use crate::credential::{AccessTokens, Grant, Sign, bearer_header};

/// Provider instances, endpoints, and what each selector means.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    pub(crate) providers: Arc<Vec<Arc<ProviderInstance>>>,
    pub(crate) endpoints: Arc<Vec<Arc<Endpoint>>>,
    pub(crate) routes: Arc<HashMap<Box<str>, Route>>,
}

/// What `routing` means under the policies of the start.
pub(crate) fn routes(
    routing: &Routing,
    (policies, board): (&Policies, &Board),
    signing: &Signing<'_>,
    merger: &mut Merger,
) -> Routes {
    let live = routing.providers.iter().filter(|provider| !provider.disabled);
    let made = live.filter_map(|provider| instance(provider, (policies, board), signing, merger));
    let mut providers: Vec<Arc<ProviderInstance>> = made.map(Arc::new).collect();
    providers.sort_by(|a, b| a.id.cmp(&b.id));
    board.keep(providers.iter().map(|provider| &provider.id));
    let endpoints = endpoints(&routing.endpoints, &providers);
    let routes = Arc::new(Snapshot::routes_of(&providers, &endpoints));
    Routes { providers: Arc::new(providers), endpoints: Arc::new(endpoints), routes }
}

fn instance(
    provider: &Provider,
    (policies, board): (&Policies, &Board),
    signing: &Signing<'_>,
    merger: &mut Merger,
) -> Option<ProviderInstance> {
    let (retry, circuit_policy) = policies.of(&provider.id);
    let reach = match (provider.kind.reach, &provider.origin) {
        (Reach::InProcess(Inside::Echo), _) => InstanceReach::Echo(provider.echo.clone()),
        (Reach::InProcess(Inside::Speech), _) => InstanceReach::Speech,
        (_, Some(origin)) => InstanceReach::Network(origin.clone()),
        // An address that could not be read was a fault of the configuration and cannot get here.
        (_, None) => return None,
    };
    let Signed { header, signer, renew, unready } = signing.signed(provider);
    let identity = identity(provider);
    Some(ProviderInstance {
        id: provider.id.clone(),
        kind: provider.kind,
        unready: not_usable(provider).or(unready),
        circuits: board.circuits(&provider.id, address(&reach, identity)),
        reach,
        credential: secret(provider, renew.is_some(), header.as_ref()),
        headers: header.into_iter().chain(provider.headers.iter().cloned()).collect(),
        renew,
        signer,
        identity,
        dialects: provider.dialects.clone(),
        lacks: provider.lacks.clone(),
        quirks: provider.quirks,
        force_api_support: provider.force_api_support,
        default_voice: provider.default_voice.clone(),
        timeout: provider.timeout,
        stream_idle_timeout: provider.stream_idle_timeout,
        retry,
        circuit_policy,
        models: merger.models_of(provider),
        models_known: Arc::clone(&provider.models_known),
        owner: provider.owner.clone(),
        shared_with: provider.shared_with.clone(),
    })
}

/// Why nothing can be sent to an instance that is switched on.
fn not_usable(provider: &Provider) -> Option<&'static str> {
    match provider.auth {
        ConnectionAuth::Oauth => Some("nobody has signed in for it yet"),
        ConnectionAuth::ApiKey | ConnectionAuth::Local => {
            provider.lacks_key().then_some("its API key is missing in the configuration")
        }
    }
}

/// Signs requests with what is good at one moment.
#[derive(Debug)]
pub(crate) struct Signing<'a> {
    pub(crate) tokens: &'a AccessTokens,
    pub(crate) now_ms: u64,
}

/// What of a credential goes with requests, or why nothing can.
#[derive(Default)]
struct Signed {
    header: Option<(HeaderName, HeaderValue)>,
    signer: Option<Signer>,
    renew: Option<Renew>,
    unready: Option<&'static str>,
}

impl Signing<'_> {
    fn signed(&self, provider: &Provider) -> Signed {
        let bare = Signed::default();
        let none = |why| Signed { unready: Some(why), ..Signed::default() };
        if provider.auth == ConnectionAuth::Oauth {
            return bare;
        }
        match provider.sign() {
            Ok(Sign::Nothing) => bare,
            Ok(Sign::Header(name, value)) => Signed { header: Some((name, value)), ..bare },
            Ok(Sign::Aws(signer)) => Signed { signer: Some(signer), ..bare },
            Ok(Sign::Token(grant)) => match self.tokens.current(&grant, self.now_ms) {
                Ok(token) => Signed {
                    header: bearer_header(token.expose()).ok(),
                    renew: Some(self.tokens.renew(&grant)),
                    ..bare
                },
                Err(why) => none(why),
            },
            Err(_) => none("its API key is of no use; the gateway's log says why"),
        }
    }
}

/// Every grant of an instance that is in use.
pub(crate) fn grants(routing: &Routing) -> Vec<Grant> {
    let live = routing.providers.iter().filter(|provider| !provider.disabled);
    let live = live.filter(|provider| provider.auth != ConnectionAuth::Oauth);
    live.filter_map(|provider| match provider.sign() {
        Ok(Sign::Token(grant)) => Some(grant),
        Ok(Sign::Nothing | Sign::Header(..) | Sign::Aws(_)) | Err(_) => None,
    })
    .collect()
}

/// Every secret of the providers of `routing`, and the access tokens that `instances` are called with.
pub(crate) fn guarded(routing: &Routing, instances: &[Arc<ProviderInstance>]) -> Guarded {
    let grants = grants(routing);
    // Of a private key in PEM each line is a secret; the first and the last are not.
    let of_grants = grants.iter().flat_map(Grant::secrets).flat_map(str::lines);
    let of_grants = of_grants.filter(|line| !line.starts_with('-'));
    let keys = routing.providers.iter().filter_map(|provider| provider.api_key.as_ref());
    let keys = keys.map(|key| key.expose().trim()).filter(|key| !key.starts_with('{'));
    // The access key of AWS stands before its secret.
    let parts = keys.clone().filter_map(|key| key.split_once(':')).map(|(_, secret)| secret);
    let headers = routing.providers.iter().flat_map(|provider| &provider.headers);
    let headers = headers.filter_map(|(_, value)| value.to_str().ok()).filter(|value| value.len() >= LONG);
    let tokens = instances.iter().filter_map(|instance| instance.credential.as_ref());
    let tokens = tokens.map(|token| token.expose().as_str());
    Guarded::new(of_grants.chain(keys).chain(parts).chain(headers).chain(tokens))
}

/// Shorter values of headers are versions and names.
const LONG: usize = 16;

/// What an upstream could repeat of the credential: what was sent to it.
fn secret(
    provider: &Provider,
    is_token: bool,
    header: Option<&(HeaderName, HeaderValue)>,
) -> Option<Secret<String>> {
    if !is_token {
        return provider.api_key.clone();
    }
    let sent = header?.1.to_str().ok()?;
    Some(Secret::new(sent.trim_start_matches("Bearer ").to_owned()))
}

/// Tells one credential from another.
fn identity(provider: &Provider) -> UpstreamIdentity {
    let mut digest = Digest::new();
    digest.field(provider.api_key.as_ref().map(|key| key.expose().as_bytes()).unwrap_or_default());
    for (name, value) in &provider.headers {
        digest.field(name.as_str().as_bytes());
        digest.field(value.as_bytes());
    }
    digest.finish()
}

/// Tells one upstream and credential from another: what failed with an old key says nothing about a new one
/// (FAIL-4).
fn address(reach: &InstanceReach, credential: UpstreamIdentity) -> UpstreamIdentity {
    let mut digest = Digest::new();
    if let InstanceReach::Network(origin) = reach {
        digest.field(if origin.tls { b"https" } else { b"http" });
        digest.field(origin.authority.as_str().as_bytes());
        origin.paths.texts().for_each(|path| digest.field(path.as_bytes()));
    }
    digest.field(&credential);
    digest.finish()
}

/// A SHA-256 of fields of any length.
struct Digest(Context);

impl Digest {
    fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    fn field(&mut self, bytes: &[u8]) {
        self.0.update(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
        self.0.update(bytes);
    }

    fn finish(self) -> UpstreamIdentity {
        let mut sum = UpstreamIdentity::default();
        sum.copy_from_slice(self.0.finish().as_ref());
        sum
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
