//! The three layers put together: defaults, then the file, then the environment; each setting remembers which
//! one it came from.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use shared::policy::BODY_BYTES_MAX_DEFAULT;
use shared::secret::Secret;

use super::env::{self, Environment, Value};
use super::fault::{ConfigError, Fault};
use super::file::{self, Notes, Reading, Version};
use super::model::{Config, Lifetimes, LogFormat, Logging, Partner, Routing, Server, Sso, TlsFiles};
use super::provider::key;
use super::raw;
use super::seed::Seed;
use super::yaml::Step;
use super::{descriptors, validate};

/// A configuration that holds, and what deserves a word about it.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// To be logged once, at start-up.
    pub warnings: Vec<String>,
}

/// Which layer a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Built in.
    Default,
    /// The YAML file.
    File,
    /// An environment variable.
    Environment,
}

/// One effective value, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The variable's name, or the key in the file where there is no variable.
    pub name: String,
    /// The value; dots for a secret.
    pub value: String,
    /// Where it comes from.
    pub source: Source,
}

/// Puts the layers together. Every fault of the environment and of the file is told at once.
pub fn load(environment: &Arc<Environment>) -> Result<Loaded, ConfigError> {
    let mut faults = environment.faults().to_vec();
    let mut layers = Layers { environment, settings: Vec::new(), faults: Vec::new() };
    let (state_dir, file) = places(&mut layers);
    let seed = environment
        .path("LLMGW_CONFIG_SEED")
        .filter(|_| !file.exists())
        .map(|from| Seed { from, to: file.clone() });
    let source = seed.as_ref().map_or(file.as_path(), |seed| seed.from.as_path());
    let Reading { raw, mut notes, version } = file::read(source);
    let mut warnings = environment.warnings().to_vec();
    warn_of_missing(environment, source, seed.is_some(), &mut layers, &mut warnings);

    let keys = keys(&mut layers, &mut warnings);
    let server = server(&mut layers, &raw, &mut notes);
    let logging = logging(&mut layers, &raw.server, &mut warnings);
    let sso = sso(&mut layers);
    let policies = validate::policies(&raw, &mut notes);
    let routing = validate::routing(&raw, environment, &mut notes, &mut warnings);
    let lifetimes = lifetimes(&mut layers);
    let partner = partner(&mut layers);
    let preamble = layers.take(
        "LLMGW_GATEWAY_PREAMBLE",
        environment.text("LLMGW_GATEWAY_PREAMBLE"),
        None,
        String::new(),
    );
    let anonymous_provider_automation = layers.flag("LLMGW_ANONYMOUS_PROVIDER_AUTOMATION", None);

    faults.append(&mut layers.faults);
    faults.extend(notes.into_faults());
    ConfigError::check(faults)?;
    let (Some((admin_keys, credential_encryption_key)), Some(server)) = (keys, server) else {
        return Err(Fault::file(&file, "the configuration is incomplete").into());
    };
    let config = Config {
        admin_keys,
        credential_encryption_key,
        state_dir,
        file,
        seed,
        server,
        logging,
        policies,
        sso,
        preamble,
        anonymous_provider_automation,
        lifetimes,
        partner,
        routing,
        settings: layers.settings,
        version,
        environment: Arc::clone(environment),
    };
    Ok(Loaded { config, warnings })
}

/// Where a gateway with this environment listens, and whether with TLS; faults elsewhere do not matter.
pub fn listens_at(environment: &Arc<Environment>) -> Result<(SocketAddr, bool), ConfigError> {
    let mut layers = Layers { environment, settings: Vec::new(), faults: Vec::new() };
    let (_, file) = places(&mut layers);
    let Reading { raw, mut notes, .. } = file::read(&file);
    match server(&mut layers, &raw, &mut notes) {
        Some(server) => Ok((server.bind, server.tls.is_some())),
        None => {
            ConfigError::check(layers.faults)?;
            Err(Fault::file(file, "server.host is not usable").into())
        }
    }
}

impl Config {
    /// Reads the file again, for its providers and endpoints only. Settings that hold from start to end are
    /// checked too, so that a file that would not start is not taken while running.
    pub fn read_again(&self) -> Reread {
        let Reading { raw, mut notes, version } = file::read(&self.file);
        let mut warnings = Vec::new();
        let mut layers = Layers { environment: &self.environment, settings: Vec::new(), faults: Vec::new() };
        if version == Version::Absent {
            layers.faults.push(Fault::file(&self.file, "the file is gone"));
        }
        server(&mut layers, &raw, &mut notes);
        validate::policies(&raw, &mut notes);
        let routing = validate::routing(&raw, &self.environment, &mut notes, &mut warnings);
        let mut faults = layers.faults;
        faults.extend(notes.into_faults());
        Reread { version, result: ConfigError::check(faults).map(|()| (routing, warnings)) }
    }
}

/// What reading the file again has led to.
#[derive(Debug)]
pub struct Reread {
    /// Which content was read.
    pub version: Version,
    /// Providers and endpoints with their warnings, or every fault.
    pub result: Result<(Routing, Vec<String>), ConfigError>,
}

/// Picks values and remembers where each came from.
struct Layers<'a> {
    environment: &'a Arc<Environment>,
    settings: Vec<Setting>,
    faults: Vec<Fault>,
}

impl Layers<'_> {
    fn take<T: fmt::Display>(&mut self, name: &str, variable: Option<T>, file: Option<T>, default: T) -> T {
        let (value, source) = match (variable, file) {
            (Some(value), _) => (value, Source::Environment),
            (None, Some(value)) => (value, Source::File),
            (None, None) => (default, Source::Default),
        };
        self.settings.push(Setting { name: name.to_owned(), value: value.to_string(), source });
        value
    }

    fn flag(&mut self, name: &str, file: Option<bool>) -> bool {
        self.take(name, self.environment.flag(name), file, false)
    }

    fn count(&mut self, name: &str, file: Option<u64>, default: u64) -> u64 {
        self.take(name, self.environment.count(name), file, default)
    }

    fn optional(&mut self, name: &str, file: Option<&String>) -> Option<String> {
        let variable = self.environment.text(name);
        let text = self.take(name, variable, file.cloned(), String::new());
        Some(text).filter(|text| !text.is_empty())
    }

    fn secret<T>(&mut self, name: &str, found: Option<T>) -> Option<T> {
        let (value, source) = match found {
            Some(_) => ("••••", Source::Environment),
            None => ("", Source::Default),
        };
        self.settings.push(Setting { name: name.to_owned(), value: value.to_owned(), source });
        found
    }

    fn fault(&mut self, name: &str, message: impl Into<String>) {
        self.faults.push(Fault::variable(name, message));
    }

    /// Whether a variable is set but faulty, so that its absence needs no word of its own.
    fn faulty(&self, name: &str) -> bool {
        let place = super::fault::Place::Variable(name.to_owned());
        self.environment.faults().iter().any(|fault| fault.place == place)
    }
}

fn places(layers: &mut Layers<'_>) -> (PathBuf, PathBuf) {
    let environment = layers.environment;
    let home = environment.text_of("HOME").map(|home| Path::new(home.expose()).join(".llmgw"));
    let state = environment.path("LLMGW_STATE_DIR");
    if state.is_none() && home.is_none() {
        layers.fault("LLMGW_STATE_DIR", "is not set and neither is HOME; set one of them");
    }
    let shown = |path: PathBuf| path.display().to_string();
    let default = home.unwrap_or_default();
    layers.take("LLMGW_STATE_DIR", state.clone().map(shown), None, shown(default.clone()));
    let state_dir = state.unwrap_or(default);
    let file = environment.path("LLMGW_CONFIG");
    let default = state_dir.join("config.yaml");
    layers.take("LLMGW_CONFIG", file.clone().map(shown), None, shown(default.clone()));
    (state_dir, file.unwrap_or(default))
}

fn warn_of_missing(
    environment: &Environment,
    source: &Path,
    seeding: bool,
    layers: &mut Layers<'_>,
    warnings: &mut Vec<String>,
) {
    match (source.exists(), seeding, environment.path("LLMGW_CONFIG")) {
        (true, _, _) | (false, false, None) => {}
        (false, true, _) => {
            layers.fault("LLMGW_CONFIG_SEED", format!("there is no file {}", source.display()))
        }
        (false, false, Some(_)) => warnings.push(format!(
            "LLMGW_CONFIG names {}, which does not exist: there are no providers until it does",
            source.display()
        )),
    }
}

type Keys = (Vec<Secret<String>>, Secret<[u8; 32]>);

fn keys(layers: &mut Layers<'_>, warnings: &mut Vec<String>) -> Option<Keys> {
    const HOW: &str = "make one with `openssl rand -base64 32`";
    let environment = layers.environment;
    let first = layers.secret("LLMGW_API_KEY", environment.secret("LLMGW_API_KEY"));
    let further = match environment.value("LLMGW_API_KEYS") {
        Some(Value::Secrets(keys)) => keys.clone(),
        _ => Vec::new(),
    };
    layers.secret("LLMGW_API_KEYS", Some(()).filter(|()| !further.is_empty()));
    let encryption =
        layers.secret("LLMGW_CREDENTIAL_ENCRYPTION_KEY", environment.key("LLMGW_CREDENTIAL_ENCRYPTION_KEY"));
    if first.is_none() && !layers.faulty("LLMGW_API_KEY") {
        layers.fault("LLMGW_API_KEY", format!("is required: the administrator key; {HOW}"));
    }
    if encryption.is_none() && !layers.faulty("LLMGW_CREDENTIAL_ENCRYPTION_KEY") {
        let message = format!(
            "is required: base64 of 32 bytes; {HOW} for new state, and never replace the one that existing state \
             was encrypted with"
        );
        layers.fault("LLMGW_CREDENTIAL_ENCRYPTION_KEY", message);
    }
    let keys: Vec<_> = first.iter().cloned().chain(further).collect();
    if keys.iter().any(|key| key.expose().len() < KEY_CHARS_MIN) {
        warnings.push(format!(
            "an administrator key has fewer than {KEY_CHARS_MIN} characters and can be guessed; {HOW}"
        ));
    }
    first.and(encryption).map(|encryption| (keys, encryption))
}

fn server(layers: &mut Layers<'_>, file: &raw::File, notes: &mut Notes) -> Option<Server> {
    let raw = &file.server;
    let bind = bind(layers, raw, notes);
    let tls = tls(layers, raw);
    let unauthenticated_api = layers.flag("LLMGW_ALLOW_UNAUTHENTICATED_API", None);
    if unauthenticated_api && bind.is_some_and(|bind| !bind.ip().is_loopback()) {
        layers.fault(
            "LLMGW_ALLOW_UNAUTHENTICATED_API",
            "is only possible on a loopback address; set LLMGW_HOST=127.0.0.1 or unset this",
        );
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let connections = u64::try_from(descriptors::connections_max()).unwrap_or(u64::MAX);
    let workers = layers.count("LLMGW_WORKERS", raw.workers, u64::try_from(cores).unwrap_or(1));
    let connections = layers.count("LLMGW_MAX_CONNECTIONS", raw.max_connections, connections);
    let keepalive = layers.count("LLMGW_STREAM_KEEPALIVE_SECONDS", raw.stream_keepalive_seconds, 0);
    let count = |layers: &mut Layers<'_>, name, file, default| layers.count(name, file, default);
    Some(Server {
        bind: bind?,
        tls,
        body_bytes_max: count(
            layers,
            "LLMGW_MAX_REQUEST_BODY_BYTES",
            raw.max_request_body_bytes,
            BODY_BYTES_MAX_DEFAULT,
        ),
        body_memory_bytes_max: count(
            layers,
            "LLMGW_MAX_BODY_MEMORY_BYTES",
            raw.max_body_memory_bytes,
            BODY_MEMORY_BYTES,
        ),
        connections_max: usize::try_from(connections).unwrap_or(usize::MAX),
        workers: usize::try_from(workers).unwrap_or(1),
        drain: Duration::from_secs(count(layers, "LLMGW_DRAIN_SECONDS", raw.drain_seconds, DRAIN_SECONDS)),
        stream_keepalive: Some(keepalive).filter(|seconds| *seconds > 0).map(Duration::from_secs),
        metrics_public: layers.flag("LLMGW_METRICS_PUBLIC", raw.metrics_public),
        unauthenticated_api,
        cors_origins: cors(layers, &file.cors, notes),
        extra_ca_file: layers.optional("LLMGW_EXTRA_CA_FILE", raw.extra_ca_file.as_ref()).map(PathBuf::from),
        trust_system_roots: layers.flag("LLMGW_TRUST_SYSTEM_ROOTS", raw.trust_system_roots),
    })
}

fn bind(layers: &mut Layers<'_>, raw: &raw::Server, notes: &mut Notes) -> Option<SocketAddr> {
    let variable = match layers.environment.value("LLMGW_HOST") {
        Some(Value::Address(address)) => Some(*address),
        _ => None,
    };
    let mut faulty = false;
    let written = raw.host.as_deref().and_then(|host| {
        let note = |message: String| notes.add(&[key("server"), key("host")], message);
        env::address(host).map_err(note).inspect_err(|()| faulty = true).ok()
    });
    let host = layers.take("LLMGW_HOST", variable, written, IpAddr::V4(Ipv4Addr::LOCALHOST));
    let port = layers.count("LLMGW_PORT", raw.port, DEFAULT_PORT);
    u16::try_from(port).ok().filter(|_| !faulty).map(|port| SocketAddr::new(host, port))
}

fn tls(layers: &mut Layers<'_>, raw: &raw::Server) -> Option<TlsFiles> {
    let cert = layers.optional("LLMGW_TLS_CERT_FILE", raw.tls_cert_file.as_ref());
    let key = layers.optional("LLMGW_TLS_KEY_FILE", raw.tls_key_file.as_ref());
    match (cert, key) {
        (Some(cert), Some(key)) => Some(TlsFiles { cert: cert.into(), key: key.into() }),
        (None, None) => None,
        (Some(_), None) => {
            layers.fault("LLMGW_TLS_KEY_FILE", "is needed beside LLMGW_TLS_CERT_FILE");
            None
        }
        (None, Some(_)) => {
            layers.fault("LLMGW_TLS_CERT_FILE", "is needed beside LLMGW_TLS_KEY_FILE");
            None
        }
    }
}

fn cors(layers: &mut Layers<'_>, raw: &raw::Cors, notes: &mut Notes) -> Vec<HeaderValue> {
    let mut origins = Vec::new();
    for (index, text) in raw.origins.iter().enumerate() {
        let origin = if text == "*" { Ok(text.clone()) } else { env::origin(text) };
        match origin.and_then(|origin| HeaderValue::from_str(&origin).map_err(|error| error.to_string())) {
            Ok(origin) => origins.push(origin),
            Err(message) => notes.add(&[key("cors"), key("origins"), Step::Item(index)], message),
        }
    }
    let listed = Some(raw.origins.join(", ")).filter(|listed| !listed.is_empty());
    layers.take("cors.origins", None, listed, String::new());
    origins
}

fn logging(layers: &mut Layers<'_>, raw: &raw::Server, warnings: &mut Vec<String>) -> Logging {
    let environment = layers.environment;
    let format = raw.log_format.map(|format| match format {
        raw::LogFormat::Text => "text".to_owned(),
        raw::LogFormat::Json => "json".to_owned(),
    });
    let format =
        layers.take("LLMGW_LOG_FORMAT", environment.text("LLMGW_LOG_FORMAT"), format, "text".to_owned());
    let filter = layers.take("LLMGW_LOG", environment.text("LLMGW_LOG"), raw.log.clone(), "info".to_owned());
    let logging = Logging {
        filter,
        format: if format == "json" { LogFormat::Json } else { LogFormat::Text },
        requests: layers.flag("LLMGW_LOG_REQUESTS", raw.log_requests),
        request_bodies: layers.flag("LLMGW_LOG_REQUEST_BODIES", raw.log_request_bodies),
    };
    if logging.request_bodies {
        warnings.push(
            "LLMGW_LOG_REQUEST_BODIES is on: prompts and answers go into the log, which is unsafe".to_owned(),
        );
    }
    logging
}

fn sso(layers: &mut Layers<'_>) -> Option<Sso> {
    let environment = layers.environment;
    let enabled = layers.flag("LLMGW_SSO_ENABLED", None);
    let secret = layers.secret("LLMGW_SSO_SHARED_SECRET", environment.secret("LLMGW_SSO_SHARED_SECRET"));
    let trusted_proxies = match environment.value("LLMGW_SSO_TRUSTED_PROXIES") {
        Some(Value::Blocks(blocks)) => blocks.clone(),
        _ => vec![(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8), (std::net::Ipv6Addr::LOCALHOST.into(), 128)],
    };
    let admin_group = environment.text("LLMGW_SSO_ADMIN_GROUP");
    let admin_group = layers.take("LLMGW_SSO_ADMIN_GROUP", admin_group, None, "llmgw-admin".to_owned());
    let auto_provision = layers.flag("LLMGW_SSO_AUTO_PROVISION", None);
    let mut header = |name: &str, default: &'static str| {
        let written = match environment.value(name) {
            Some(Value::Header(header)) => Some(header.clone()),
            _ => None,
        };
        layers.take(name, written, None, HeaderName::from_static(default))
    };
    let user_header = header("LLMGW_SSO_USER_HEADER", "x-forwarded-user");
    let email_header = header("LLMGW_SSO_EMAIL_HEADER", "x-forwarded-email");
    let name_header = header("LLMGW_SSO_NAME_HEADER", "x-forwarded-preferred-username");
    let groups_header = header("LLMGW_SSO_GROUPS_HEADER", "x-forwarded-groups");
    if enabled && secret.is_none() && !layers.faulty("LLMGW_SSO_SHARED_SECRET") {
        layers.fault("LLMGW_SSO_SHARED_SECRET", "is required while LLMGW_SSO_ENABLED is true");
    }
    Some(Sso {
        shared_secret: secret.filter(|_| enabled)?,
        trusted_proxies,
        admin_group,
        auto_provision,
        user_header,
        email_header,
        name_header,
        groups_header,
    })
}

fn lifetimes(layers: &mut Layers<'_>) -> Lifetimes {
    let mut count =
        |name, default: u32| u32::try_from(layers.count(name, None, u64::from(default))).unwrap_or(u32::MAX);
    Lifetimes {
        usage_days: count("LLMGW_RETENTION_USAGE_DAYS", 90),
        audit_days: count("LLMGW_RETENTION_AUDIT_DAYS", 365),
        delivered_outbox_days: count("LLMGW_RETENTION_DELIVERED_OUTBOX_DAYS", 400),
        backups_kept: count("LLMGW_BACKUP_KEEP", 7),
    }
}

fn partner(layers: &mut Layers<'_>) -> Partner {
    let environment = layers.environment;
    Partner {
        client_id: layers.optional("LLMGW_PARTNER_CLIENT_ID", None),
        client_secret: layers
            .secret("LLMGW_PARTNER_CLIENT_SECRET", environment.secret("LLMGW_PARTNER_CLIENT_SECRET")),
        public_base_url: layers.optional("LLMGW_OAUTH_PUBLIC_BASE_URL", None),
    }
}

const KEY_CHARS_MIN: usize = 16;
const DEFAULT_PORT: u64 = 8_787;
const DRAIN_SECONDS: u64 = 30;
const BODY_MEMORY_BYTES: u64 = 512 << 20;
