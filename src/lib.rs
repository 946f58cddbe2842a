//! Composition: both planes, their connections, and the order in which they start and stop.
//!
//! ```text
//!   Config -> State -> usage logs -> Dataplane <- snapshots - Control
//!                                        '------- other paths ---^
//!                                        ^-- tests, calls out ---'
//! ```
//!
//! Control stops last, because it stores the data plane's records until the end.

mod signals;

use std::cell::OnceCell;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use control::config::{Config, OtlpTraces};
use control::detect::Detected;
use control::log_lines::LogLines;
use control::{AffinityFile, Control, NodeParams, OpenError, OpenParams, State, regular_file};
use dataplane::{AffinityParams, Dataplane, Settings, Starting, tls};
use shared::alarm::Alarm;
use shared::build::BuildIdentity;
use shared::request_traces::RequestTraces;
use shared::upstream_tls::TlsReader;
use thiserror::Error;
use tokio::sync::Notify;

use self::signals::{Signals, StopSignal};

/// The identity of this binary.
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
    affinity: Arc<AffinityFile>,
    address: SocketAddr,
    signals: Signals,
}

/// Reason why the gateway did not start. `Display` is one line with the remedy.
#[derive(Debug, Error)]
pub enum StartError {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] OpenError),
    /// A file named in the configuration cannot be used.
    #[error("{0}")]
    File(String),
    /// The address is in use or does not belong to this machine.
    #[error("{}", unbound(*.0, .1))]
    Listen(SocketAddr, std::io::Error),
    /// The system refused threads or sockets.
    #[error("the operating system denied a resource that the gateway needs: {0}")]
    System(std::io::Error),
}

impl StartError {
    /// Returns the exit code for this kind of error, as in sysexits.h.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::State(error) => error.exit_code(),
            Self::File(_) => 78,
            Self::Listen(..) => 74,
            Self::System(_) => 70,
        }
    }
}

fn unbound(address: SocketAddr, error: &std::io::Error) -> String {
    if error.kind() == std::io::ErrorKind::AddrNotAvailable {
        return format!("cannot listen on {address}: not an address of this machine; set LLMGW_HOST to one");
    }
    format!("cannot listen on {address} ({error}); set LLMGW_PORT to a free port, or 0 for any")
}

impl Gateway {
    /// Starts all parts; requests are served when this returns. `warnings` come from the configuration; `log_lines` counts
    /// the lines that are missing in the log.
    pub fn start(config: Config, mut warnings: Vec<String>, log_lines: LogLines) -> Result<Self, StartError> {
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        let mut signals = Signals::catch().map_err(StartError::System)?;
        // Fails harmlessly if an earlier start in this process has installed the provider.
        rustls::crypto::ring::default_provider().install_default().ok();
        let (publisher, reader) = shared::snapshot::channel();
        let traces = config.otlp.traces.as_ref().map(|traces| {
            let OtlpTraces { sampler, propagates, exchanges_max, .. } = traces;
            let encoder = control::span_encoder(reader.clone());
            Arc::new(RequestTraces::new(*sampler, *propagates, *exchanges_max, encoder))
        });
        let settings = Settings { traces: traces.clone(), ..settings(&config)? };
        let upstream_tls = upstream_tls(&config)?;
        let listener = dataplane::listen(config.server.bind)
            .map_err(|error| StartError::Listen(config.server.bind, error))?;
        let state = open_state(&config, &settings, &listener, &signals.alarm)?;
        if let Some(warning) = state.warning() {
            tracing::warn!("{warning}");
            warnings.push(warning.to_owned());
        }
        let workers = config.server.workers.max(1);
        let usage_logs = (0..workers).map(|_| state.usage_log()).collect::<Result<Vec<_>, _>>()?;
        let dataplane = dataplane::new(dataplane::Params {
            settings,
            build: BUILD,
            snapshots: reader.clone(),
            usage_logs,
            upstream_tls,
            proxies: config.proxies.clone(),
            alarm: signals.alarm.clone(),
            capture: config.logging.bodies.then(|| state.capture()),
            affinity: AffinityParams {
                table_key: state.affinity_key(),
                state_key: state.stored_state_key(),
                origins: state.origins(),
            },
            shares: state.shares(),
        })
        .map_err(StartError::System)?;
        let affinity = Arc::new(state.keep_affinity(&config.state_dir, dataplane.kept_tables()));
        let control = control::start(control::Params {
            state,
            config: Arc::new(config),
            alarm: signals.alarm.clone(),
            warnings,
            log_lines,
            publisher,
            reader,
            plane: dataplane.handler(),
            http: dataplane.http_client(),
            traces,
            exchanges: dataplane.exchanges(),
            adaptations: dataplane::adaptations(),
            bounds: dataplane::bounds::TABLE,
            activity: dataplane.activity(),
            affinity: Arc::clone(&affinity),
            asset,
            build: BUILD,
        })
        .map_err(StartError::System)?;
        // Before the first request is served: from then on a signal starts the drain.
        signals.hold_stop().map_err(StartError::System)?;
        let address = dataplane.serve(listener, control.handler()).map_err(StartError::System)?;
        Ok(Self { dataplane, control, affinity, address, signals })
    }

    /// Returns the address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Creates the endpoint of quickstart if there is no endpoint. Returns its name if requests can name it now. `found` are
    /// the model servers that were found on this machine.
    pub fn create_first_endpoint(&self, found: &[Detected]) -> Option<&'static str> {
        self.control.create_first_endpoint(found)
    }

    /// Blocks until SIGTERM or SIGINT, then drains (OPS-3): after SIGTERM, connections are accepted for the configured
    /// delay, unless a second signal ends it; streams in flight finish or are cut, and every record is stored. Returns an
    /// error at once if a thread has died; the usage recorded so far is in the journal.
    pub fn run_until_stopped(self) -> Result<(), ThreadDied> {
        let Self { dataplane, control, affinity, mut signals, .. } = self;
        let Some(stop) = signals.until_stopped(|| control.reload()) else {
            // Nothing is dropped: the state stays locked until the process ends.
            std::mem::forget((dataplane, control));
            return Err(ThreadDied::of(&signals.alarm));
        };
        tracing::info!("stopping: {stop}; another SIGTERM or SIGINT ends the acceptance of connections");
        let hurry = Notify::new();
        if stop == StopSignal::Interrupt {
            // Sent by a terminal: its operator waits, and no proxy relies on this gateway.
            hurry.notify_one();
        }
        let ending = async {
            dataplane.drain(&hurry).await;
            control.end_outgoing().await;
            dataplane.stop().await;
        };
        if !signals.unless_died(ending, || hurry.notify_one()) {
            std::mem::forget(control);
            return Err(ThreadDied::of(&signals.alarm));
        }
        affinity.end();
        control.stop();
        if signals.alarm.cause().is_some() {
            return Err(ThreadDied::of(&signals.alarm));
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// Opens the state. While a node waits for its database, the listener answers that it is not ready.
fn open_state(
    config: &Config,
    settings: &Settings,
    listener: &TcpListener,
    alarm: &Alarm,
) -> Result<State, StartError> {
    let starting = OnceCell::new();
    let waits = || match Starting::start(listener, settings.clone(), BUILD, alarm) {
        Ok(started) => {
            let scheme = if settings.tls.is_some() { "https" } else { "http" };
            if let Ok(address) = listener.local_addr() {
                tracing::info!("not ready until the database serves; listening on {scheme}://{address}");
            }
            drop(starting.set(started));
        }
        Err(error) => tracing::warn!("requests are not answered during the start: {error}"),
    };
    let among_nodes =
        |database| NodeParams { database, release: BUILD.version, file: config.version, waits: &waits };
    Ok(State::open(OpenParams {
        dir: &config.state_dir,
        encryption_key: &config.credential_encryption_key,
        usage_db: config.usage_db,
        node: config.database.as_ref().map(among_nodes),
    })?)
}

/// Error: a required thread has ended. A supervisor should restart the gateway, unless another process has taken its place.
#[derive(Debug)]
pub struct ThreadDied {
    cause: String,
    is_superseded: bool,
}

impl ThreadDied {
    fn of(alarm: &Alarm) -> Self {
        let cause = alarm.cause().unwrap_or("a thread ended").to_owned();
        Self { cause, is_superseded: alarm.is_superseded() }
    }

    /// Returns the exit code, as in sysexits.h.
    pub fn exit_code(&self) -> u8 {
        if self.is_superseded { 75 } else { 70 }
    }
}

impl fmt::Display for ThreadDied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cause, is_superseded } = self;
        if *is_superseded {
            return f.write_str(cause);
        }
        write!(f, "{cause}; the gateway cannot continue and must be restarted")
    }
}

impl std::error::Error for ThreadDied {}

/// Returns what reads the TLS settings of provider instances.
pub fn tls_reader() -> Arc<dyn TlsReader> {
    Arc::new(tls::TlsSettings::default())
}

/// Reads the files that `config` names, and reports the first one that cannot be used.
pub fn check_files(config: &Config) -> Result<(), StartError> {
    rustls::crypto::ring::default_provider().install_default().ok();
    settings(config)?;
    upstream_tls(config).map(drop)
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
        drain_delay: server.drain_delay,
        client_timeouts: server.client_timeouts,
        stream_keepalive: server.stream_keepalive,
        usage_grace: server.usage_grace,
        cors_origins: server.cors_origins.clone(),
        base_path: server.base_path.clone(),
        local_mode: server.unauthenticated_api,
        metrics_public: server.metrics_public,
        claude_code: config.claude_code.is_some(),
        quota_output_tokens: server.quota_output_tokens,
        preamble: Some(config.preamble.as_str()).filter(|text| !text.is_empty()).map(Arc::from),
        log_requests: config.logging.requests,
        end_users: config.logging.end_users,
        traces: None,
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

/// Maximum bytes of a certificate or key file. A system's bundle of all authorities has about a quarter of a mebibyte.
const PEM_BYTES_MAX: u64 = 16 << 20;

fn read(path: &Path) -> Result<Vec<u8>, StartError> {
    regular_file::read(path, PEM_BYTES_MAX)
        .map_err(|error| StartError::File(format!("{} cannot be read: {error}", path.display())))
}

/// Returns a file of the console to control, which does not depend on the console crate.
fn asset(path: &str) -> Option<control::Asset> {
    let console::Asset { bytes, content_type, etag } = console::asset(path)?;
    Some(control::Asset { bytes, content_type, etag })
}
