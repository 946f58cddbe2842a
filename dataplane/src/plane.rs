//! What all workers share: settings, the snapshot reader, TLS, and a few counters that bound the whole
//! process.

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
use crate::plan::home::Homes;
use crate::server::unpack::Unpackers;
use crate::upstream::dial::Tls;
use crate::upstream::voice::Voices;

/// What the operator decides about the data plane, fixed at start-up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of one request body (LIM-1).
    pub body_bytes_max: u64,
    /// Bytes of all request bodies held at once (LIM-5).
    pub held_bytes_max: u64,
    /// Client connections at once.
    pub connections_max: usize,
    /// How long streams in flight may go on after the stop signal (OPS-3).
    pub drain: Duration,
    /// How long clients may make no progress (LIM-5).
    pub client_timeouts: ClientTimeouts,
    /// Silence after which a stream's head is committed early and keep-alives are sent (FAIL-6).
    pub stream_keepalive: Option<Duration>,
    /// How long an upstream is read on for its usage after its client has left at the end of the answer; zero: not.
    pub usage_grace: Duration,
    /// Origins that browsers may call from; empty: no CORS (ROUTE-3).
    pub cors_origins: Vec<HeaderValue>,
    /// Callers on this machine need no key, and the `Host` of their requests is judged (AUTH-3).
    pub local_mode: bool,
    /// `GET /metrics` needs no key (ROUTE-5).
    pub metrics_public: bool,
    /// What the output of a request without a bound of its own reserves of its caller's quotas (ADM-4).
    pub quota_output_tokens: u64,
    /// System text put before that of every request, if there is any (MSG-1).
    pub preamble: Option<Arc<str>>,
    /// One log line a request (CFG-7).
    pub log_requests: bool,
    /// How end users are recorded.
    pub end_users: EndUsers,
    /// Where the built-in voice may put its files.
    pub voice_folder: Option<PathBuf>,
    /// Serve TLS with this configuration.
    pub tls: Option<Arc<ServerConfig>>,
}

/// Parts of a [`Plane`] that are made elsewhere.
pub(crate) struct Shared {
    pub(crate) build: BuildIdentity,
    pub(crate) snapshots: SnapshotReader,
    pub(crate) tls: Tls,
    pub(crate) alarm: Alarm,
}

/// See the module.
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

    /// Milliseconds on the process's monotonic clock; what circuits count in.
    pub(crate) fn monotonic_ms(&self) -> u64 {
        shared::clock::monotonic_ms()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Bytes of bodies held now.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Takes room for `bytes` of bodies, or none: see [`crate::room`].
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
