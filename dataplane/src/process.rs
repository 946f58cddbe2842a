//! State shared by all workers: settings, the snapshot reader, the shared part of each module, and whether the process is
//! draining.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use shared::access::Access;
use shared::activity::Activity;
use shared::alarm::Alarm;
use shared::build::BuildIdentity;
use shared::port::{Capture, Handler, ShareGrants};
use shared::proxy::Proxies;
use shared::snapshot::SnapshotReader;
use shared::usage::UsageLog;

use crate::admit::line::{LineEnd, LineTerms};
use crate::memory_budget::MemoryBudget;
use crate::metrics::Counters;
use crate::plan::response_affinity::{AffinityParams, ResponseAffinity};
use crate::server::balance::WorkerLoad;
use crate::server::body::BodyLimits;
use crate::server::unpack::Unpackers;
use crate::settings::Settings;
use crate::upstream::dial::Tls;
use crate::upstream::resolve::Resolver;
use crate::upstream::voice::Voices;

/// Parameters of the data plane. One worker starts per usage log.
pub struct Params {
    /// Operator settings.
    pub settings: Settings,
    /// Identity of this build, reported by `/health`.
    pub build: BuildIdentity,
    /// Source of routing snapshots.
    pub snapshots: SnapshotReader,
    /// Usage logs, one per worker.
    pub usage_logs: Vec<Box<dyn UsageLog>>,
    /// TLS configuration for upstreams, with the trust roots; this crate sets its ALPN protocols.
    pub upstream_tls: rustls::ClientConfig,
    /// The proxies of the variables.
    pub proxies: Proxies,
    /// Raised if a worker thread ends early.
    pub alarm: Alarm,
    /// Captures the exchanges of clients; `None` captures nothing.
    pub capture: Option<Arc<dyn Capture>>,
    /// What stored responses and encrypted reasoning are recognised by.
    pub affinity: AffinityParams,
    /// Gets larger shares of limits that several nodes share; `None` if this process alone uses its limits.
    pub shares: Option<Arc<dyn ShareGrants>>,
}

impl std::fmt::Debug for Params {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Params").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// State shared by all workers of the process.
pub(crate) struct Process {
    pub(crate) settings: Arc<Settings>,
    pub(crate) build: BuildIdentity,
    pub(crate) snapshots: SnapshotReader,
    pub(crate) tls: Arc<Tls>,
    pub(crate) voices: Arc<Voices>,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) body_limits: BodyLimits,
    pub(crate) response_affinity: Arc<ResponseAffinity>,
    /// Gets larger shares of limits that several nodes share.
    pub(crate) shares: Option<Arc<dyn ShareGrants>>,
    /// Answers paths outside the route table.
    pub(crate) fallback: OnceLock<Arc<dyn Handler>>,
    pub(crate) draining: AtomicBool,
    /// Ends the lines of quotas when requests are only finished.
    pub(crate) line_end: LineEnd,
    /// Captures exchanges; `None` while no bodies are captured.
    pub(crate) capture: Option<Arc<dyn Capture>>,
    pub(crate) alarm: Alarm,
    pub(crate) activity: Arc<Activity>,
    /// Number of client connections; the same as that of `activity`.
    pub(crate) connections: Arc<AtomicUsize>,
    /// The counters of each worker.
    pub(crate) counters: Vec<Arc<Counters>>,
    /// The load of each worker.
    pub(crate) loads: Vec<Arc<WorkerLoad>>,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Process {
    /// Creates the state, and returns it with the logs of the workers.
    pub(crate) fn new(params: Params) -> io::Result<(Self, Vec<Box<dyn UsageLog>>)> {
        let Params {
            settings,
            build,
            snapshots,
            usage_logs,
            upstream_tls,
            proxies,
            alarm,
            capture,
            affinity,
            shares,
        } = params;
        let workers = usage_logs.len();
        let activity = Arc::<Activity>::default();
        let memory = Arc::new(MemoryBudget::new(settings.held_bytes_max));
        let body_limits = BodyLimits {
            pause: settings.client_timeouts.body,
            memory: Arc::clone(&memory),
            unpackers: Unpackers::start(workers, &alarm)?,
        };
        let process = Self {
            body_limits,
            memory,
            response_affinity: Arc::new(ResponseAffinity::new(affinity)),
            shares,
            voices: Arc::new(Voices::new(settings.voice_folder.clone())),
            settings: Arc::new(settings),
            build,
            snapshots,
            tls: Arc::new(Tls::new(upstream_tls, Resolver::start(&alarm)?, proxies)),
            fallback: OnceLock::new(),
            draining: AtomicBool::new(false),
            line_end: LineEnd::default(),
            capture,
            alarm,
            connections: Arc::clone(&activity.connections),
            activity,
            counters: (0..workers).map(|_| Arc::default()).collect(),
            loads: (0..workers).map(|_| Arc::default()).collect(),
        };
        Ok((process, usage_logs))
    }

    /// Returns what the wait of a request in a line depends on; `end` is that of its budget.
    pub(crate) fn line_terms<'a>(&'a self, access: &'a Access, end: Instant) -> LineTerms<'a> {
        LineTerms { line_end: &self.line_end, shares: self.shares.as_ref(), access, end }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}
