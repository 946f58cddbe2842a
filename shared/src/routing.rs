//! Where a request can go: provider instances, their models, and the endpoints that order them.
//!
//! Everything a request needs is computed when the snapshot is made (header values, paths, addresses), so
//! that serving only copies references.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::uri::{Authority, PathAndQuery};
use http::{HeaderName, HeaderValue};

use crate::answer_head::AnswerHead;
use crate::health::{Circuits, UpstreamIdentity};
use crate::id::{EndpointName, ModelId, PrincipalId, ProjectId, ProviderId};
use crate::operation::Dialect;
use crate::policy::{CircuitPolicy, RetryPolicy};
use crate::prices::Prices;
use crate::provider::ProviderKind;
use crate::provider::path::{Call, ListAddress, Paths};
use crate::provider::quirks::Quirks;
use crate::provider::sigv4::Signer;
use crate::secret::Secret;

/// One configured upstream connection.
#[derive(Debug)]
pub struct ProviderInstance {
    /// Its id.
    pub id: ProviderId,
    /// Its sort.
    pub kind: &'static ProviderKind,
    /// Where and how it is reached.
    pub reach: InstanceReach,
    /// Headers sent with every request: the credential (marked sensitive), then the configured fixed ones.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The credential, to be taken out of whatever the upstream says.
    pub credential: Option<Secret<String>>,
    /// Asks for another token, where the credential is one that is got and renewed.
    pub renew: Option<Renew>,
    /// Signs each request, where the credential is a pair of keys.
    pub signer: Option<Signer>,
    /// Tells its credential and headers from any others. A token that is renewed is no other credential.
    pub identity: UpstreamIdentity,
    /// Dialects that it speaks natively.
    pub dialects: Vec<Dialect>,
    /// Features of the Responses API that it lacks: names of members, types of built-in tools, values of `include`. `tools`
    /// and `include` stand for all of them.
    pub lacks: Vec<String>,
    /// What sets it apart from others of its protocol.
    pub quirks: Quirks,
    /// Opts in to the experimental adaptation of Chat to Responses (CHAT-5).
    pub force_api_support: bool,
    /// The voice where a speech request names none.
    pub default_voice: Option<String>,
    /// Bounds an attempt up to the response head.
    pub timeout: Duration,
    /// The longest silence inside a stream.
    pub stream_idle_timeout: Duration,
    /// Retry settings.
    pub retry: RetryPolicy,
    /// Circuit settings.
    pub circuit_policy: CircuitPolicy,
    /// Its circuits, which outlive snapshots.
    pub circuits: Arc<Circuits>,
    /// Its models, sorted by id.
    pub models: Vec<Arc<Model>>,
    /// Models that it is known to have, where nothing lists them.
    pub models_known: Arc<[String]>,
    /// The human whose own it is; none where it is everybody's (AUTH-4).
    pub owner: Option<PrincipalId>,
    /// Projects that may use it although it is a human's own.
    pub shared_with: Vec<ProjectId>,
    /// Why nothing can be sent to it although it is configured, in a few words; none where it can be used.
    pub unready: Option<&'static str>,
}

impl ProviderInstance {
    /// Where `call` in `dialect` goes; `name` is the model, or the id of an operation. None where the instance has
    /// no address for it, or the name is none that fits into an address. What answers in the process takes everything.
    pub fn path(&self, dialect: Dialect, call: Call, name: &str) -> Option<PathAndQuery> {
        match &self.reach {
            InstanceReach::Network(origin) => origin.paths.of(dialect, call, name),
            InstanceReach::Echo(_) | InstanceReach::Speech => Some(PathAndQuery::from_static("/")),
        }
    }
}

/// What to call when an upstream refuses an access token.
#[derive(Clone)]
pub struct Renew {
    /// Tells the token from those before and after it.
    pub serial: u64,
    call: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Renew {
    /// `call` is called for the token with this number.
    pub fn new(serial: u64, call: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { serial, call: Arc::new(call) }
    }

    /// The token was refused. Whether another one is there or on its way.
    pub fn call(&self) -> bool {
        (self.call)()
    }
}

impl fmt::Debug for Renew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renew").field("serial", &self.serial).finish_non_exhaustive()
    }
}

/// How an instance is reached.
#[derive(Debug)]
pub enum InstanceReach {
    /// Over the network.
    Network(Origin),
    /// Inside the process, by repeating the prompt.
    Echo(EchoOptions),
    /// Inside the process, by a voice.
    Speech,
}

/// The address of an upstream, taken apart once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Whether TLS is spoken.
    pub tls: bool,
    /// Host and port as in the URL; the `Host` header.
    pub authority: Authority,
    /// Host name or address without brackets; what is resolved and what TLS checks.
    pub host: String,
    /// Port, the scheme's default when the URL has none.
    pub port: u16,
    /// Where it answers what.
    pub paths: Paths,
    /// Where its models are listed, all of these together; empty where nothing lists them.
    pub lists: Vec<ListAddress>,
    /// Which HTTP version to speak.
    pub http: HttpVersion,
}

/// Which HTTP version an upstream is spoken to in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/2 where TLS negotiates it (ALPN), else HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only; in clear text with prior knowledge (h2c).
    Http2,
}

/// What the echo provider does besides repeating the prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EchoOptions {
    /// Pause before the response head.
    pub delay: Duration,
    /// Pause before each chunk of a stream.
    pub chunk_delay: Duration,
    /// Answer with this status and an error body instead of an answer.
    pub status: Option<u16>,
    /// `Retry-After` in seconds beside `status`.
    pub retry_after: Option<u64>,
    /// Break the stream off after this many content chunks.
    pub cut_after_chunks: Option<u32>,
    /// Send an error event inside a 200 stream after this many content chunks.
    pub error_after_chunks: Option<u32>,
    /// Fail every n-th request with 503 (1: every one).
    pub fail_every: Option<u32>,
    /// Never answer.
    pub hang: bool,
}

/// A model of a provider instance, with what is known about it. Unknown stays unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// What the provider calls it.
    pub id: ModelId,
    /// Name for people.
    pub display_name: Option<String>,
    /// Takes image input.
    pub vision: Option<bool>,
    /// Can call tools.
    pub tools: Option<bool>,
    /// Thinks before it answers.
    pub reasoning: Option<bool>,
    /// Dialects that the model speaks, when narrower than its instance's.
    pub dialects: Option<Vec<Dialect>>,
    /// As in [`ProviderInstance::lacks`].
    pub lacks: Vec<String>,
    /// Tokens that fit into a conversation.
    pub context_window: Option<u64>,
    /// The longest answer in tokens.
    pub output_tokens_max: Option<u64>,
    /// What it costs, where that is known.
    pub prices: Option<Prices>,
    /// The label of `prices` in records: [`Prices::label`].
    pub price_label: Option<Arc<str>>,
    /// The head of its answers. A model of which only the id is known has none.
    pub answer_head: Option<AnswerHead>,
}

impl Model {
    /// A model of which only the id is known.
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
            prices: None,
            price_label: None,
            answer_head: None,
        }
    }
}

/// One provider instance with one of its models.
#[derive(Clone, Debug)]
pub struct Target {
    /// The instance.
    pub provider: Arc<ProviderInstance>,
    /// Its model.
    pub model: Arc<Model>,
}

impl Target {
    /// Whether the target answers in `dialect` natively.
    pub fn speaks(&self, dialect: Dialect) -> bool {
        let own = self.model.dialects.as_deref();
        let own = own.or_else(|| self.provider.kind.dialects_of(self.model.id.as_str()));
        self.provider.dialects.contains(&dialect) && own.is_none_or(|own| own.contains(&dialect))
    }

    /// Features of the Responses API that the instance or the model lacks, as in [`ProviderInstance::lacks`].
    pub fn lacks(&self) -> impl Iterator<Item = &str> + Clone {
        self.provider.lacks.iter().chain(&self.model.lacks).map(String::as_str)
    }
}

/// A named, ordered failover list (SEL-4).
#[derive(Debug)]
pub struct Endpoint {
    /// Its name.
    pub name: EndpointName,
    /// Targets in order.
    pub targets: Vec<Target>,
    /// System text put before a request's own.
    pub preamble: Option<Arc<str>>,
}
