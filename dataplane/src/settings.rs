//! Operator settings of the data plane, fixed at start-up.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use rustls::ServerConfig;
use shared::base_path::BasePath;
use shared::policy::ClientTimeouts;
use shared::request_traces::RequestTraces;
use shared::usage::EndUsers;

/// Operator settings of the data plane, fixed at start-up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Maximum size of one request body, in bytes (LIM-1).
    pub body_bytes_max: u64,
    /// Maximum total size of all request bodies held in memory at once, in bytes (LIM-5).
    pub held_bytes_max: u64,
    /// Maximum number of concurrent client connections.
    pub connections_max: usize,
    /// Time that streams in flight may continue after the stop signal (OPS-3).
    pub drain: Duration,
    /// Time that new connections are accepted after a stop request (OPS-3).
    pub drain_delay: Duration,
    /// Limits on the time clients may make no progress (LIM-5).
    pub client_timeouts: ClientTimeouts,
    /// Silence after which a stream's head is sent early and keep-alives start (FAIL-6). `None` disables both.
    pub stream_keepalive: Option<Duration>,
    /// Time that an upstream is still read for its usage after its client disconnected at the end of the answer; zero
    /// disables this.
    pub usage_grace: Duration,
    /// Origins that browsers may call from; empty disables CORS (ROUTE-3).
    pub cors_origins: Vec<HeaderValue>,
    /// The path below which a reverse proxy publishes the gateway.
    pub base_path: BasePath,
    /// True if callers on this machine need no key; the `Host` of their requests is then checked (AUTH-3).
    pub local_mode: bool,
    /// True if `GET /metrics` needs no key (ROUTE-5).
    pub metrics_public: bool,
    /// True if Claude Code can sign in, so that the paths for its keys exist.
    pub claude_code: bool,
    /// Output tokens reserved from the caller's quotas for a request that sets no output limit (ADM-4).
    pub quota_output_tokens: u64,
    /// System text prepended to the system text of every request (MSG-1).
    pub preamble: Option<Arc<str>>,
    /// True if one line is logged per request (CFG-7).
    pub log_requests: bool,
    /// The form in which end users are recorded.
    pub end_users: EndUsers,
    /// The tracing of requests; `None` if they are not traced.
    pub traces: Option<Arc<RequestTraces>>,
    /// Folder for the files of the built-in voice.
    pub voice_folder: Option<PathBuf>,
    /// TLS configuration of the listener; `None` serves plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
}
