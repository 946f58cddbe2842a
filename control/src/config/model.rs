//! The configuration as everybody else uses it: every value checked, every name resolved.
//!
//! [`Config::routing`] is what a reload replaces; all the rest holds from start to end of the process.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use serde::Serialize;
use shared::id::{EndpointName, ModelId, PrincipalId, ProjectId, ProviderId};
use shared::operation::Dialect;
use shared::policy::{CircuitPolicy, ClientTimeouts, RetryPolicy};
use shared::provider::ProviderKind;
use shared::provider::quirks::Quirks;
use shared::routing::{EchoOptions, Model, Origin};
use shared::secret::Secret;
use shared::usage::EndUsers;

use super::env::Environment;
use super::file::Version;
use super::layer::Setting;
use super::seed::Seed;
use crate::credential::{Around, Sign, Surroundings};

/// A static key of an administrator.
#[derive(Clone, Debug)]
pub struct AdminKey {
    /// What usage, audit and logs call its holder: `admin`, or `admin:NAME`.
    pub id: String,
    /// The key.
    pub key: Secret<String>,
}

/// The whole effective configuration.
#[derive(Debug)]
pub struct Config {
    /// `LLMGW_API_KEY` and the keys of `LLMGW_API_KEYS`; never empty.
    pub admin_keys: Vec<AdminKey>,
    /// `LLMGW_CREDENTIAL_ENCRYPTION_KEY`.
    pub credential_encryption_key: Secret<[u8; 32]>,
    /// Where state lives.
    pub state_dir: PathBuf,
    /// Where the YAML file is, or would be.
    pub file: PathBuf,
    /// How the process serves.
    pub server: Server,
    /// What is written about requests.
    pub logging: Logging,
    /// Retry and circuit settings; they never reload (FAIL-5).
    pub policies: Policies,
    /// The trusted reverse-proxy identity boundary, when enabled.
    pub sso: Option<Sso>,
    /// System text put before every request's own; empty by default (MSG-1).
    pub preamble: String,
    /// Whether curated anonymous providers may be used (CFG-7).
    pub anonymous_provider_automation: bool,
    /// How long things are kept.
    pub lifetimes: Lifetimes,
    /// Whether usage is kept in a database of its own (STATE-1).
    pub usage_db: bool,
    /// `LLMGW_PRICES_URL`: where newer price lists are fetched.
    pub prices_url: Option<String>,
    /// The experimental OAuth connection.
    pub partner: Partner,
    /// Providers and endpoints as they were at start-up; a reload publishes newer ones.
    pub routing: Routing,
    /// A seed that is still to be planted; see [`Seed::plant`].
    pub seed: Option<Seed>,
    /// Every effective value with its source, for people.
    pub settings: Vec<Setting>,
    /// Which content of the file this is.
    pub version: Version,
    /// What the configuration was made from.
    pub environment: Arc<Environment>,
}

/// How the process serves.
#[derive(Clone, Debug)]
pub struct Server {
    /// Where it listens.
    pub bind: SocketAddr,
    /// Certificate and key, when it serves TLS itself.
    pub tls: Option<TlsFiles>,
    /// Bytes of one request body (LIM-1).
    pub body_bytes_max: u64,
    /// Bytes of all request bodies that are held at the same time (LIM-5).
    pub body_memory_bytes_max: u64,
    /// Open client connections.
    pub connections_max: usize,
    /// Threads of the data plane.
    pub workers: usize,
    /// How long streams may go on after a request to stop (OPS-3).
    pub drain: Duration,
    /// How long clients may make no progress (LIM-5).
    pub client_timeouts: ClientTimeouts,
    /// Silence after which a waiting stream gets a keep-alive; none by default (FAIL-6).
    pub stream_keepalive: Option<Duration>,
    /// How long an upstream is read on for its usage after its client has left (CAN-1, ADM-6).
    pub usage_grace: Duration,
    /// Whether `/metrics` needs no key.
    pub metrics_public: bool,
    /// The local mode: the data plane without a key, on loopback only (AUTH-3).
    pub unauthenticated_api: bool,
    /// What the output of a request without a bound of its own reserves of quotas (ADM-4).
    pub quota_output_tokens: u64,
    /// Browser origins whose preflights are answered; none by default (ROUTE-3).
    pub cors_origins: Vec<HeaderValue>,
    /// Further certificate authorities for upstreams, PEM.
    pub extra_ca_file: Option<PathBuf>,
    /// Whether the system's trust store is used beside the built-in roots.
    pub trust_system_roots: bool,
}

/// PEM files with which the gateway serves TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// What is written about requests and about the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    /// A filter in the syntax of `tracing`.
    pub filter: String,
    /// How lines look.
    pub format: LogFormat,
    /// One line a request, metadata only.
    pub requests: bool,
    /// What records hold of end users.
    pub end_users: EndUsers,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The trusted reverse-proxy identity boundary (AUTH-7).
#[derive(Clone, Debug)]
pub struct Sso {
    /// What the proxy sends to prove itself.
    pub shared_secret: Secret<String>,
    /// Addresses from which identity headers are believed, as CIDR blocks.
    pub trusted_proxies: Vec<(std::net::IpAddr, u8)>,
    /// Members of this group administer.
    pub admin_group: String,
    /// Whether an unknown human becomes a principal at first sight.
    pub auto_provision: bool,
    /// Header with the user's id.
    pub user_header: HeaderName,
    /// Header with the e-mail address.
    pub email_header: HeaderName,
    /// Header with the name for people.
    pub name_header: HeaderName,
    /// Header with the groups.
    pub groups_header: HeaderName,
}

/// Retry and circuit settings of every provider instance.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// What holds where nothing else is said.
    pub retry: RetryPolicy,
    /// What holds where nothing else is said.
    pub circuit: CircuitPolicy,
    /// By exact provider id, already merged with the defaults.
    pub overrides: HashMap<ProviderId, (RetryPolicy, CircuitPolicy)>,
}

impl Policies {
    /// The settings of `provider`.
    pub fn of(&self, provider: &ProviderId) -> (RetryPolicy, CircuitPolicy) {
        self.overrides.get(provider).copied().unwrap_or((self.retry, self.circuit))
    }
}

/// How long things are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Days for usage records.
    pub usage_days: u32,
    /// Days for audit records.
    pub audit_days: u32,
    /// Days for delivered outbox records; pending ones stay.
    pub delivered_outbox_days: u32,
    /// Verified archives in the default backup directory.
    pub backups_kept: u32,
}

/// The experimental OAuth connection (CFG-7).
#[derive(Clone, Debug)]
pub struct Partner {
    /// `LLMGW_PARTNER_CLIENT_ID`.
    pub client_id: Option<String>,
    /// `LLMGW_PARTNER_CLIENT_SECRET`; never persisted.
    pub client_secret: Option<Secret<String>>,
    /// `LLMGW_OAUTH_PUBLIC_BASE_URL`: an origin, without a trailing slash.
    pub public_base_url: Option<String>,
}

/// Providers and endpoints: what a reload replaces.
#[derive(Clone, Debug, Default)]
pub struct Routing {
    /// Provider instances by id, the disabled ones included.
    pub providers: Vec<Arc<Provider>>,
    /// Endpoints by name.
    pub endpoints: Vec<Endpoint>,
}

/// A provider instance as configured.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its id.
    pub id: ProviderId,
    /// Its sort.
    pub kind: &'static ProviderKind,
    /// The entry of the embedded registry that it was filled in from.
    pub registry_id: Option<String>,
    /// The base URL as configured; none for kinds that answer in the process.
    pub base_url: Option<String>,
    /// `base_url` taken apart.
    pub origin: Option<Origin>,
    /// How it signs in.
    pub auth: ConnectionAuth,
    /// The credential; none where there is none, and none while disabled.
    pub api_key: Option<Secret<String>>,
    /// Whether a key from elsewhere is used where none is written.
    pub kept_key: KeptKey,
    /// Fixed further headers, all marked sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Dialects that it speaks natively.
    pub dialects: Vec<Dialect>,
    /// Features of the Responses API that it lacks, as in [`shared::routing::ProviderInstance::lacks`].
    pub lacks: Vec<String>,
    /// What sets it apart from others of its protocol.
    pub quirks: Quirks,
    /// Bounds an attempt up to the response head.
    pub timeout: Duration,
    /// The longest silence inside a stream.
    pub stream_idle_timeout: Duration,
    /// Region, for kinds that have regions.
    pub region: Option<String>,
    /// Project, for kinds that have projects.
    pub project: Option<String>,
    /// Location, for kinds that have locations.
    pub location: Option<String>,
    /// Version of the API, for kinds that have versions.
    pub api_version: Option<String>,
    /// Where the accounts of the machine are.
    pub(crate) surroundings: Surroundings,
    /// The voice where a speech request names none.
    pub default_voice: Option<String>,
    /// Kept, but out of routing.
    pub disabled: bool,
    /// Opts in to the experimental adaptation of Chat to Responses (CHAT-5).
    pub force_api_support: bool,
    /// Its models: the configured ones, then those that only an endpoint names.
    pub models: Vec<Arc<Model>>,
    /// Models that it is known to have, where nothing lists them.
    pub models_known: Arc<[String]>,
    /// Options of the `echo` kind.
    pub echo: EchoOptions,
    /// The human whose own it is; never one of the file (AUTH-4).
    pub owner: Option<PrincipalId>,
    /// Projects that may use it although it is a human's own.
    pub shared_with: Vec<ProjectId>,
}

impl Provider {
    /// How its requests are signed, or what is wrong with its key.
    pub(crate) fn sign(&self) -> Result<Sign, &'static str> {
        // A header of its own is a credential too.
        if self.api_key.is_none() && self.headers.iter().any(|(name, _)| *name == AUTHORIZATION) {
            return Ok(Sign::Nothing);
        }
        let around = Around {
            region: self.region.as_deref(),
            host: self.origin.as_ref().map(|origin| origin.host.as_str()),
            surroundings: &self.surroundings,
        };
        Sign::of(self.kind.auth, self.api_key.as_ref(), &around)
    }

    /// Whether it cannot be used because it has no key.
    pub fn lacks_key(&self) -> bool {
        self.kept_key == KeptKey::Needed && self.api_key.is_none()
    }
}

/// What a key is to a provider instance that is kept for it outside the configuration file: in `secrets.json`, or
/// sealed in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptKey {
    /// It is not looked at: there is another credential, or none is sent.
    Ignored,
    /// It is used if there is one.
    Used,
    /// Without one nothing can be sent.
    Needed,
}

/// How a provider instance signs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionAuth {
    /// With a key of its own.
    ApiKey,
    /// With tokens that a human has granted.
    Oauth,
    /// Not at all.
    Local,
}

impl ConnectionAuth {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::ApiKey, Self::Oauth, Self::Local];

    /// The name in the API and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::ApiKey => "api_key",
            Self::Oauth => "oauth",
            Self::Local => "local",
        }
    }

    /// The one called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|auth| auth.name() == name)
    }
}

/// An endpoint as configured.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Its name.
    pub name: EndpointName,
    /// Its members in order; those of disabled providers included.
    pub failover: Vec<Member>,
    /// System text put before a request's own.
    pub preamble: Option<String>,
}

/// One provider and model of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The instance.
    pub provider: ProviderId,
    /// Its model.
    pub model: ModelId,
}
