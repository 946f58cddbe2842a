//! The YAML file in its written form. These types are also the source of the JSON Schema, so editors show their doc
//! comments.
//!
//! They stay inside `config`: every value that leaves the module has been checked and resolved. None of the types
//! implements `Debug`, because some hold secrets.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use shared::operation::Dialect;

use super::prices::Prices;

/// Configuration of llmgw.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "llmgw configuration")]
pub(super) struct File {
    /// How the process serves. Each setting has an environment variable that wins over it.
    pub(super) server: Server,
    /// Browser access.
    pub(super) cors: Cors,
    /// Provider instances by id.
    pub(super) providers: BTreeMap<String, Provider>,
    /// Named, ordered failover lists.
    pub(super) endpoints: Option<BTreeMap<String, Endpoint>>,
    /// Deprecated name of `endpoints`, read only when that is absent.
    pub(super) categories: Option<BTreeMap<String, Endpoint>>,
    /// Retry and circuit settings; read at start-up only.
    pub(super) policies: Policies,
}

/// How the process serves.
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
    /// All request bodies that are held at the same time.
    #[schemars(range(min = 1_048_576, max = 17_592_186_044_416_u64))]
    pub(super) max_body_memory_bytes: Option<u64>,
    /// Open client connections.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub(super) max_connections: Option<u64>,
    /// Threads of the data plane.
    #[schemars(range(min = 1, max = 1_024))]
    pub(super) workers: Option<u64>,
    /// How long streams may go on after SIGTERM.
    #[schemars(range(max = 3_600))]
    pub(super) drain_seconds: Option<u64>,
    /// How long a client connection may stay open without a request.
    #[schemars(range(min = 1, max = 86_400))]
    pub(super) client_idle_seconds: Option<u64>,
    /// How long a client may take nothing of what waits for it.
    #[schemars(range(min = 1, max = 86_400))]
    pub(super) client_stall_seconds: Option<u64>,
    /// Longest pause in a request body, and time before its minimum rate of 240 bytes a second holds.
    #[schemars(range(min = 1, max = 86_400))]
    pub(super) client_body_seconds: Option<u64>,
    /// Keep-alives on streams that are silent for this long; 0 sends none.
    #[schemars(range(max = 3_600))]
    pub(super) stream_keepalive_seconds: Option<u64>,
    /// How long an upstream is read on for the usage of an answer that has ended, when its client has left; 0: not.
    #[schemars(range(max = 60_000))]
    pub(super) usage_grace_ms: Option<u64>,
    /// Serve /metrics without a key.
    pub(super) metrics_public: Option<bool>,
    /// PEM file of further authorities trusted for upstreams.
    pub(super) extra_ca_file: Option<String>,
    /// Trust the system's authorities beside the built-in ones.
    pub(super) trust_system_roots: Option<bool>,
    /// Log filter, e.g. info,dataplane=debug.
    pub(super) log: Option<String>,
    /// Shape of log lines.
    pub(super) log_format: Option<LogFormat>,
    /// Log one line of metadata for each request.
    pub(super) log_requests: Option<bool>,
    /// UNSAFE: log prompts and answers.
    pub(super) log_request_bodies: Option<bool>,
}

/// Shape of log lines.
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
    /// The sort of provider; may be left out where `registry_id` says it.
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    /// A well-known provider, which fills in type and address.
    pub(super) registry_id: Option<String>,
    /// The address that the vendor's own SDK takes, e.g. `https://api.example.com/v1`.
    pub(super) base_url: Option<String>,
    /// The credential, or `${ENV:NAME}` to take it from the environment. For `bedrock` an API key or
    /// `${ENV:AWS_ACCESS_KEY_ID}:${ENV:AWS_SECRET_ACCESS_KEY}`, for `vertex` the JSON of a service account, an access
    /// token, or nothing for the account of the machine.
    pub(super) api_key: Option<String>,
    /// Seconds that an attempt may take up to the response head.
    #[schemars(range(min = 0.001, max = 86_400))]
    pub(super) timeout: Option<f64>,
    /// Seconds of silence after which a stream is given up.
    #[schemars(range(min = 0.001, max = 86_400))]
    pub(super) stream_idle_timeout: Option<f64>,
    /// Region, for providers that have regions.
    pub(super) region: Option<String>,
    /// Project, for providers that have projects.
    pub(super) project: Option<String>,
    /// Location, for providers that have locations; `vertex` takes `global` where none is given.
    pub(super) location: Option<String>,
    /// Version of the API, for `azure_openai`.
    pub(super) api_version: Option<String>,
    /// Voice where a speech request names none.
    pub(super) default_voice: Option<String>,
    /// Keep the instance but route nothing to it.
    pub(super) disabled: bool,
    /// Opt in to the experimental adaptation of Chat to Responses.
    pub(super) force_api_support: bool,
    /// Models that the instance serves.
    pub(super) models: Vec<Model>,
    /// Further headers sent with every request; a value may be `${ENV:NAME}`.
    pub(super) headers: BTreeMap<String, String>,
    /// Protocols that the instance speaks natively, where they differ from its type's.
    pub(super) protocols: Option<Vec<Protocol>>,
    /// HTTP version towards the upstream.
    pub(super) http_version: HttpVersion,
    /// Options of the type `echo`: the fault lab.
    pub(super) echo: Option<Echo>,
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

/// HTTP version towards an upstream.
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

/// A model: its id, or what is known about it.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Model {
    Id(String),
    Described(Box<DescribedModel>),
}

/// What is known about a model. What is left out is unknown.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DescribedModel {
    /// What the provider calls it.
    pub(super) id: String,
    /// Name for people.
    #[serde(default)]
    pub(super) display_name: Option<String>,
    /// Takes image input.
    #[serde(default)]
    pub(super) vision: Option<bool>,
    /// Can call tools.
    #[serde(default)]
    pub(super) tools: Option<bool>,
    /// Thinks before it answers.
    #[serde(default)]
    pub(super) reasoning: Option<bool>,
    /// Protocols that the model speaks, where narrower than its instance's.
    #[serde(default)]
    pub(super) protocols: Option<Vec<Protocol>>,
    /// Features of the Responses API that the model lacks: names of members (previous_response_id, conversation, store, prompt,
    /// encrypted_content), types of built-in tools (web_search) and values of include; tools and include stand for all.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub(super) lacks: Option<Vec<String>>,
    /// Tokens that fit into a conversation.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub(super) context_window: Option<u64>,
    /// The longest answer in tokens.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub(super) max_output_tokens: Option<u64>,
    /// What the model costs, in dollars.
    #[serde(default)]
    pub(super) prices: Option<Prices>,
}

/// What the type `echo` does besides repeating the prompt.
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
    /// `Retry-After` in seconds beside `status`.
    #[schemars(range(max = 86_400))]
    pub(super) retry_after: Option<u64>,
    /// Break the stream off after this many content chunks.
    pub(super) cut_after_chunks: Option<u32>,
    /// Send an error event inside the stream after this many content chunks.
    pub(super) error_after_chunks: Option<u32>,
    /// Fail every n-th request with 503; 1 fails all.
    #[schemars(range(min = 1))]
    pub(super) fail_every: Option<u32>,
    /// Never answer.
    pub(super) hang: bool,
}

/// A named, ordered failover list.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Endpoint {
    /// Targets in the order in which they are tried.
    pub(super) failover: Vec<Member>,
    /// System text put before a request's own.
    pub(super) preamble: Option<String>,
}

/// One provider and model of an endpoint.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Member {
    /// Id of a provider instance.
    pub(super) provider: Option<String>,
    /// What that provider calls the model.
    pub(super) model: Option<String>,
}

/// Retry and circuit settings; read at start-up only.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Policies {
    /// Settings of every provider.
    pub(super) defaults: Policy,
    /// Settings by exact provider id; what is left out comes from `defaults`.
    pub(super) overrides: BTreeMap<String, Policy>,
}

/// Retry and circuit settings.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Policy {
    /// Attempts per target, the first included; 1 or less: no retry.
    #[schemars(range(max = 100))]
    pub(super) retry_max_attempts: Option<i64>,
    /// Upper bound of the first pause.
    #[schemars(range(min = 0, max = 3_600))]
    pub(super) retry_initial_backoff_seconds: Option<f64>,
    /// Upper bound of any pause.
    #[schemars(range(min = 0, max = 3_600))]
    pub(super) retry_max_backoff_seconds: Option<f64>,
    /// Growth of the bound from one pause to the next.
    #[schemars(range(min = 1, max = 100))]
    pub(super) retry_backoff_multiplier: Option<f64>,
    /// Consecutive failures that open the circuit; 0: off.
    #[schemars(range(max = 1_000_000))]
    pub(super) circuit_failure_threshold: Option<u32>,
    /// How long an open circuit refuses.
    #[schemars(range(min = 0, max = 86_400))]
    pub(super) circuit_cooldown_seconds: Option<f64>,
}
