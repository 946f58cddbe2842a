//! The validated configuration: every value checked, every name resolved.
//!
//! A reload replaces [`Config::routing`]; all other settings apply from start to end of the process.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use serde::Serialize;
use shared::base_path::BasePath;
use shared::body_members::BodyMembers;
use shared::error_rule::ErrorRule;
use shared::id::{CredentialNumber, EndpointName, ModelId, PrincipalId, ProjectId, ProviderId};
use shared::operation::Dialect;
use shared::policy::{CircuitPolicy, ClientTimeouts, RetryPolicy};
use shared::provider::ProviderKind;
use shared::provider::quirks::Quirks;
use shared::proxy::Proxies;
use shared::routing::{EchoOptions, HttpVersion, Model, Origin, PromptCache, ResponsesFallback};
use shared::secret::Secret;
use shared::usage::{EndUsers, TargetOrder};

use super::claude_code::ClaudeCode;
use super::env::{Environment, Schedule, SecretFiles};
use super::file::Version;
use super::layer::Setting;
use super::otlp::Otlp;
use super::registry;
use super::seed::Seed;
use crate::common::credential::extension::ExtensionAccess;
use crate::common::credential::oauth::{NO_SETTINGS, NO_SIGN_IN, OauthConnection, OauthTokens, TokenIssuer};
use crate::common::credential::{CredentialContext, Sign, Surroundings};
use crate::db::engine::postgres::DatabaseAddress;

/// A static key of an administrator.
#[derive(Clone, Debug)]
pub struct AdminKey {
    /// The id of its holder in usage, audit and logs: `admin`, or `admin:NAME`.
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
    /// The state directory.
    pub state_dir: PathBuf,
    /// The path of the YAML file, whether or not it exists.
    pub file: PathBuf,
    /// Server settings.
    pub server: Server,
    /// Log settings.
    pub logging: Logging,
    /// Retry and circuit settings; they never reload (FAIL-5).
    pub policies: Policies,
    /// The trusted reverse-proxy identity boundary, when enabled.
    pub sso: Option<Sso>,
    /// The sign-in of Claude Code; `None` if it is off.
    pub claude_code: Option<ClaudeCode>,
    /// System text put before that of every request; empty by default (MSG-1).
    pub preamble: String,
    /// True if curated anonymous providers may be used (CFG-7).
    pub anonymous_provider_automation: bool,
    /// Retention periods.
    pub lifetimes: Lifetimes,
    /// True if usage is stored in a separate database (STATE-1).
    pub usage_db: bool,
    /// The database of PostgreSQL with the state; `None` if the state is in files.
    pub database: Option<SharedDatabase>,
    /// `LLMGW_PRICES_URL`: the source of newer price lists.
    pub prices_url: Option<String>,
    /// `LLMGW_BACKUP_SCHEDULE`.
    pub backup_schedule: Option<Schedule>,
    /// The experimental OAuth connection.
    pub partner: Partner,
    /// The export of telemetry by OTLP.
    pub otlp: Otlp,
    /// The proxies of the variables.
    pub proxies: Proxies,
    /// Providers and endpoints as they were at start-up; a reload publishes newer ones.
    pub routing: Routing,
    /// A seed that still has to be copied; see [`Seed::plant`].
    pub seed: Option<Seed>,
    /// Every effective value with its source, for display.
    pub settings: Vec<Setting>,
    /// Identifies the file content that this configuration was read from.
    pub version: Version,
    /// The files of `${FILE:/path}` as they were at start-up.
    pub secret_files: SecretFiles,
    /// The environment that this configuration was read from.
    pub environment: Arc<Environment>,
}

/// The database that the nodes of a cluster share.
#[derive(Clone, Debug)]
pub struct SharedDatabase {
    /// `LLMGW_DATABASE_URL`.
    pub address: DatabaseAddress,
    /// `LLMGW_NODE_NAME`: the name of this node for operators.
    pub node_name: String,
    /// `LLMGW_STALE_SECONDS`: the time without the database after which project keys are refused.
    pub stale_after: Duration,
    /// `LLMGW_MIGRATE`: true if a start creates the tables, and migrates those of an earlier release.
    pub migrates: bool,
}

/// Server settings of the process.
#[derive(Clone, Debug)]
pub struct Server {
    /// The listening address.
    pub bind: SocketAddr,
    /// Certificate and key, if the gateway serves TLS itself.
    pub tls: Option<TlsFiles>,
    /// Maximum bytes of one request body (LIM-1).
    pub body_bytes_max: u64,
    /// Maximum bytes of all request bodies held at the same time (LIM-5).
    pub body_memory_bytes_max: u64,
    /// Maximum number of open client connections.
    pub connections_max: usize,
    /// Number of data-plane threads.
    pub workers: usize,
    /// Maximum time that streams may continue after a stop request (OPS-3).
    pub drain: Duration,
    /// Time that new connections are accepted after a stop request (OPS-3).
    pub drain_delay: Duration,
    /// Timeouts for clients that make no progress (LIM-5).
    pub client_timeouts: ClientTimeouts,
    /// Silence after which a waiting stream gets a keep-alive; `None` by default (FAIL-6).
    pub stream_keepalive: Option<Duration>,
    /// Maximum time that an upstream's response is read for its usage after the client has disconnected (CAN-1, ADM-6).
    pub usage_grace: Duration,
    /// True if `/metrics` requires no key.
    pub metrics_public: bool,
    /// The local mode: the data plane without a key, on loopback only (AUTH-3).
    pub unauthenticated_api: bool,
    /// The output tokens that a request without an output limit reserves of quotas (ADM-4).
    pub quota_output_tokens: u64,
    /// Browser origins whose preflights are answered; none by default (ROUTE-3).
    pub cors_origins: Vec<HeaderValue>,
    /// The path below which a reverse proxy publishes the gateway; empty by default.
    pub base_path: BasePath,
    /// Further certificate authorities for upstreams, PEM.
    pub extra_ca_file: Option<PathBuf>,
    /// True if the system's trust store is used in addition to the built-in roots.
    pub trust_system_roots: bool,
}

/// PEM files for serving TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// Settings of logs and request records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    /// A filter in the syntax of `tracing`.
    pub filter: String,
    /// The format of log lines.
    pub format: LogFormat,
    /// True if log lines also go to files in the state directory.
    pub file: bool,
    /// True if one line of metadata is logged per request.
    pub requests: bool,
    /// True if whole exchanges are captured.
    pub bodies: bool,
    /// The form in which records contain end users.
    pub end_users: EndUsers,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Human-readable text.
    Text,
    /// One JSON object per line.
    Json,
}

/// The trusted reverse-proxy identity boundary (AUTH-7).
#[derive(Clone, Debug)]
pub struct Sso {
    /// The secret with which the proxy authenticates itself.
    pub shared_secret: Secret<String>,
    /// Addresses whose identity headers are trusted, as CIDR blocks.
    pub trusted_proxies: Vec<(std::net::IpAddr, u8)>,
    /// The group whose members are administrators.
    pub admin_group: String,
    /// True if an unknown human becomes a principal with the first request.
    pub auto_provision: bool,
    /// The name of the proxy whose headers are the defaults.
    pub preset: &'static str,
    /// Header with the user's id.
    pub user_header: HeaderName,
    /// Header with the e-mail address.
    pub email_header: Option<HeaderName>,
    /// Header with the display name.
    pub name_header: Option<HeaderName>,
    /// Header with the groups.
    pub groups_header: Option<HeaderName>,
    /// The character between two groups.
    pub groups_separator: char,
    /// Where a browser ends its session with the proxy: a path or an https URL.
    pub sign_out_url: Option<String>,
}

/// Retry and circuit settings of every provider instance.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// The default retry settings.
    pub retry: RetryPolicy,
    /// The default circuit settings.
    pub circuit: CircuitPolicy,
    /// Settings by exact provider id, already merged with the defaults.
    pub overrides: HashMap<ProviderId, (RetryPolicy, CircuitPolicy)>,
}

impl Policies {
    /// Returns the settings of `provider`.
    pub fn of(&self, provider: &ProviderId) -> (RetryPolicy, CircuitPolicy) {
        self.overrides.get(provider).copied().unwrap_or((self.retry, self.circuit))
    }
}

/// Retention periods of stored data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Days to keep usage records.
    pub usage_days: u32,
    /// Days to keep audit records.
    pub audit_days: u32,
    /// Days to keep delivered outbox records; pending ones are kept.
    pub delivered_outbox_days: u32,
    /// The number of verified archives to keep in the default backup directory.
    pub backups_kept: u32,
}

/// The experimental OAuth connection (CFG-7).
#[derive(Clone, Debug)]
pub struct Partner {
    /// `LLMGW_PARTNER_CLIENT_ID`.
    pub client_id: Option<String>,
    /// True if `LLMGW_PARTNER_CLIENT_SECRET` is set. The secret is in the settings of each provider, and never stored.
    pub has_client_secret: bool,
    /// `LLMGW_OAUTH_PUBLIC_BASE_URL`: an origin, without a trailing slash.
    pub public_base_url: Option<String>,
}

impl Config {
    /// Returns the address that vendors send browsers back to, as it must be registered with them.
    pub fn redirect_uri(&self) -> Option<String> {
        self.partner.public_base_url.as_ref().map(|origin| format!("{origin}{}", self.callback_path()))
    }

    /// Returns the path of that address, as browsers know it.
    pub(crate) fn callback_path(&self) -> String {
        format!("{}{OAUTH_CALLBACK}", self.server.base_path)
    }
}

/// The path that vendors send browsers back to.
pub(crate) const OAUTH_CALLBACK: &str = "/oauth/callback/partner";

/// Providers and endpoints, which a reload replaces.
#[derive(Clone, Debug, Default)]
pub struct Routing {
    /// Provider instances by id, including disabled ones.
    pub providers: Vec<Arc<Provider>>,
    /// Endpoints by name.
    pub endpoints: Vec<Endpoint>,
}

/// The TLS settings of a provider instance as they are written, without the private key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ProviderTls"))]
pub struct ShownTls {
    /// The only authorities that may have issued the upstream's certificate, in PEM or as a reference; absent for those of the
    /// gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// The client certificate with its intermediates, in PEM or as a reference; absent for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The reference to its private key, or dots in place of the key itself; absent for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A provider instance as configured.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its id.
    pub id: ProviderId,
    /// Its kind.
    pub kind: &'static ProviderKind,
    /// The registry entry that its defaults come from.
    pub registry_id: Option<String>,
    /// The base URL as configured; `None` for kinds that run in the process.
    pub base_url: Option<String>,
    /// `base_url`, parsed.
    pub origin: Option<Origin>,
    /// The proxy that it sets, without a password; `direct` for none.
    pub proxy: Option<String>,
    /// Its TLS settings as they are written.
    pub tls: Option<ShownTls>,
    /// The host and port to connect to instead of those of `base_url`.
    pub connect_to: Option<String>,
    /// Its sign-in method.
    pub auth: ConnectionAuth,
    /// The credential; `None` if it is missing or the instance is disabled.
    pub api_key: Option<Secret<String>>,
    /// The credentials if there are several, instead of `api_key`.
    pub api_keys: Vec<ProviderKey>,
    /// The use of a key that is stored outside the file, if the file contains no key.
    pub kept_key: KeptKey,
    /// Additional fixed headers, all marked sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Dialects that the upstream supports natively.
    pub dialects: Vec<Dialect>,
    /// Features of the Responses API that it lacks, as in [`shared::routing::ProviderInstance::lacks`].
    pub lacks: Vec<String>,
    /// Its differences from other upstreams of the same protocol.
    pub quirks: Quirks,
    /// The timeout of an attempt up to the response head.
    pub timeout: Duration,
    /// The longest silence allowed inside a stream.
    pub stream_idle_timeout: Duration,
    /// The time in which a stream must have content, if limited.
    pub first_content_timeout: Option<Duration>,
    /// The rules for errors of the upstream.
    pub error_rules: Vec<ErrorRule>,
    /// The changes of the members of JSON requests.
    pub body: Option<BodyMembers>,
    /// The cache marks of requests whose clients send none.
    pub prompt_cache: Option<PromptCache>,
    /// Region, for kinds with regions.
    pub region: Option<String>,
    /// Project, for kinds with projects.
    pub project: Option<String>,
    /// Location, for kinds with locations.
    pub location: Option<String>,
    /// API version, for kinds with versions.
    pub api_version: Option<String>,
    /// Settings for machine identities from the environment.
    pub(crate) surroundings: Surroundings,
    /// The voice of speech requests that do not name one.
    pub default_voice: Option<String>,
    /// True if the instance is kept but excluded from routing.
    pub disabled: bool,
    /// True to opt in to the experimental adaptation of Chat to Responses (CHAT-5).
    pub force_api_support: bool,
    /// The rules for Responses requests, if the upstream does not speak Responses.
    pub responses_fallback: ResponsesFallback,
    /// True if its requests carry the trace context of W3C.
    pub trace_context: bool,
    /// Its models: the configured ones, and those that only an endpoint names.
    pub models: Vec<Arc<Model>>,
    /// Models known in advance, for upstreams without a model list.
    pub models_known: Arc<[String]>,
    /// Options of the `echo` kind.
    pub echo: EchoOptions,
    /// The extension that it belongs to, for the `extension` kind.
    pub extension: Option<ExtensionLink>,
    /// The human principal that owns it; never set for an instance of the file (AUTH-4).
    pub owner: Option<PrincipalId>,
    /// True if the gateway connected it because it needs no account; never true for an instance of the file (CFG-9).
    pub is_anonymous: bool,
    /// Projects that may use it although a human owns it.
    pub shared_with: Vec<ProjectId>,
    /// The issuer of its tokens, if humans sign in to it. For the `extension` kind, it is set when the instance is connected.
    pub(crate) issuer: Option<Arc<TokenIssuer>>,
    /// The sign-in of a human at its vendor; filled in when file and database are merged.
    pub(crate) signed_in: Option<Arc<OauthConnection>>,
}

/// One of several credentials of a provider instance.
#[derive(Clone, Debug)]
pub struct ProviderKey {
    /// Its number.
    pub number: CredentialNumber,
    /// The part that may be shown: its last four characters, or the reference to it; `None` if it is short.
    pub hint: Option<String>,
    /// The credential.
    pub key: Secret<String>,
}

impl Provider {
    /// Returns the instance with one of its credentials alone.
    pub(crate) fn with_key(&self, key: &ProviderKey) -> Self {
        Self { api_key: Some(key.key.clone()), api_keys: Vec::new(), ..self.clone() }
    }

    /// Returns every credential.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Secret<String>> + Clone {
        self.api_key.iter().chain(self.api_keys.iter().map(|key| &key.key))
    }

    /// Returns the `gen_ai.provider.name` of OpenTelemetry.
    pub(crate) fn genai_name(&self) -> &'static str {
        let entry = self.registry_id.as_deref().and_then(registry::entry);
        entry.and_then(|entry| entry.genai_name.as_deref()).unwrap_or(self.kind.genai_name)
    }

    /// Returns how requests are signed. The error describes the fault in the key.
    pub(crate) fn sign(&self) -> Result<Sign, &'static str> {
        // A configured authorization header is a credential too.
        let key = self.keys().next();
        if key.is_none() && self.headers.iter().any(|(name, _)| *name == AUTHORIZATION) {
            return Ok(Sign::Nothing);
        }
        let around = CredentialContext {
            region: self.region.as_deref(),
            host: self.origin.as_ref().map(|origin| origin.host.as_str()),
            surroundings: &self.surroundings,
        };
        Sign::of(self.kind.auth, key, &around)
    }

    /// Returns the tokens of its sign-in, or the reason why requests cannot use it.
    pub(crate) fn oauth_tokens(&self, now_ms: u64) -> Result<&OauthTokens, &'static str> {
        let issuer = self.issuer.as_ref().ok_or(NO_SETTINGS)?;
        let connection = self.signed_in.as_ref().ok_or(NO_SIGN_IN)?;
        connection.usable(&issuer.binding(self.origin.as_ref()), now_ms)
    }

    /// True if it cannot be used because it has no key.
    pub fn lacks_key(&self) -> bool {
        self.kept_key == KeptKey::Needed && self.keys().next().is_none()
    }
}

/// The provider of an extension to which an instance sends its requests.
#[derive(Clone, Debug)]
pub struct ExtensionLink {
    /// The name of the extension.
    pub name: String,
    /// The ID of the provider within the extension.
    pub provider: String,
    /// The HTTP version of its connections.
    pub http: HttpVersion,
    /// The access to the extension, once the instance is connected to it.
    pub(crate) access: Option<Arc<ExtensionAccess>>,
}

/// The use of a key for a provider instance that is stored outside the configuration file: in `secrets.json` or sealed in
/// the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptKey {
    /// Not used: there is another credential, or none is sent.
    Ignored,
    /// Used if present.
    Used,
    /// Required: no request can be sent without it.
    Needed,
}

/// The sign-in method of a provider instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ConnectionAuth {
    /// An API key.
    ApiKey,
    /// OAuth tokens that a human has granted.
    Oauth,
    /// No credential.
    Local,
}

impl ConnectionAuth {
    /// All methods.
    pub const ALL: [Self; 3] = [Self::ApiKey, Self::Oauth, Self::Local];

    /// Returns the name in the API and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::ApiKey => "api_key",
            Self::Oauth => "oauth",
            Self::Local => "local",
        }
    }

    /// Returns the method called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|auth| auth.name() == name)
    }
}

/// An endpoint as configured.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Its name.
    pub name: EndpointName,
    /// Its members in order, including those of disabled providers.
    pub failover: Vec<Member>,
    /// System text prepended to a request's own.
    pub preamble: Option<String>,
    /// Further names, and patterns that end in `*`.
    pub also: Vec<String>,
    /// The order of its members within a tier.
    pub order: TargetOrder,
    /// True if a session stays with its target; `None` for the default of the order.
    pub sticky: Option<bool>,
    /// True if chat requests in the form of the Responses API, as Cursor sends them, are accepted.
    pub cursor_bodies: bool,
}

/// One member of an endpoint: a provider and a model.
#[derive(Clone, Debug)]
pub struct Member {
    /// The instance.
    pub provider: ProviderId,
    /// Its model.
    pub model: ModelId,
    /// Its share of the requests, if given.
    pub weight: Option<u16>,
    /// Its tier, if given.
    pub tier: Option<u8>,
    /// The time in which a stream must have content, if given.
    pub first_content_timeout: Option<Duration>,
}
