//! State shared by all workers: settings, the snapshot reader, TLS, and the counters that enforce process-wide limits.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderValue;
use rustls::ServerConfig;
use shared::alarm::Alarm;
use shared::build::BuildIdentity;
use shared::policy::ClientTimeouts;
use shared::port::Handler;
use shared::snapshot::SnapshotReader;
use shared::usage::EndUsers;

use crate::metrics::Counters;
use crate::plan::response_affinity::Homes;
use crate::server::unpack::Unpackers;
use crate::upstream::dial::Tls;
use crate::upstream::voice::Voices;

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
    /// Limits on the time clients may make no progress (LIM-5).
    pub client_timeouts: ClientTimeouts,
    /// Silence after which a stream's head is sent early and keep-alives start (FAIL-6). `None` disables both.
    pub stream_keepalive: Option<Duration>,
    /// Time that an upstream is still read for its usage after its client disconnected at the end of the answer; zero
    /// disables this.
    pub usage_grace: Duration,
    /// Origins that browsers may call from; empty disables CORS (ROUTE-3).
    pub cors_origins: Vec<HeaderValue>,
    /// True if callers on this machine need no key; the `Host` of their requests is then checked (AUTH-3).
    pub local_mode: bool,
    /// True if `GET /metrics` needs no key (ROUTE-5).
    pub metrics_public: bool,
    /// Output tokens reserved from the caller's quotas for a request that sets no output limit (ADM-4).
    pub quota_output_tokens: u64,
    /// System text prepended to the system text of every request (MSG-1).
    pub preamble: Option<Arc<str>>,
    /// True if one line is logged per request (CFG-7).
    pub log_requests: bool,
    /// The form in which end users are recorded.
    pub end_users: EndUsers,
    /// Folder for the files of the built-in voice.
    pub voice_folder: Option<PathBuf>,
    /// TLS configuration of the listener; `None` serves plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
}

/// Parts of a [`Plane`] that the caller constructs.
pub(crate) struct Shared {
    pub(crate) build: BuildIdentity,
    pub(crate) snapshots: SnapshotReader,
    pub(crate) tls: Tls,
    pub(crate) alarm: Alarm,
}

/// State shared by all workers of the process.
pub(crate) struct Plane {
    pub(crate) settings: Settings,
    pub(crate) build: BuildIdentity,
    pub(crate) snapshots: SnapshotReader,
    pub(crate) tls: Tls,
    pub(crate) voices: Voices,
    pub(crate) unpackers: Unpackers,
    pub(crate) homes: Homes,
    pub(crate) fallback: OnceLock<Arc<dyn Handler>>,
    pub(crate) draining: AtomicBool,
    pub(crate) alarm: Alarm,
    pub(crate) connections: AtomicUsize,
    pub(crate) counters: Vec<Arc<Counters>>,
    held_bytes: AtomicU64,
}

impl std::fmt::Debug for Plane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plane").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Plane {
    pub(crate) fn new(settings: Settings, shared: Shared, workers: usize) -> io::Result<Self> {
        let Shared { build, snapshots, tls, alarm } = shared;
        Ok(Self {
            unpackers: Unpackers::start(workers, &alarm)?,
            homes: Homes::new(),
            voices: Voices::new(settings.voice_folder.clone()),
            settings,
            build,
            snapshots,
            tls,
            fallback: OnceLock::new(),
            draining: AtomicBool::new(false),
            alarm,
            connections: AtomicUsize::new(0),
            counters: (0..workers).map(|_| Arc::default()).collect(),
            held_bytes: AtomicU64::new(0),
        })
    }

    /// Returns milliseconds on the process's monotonic clock, the time base of the circuits.
    pub(crate) fn monotonic_ms(&self) -> u64 {
        shared::clock::monotonic_ms()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Returns the bytes of bodies held in memory now.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Reserves `bytes` of the body budget; returns false and reserves nothing if they do not fit. See [`crate::room`].
    pub(crate) fn hold(&self, bytes: u64) -> bool {
        let before = self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= self.settings.held_bytes_max {
            return true;
        }
        self.release(bytes);
        false
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
