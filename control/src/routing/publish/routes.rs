//! The routing half of a snapshot: everything a request needs of providers and endpoints, computed in advance.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use ring::digest::{Context, SHA256};
use shared::body_members::BodyMembers;
use shared::health::{Board, Circuits, UpstreamIdentity};
use shared::id::{ModelId, ProviderId};
use shared::provider::signer::RequestSigner;
use shared::provider::sigv4::Signer;
use shared::provider::{Inside, Reach};
use shared::routing::{
    Balance, Endpoint, InstanceReach, Lane, Model, ProviderInstance, Renew, Share, Target,
};
use shared::sanitize::Guarded;
use shared::secret::Secret;
use shared::snapshot::{Route, SelectorPatterns, Snapshot};
use shared::usage::TargetOrder;

use crate::common::credential::extension::{ExtensionAccess, bearer};
use crate::common::credential::oauth::{DueRefresh, OauthTokens, RefreshSchedule};
use crate::common::credential::{AccessTokens, Grant, Sign, bearer_header};
use crate::routing::catalog::merge::Merger;
use crate::routing::config::secrets_of;
use crate::routing::config::{self, ConnectionAuth, Policies, Provider, Routing, WrittenOrder};
use crate::routing::extension;

/// Provider instances, endpoints, and the route of each selector.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    pub(crate) providers: Arc<Vec<Arc<ProviderInstance>>>,
    pub(crate) endpoints: Arc<Vec<Arc<Endpoint>>>,
    pub(crate) routes: Arc<HashMap<Box<str>, Route>>,
    pub(crate) patterns: Arc<SelectorPatterns>,
}

impl Routes {
    /// Returns the route of a selector, or of a pattern as written.
    pub(crate) fn of(&self, name: &str) -> Option<&Route> {
        self.routes.get(name).or_else(|| self.patterns.written(name))
    }

    /// Returns every selector and pattern.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.routes.keys().map(|name| &**name).chain(self.patterns.iter().map(|(written, _)| written))
    }
}

/// Builds the routing half from `routing`, under the policies of start-up.
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
    measure_loads(&routing.endpoints, &providers);
    let endpoints = endpoints(&routing.endpoints, &providers);
    let routes = Arc::new(Snapshot::routes_of(&providers, &endpoints));
    let patterns = Arc::new(SelectorPatterns::of(&endpoints));
    Routes { providers: Arc::new(providers), endpoints: Arc::new(endpoints), routes, patterns }
}

/// Returns an instance, and those of its keys if it has several.
fn instance(
    provider: &Provider,
    (policies, board): (&Policies, &Board),
    signing: &Signing<'_>,
    merger: &mut Merger,
) -> Option<ProviderInstance> {
    let reach = reach(provider)?;
    let models = merger.models_of(provider);
    if provider.api_keys.is_empty() {
        let circuits = board.circuits(&provider.id, address(&reach, identity(provider)));
        return Some(with_credential(provider, circuits, (reach, models), (policies, signing)));
    }
    // The loads of targets outlive their keys.
    let of_instance = board.circuits(&provider.id, address(&reach, UpstreamIdentity::default()));
    let of_keys: Vec<Provider> = provider.api_keys.iter().map(|key| provider.with_key(key)).collect();
    let identities: Vec<_> = of_keys.iter().map(|one| address(&reach, identity(one))).collect();
    let circuits = board.lanes(&provider.id, &identities);
    let lanes = of_keys.iter().zip(&provider.api_keys).zip(circuits);
    let lanes = lanes.filter_map(|((one, key), circuits)| {
        let reach = self::reach(provider)?;
        let lane = Lane {
            number: key.number,
            hint: key.hint.as_deref().map(Box::from),
            of_instance: Arc::clone(&of_instance),
        };
        let one = with_credential(one, circuits, (reach, models.clone()), (policies, signing));
        Some(Arc::new(ProviderInstance { lane: Some(lane), ..one }))
    });
    let lanes = lanes.collect();
    let group = with_credential(provider, of_instance, (reach, models), (policies, signing));
    Some(ProviderInstance { lanes, ..group })
}

/// Returns the transport of an instance. An unreadable address is a configuration fault and cannot reach this point.
fn reach(provider: &Provider) -> Option<InstanceReach> {
    match (provider.kind.reach, &provider.origin) {
        (Reach::InProcess(Inside::Echo), _) => Some(InstanceReach::Echo(provider.echo.clone())),
        (Reach::InProcess(Inside::Speech), _) => Some(InstanceReach::Speech),
        (_, Some(origin)) => Some(InstanceReach::Network(origin.clone())),
        (_, None) => None,
    }
}

/// Returns an instance that sends its only, or its first, key.
fn with_credential(
    provider: &Provider,
    circuits: Arc<Circuits>,
    (reach, models): (InstanceReach, Vec<Arc<Model>>),
    (policies, signing): (&Policies, &Signing<'_>),
) -> ProviderInstance {
    let (retry, circuit_policy) = policies.of(&provider.id);
    let Signed { header, signer, renew, unready } = signing.signed(provider);
    let secret_of_extension = secret_of_extension(provider);
    let signer = match secret_of_extension {
        Some(secret) => extension::signer(secret).map(RequestSigner::Extension),
        None => signer.map(RequestSigner::Aws),
    };
    ProviderInstance {
        id: provider.id.clone(),
        kind: provider.kind,
        genai_name: provider.genai_name(),
        unready: not_usable(provider).or(unready),
        circuits,
        reach,
        credential: secret(provider, header.as_ref(), renew.is_some()),
        headers: secret_of_extension
            .and_then(bearer)
            .into_iter()
            .chain(header)
            .chain(provider.headers.iter().cloned())
            .collect(),
        request_head: OnceLock::new(),
        renew,
        signer,
        identity: identity(provider),
        lane: None,
        lanes: Vec::new(),
        dialects: provider.dialects.clone(),
        lacks: provider.lacks.clone(),
        quirks: provider.quirks,
        force_api_support: provider.force_api_support,
        responses_fallback: provider.responses_fallback,
        trace_context: provider.trace_context,
        default_voice: provider.default_voice.clone(),
        timeout: provider.timeout,
        stream_idle_timeout: provider.stream_idle_timeout,
        first_content_timeout: provider.first_content_timeout,
        error_rules: provider.error_rules.clone(),
        body: provider.body.clone(),
        prompt_cache: provider.prompt_cache,
        retry,
        circuit_policy,
        models,
        models_known: Arc::clone(&provider.models_known),
        owner: provider.owner.clone(),
        is_anonymous: provider.is_anonymous,
        shared_with: provider.shared_with.clone(),
    }
}

/// Returns the secret of the extension that the instance belongs to.
fn secret_of_extension(provider: &Provider) -> Option<&Secret<String>> {
    provider.extension.as_ref()?.access.as_deref().map(ExtensionAccess::secret)
}

/// Returns the reason why an enabled instance cannot receive requests, if any.
fn not_usable(provider: &Provider) -> Option<&'static str> {
    match provider.auth {
        ConnectionAuth::Oauth => None,
        ConnectionAuth::ApiKey | ConnectionAuth::Local => {
            provider.lacks_key().then_some("its API key is missing in the configuration")
        }
    }
}

/// The access tokens and the time with which requests are signed.
#[derive(Debug)]
pub(crate) struct Signing<'a> {
    /// `None` for a preview, which assumes that every grant has a token.
    pub(crate) tokens: Option<LiveTokens<'a>>,
    pub(crate) now_ms: u64,
}

/// The states of the access tokens that the gateway obtains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveTokens<'a> {
    pub(crate) granted: &'a AccessTokens,
    pub(crate) refreshes: &'a RefreshSchedule,
}

/// The authentication of upstream requests, or the reason why it is missing.
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
            return provider
                .oauth_tokens(self.now_ms)
                .map_or_else(none, |held| self.signed_in(provider, held));
        }
        match provider.sign() {
            Ok(Sign::Nothing) => bare,
            Ok(Sign::Header(name, value)) => Signed { header: Some((name, value)), ..bare },
            Ok(Sign::Aws(signer)) => Signed { signer: Some(signer), ..bare },
            Ok(Sign::Token(grant)) => {
                let granted = self.tokens.map(|tokens| tokens.granted);
                match granted.map(|granted| (granted, granted.current(&grant, self.now_ms))) {
                    None => bare,
                    Some((tokens, Ok(token))) => Signed {
                        header: bearer_header(token.expose()).ok(),
                        renew: Some(tokens.renew(&grant)),
                        ..bare
                    },
                    Some((_, Err(why))) => none(why),
                }
            }
            Err(_) => none("its API key is invalid; see the log of the gateway"),
        }
    }

    /// Returns the authentication by the access token of a sign-in. An expired token is sent while its refresh is on its
    /// way: the upstream rejects it, and the request waits for the new one.
    fn signed_in(&self, provider: &Provider, held: &OauthTokens) -> Signed {
        let (Some(connection), Some(issuer), Some(tokens)) =
            (&provider.signed_in, &provider.issuer, self.tokens)
        else {
            return Signed::default();
        };
        let has_expired = connection.expires_at_ms.is_some_and(|at_ms| at_ms <= self.now_ms);
        if has_expired && tokens.refreshes.trouble(&connection.provider).is_some() {
            return Signed { unready: Some(NOT_REFRESHED), ..Signed::default() };
        }
        let renew = held.refresh.is_some().then(|| tokens.refreshes.renew(connection));
        Signed { header: issuer.header(provider.kind.auth, &held.access).ok(), renew, ..Signed::default() }
    }
}

const NOT_REFRESHED: &str = "its access token has expired and could not be refreshed; see its last error";

/// Returns the sign-ins of all enabled instances that can be refreshed.
pub(crate) fn refreshes(routing: &Routing, now_ms: u64) -> Vec<DueRefresh> {
    let live = routing.providers.iter().filter(|provider| !provider.disabled);
    let live =
        live.filter(|provider| provider.oauth_tokens(now_ms).is_ok_and(|tokens| tokens.refresh.is_some()));
    live.filter_map(|provider| {
        let (connection, issuer) = (provider.signed_in.as_ref()?, provider.issuer.as_ref()?);
        Some(DueRefresh { connection: Arc::clone(connection), issuer: Arc::clone(issuer) })
    })
    .collect()
}

/// Returns the grants of all enabled instances.
pub(crate) fn grants(routing: &Routing) -> Vec<Grant> {
    let live = routing.providers.iter().filter(|provider| !provider.disabled);
    let live = live.filter(|provider| provider.auth != ConnectionAuth::Oauth);
    live.filter_map(|provider| match provider.sign() {
        Ok(Sign::Token(grant)) => Some(grant),
        Ok(Sign::Nothing | Sign::Header(..) | Sign::Aws(_)) | Err(_) => None,
    })
    .collect()
}

/// Returns every secret of the providers of `routing`, and the access tokens in use by `instances`.
pub(crate) fn guarded(routing: &Routing, instances: &[Arc<ProviderInstance>]) -> Guarded {
    let grants = grants(routing);
    // Each line of a PEM private key is a secret, except for the first and the last.
    let of_grants = grants.iter().flat_map(Grant::secrets).flat_map(str::lines);
    let of_grants = of_grants.filter(|line| !line.starts_with('-'));
    let keys = routing.providers.iter().flat_map(|provider| provider.keys());
    let keys = keys.map(|key| key.expose().trim()).filter(|key| !key.starts_with('{'));
    // An AWS credential holds the access key id before its secret.
    let parts = keys.clone().filter_map(|key| key.split_once(':')).map(|(_, secret)| secret);
    let headers = routing.providers.iter().flat_map(|provider| &provider.headers);
    let headers = headers.filter_map(|(_, value)| value.to_str().ok()).filter(|value| value.len() >= LONG);
    let bodies = routing.providers.iter().flat_map(|provider| {
        provider.body.iter().chain(provider.models.iter().filter_map(|model| model.body.as_ref()))
    });
    let of_bodies: Vec<String> = bodies
        .flat_map(BodyMembers::all)
        .filter_map(|member| member.change.value())
        .flat_map(secrets_of)
        .collect();
    let of_bodies = of_bodies.iter().map(String::as_str);
    let of_models = routing.providers.iter().flat_map(|provider| &provider.models);
    let of_models = of_models.flat_map(|model| &model.headers).filter_map(|(_, value)| value.to_str().ok());
    let of_requests = of_models.filter(|value| value.len() >= LONG).chain(of_bodies);
    let sent = instances.iter().flat_map(|instance| instance.each_lane()).flat_map(ProviderInstance::secrets);
    let signed_in = routing.providers.iter().filter_map(|provider| provider.signed_in.as_ref());
    let signed_in = signed_in.filter_map(|connection| connection.tokens.as_ref());
    let signed_in = signed_in.flat_map(|held| [Some(&held.access), held.refresh.as_ref()]).flatten();
    let clients = routing.providers.iter().filter_map(|provider| provider.issuer.as_ref()?.client());
    let of_oauth = clients.filter_map(|client| client.secret.as_ref()).chain(signed_in);
    let of_oauth = of_oauth.map(|secret| secret.expose().as_str());
    Guarded::new(
        of_grants.chain(keys).chain(parts).chain(headers).chain(sent).chain(of_oauth).chain(of_requests),
    )
}

/// The minimum length of a secret header value; shorter values are versions and names.
const LONG: usize = 16;

/// Returns the credential text that is sent upstream and that an upstream could therefore repeat.
fn secret(
    provider: &Provider,
    header: Option<&(HeaderName, HeaderValue)>,
    is_token: bool,
) -> Option<Secret<String>> {
    if !is_token && provider.auth != ConnectionAuth::Oauth {
        return provider.keys().next().cloned();
    }
    let sent = header?.1.to_str().ok()?;
    Some(Secret::new(sent.trim_start_matches("Bearer ").to_owned()))
}

/// Returns a digest that distinguishes credentials.
fn identity(provider: &Provider) -> UpstreamIdentity {
    let mut digest = Digest::new();
    digest.field(provider.api_key.as_ref().map(|key| key.expose().as_bytes()).unwrap_or_default());
    provider.api_keys.iter().for_each(|key| digest.field(key.key.expose().as_bytes()));
    if let Some(secret) = secret_of_extension(provider) {
        digest.field(secret.expose().as_bytes());
    }
    for (name, value) in &provider.headers {
        digest.field(name.as_str().as_bytes());
        digest.field(value.as_bytes());
    }
    digest.finish()
}

/// Returns a digest of upstream and credential. The circuit state of an old key must not affect a new one (FAIL-4).
fn address(reach: &InstanceReach, credential: UpstreamIdentity) -> UpstreamIdentity {
    let mut digest = Digest::new();
    if let InstanceReach::Network(origin) = reach {
        digest.field(if origin.tls { b"https" } else { b"http" });
        digest.field(origin.authority.as_str().as_bytes());
        digest.field(origin.socket.as_deref().unwrap_or_default().as_bytes());
        digest.field(origin.way.as_ref().map(|way| way.key.as_bytes()).unwrap_or_default());
        origin.paths.texts().for_each(|path| digest.field(path.as_bytes()));
    }
    digest.field(&credential);
    digest.finish()
}

/// A SHA-256 over fields of any length.
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

/// Lets the loads of those models be measured that an endpoint orders by them.
fn measure_loads(endpoints: &[config::Endpoint], providers: &[Arc<ProviderInstance>]) {
    let ordered = endpoints.iter().filter(|endpoint| match endpoint.order {
        TargetOrder::LeastBusy | TargetOrder::Fastest => true,
        TargetOrder::Listed | TargetOrder::Weighted | TargetOrder::Cheapest => false,
    });
    let mut wanted: HashMap<&ProviderId, HashSet<&ModelId>> = HashMap::new();
    for member in ordered.flat_map(|endpoint| &endpoint.failover) {
        wanted.entry(&member.provider).or_default().insert(&member.model);
    }
    for provider in providers {
        provider.circuits.loads().measure(&wanted.remove(&provider.id).unwrap_or_default());
    }
}

/// Returns the share of a target.
pub(crate) fn share(
    provider: &ProviderInstance,
    model: &ModelId,
    weight: Option<u16>,
    tier: Option<u8>,
) -> Share {
    Share { tier: tier.unwrap_or(1), weight: weight.unwrap_or(1), load: provider.circuits.loads().of(model) }
}

/// Returns the choice among targets with these shares, if it is no plain list.
pub(crate) fn balance(written: WrittenOrder, shares: Vec<Share>) -> Option<Box<Balance>> {
    let (order, sticky) = written.balanced()?;
    Some(Box::new(Balance { order, sticky, shares }))
}

/// Returns the times in which streams of the targets must have content, if any is set.
pub(crate) fn content_timeouts(timeouts: Vec<Option<Duration>>) -> Option<Box<[Option<Duration>]>> {
    timeouts.iter().any(Option::is_some).then(|| timeouts.into())
}

/// Builds the endpoints without members that are disabled or unknown. An endpoint without members is kept: a request
/// for it fails with "nothing is eligible" rather than "not found".
fn endpoints(configured: &[config::Endpoint], providers: &[Arc<ProviderInstance>]) -> Vec<Arc<Endpoint>> {
    let by_id: HashMap<&ProviderId, &Arc<ProviderInstance>> =
        providers.iter().map(|provider| (&provider.id, provider)).collect();
    let target = |member: &config::Member| {
        let provider = by_id.get(&member.provider)?;
        let place = provider.models.binary_search_by(|model| model.id.cmp(&member.model)).ok()?;
        let model = Arc::clone(provider.models.get(place)?);
        let share = share(provider, &member.model, member.weight, member.tier);
        Some((Target { provider: Arc::clone(provider), model }, share))
    };
    let mut endpoints: Vec<_> = configured
        .iter()
        .map(|endpoint| {
            let members = endpoint.failover.iter().filter_map(|member| Some((target(member)?, member)));
            let (found, timeouts): (Vec<_>, Vec<_>) =
                members.map(|(found, member)| (found, member.first_content_timeout)).unzip();
            let (targets, shares) = found.into_iter().unzip();
            let first_content_timeouts = content_timeouts(timeouts);
            let balance = balance(WrittenOrder { order: endpoint.order, sticky: endpoint.sticky }, shares);
            let preamble = endpoint.preamble.as_deref().map(Arc::from);
            let also = endpoint.also.iter().map(|name| Box::from(name.as_str())).collect();
            let plain = Endpoint::new(endpoint.name.clone(), targets);
            let cursor_bodies = endpoint.cursor_bodies;
            Arc::new(Endpoint { preamble, also, balance, first_content_timeouts, cursor_bodies, ..plain })
        })
        .collect();
    endpoints.sort_by(|a, b| a.name.cmp(&b.name));
    endpoints
}
