//! The routing data: provider instances, their models, and the endpoints that order them.
//!
//! Everything that a request needs (header values, paths, addresses) is computed when the snapshot is built, so that
//! serving only copies references.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::answer_head::AnswerHead;
use crate::body_members::BodyMembers;
use crate::error_rule::ErrorRule;
use crate::health::{Circuits, TargetLoad, UpstreamIdentity};
use crate::id::{CredentialNumber, EndpointName, ModelId, PrincipalId, ProjectId, ProviderId};
use crate::model_rules::ModelRules;
use crate::operation::Dialect;
use crate::policy::{CircuitPolicy, RetryPolicy};
use crate::prices::Prices;
use crate::provider::ProviderKind;
use crate::provider::path::{ListAddress, Paths, UpstreamCall};
use crate::provider::quirks::Quirks;
use crate::provider::signer::RequestSigner;
use crate::proxy::{ConnectTo, OwnWay};
use crate::secret::Secret;
use crate::usage::TargetOrder;

/// One configured upstream connection.
#[derive(Debug)]
pub struct ProviderInstance {
    /// The instance's ID.
    pub id: ProviderId,
    /// The provider kind.
    pub kind: &'static ProviderKind,
    /// The `gen_ai.provider.name` of OpenTelemetry.
    pub genai_name: &'static str,
    /// The transport and the address.
    pub reach: InstanceReach,
    /// Headers of every upstream request: the credential (marked sensitive), then the configured fixed headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The fields of every upstream request, which the data plane builds for the first one.
    pub request_head: OnceLock<HeaderMap>,
    /// The credential, to be redacted from everything that the upstream returns.
    pub credential: Option<Secret<String>>,
    /// Requests a new access token, if the credential is an access token that the gateway obtains and renews.
    pub renew: Option<Renew>,
    /// Signs each request, if the credential is a key pair or the instance belongs to an extension.
    pub signer: Option<RequestSigner>,
    /// Identifies the combination of address, credential and headers. A renewed token does not change it.
    pub identity: UpstreamIdentity,
    /// The key of the upstream requests, if this is one of the instance's [`lanes`](Self::lanes).
    pub lane: Option<Lane>,
    /// The instance with each of its keys alone, if it has several; otherwise empty. Only these receive requests to
    /// models. They have circuits, rests, reported limits and an identity of their own.
    pub lanes: Vec<Arc<Self>>,
    /// The dialects that the instance speaks natively.
    pub dialects: Vec<Dialect>,
    /// Features of the Responses API that the instance lacks: names of members, types of built-in tools, values of
    /// `include`. `tools` and `include` mean all tools and all values.
    pub lacks: Vec<String>,
    /// Differences from other servers of the same protocol.
    pub quirks: Quirks,
    /// Enables the experimental adaptation of Chat to Responses (CHAT-5).
    pub force_api_support: bool,
    /// The rules for Responses requests on targets that do not speak Responses.
    pub responses_fallback: ResponsesFallback,
    /// True if requests carry the trace context (`traceparent`, `tracestate`).
    pub trace_context: bool,
    /// The voice for speech requests that specify none.
    pub default_voice: Option<String>,
    /// The timeout of an attempt up to the response head.
    pub timeout: Duration,
    /// The longest pause within a stream.
    pub stream_idle_timeout: Duration,
    /// The time in which a stream must have content; `None` for no limit of its own.
    pub first_content_timeout: Option<Duration>,
    /// The rules for errors of the upstream.
    pub error_rules: Vec<ErrorRule>,
    /// The changes of the members of JSON requests.
    pub body: Option<BodyMembers>,
    /// The cache marks of requests whose clients send none; `None` to add none.
    pub prompt_cache: Option<PromptCache>,
    /// The retry settings.
    pub retry: RetryPolicy,
    /// The circuit settings.
    pub circuit_policy: CircuitPolicy,
    /// The instance's circuits, which outlive snapshots.
    pub circuits: Arc<Circuits>,
    /// The instance's models, sorted by ID.
    pub models: Vec<Arc<Model>>,
    /// The known models of the instance, if it has no list of models.
    pub models_known: Arc<[String]>,
    /// The human who owns the instance; `None` if it is not private (AUTH-4).
    pub owner: Option<PrincipalId>,
    /// True if the gateway connected it because it needs no account. Its models are found by their exact IDs only (CFG-9).
    pub is_anonymous: bool,
    /// The projects that may use a private instance.
    pub shared_with: Vec<ProjectId>,
    /// A short reason why a configured instance cannot be used; `None` if it can.
    pub unready: Option<&'static str>,
}

impl ProviderInstance {
    /// Returns the secrets of its requests, to be redacted from everything that the upstream returns.
    pub fn secrets(&self) -> Vec<&str> {
        let credential = self.credential.iter().map(|secret| secret.expose().as_str());
        credential.chain(self.signer.iter().flat_map(RequestSigner::secrets)).collect()
    }

    /// Returns the path of `call` in `dialect`; `name` is the model, or the ID of an operation. Returns `None` if the
    /// instance has no path for the call or `name` cannot be part of a path. In-process instances accept every call.
    pub fn path(&self, dialect: Dialect, call: UpstreamCall, name: &str) -> Option<PathAndQuery> {
        match &self.reach {
            InstanceReach::Network(origin) => origin.paths.of(dialect, call, name),
            InstanceReach::Echo(_) | InstanceReach::Speech => Some(PathAndQuery::from_static("/")),
        }
    }
}

/// One of several keys of a provider instance.
#[derive(Clone, Debug)]
pub struct Lane {
    /// The number of the key.
    pub number: CredentialNumber,
    /// The last four characters of the key, or the reference to it; `None` if the key is short.
    pub hint: Option<Box<str>>,
    /// The circuits of the instance with all its keys: they have the loads of its models.
    pub of_instance: Arc<Circuits>,
}

/// A callback for access tokens that the upstream rejected.
#[derive(Clone)]
pub struct Renew {
    /// The serial number of the token.
    pub serial: u64,
    call: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Renew {
    /// Creates a handle that runs `call` for the token with this serial number.
    pub fn new(serial: u64, call: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { serial, call: Arc::new(call) }
    }

    /// Reports that the upstream rejected the token. Returns true if another token is available or being requested.
    pub fn call(&self) -> bool {
        (self.call)()
    }
}

impl fmt::Debug for Renew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renew").field("serial", &self.serial).finish_non_exhaustive()
    }
}

/// The transport of an instance.
#[derive(Debug)]
pub enum InstanceReach {
    /// Over the network.
    Network(Origin),
    /// In the process, by repeating the prompt.
    Echo(EchoOptions),
    /// In the process, by speech synthesis.
    Speech,
}

/// The parsed address of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// True if the connection uses TLS.
    pub tls: bool,
    /// Host and port as in the URL; the value of the `Host` header.
    pub authority: Authority,
    /// Host name or address without brackets, for name resolution and TLS verification.
    pub host: String,
    /// The port; the scheme's default if the URL has none.
    pub port: u16,
    /// The path of the Unix socket to connect to, instead of host and port.
    pub socket: Option<Box<str>>,
    /// The way of its own, if it does not take that of the variables.
    pub way: Option<Arc<OwnWay>>,
    /// The paths of its calls.
    pub paths: Paths,
    /// The addresses of its lists of models, which are combined; empty if it has no lists.
    pub lists: Vec<ListAddress>,
    /// The HTTP version.
    pub http: HttpVersion,
}

impl Origin {
    /// Returns the host and port to connect to, which may differ from those of the address.
    pub fn connects_to(&self) -> (&str, u16) {
        let instead = self.way.as_ref().and_then(|way| way.connect_to.as_ref());
        let instead = instead.filter(|other| other.replaces(&self.host, self.port));
        instead.map_or((self.host.as_str(), self.port), ConnectTo::place)
    }
}

/// The rules for Responses requests on targets that do not speak Responses (RESP-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponsesFallback {
    /// Requests that need encrypted reasoning, built-in tools or stored state are rejected.
    #[default]
    Strict,
    /// Reasoning is sealed by the gateway, and the tools that Codex always sends are translated or left out.
    Agents,
}

impl ResponsesFallback {
    /// The word in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Agents => "agents",
        }
    }
}

/// The lifetime of what cache marks of the gateway cache at an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptCache {
    /// The vendor's default, which is five minutes.
    Auto,
    /// An hour.
    Hour,
}

impl PromptCache {
    /// The word in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Hour => "1h",
        }
    }
}

/// The HTTP version of an upstream connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/2 if TLS negotiates it (ALPN), otherwise HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only; on plain TCP with prior knowledge (h2c).
    Http2,
}

/// Options of the echo provider.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EchoOptions {
    /// The pause before the response head.
    pub delay: Duration,
    /// The pause before each chunk of a stream.
    pub chunk_delay: Duration,
    /// Respond with this status and an error body.
    pub status: Option<u16>,
    /// The `Retry-After` in seconds that accompanies `status`.
    pub retry_after: Option<u64>,
    /// Break the stream off after this many content chunks.
    pub cut_after_chunks: Option<u32>,
    /// Send an error event inside a 200 stream after this many content chunks.
    pub error_after_chunks: Option<u32>,
    /// Fail every n-th request with 503 (1: every one).
    pub fail_every: Option<u32>,
    /// Never respond.
    pub hang: bool,
    /// Send the response head and nothing after it.
    pub hang_after_head: bool,
    /// Send the first event of a stream and this many content chunks, and nothing after them.
    pub hang_after_chunks: Option<u32>,
}

/// A model of a provider instance and its known properties. `None` means unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The provider's name of the model.
    pub id: ModelId,
    /// The display name.
    pub display_name: Option<String>,
    /// True if the model accepts image input.
    pub vision: Option<bool>,
    /// True if the model can call tools.
    pub tools: Option<bool>,
    /// True if the model reasons before it answers.
    pub reasoning: Option<bool>,
    /// The dialects that the model speaks, if they are narrower than its instance's.
    pub dialects: Option<Vec<Dialect>>,
    /// Missing features, as in [`ProviderInstance::lacks`].
    pub lacks: Vec<String>,
    /// The context window in tokens.
    pub context_window: Option<u64>,
    /// The maximum length of an answer in tokens.
    pub output_tokens_max: Option<u64>,
    /// The rules that it imposes on requests.
    pub rules: ModelRules,
    /// The changes of the members of JSON requests, which take precedence over those of the instance.
    pub body: Option<BodyMembers>,
    /// Headers of its requests, which take precedence over all others.
    pub headers: Box<[(HeaderName, HeaderValue)]>,
    /// The model's prices, if known.
    pub prices: Option<Prices>,
    /// The label of `prices` in records: [`Prices::label`].
    pub price_label: Option<Arc<str>>,
    /// The response head of the model's answers; `None` for a model of which only the ID is known.
    pub answer_head: Option<AnswerHead>,
}

impl Model {
    /// Creates a model of which only the ID is known.
    pub fn bare(id: ModelId) -> Self {
        Self {
            id,
            display_name: None,
            vision: None,
            tools: None,
            reasoning: None,
            dialects: None,
            lacks: Vec::new(),
            context_window: None,
            output_tokens_max: None,
            rules: ModelRules::UNKNOWN,
            body: None,
            headers: Box::default(),
            prices: None,
            price_label: None,
            answer_head: None,
        }
    }
}

/// One provider instance with one of its models.
#[derive(Clone, Debug)]
pub struct Target {
    /// The provider instance.
    pub provider: Arc<ProviderInstance>,
    /// The model.
    pub model: Arc<Model>,
}

impl Target {
    /// Returns true if the target speaks `dialect` natively.
    pub fn speaks(&self, dialect: Dialect) -> bool {
        let own = self.model.dialects.as_deref();
        let own = own.or_else(|| self.provider.kind.dialects_of(self.model.id.as_str()));
        self.provider.dialects.contains(&dialect) && own.is_none_or(|own| own.contains(&dialect))
    }

    /// Returns true if the target supports `dialect`, natively or by adaptation.
    pub fn serves(&self, dialect: Dialect) -> bool {
        if dialect == Dialect::Videos {
            let start = |spoken| self.provider.path(spoken, UpstreamCall::Start, self.model.id.as_str());
            return Dialect::OF_VIDEOS
                .into_iter()
                .any(|spoken| self.speaks(spoken) && start(spoken).is_some());
        }
        self.speaks(dialect) || dialect.adapted_to().iter().any(|spoken| self.adapts(dialect, *spoken))
    }

    /// Returns true if requests in the dialect `client` may be adapted to `spoken` for the target. Chat over Responses is
    /// experimental: the instance must enable it, and the model must be known to speak only Responses (CHAT-5).
    pub fn adapts(&self, client: Dialect, spoken: Dialect) -> bool {
        let is_experimental = client == Dialect::Chat && spoken == Dialect::Responses;
        let only_responses = || self.model.dialects.as_deref() == Some(&[Dialect::Responses]);
        self.speaks(spoken) && (!is_experimental || (self.provider.force_api_support && only_responses()))
    }

    /// Returns true if the target makes embeddings by `:predict` alone. The SDKs of Google tell the models apart in the same way.
    pub fn predicts_embeddings(&self) -> bool {
        self.provider.quirks.vertex_embeddings && !self.model.id.as_str().contains("gemini")
    }

    /// Returns the features of the Responses API that the instance or the model lacks, as in [`ProviderInstance::lacks`].
    pub fn lacks(&self) -> impl Iterator<Item = &str> + Clone {
        self.provider.lacks.iter().chain(&self.model.lacks).map(String::as_str)
    }
}

/// A named, ordered failover list (SEL-4).
#[derive(Debug)]
pub struct Endpoint {
    /// The endpoint's name.
    pub name: EndpointName,
    /// The targets in order.
    pub targets: Vec<Target>,
    /// System text that is inserted before the request's own.
    pub preamble: Option<Arc<str>>,
    /// Further names, and patterns that end in `*`.
    pub also: Box<[Box<str>]>,
    /// The choice among the targets; `None` for a plain list, whose first target that can serve comes first.
    pub balance: Option<Box<Balance>>,
    /// The time in which a stream of each target must have content, where it takes precedence over that of the provider
    /// instance; `None` if it does at no target.
    pub first_content_timeouts: Option<Box<[Option<Duration>]>>,
    /// True if chat requests in the form of the Responses API, as Cursor sends them, are accepted.
    pub cursor_bodies: bool,
}

/// The choice among the targets of an endpoint.
#[derive(Debug)]
pub struct Balance {
    /// The order within a tier.
    pub order: TargetOrder,
    /// True if a session stays with its target.
    pub sticky: bool,
    /// The share of each target, in the order of the targets.
    pub shares: Vec<Share>,
}

/// The share of a target.
#[derive(Clone, Debug)]
pub struct Share {
    /// The tier, from 1: every target of a lower one comes before.
    pub tier: u8,
    /// The weight; 0 for a target that comes after all others of its tier.
    pub weight: u16,
    /// The load, if the order depends on it.
    pub load: Option<Arc<TargetLoad>>,
}

impl Share {
    /// Returns the attempts in flight.
    pub fn in_flight(&self) -> u32 {
        self.load.as_ref().map_or(0, |load| load.in_flight())
    }

    /// Returns the average time to the first content in microseconds, if it is known.
    pub fn first_content_us(&self, now_ms: u64) -> Option<f32> {
        self.load.as_ref()?.first_content_us(now_ms)
    }
}

impl Endpoint {
    /// Creates an endpoint with default settings.
    pub fn new(name: EndpointName, targets: Vec<Target>) -> Self {
        Self {
            name,
            targets,
            preamble: None,
            also: Box::default(),
            balance: None,
            first_content_timeouts: None,
            cursor_bodies: false,
        }
    }

    /// Returns the time in which a stream of `target` must have content, if the endpoint sets one for it.
    pub fn first_content_timeout(&self, target: &Target) -> Option<Duration> {
        let timeouts = self.first_content_timeouts.as_deref()?;
        let is_same =
            |own: &Target| (&own.provider.id, &own.model.id) == (&target.provider.id, &target.model.id);
        let place = self.targets.iter().position(is_same)?;
        timeouts.get(place).copied().flatten()
    }
}
