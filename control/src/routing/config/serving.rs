//! Server and log settings, each from the environment, the file or its default.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use shared::base_path::BasePath;
use shared::policy::{BODY_BYTES_MAX_DEFAULT, ClientTimeouts};
use shared::usage::EndUsers;

use super::descriptors;
use super::env::{self, VariableValue};
use super::file::Notes;
use super::layer::Layers;
use super::model::{LogFormat, Logging, Server, TlsFiles};
use super::provider::key;
use super::raw;
use super::yaml::YamlStep;

pub(super) fn server(layers: &mut Layers<'_>, file: &raw::File, notes: &mut Notes) -> Option<Server> {
    let raw = &file.server;
    let bind = bind(layers, raw, notes);
    let tls = tls(layers, raw);
    let unauthenticated_api = layers.flag("LLMGW_ALLOW_UNAUTHENTICATED_API", None);
    if unauthenticated_api && bind.is_some_and(|bind| !bind.ip().is_loopback()) {
        layers.fault(
            "LLMGW_ALLOW_UNAUTHENTICATED_API",
            "requires a loopback address; set LLMGW_HOST=127.0.0.1 or unset this",
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
        drain_delay: Duration::from_secs(count(
            layers,
            "LLMGW_DRAIN_DELAY_SECONDS",
            raw.drain_delay_seconds,
            DRAIN_DELAY_SECONDS,
        )),
        client_timeouts: client_timeouts(layers, raw),
        stream_keepalive: Some(keepalive).filter(|seconds| *seconds > 0).map(Duration::from_secs),
        usage_grace: Duration::from_millis(count(
            layers,
            "LLMGW_USAGE_GRACE_MS",
            raw.usage_grace_ms,
            USAGE_GRACE_MS,
        )),
        metrics_public: layers.flag("LLMGW_METRICS_PUBLIC", raw.metrics_public),
        unauthenticated_api,
        quota_output_tokens: layers.count("LLMGW_QUOTA_OUTPUT_TOKENS_DEFAULT", None, QUOTA_OUTPUT_TOKENS),
        cors_origins: cors(layers, &file.cors, notes),
        base_path: base_path(layers, raw, notes),
        extra_ca_file: layers.optional("LLMGW_EXTRA_CA_FILE", raw.extra_ca_file.as_ref()).map(PathBuf::from),
        trust_system_roots: layers.flag("LLMGW_TRUST_SYSTEM_ROOTS", raw.trust_system_roots),
    })
}

fn bind(layers: &mut Layers<'_>, raw: &raw::Server, notes: &mut Notes) -> Option<SocketAddr> {
    let variable = match layers.environment.value("LLMGW_HOST") {
        Some(VariableValue::Address(address)) => Some(*address),
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

fn base_path(layers: &mut Layers<'_>, raw: &raw::Server, notes: &mut Notes) -> BasePath {
    let variable = match layers.environment.value("LLMGW_BASE_PATH") {
        Some(VariableValue::BasePath(path)) => Some(path.clone()),
        _ => None,
    };
    let written = raw.base_path.as_deref().and_then(|path| {
        let note = |message: String| notes.add(&[key("server"), key("base_path")], message);
        BasePath::parse(path).map_err(note).ok()
    });
    layers.take("LLMGW_BASE_PATH", variable, written, BasePath::default())
}

fn client_timeouts(layers: &mut Layers<'_>, raw: &raw::Server) -> ClientTimeouts {
    let default = ClientTimeouts::default();
    let mut seconds =
        |name, file, default: Duration| Duration::from_secs(layers.count(name, file, default.as_secs()));
    ClientTimeouts {
        idle: seconds("LLMGW_CLIENT_IDLE_SECONDS", raw.client_idle_seconds, default.idle),
        stall: seconds("LLMGW_CLIENT_STALL_SECONDS", raw.client_stall_seconds, default.stall),
        body: seconds("LLMGW_CLIENT_BODY_SECONDS", raw.client_body_seconds, default.body),
    }
}

fn tls(layers: &mut Layers<'_>, raw: &raw::Server) -> Option<TlsFiles> {
    let cert = layers.optional("LLMGW_TLS_CERT_FILE", raw.tls_cert_file.as_ref());
    let key = layers.optional("LLMGW_TLS_KEY_FILE", raw.tls_key_file.as_ref());
    match (cert, key) {
        (Some(cert), Some(key)) => Some(TlsFiles { cert: cert.into(), key: key.into() }),
        (None, None) => None,
        (Some(_), None) => {
            layers.fault("LLMGW_TLS_KEY_FILE", "is required with LLMGW_TLS_CERT_FILE");
            None
        }
        (None, Some(_)) => {
            layers.fault("LLMGW_TLS_CERT_FILE", "is required with LLMGW_TLS_KEY_FILE");
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
            Err(message) => notes.add(&[key("cors"), key("origins"), YamlStep::Item(index)], message),
        }
    }
    let listed = Some(raw.origins.join(", ")).filter(|listed| !listed.is_empty());
    layers.take("cors.origins", None, listed, String::new());
    origins
}

pub(super) fn logging(layers: &mut Layers<'_>, raw: &raw::Server, warnings: &mut Vec<String>) -> Logging {
    let environment = layers.environment;
    let format = raw.log_format.map(|format| match format {
        raw::LogFormat::Text => "text".to_owned(),
        raw::LogFormat::Json => "json".to_owned(),
    });
    let format =
        layers.take("LLMGW_LOG_FORMAT", environment.text("LLMGW_LOG_FORMAT"), format, "text".to_owned());
    let filter = layers.take("LLMGW_LOG", environment.text("LLMGW_LOG"), raw.log.clone(), "info".to_owned());
    let end_users = environment.text("LLMGW_END_USER");
    let end_users = layers.take("LLMGW_END_USER", end_users, None, "hash".to_owned());
    let logging = Logging {
        filter,
        format: if format == "json" { LogFormat::Json } else { LogFormat::Text },
        file: layers.flag("LLMGW_LOG_FILE", raw.log_file),
        requests: layers.flag("LLMGW_LOG_REQUESTS", raw.log_requests),
        bodies: layers.flag("LLMGW_LOG_REQUEST_BODIES", raw.log_request_bodies),
        end_users: match end_users.as_str() {
            "plain" => EndUsers::Plain,
            "off" => EndUsers::Off,
            _ => EndUsers::Hashed,
        },
    };
    if logging.bodies {
        warnings.push(BODIES_ARE_CAPTURED.to_owned());
    }
    logging
}

const BODIES_ARE_CAPTURED: &str = "LLMGW_LOG_REQUEST_BODIES is true: the prompts and answers of all requests are stored, sealed, in \
                                   telemetry.db for 24 hours. Set it to false when you have seen what you need";
const DEFAULT_PORT: u64 = 8_787;
const USAGE_GRACE_MS: u64 = 2_000;
const QUOTA_OUTPUT_TOKENS: u64 = 4_096;
const DRAIN_SECONDS: u64 = 30;
/// HAProxy notices a gateway that is not ready after three checks that are two seconds apart. `docker stop` kills after ten.
const DRAIN_DELAY_SECONDS: u64 = 7;
const BODY_MEMORY_BYTES: u64 = 512 << 20;
