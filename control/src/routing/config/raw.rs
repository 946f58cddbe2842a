//! The YAML file in its written form. These types are also the source of the JSON Schema, so editors show their doc
//! comments.
//!
//! They stay inside `config`: every value that leaves the module has been checked and resolved. None of the types
//! implements `Debug`, because some hold secrets.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::Value;
use shared::operation::Dialect;
use shared::usage::TargetOrder;

use super::claude_code;
use super::prices::Prices;
use super::rules::Rules;

/// Configuration of llmgw.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "llmgw configuration")]
pub(super) struct File {
    /// Settings of the server. For each setting, an environment variable takes precedence.
    pub(super) server: Server,
    /// Browser access.
    pub(super) cors: Cors,
    /// Provider instances by ID.
    pub(super) providers: BTreeMap<String, Provider>,
    /// Named, ordered failover lists.
    pub(super) endpoints: Option<BTreeMap<String, Endpoint>>,
    /// Deprecated name of `endpoints`; read only if `endpoints` is absent.
    pub(super) categories: Option<BTreeMap<String, Endpoint>>,
    /// Retry and circuit settings; read at start-up only.
    pub(super) policies: Policies,
    /// The sign-in of Claude Code at the gateway; read at start-up only.
    pub(super) claude_code: claude_code::Written,
}

/// Settings of the server.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Server {
    /// Address to listen on: an IP address or localhost.
    pub(super) host: Option<String>,
    /// Port to listen on; 0 takes any free one.
    #[schemars(range(max = 65_535))]
    pub(super) port: Option<u64>,
    /// PEM certificate chain; with `tls_key_file`, the gateway serves TLS.
    pub(super) tls_cert_file: Option<String>,
    /// PEM private key of the certificate.
    pub(super) tls_key_file: Option<String>,
    /// Largest request body.
    #[schemars(range(min = 1_024, max = 1_099_511_627_776_u64))]
    pub(super) max_request_body_bytes: Option<u64>,
    /// Memory for all request bodies at the same time.
    #[schemars(range(min = 1_048_576, max = 17_592_186_044_416_u64))]
    pub(super) max_body_memory_bytes: Option<u64>,
    /// Open client connections.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub(super) max_connections: Option<u64>,
    /// Threads of the data plane.
    #[schemars(range(min = 1, max = 1_024))]
    pub(super) workers: Option<u64>,
    /// How long streams may continue after SIGTERM.
    #[schemars(range(max = 3_600))]
    pub(super) drain_seconds: Option<u64>,
    /// How long new connections are accepted after SIGTERM, while /ready is 503.
    #[schemars(range(max = 3_600))]
    pub(super) drain_delay_seconds: Option<u64>,
    /// How long a client connection may stay open without a request.
    #[schemars(range(min = 1, max = 86_400))]
    pub(super) client_idle_seconds: Option<u64>,
    /// How long a client may read nothing of its pending response.
    #[schemars(range(min = 1, max = 86_400))]
    pub(super) client_stall_seconds: Option<u64>,
    /// Longest pause in a request body, and time before its minimum rate of 240 bytes a second applies.
    #[schemars(range(min = 1, max = 86_400))]
    pub(super) client_body_seconds: Option<u64>,
    /// Interval of keep-alives on silent streams; 0 sends none.
    #[schemars(range(max = 3_600))]
    pub(super) stream_keepalive_seconds: Option<u64>,
    /// How long the gateway waits for the usage of an answer that has ended, if its client has left; 0: not at all.
    #[schemars(range(max = 60_000))]
    pub(super) usage_grace_ms: Option<u64>,
    /// Path below which a reverse proxy publishes the gateway, e.g. /llm.
    pub(super) base_path: Option<String>,
    /// Serve /metrics without a key.
    pub(super) metrics_public: Option<bool>,
    /// PEM file of additional authorities trusted for upstreams.
    pub(super) extra_ca_file: Option<String>,
    /// Trust the system's authorities in addition to the built-in ones.
    pub(super) trust_system_roots: Option<bool>,
    /// Log filter, e.g. info,dataplane=debug.
    pub(super) log: Option<String>,
    /// Format of log lines.
    pub(super) log_format: Option<LogFormat>,
    /// Write log lines also to files in the folder `logs` of the state directory, a file a day, 7 kept.
    pub(super) log_file: Option<bool>,
    /// Log one line of metadata for each request.
    pub(super) log_requests: Option<bool>,
    /// UNSAFE: capture the prompts and answers of all requests, for 24 hours.
    pub(super) log_request_bodies: Option<bool>,
}

/// Format of log lines.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum LogFormat {
    Text,
    Json,
}

/// Browser access.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Cors {
    /// Origins that may call the data plane, e.g. `https://app.example.com`, or `*`; none by default.
    pub(super) origins: Vec<String>,
}

/// One configured upstream connection.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Provider {
    /// The kind of provider; optional if `registry_id` determines it.
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    /// A well-known provider, which sets type and address.
    pub(super) registry_id: Option<String>,
    /// The base URL as in the vendor's own SDK, e.g. `https://api.example.com/v1`.
    pub(super) base_url: Option<String>,
    /// The HTTP proxy of its requests, e.g. `http://user:${ENV:PROXY_PASSWORD}@proxy.example:3128`, or `direct` for none. By
    /// default that of `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY`.
    pub(super) proxy: Option<String>,
    /// The host and port to connect to instead of those of `base_url`, whose name stays in the Host header and is the one that TLS
    /// verifies, e.g. `10.0.0.7:8443`.
    pub(super) connect_to: Option<String>,
    /// Authorities and a client certificate for connections to `https://` addresses.
    pub(super) tls: Option<Tls>,
    /// The credential, or `${ENV:NAME}` or `${FILE:/path}` to take it from the environment or a file. For `bedrock` an API
    /// key or `${ENV:AWS_ACCESS_KEY_ID}:${ENV:AWS_SECRET_ACCESS_KEY}`, for `vertex` the JSON of a service account, an
    /// access token, or no value for the account of the machine.
    pub(super) api_key: Option<String>,
    /// Several credentials instead of `api_key`, at least 2. Each is a lane with circuits, rests and limits of its own: a
    /// session stays with its key, and a request moves to another one at once if its key is rejected or limited.
    #[schemars(length(min = 2, max = 64))]
    pub(super) api_keys: Option<Vec<ApiKey>>,
    /// Seconds that an attempt may take until the response head.
    #[schemars(range(min = 0.001, max = 86_400))]
    pub(super) timeout: Option<f64>,
    /// Seconds of silence after which a stream is aborted.
    #[schemars(range(min = 0.001, max = 86_400))]
    pub(super) stream_idle_timeout: Option<f64>,
    /// Seconds in which a stream must have content; after them the next target is tried. None by default.
    #[schemars(range(min = 0.001, max = 86_400))]
    pub(super) first_content_timeout: Option<f64>,
    /// Rules for errors of the upstream, before the built-in table; the first that fits applies.
    #[schemars(length(max = 20))]
    pub(super) errors: Vec<ErrorRule>,
    /// Region, for providers that have regions.
    pub(super) region: Option<String>,
    /// Project, for providers that have projects.
    pub(super) project: Option<String>,
    /// Location, for providers that have locations; the default of `vertex` is `global`.
    pub(super) location: Option<String>,
    /// Version of the API, for `azure_openai`.
    pub(super) api_version: Option<String>,
    /// Name of the extension, for `extension`.
    pub(super) extension: Option<String>,
    /// Provider of the extension, for `extension`; the ID of the instance by default.
    pub(super) extension_provider: Option<String>,
    /// Voice of speech requests that name none.
    pub(super) default_voice: Option<String>,
    /// Keep the instance, but send no requests to it.
    pub(super) disabled: bool,
    /// Enable the experimental adaptation of Chat to Responses.
    pub(super) force_api_support: bool,
    /// Rules for Responses requests on models that do not speak Responses; `agents` serves Codex.
    pub(super) responses_fallback: ResponsesFallback,
    /// Send the W3C trace context (`traceparent`, `tracestate`) upstream while traces are exported.
    pub(super) trace_context: bool,
    /// Models that the instance serves.
    pub(super) models: Vec<Model>,
    /// Additional headers sent with every request; a value may be `${ENV:NAME}` or `${FILE:/path}`.
    pub(super) headers: BTreeMap<String, String>,
    /// Changes of the top-level members of JSON requests.
    pub(super) body: Option<BodyMembers>,
    /// Add cache marks to requests of clients that send none, for `anthropic` and `bedrock`; none by default.
    pub(super) prompt_cache: Option<PromptCache>,
    /// Protocols that the instance supports natively, if they differ from those of its type.
    pub(super) protocols: Option<Vec<Protocol>>,
    /// HTTP version for requests to the upstream.
    pub(super) http_version: HttpVersion,
    /// Options of the type `echo`, which simulate failures.
    pub(super) echo: Option<Echo>,
    /// The vendor's OAuth addresses, for a provider that a human signs in to; `{}` for the type `extension`, whose extension
    /// knows them.
    pub(super) oauth: Option<Oauth>,
}

/// TLS of the connections to an upstream. Each text is PEM, or `${ENV:NAME}` or `${FILE:/path}`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Tls {
    /// Certificates of the only authorities that may have issued the upstream's certificate; by default those of the gateway.
    pub(super) ca: Option<String>,
    /// The client certificate that the gateway shows, followed by its intermediates.
    pub(super) certificate: Option<String>,
    /// The unencrypted private key of `certificate`. Through the API only `${ENV:NAME}`.
    pub(super) key: Option<String>,
}

/// One of several credentials of a provider.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum ApiKey {
    /// As `api_key`.
    Text(String),
    /// With the ID that traces and alerts show.
    Numbered(NumberedKey),
}

/// A credential with its ID.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NumberedKey {
    /// `c1`, `c2` and so on; the place in the list by default.
    #[serde(default)]
    pub(super) id: Option<String>,
    /// As `api_key`.
    pub(super) key: String,
}

impl ApiKey {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Numbered(numbered) => &numbered.key,
        }
    }

    pub(super) fn id(&self) -> Option<&str> {
        match self {
            Self::Text(_) => None,
            Self::Numbered(numbered) => numbered.id.as_deref(),
        }
    }
}

/// The vendor's OAuth addresses. The client is that of `LLMGW_PARTNER_CLIENT_ID` and `LLMGW_PARTNER_CLIENT_SECRET`.
/// Addresses are `https://`; `http://` only on this machine.
#[derive(Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Oauth {
    /// The page on which a human consents. Optional with `device_authorization_url`.
    pub(super) authorize_url: Option<String>,
    /// The address that issues and refreshes tokens.
    pub(super) token_url: Option<String>,
    /// The address that names the signed-in account, which the console then shows.
    pub(super) userinfo_url: Option<String>,
    /// The address that revokes tokens when the connection is removed.
    pub(super) revocation_url: Option<String>,
    /// The address that starts a sign-in on another device.
    pub(super) device_authorization_url: Option<String>,
    /// The vendor's issuer identifier. If set, a redirect must name it in `iss`.
    pub(super) issuer: Option<String>,
    /// The scopes to request.
    #[schemars(length(max = 64))]
    pub(super) scopes: Vec<String>,
    /// Where the client's secret is sent: in the header (`basic`) or in the body (`post`).
    pub(super) client_auth: ClientAuth,
    /// Additional parameters of the consent page, such as `prompt: consent`.
    pub(super) authorize_params: BTreeMap<String, String>,
}

/// Where the secret of the OAuth client is sent.
#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ClientAuth {
    #[default]
    Basic,
    Post,
}

/// A wire protocol.
#[derive(Clone, Copy, Deserialize)]
#[serde(transparent)]
pub(super) struct Protocol(pub(super) Dialect);

impl JsonSchema for Protocol {
    fn schema_name() -> Cow<'static, str> {
        "Protocol".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = Dialect::ALL.iter().map(|dialect| dialect.name()).collect();
        json_schema!({"description": "A wire protocol.", "type": "string", "enum": names})
    }
}

/// Changes of the top-level members of JSON requests. A text in a value may be `${ENV:NAME}` or `${FILE:/path}`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct BodyMembers {
    /// Values of members that a request lacks, or has as null.
    pub(super) defaults: BTreeMap<String, Value>,
    /// Values of members, whatever a request has.
    pub(super) set: BTreeMap<String, Value>,
    /// Members that are left out.
    pub(super) remove: Vec<String>,
}

/// Lifetime of what cache marks of the gateway cache: the vendor's default, or an hour.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
pub(super) enum PromptCache {
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "1h")]
    Hour,
}

/// A rule for errors of an upstream: an error status, an error event before the first content, or an error in place of an
/// answer. It needs `status`, `contains` or both.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ErrorRule {
    /// Status of the errors; any by default.
    #[schemars(range(min = 400, max = 599))]
    pub(super) status: Option<u16>,
    /// Text that the code, the type or the message contains, in any case.
    #[schemars(length(min = 1, max = 256))]
    pub(super) contains: Option<String>,
    /// The step after such an error.
    pub(super) then: Option<ErrorStep>,
}

/// The step after an error: `next` tries the next target, `retry` the same one by its retry settings, `rest` lets the model
/// rest as after a rate limit, `stop` passes the error to the client.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ErrorStep {
    Next,
    Retry,
    Rest,
    Stop,
}

/// Rules for Responses requests on models that do not speak Responses.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ResponsesFallback {
    #[default]
    Strict,
    Agents,
}

/// HTTP version for requests to an upstream.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
pub(super) enum HttpVersion {
    #[default]
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "1.1")]
    Http1,
    #[serde(rename = "2")]
    Http2,
}

/// A model: its ID, or its description.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Model {
    Id(String),
    Described(Box<DescribedModel>),
}

/// Description of a model. Omitted fields are unknown.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DescribedModel {
    /// The provider's ID of the model.
    pub(super) id: String,
    /// Name for people.
    #[serde(default)]
    pub(super) display_name: Option<String>,
    /// Supports image input.
    #[serde(default)]
    pub(super) vision: Option<bool>,
    /// Supports tool calls.
    #[serde(default)]
    pub(super) tools: Option<bool>,
    /// Reasons before it answers.
    #[serde(default)]
    pub(super) reasoning: Option<bool>,
    /// Protocols that the model supports, if fewer than those of its instance.
    #[serde(default)]
    pub(super) protocols: Option<Vec<Protocol>>,
    /// Features of the Responses API that the model lacks: names of members (previous_response_id, conversation, store, prompt,
    /// encrypted_content), types of built-in tools (web_search) and values of include; tools and include mean all of them.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub(super) lacks: Option<Vec<String>>,
    /// Maximum tokens of a conversation.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub(super) context_window: Option<u64>,
    /// Maximum tokens of an answer.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub(super) max_output_tokens: Option<u64>,
    /// Changes of the top-level members of JSON requests, which take precedence over those of the provider.
    #[serde(default)]
    pub(super) body: Option<BodyMembers>,
    /// Additional headers of its requests, which take precedence over those of the provider; a value may be `${ENV:NAME}` or
    /// `${FILE:/path}`.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// Rules that the model imposes on requests, where they differ from the built-in list.
    #[serde(default)]
    pub(super) rules: Option<Rules>,
    /// The prices of the model, in dollars.
    #[serde(default)]
    pub(super) prices: Option<Prices>,
}

/// Behaviour of the type `echo` besides repeating the prompt.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Echo {
    /// Pause before the response head.
    #[schemars(range(max = 86_400_000))]
    pub(super) delay_ms: u64,
    /// Pause before each chunk of a stream.
    #[schemars(range(max = 86_400_000))]
    pub(super) chunk_delay_ms: u64,
    /// Answer with this status and an error.
    #[schemars(range(min = 400, max = 599))]
    pub(super) status: Option<u16>,
    /// `Retry-After` in seconds, sent with `status`.
    #[schemars(range(max = 86_400))]
    pub(super) retry_after: Option<u64>,
    /// Close the connection after this many content chunks.
    pub(super) cut_after_chunks: Option<u32>,
    /// Send an error event inside the stream after this many content chunks.
    pub(super) error_after_chunks: Option<u32>,
    /// Fail every n-th request with 503; 1 fails all.
    #[schemars(range(min = 1))]
    pub(super) fail_every: Option<u32>,
    /// Never answer.
    pub(super) hang: bool,
    /// Send the response head and nothing after it.
    pub(super) hang_after_head: bool,
    /// Send the first event of a stream and this many content chunks, and nothing after them.
    pub(super) hang_after_chunks: Option<u32>,
}

/// A named, ordered failover list.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Endpoint {
    /// Targets in the order in which they are tried.
    pub(super) failover: Vec<Member>,
    /// System text put before that of the request.
    pub(super) preamble: Option<String>,
    /// Further names that clients may send, and patterns that end in `*`, e.g. `claude-haiku-*`.
    #[schemars(length(max = 100))]
    pub(super) also: Vec<String>,
    /// Order of the targets within a tier; `listed` by default.
    pub(super) order: Order,
    /// Keep a session at its target; true by default, unless `order` is `listed`.
    pub(super) sticky: Option<bool>,
    /// Accept chat requests in the form of the Responses API, as Cursor sends them.
    pub(super) cursor_bodies: bool,
}

/// Order of the targets of an endpoint within a tier.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct Order(pub(super) TargetOrder);

impl JsonSchema for Order {
    fn schema_name() -> Cow<'static, str> {
        "Order".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = TargetOrder::ALL.iter().map(|order| order.name()).collect();
        json_schema!({
            "description": "Order of the targets of an endpoint within a tier.",
            "type": "string",
            "enum": names,
        })
    }
}

/// One provider and model of an endpoint.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Member {
    /// ID of a provider instance.
    pub(super) provider: Option<String>,
    /// The provider's ID of the model.
    pub(super) model: Option<String>,
    /// Share of the requests; 0 comes after all others of the tier. 1 by default; not with `order: listed`.
    #[schemars(range(max = 1_000))]
    pub(super) weight: Option<u16>,
    /// Tier; every target of a lower one comes before. 1 by default; not with `order: listed`.
    #[schemars(range(min = 1, max = 9))]
    pub(super) tier: Option<u8>,
    /// Seconds in which a stream must have content; takes precedence over that of the provider.
    #[schemars(range(min = 0.001, max = 86_400))]
    pub(super) first_content_timeout: Option<f64>,
}

/// Retry and circuit settings; read at start-up only.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Policies {
    /// Settings of every provider.
    pub(super) defaults: Policy,
    /// Settings by exact provider ID; omitted ones come from `defaults`.
    pub(super) overrides: BTreeMap<String, Policy>,
}

/// Retry and circuit settings.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Policy {
    /// Attempts per target, including the first; 1 or less: no retries.
    #[schemars(range(max = 100))]
    pub(super) retry_max_attempts: Option<i64>,
    /// Maximum of the first pause.
    #[schemars(range(min = 0, max = 3_600))]
    pub(super) retry_initial_backoff_seconds: Option<f64>,
    /// Maximum of every pause.
    #[schemars(range(min = 0, max = 3_600))]
    pub(super) retry_max_backoff_seconds: Option<f64>,
    /// Factor from one maximum to the next.
    #[schemars(range(min = 1, max = 100))]
    pub(super) retry_backoff_multiplier: Option<f64>,
    /// Consecutive failures that open the circuit; 0: off.
    #[schemars(range(max = 1_000_000))]
    pub(super) circuit_failure_threshold: Option<u32>,
    /// How long an open circuit rejects attempts.
    #[schemars(range(min = 0, max = 86_400))]
    pub(super) circuit_cooldown_seconds: Option<f64>,
    /// Longest time for which a model receives no requests after a rate limit of its upstream; 0: off.
    #[schemars(range(min = 0, max = 86_400))]
    pub(super) rate_limit_rest_max_seconds: Option<f64>,
}
