//! The table of all environment variables, one row each. The list in `docs/configuration.md` and `config show` follow
//! this table.

use super::kind::VariableKind::{
    self, Address, BasePath, Blocks, Choice, Count, Database, Flag, Header, HttpUrl, Key, Origin, Path,
    Proxy, Schedule, Secret, SecretHeaders, Secrets, Text, Url,
};
use crate::routing::config::sso::PRESET_NAMES;

/// One environment variable.
#[derive(Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// A one-line description.
    pub doc: &'static str,
    /// The kind of its value.
    pub(super) kind: VariableKind,
    /// A description of the default.
    pub default: &'static str,
}

impl Variable {
    /// True if its value must not be shown.
    pub fn secret(&self) -> bool {
        self.kind.is_secret()
    }

    /// Describes the accepted values.
    pub fn holds(&self) -> String {
        self.kind.holds()
    }
}

const fn row(name: &'static str, kind: VariableKind, default: &'static str, doc: &'static str) -> Variable {
    Variable { name, doc, kind, default }
}

const SAMPLERS: &[&str] = &[
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

/// All variables that llmgw reads.
#[rustfmt::skip]
pub static VARIABLES: &[Variable] = &[
    row("LLMGW_API_KEY", Secret, "required", "The static administrator key"),
    row("LLMGW_API_KEYS", Secrets, "none", "Additional static administrator keys"),
    row("LLMGW_CREDENTIAL_ENCRYPTION_KEY", Key, "required", "Encrypts stored credentials; keep it apart from backups"),
    row("LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY", Key, "none", "The next encryption key; read by `credentials rekey` only"),
    row("LLMGW_HOST", Address, "127.0.0.1", "Address to listen on"),
    row("LLMGW_PORT", Count(0, 65_535), "8787", "Port to listen on; 0 takes any free one"),
    row("LLMGW_STATE_DIR", Path, "~/.llmgw", "Directory of all state"),
    row("LLMGW_CONFIG", Path, "<state>/config.yaml", "The YAML configuration file"),
    row("LLMGW_CONFIG_SEED", Path, "none", "File copied once to the configuration's path if no file exists \
         there"),
    row("LLMGW_MAX_REQUEST_BODY_BYTES", Count(1_024, 1 << 40), "67108864", "Largest request body"),
    row("LLMGW_MAX_BODY_MEMORY_BYTES", Count(1 << 20, 1 << 44), "536870912", "Memory for all request \
         bodies, and videos inside responses, at the same time"),
    row("LLMGW_MAX_CONNECTIONS", Count(1, 1 << 24), "below half of the descriptor limit", "Open client connections"),
    row("LLMGW_WORKERS", Count(1, 1_024), "the available cores", "Threads of the data plane"),
    row("LLMGW_DRAIN_SECONDS", Count(0, 3_600), "30", "How long streams may continue after SIGTERM and the delay"),
    row("LLMGW_DRAIN_DELAY_SECONDS", Count(0, 3_600), "7", "How long new connections are accepted after SIGTERM, while \
         /ready is 503"),
    row("LLMGW_CLIENT_IDLE_SECONDS", Count(1, 86_400), "100", "How long a client connection may stay open without a request"),
    row("LLMGW_CLIENT_STALL_SECONDS", Count(1, 86_400), "100", "How long a client may read nothing of its \
         pending response"),
    row("LLMGW_CLIENT_BODY_SECONDS", Count(1, 86_400), "30", "Longest pause in a request body, and time \
         before its minimum rate applies"),
    row("LLMGW_STREAM_KEEPALIVE_SECONDS", Count(0, 3_600), "0", "Interval of keep-alives on silent streams; \
         0 sends none"),
    row("LLMGW_USAGE_GRACE_MS", Count(0, 60_000), "2000", "How long the gateway waits for usage after a \
         client has left; 0: not at all"),
    row("LLMGW_ALLOW_UNAUTHENTICATED_API", Flag, "false", "Accept data-plane requests without a key; \
         loopback only"),
    row("LLMGW_QUOTA_OUTPUT_TOKENS_DEFAULT", Count(1, 1 << 32), "4096", "Output tokens that a request \
         without max_tokens reserves from quotas"),
    row("LLMGW_BASE_PATH", BasePath, "none", "Path below which a reverse proxy publishes the gateway, such as /llm"),
    row("LLMGW_METRICS_PUBLIC", Flag, "false", "Serve /metrics without a key"),
    row("LLMGW_TLS_CERT_FILE", Path, "none", "PEM certificate chain; with the key file, serve TLS"),
    row("LLMGW_TLS_KEY_FILE", Path, "none", "PEM private key of the certificate"),
    row("LLMGW_EXTRA_CA_FILE", Path, "none", "PEM file of additional authorities trusted for upstreams"),
    row("LLMGW_TRUST_SYSTEM_ROOTS", Flag, "false", "Trust the system's authorities in addition to the \
         built-in ones"),
    row("LLMGW_LOG", Text, "info", "Log filter, e.g. info,dataplane=debug"),
    row("LLMGW_LOG_FORMAT", Choice(&["text", "json"]), "text", "Format of log lines"),
    row("LLMGW_LOG_FILE", Flag, "false", "Write log lines also to files in <state>/logs, a file a day, 7 kept"),
    row("LLMGW_LOG_REQUESTS", Flag, "false", "Log one line of metadata for each request"),
    row("LLMGW_LOG_REQUEST_BODIES", Flag, "false", "UNSAFE: capture the prompts and answers of all requests, for 24 hours"),
    row("LLMGW_END_USER", Choice(&["hash", "plain", "off"]), "hash", "How records store the end users that \
         requests name"),
    row("LLMGW_GATEWAY_PREAMBLE", Text, "empty", "System text put before that of every request"),
    row("LLMGW_ANONYMOUS_PROVIDER_AUTOMATION", Flag, "false", "Connect curated providers that need no account, and check \
         each of them once a day"),
    row("LLMGW_PARTNER_CLIENT_ID", Text, "none", "ID of the OAuth client that you registered (experimental)"),
    row("LLMGW_PARTNER_CLIENT_SECRET", Secret, "none", "Secret of that client; never stored"),
    row("LLMGW_OAUTH_PUBLIC_BASE_URL", Origin, "none", "Public origin of the gateway, for OAuth sign-ins in a browser"),
    row("LLMGW_SSO_ENABLED", Flag, "false", "Trust identity headers of a reverse proxy"),
    row("LLMGW_SSO_SHARED_SECRET", Secret, "none", "Secret that the proxy sends in X-LLMGW-SSO-Secret"),
    row("LLMGW_SSO_TRUSTED_PROXIES", Blocks, "127.0.0.0/8,::1/128", "Addresses from which the proxy may \
         connect"),
    row("LLMGW_SSO_ADMIN_GROUP", Text, "llmgw-admin", "Group whose members are administrators"),
    row("LLMGW_SSO_AUTO_PROVISION", Flag, "false", "Create principals for unknown humans on first sign-in"),
    row("LLMGW_SSO_PRESET", Choice(PRESET_NAMES), "oauth2-proxy", "The proxy whose headers are the defaults below"),
    row("LLMGW_SSO_USER_HEADER", Header, "that of the preset", "Header with the user's id"),
    row("LLMGW_SSO_EMAIL_HEADER", Header, "that of the preset", "Header with the e-mail address"),
    row("LLMGW_SSO_NAME_HEADER", Header, "that of the preset", "Header with the name"),
    row("LLMGW_SSO_GROUPS_HEADER", Header, "that of the preset", "Header with the groups"),
    row("LLMGW_SSO_SIGN_OUT_URL", Text, "that of the preset", "Where the console ends the session with the proxy"),
    row("LLMGW_PRICES_URL", Url, "none", "URL from which a newer price list is fetched once a day"),
    row("LLMGW_RETENTION_USAGE_DAYS", Count(1, 36_500), "90", "Days to keep usage"),
    row("LLMGW_RETENTION_AUDIT_DAYS", Count(1, 36_500), "365", "Days to keep audit records"),
    row("LLMGW_RETENTION_DELIVERED_OUTBOX_DAYS", Count(1, 36_500), "400", "Days to keep events, and their deliveries that do \
         not wait"),
    row("LLMGW_USAGE_DB", Flag, "false", "Keep usage in a separate database, usage.db; a start moves it \
         there, or back"),
    row("LLMGW_DATABASE_URL", Database, "none", "Preview: keep the state in this database of PostgreSQL instead of files in \
         the state directory"),
    row("LLMGW_NODE_NAME", Text, "the name of the machine", "Name of this gateway among those that share the database"),
    row("LLMGW_STALE_SECONDS", Count(5, 86_400), "300", "With LLMGW_DATABASE_URL: how long project keys are accepted while the \
         database cannot be reached"),
    row("LLMGW_MIGRATE", Flag, "true", "With LLMGW_DATABASE_URL: create the tables at a start, and migrate those of an earlier \
         release; else `llmgw migrate` does"),
    row("LLMGW_CORE_DUMPS", Flag, "false", "Allow core dumps and debuggers; memory contains keys and \
         prompts"),
    row("LLMGW_BACKUP_SCHEDULE", Schedule, "none", "Times of automatic backups in cron syntax, e.g. 30 3 * * *; \
         UTC unless a time zone follows"),
    row("LLMGW_BACKUP_KEEP", Count(1, 10_000), "7", "Verified archives kept in the default directory"),
    row("HTTPS_PROXY", Proxy, "none", "HTTP proxy on the way to upstreams with TLS"),
    row("HTTP_PROXY", Proxy, "none", "HTTP proxy on the way to upstreams without TLS"),
    row("ALL_PROXY", Proxy, "none", "HTTP proxy where neither of the two above is set"),
    row("NO_PROXY", Text, "none", "Upstreams that are reached without these proxies, separated by commas"),
    row("OTEL_SDK_DISABLED", Flag, "false", "Export no telemetry and ignore the other OTEL_* variables"),
    row("OTEL_EXPORTER_OTLP_ENDPOINT", HttpUrl, "none", "Collector that telemetry is exported to; /v1/traces and /v1/metrics are added"),
    row("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", HttpUrl, "none", "Full address for traces"),
    row("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", HttpUrl, "none", "Full address for metrics"),
    row("OTEL_TRACES_EXPORTER", Choice(&["otlp", "none"]), "otlp", "Exporter of traces"),
    row("OTEL_METRICS_EXPORTER", Choice(&["otlp", "none"]), "otlp", "Exporter of metrics"),
    row("OTEL_METRIC_EXPORT_INTERVAL", Count(100, 86_400_000), "60000", "Milliseconds between two exports of metrics"),
    row("OTEL_EXPORTER_OTLP_PROTOCOL", Choice(&["http/protobuf"]), "http/protobuf", "Protocol of the exports"),
    row("OTEL_EXPORTER_OTLP_HEADERS", SecretHeaders, "none", "Headers of the exports"),
    row("OTEL_EXPORTER_OTLP_TIMEOUT", Count(1, 600_000), "10000", "Milliseconds that one export may take"),
    row("OTEL_SERVICE_NAME", Text, "llmgw", "Attribute service.name of all telemetry"),
    row("OTEL_RESOURCE_ATTRIBUTES", Text, "none", "Further attributes of all telemetry, as name=value,name=value"),
    row("OTEL_TRACES_SAMPLER", Choice(SAMPLERS), "parentbased_always_on", "Which requests are traced"),
    row("OTEL_TRACES_SAMPLER_ARG", Text, "1", "Share of requests for the samplers with ratio, from 0 to 1"),
    row("OTEL_PROPAGATORS", Text, "tracecontext", "Whether traces of clients are continued: tracecontext, or none"),
    row("OTEL_BSP_SCHEDULE_DELAY", Count(100, 600_000), "5000", "Milliseconds between two exports of few spans"),
    row("OTEL_BSP_MAX_QUEUE_SIZE", Count(1, 1 << 20), "2048", "Finished requests that wait for their export"),
    row("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", Count(1, 1 << 16), "512", "Spans of one export"),
];
