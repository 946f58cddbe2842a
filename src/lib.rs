//! Composition: both planes, what passes between them, and the order in which they start and stop.
//!
//! ```text
//!   Config -> State -> usage logs -> Dataplane <- snapshots - Control
//!                                        '------- other paths ---^
//!                                        ^-- tests, calls out ---'
//! ```
//!
//! Control stops last, because it stores what the data plane recorded until the end.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use control::config::Config;
use control::{Control, OpenError, OpenParams, State};
use dataplane::{Dataplane, Settings, tls};
use shared::build::BuildIdentity;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What this binary is.
pub const BUILD: BuildIdentity = BuildIdentity {
    version: env!("CARGO_PKG_VERSION"),
    commit: env!("BUILD_COMMIT"),
    built_at: env!("BUILD_TIME"),
    target: env!("BUILD_TARGET"),
};

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    dataplane: Dataplane,
    control: Control,
    address: SocketAddr,
    stop: StopSignal,
}

/// Why the gateway did not start. `Display` is one line that says what to do.
#[derive(Debug)]
pub enum StartError {
    /// The state directory cannot be used.
    State(OpenError),
    /// A file that the configuration names cannot be used.
    File(String),
    /// The address is taken or not this machine's.
    Listen(SocketAddr, std::io::Error),
    /// The system refused threads or sockets.
    System(std::io::Error),
}

impl StartError {
    /// The exit code of its kind, as in sysexits.h.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::State(error) => error.exit_code(),
            Self::File(_) => 78,
            Self::Listen(..) => 74,
            Self::System(_) => 70,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(error) => error.fmt(f),
            Self::File(what) => f.write_str(what),
            Self::Listen(address, error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => {
                write!(f, "cannot listen on {address}: not an address of this machine; set LLMGW_HOST to one")
            }
            Self::Listen(address, error) => {
                write!(f, "cannot listen on {address} ({error}); set LLMGW_PORT to a free port, or 0 for any")
            }
            Self::System(error) => write!(f, "the system refused what the gateway needs to start: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        Self::State(error)
    }
}

impl Gateway {
    /// Starts everything; requests are served when this returns. `warnings` are those of the configuration.
    pub fn start(config: Config, mut warnings: Vec<String>) -> Result<Self, StartError> {
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        if config.logging.request_bodies {
            tracing::warn!("LLMGW_LOG_REQUEST_BODIES is set, but this release writes no bodies");
        }
        // A second start in one process finds the provider installed, which is as good.
        rustls::crypto::ring::default_provider().install_default().ok();
        let settings = settings(&config)?;
        let upstream_tls = upstream_tls(&config)?;
        let listener = dataplane::listen(config.server.bind)
            .map_err(|error| StartError::Listen(config.server.bind, error))?;
        let state = State::open(OpenParams {
            dir: &config.state_dir,
            encryption_key: &config.credential_encryption_key,
            usage_db: config.usage_db,
        })?;
        if let Some(warning) = state.warning() {
            tracing::warn!("{warning}");
            warnings.push(warning.to_owned());
        }
        let workers = config.server.workers.max(1);
        let usage_logs = (0..workers).map(|_| state.usage_log()).collect::<Result<Vec<_>, _>>()?;
        let (publisher, reader) = shared::snapshot::channel();
        let params =
            dataplane::Params { settings, build: BUILD, snapshots: reader.clone(), usage_logs, upstream_tls };
        let dataplane = dataplane::new(params).map_err(StartError::System)?;
        let control = control::start(control::Params {
            state,
            config: Arc::new(config),
            warnings,
            publisher,
            reader,
            plane: dataplane.handler(),
            http: dataplane.http_client(),
            asset,
            build: BUILD,
        })
        .map_err(StartError::System)?;
        // Before the first request is served: from then on a signal drains.
        let stop = StopSignal::listen().map_err(StartError::System)?;
        let address = dataplane.serve(listener, control.handler()).map_err(StartError::System)?;
        Ok(Self { dataplane, control, address, stop })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Blocks until SIGTERM or SIGINT, then drains (OPS-3): streams in flight end or are cut, and every
    /// record is stored.
    pub fn run_until_stopped(self) {
        let Self { dataplane, control, stop, .. } = self;
        let StopSignal { runtime, mut terminate, mut interrupt } = stop;
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping: no new connections, streams in flight may end");
            dataplane.stop().await;
        });
        control.stop();
        tracing::info!("stopped");
    }
}

/// SIGTERM and SIGINT, caught from the moment this is made.
#[derive(Debug)]
struct StopSignal {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignal {
    fn listen() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let context = runtime.enter();
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        drop(context);
        Ok(Self { runtime, terminate, interrupt })
    }
}

fn settings(config: &Config) -> Result<Settings, StartError> {
    let server = &config.server;
    let tls = match &server.tls {
        Some(files) => {
            let (chain, key) = (read(&files.cert)?, read(&files.key)?);
            let tls = tls::server(&chain, &key).map_err(|what| {
                let (chain, key) = (files.cert.display(), files.key.display());
                StartError::File(format!("LLMGW_TLS_CERT_FILE {chain}, LLMGW_TLS_KEY_FILE {key}: {what}"))
            })?;
            Some(tls)
        }
        None => None,
    };
    Ok(Settings {
        body_bytes_max: server.body_bytes_max,
        held_bytes_max: server.body_memory_bytes_max,
        connections_max: server.connections_max,
        drain: server.drain,
        client_timeouts: server.client_timeouts,
        stream_keepalive: server.stream_keepalive,
        usage_grace: server.usage_grace,
        cors_origins: server.cors_origins.clone(),
        local_mode: server.unauthenticated_api,
        metrics_public: server.metrics_public,
        quota_output_tokens: server.quota_output_tokens,
        preamble: Some(config.preamble.as_str()).filter(|text| !text.is_empty()).map(Arc::from),
        log_requests: config.logging.requests,
        end_users: config.logging.end_users,
        voice_folder: Some(config.state_dir.join("voice")),
        tls,
    })
}

fn upstream_tls(config: &Config) -> Result<rustls::ClientConfig, StartError> {
    let file = config.server.extra_ca_file.as_deref();
    let extra = file.map(read).transpose()?;
    tls::client(extra.as_deref(), config.server.trust_system_roots).map_err(|what| {
        StartError::File(format!(
            "LLMGW_EXTRA_CA_FILE {}: {what}",
            file.map_or_else(String::new, |file| file.display().to_string())
        ))
    })
}

fn read(path: &Path) -> Result<Vec<u8>, StartError> {
    fs::read(path).map_err(|error| StartError::File(format!("{} cannot be read: {error}", path.display())))
}

/// Hands the console's files to control, which knows neither crate nor folder.
fn asset(path: &str) -> Option<control::Asset> {
    console::asset(path).map(|asset| control::Asset { bytes: asset.bytes, content_type: asset.content_type })
}
