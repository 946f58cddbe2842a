//! The gateway under test: the shipped release binary with key checks, limits and usage records enabled.

use std::fmt::Write as _;
use std::io::BufReader;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::line::Line;
use super::payload::{KEY, SELECTOR, UPSTREAM_MODEL};
use super::proxy::Reach;
use super::wire::Wire;

/// The number of endpoints in a small installation.
pub(crate) const FEW: usize = 10;
/// The number of endpoints in a large installation; it has a tenth as many providers.
pub(crate) const MANY_ENDPOINTS: usize = 10_000;
/// The number of keys in a large installation.
pub(crate) const MANY_KEYS: usize = 100_000;

/// Returns the command that starts the gateway in `folder` with this number of endpoints.
pub(crate) fn command(folder: &Path, reach: &Reach<'_>, endpoints: usize) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llmgw"));
    command.arg("serve");
    prepare(&mut command, folder, reach, endpoints);
    command
}

/// Sets the configuration and the environment of a gateway on `command`.
pub(crate) fn prepare(command: &mut Command, folder: &Path, reach: &Reach<'_>, endpoints: usize) {
    let config = folder.join("config.yaml");
    std::fs::write(&config, configuration(reach, endpoints)).unwrap();
    let keys: Vec<String> = (0..FEW).map(|index| format!("bench-other-key-{index:027}")).collect();
    command
        .env_clear()
        .env("HOME", folder)
        .env("LLMGW_API_KEY", KEY)
        .env("LLMGW_API_KEYS", keys.join(","))
        .env("LLMGW_CREDENTIAL_ENCRYPTION_KEY", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
        .env("LLMGW_PORT", "0")
        .env("LLMGW_STATE_DIR", folder.join("state"))
        .env("LLMGW_CONFIG", config)
        .env("LLMGW_WORKERS", "1")
        .env("LLMGW_DRAIN_DELAY_SECONDS", "0")
        .env("LLMGW_LOG", "info");
    if reach.wire == Wire::TlsClients {
        command
            .env("LLMGW_TLS_CERT_FILE", reach.certificate.path())
            .env("LLMGW_TLS_KEY_FILE", reach.certificate.key_path());
    }
    if reach.wire.encrypts_upstream() {
        command.env("BENCH_CA", std::fs::read_to_string(reach.certificate.path()).unwrap());
    }
}

/// Makes a project and a key of it, with hard limits on requests and tokens by the hour and by the minute if `limited` is
/// true. They are too high to be reached.
pub(crate) fn project_key(address: SocketAddr, limited: bool) -> String {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut line = Line(BufReader::new(stream));
    let mut post = |path: &str, body: &Value| -> Value {
        let (status, answer) = line.exchange("POST", &format!("/admin/api/{path}"), KEY, &body.to_string());
        let answer = serde_json::from_slice(&answer).unwrap();
        assert_eq!(status, 201, "{path}: {answer}");
        answer
    };
    let project = post("projects", &json!({"name": "bench"}));
    let key = post("keys", &json!({"name": "bench", "project": project["id"]}));
    let limits =
        [("requests", "hour"), ("requests", "minute"), ("total_tokens", "hour"), ("total_tokens", "minute")];
    for (metric, window) in limits.into_iter().filter(|_| limited) {
        let subject = json!({"kind": "key", "id": key["id"]});
        post(
            "quotas",
            &json!({"subject": subject, "metric": metric, "window": window, "limit": 1_000_000_000_000_u64}),
        );
    }
    key["key"].as_str().unwrap().to_owned()
}

fn configuration(reach: &Reach<'_>, endpoints: usize) -> String {
    let mut providers = String::from("providers:\n");
    let others = (0..endpoints / 10).map(|index| format!("other-{index:05}"));
    for name in ["bench", "spare"].map(str::to_owned).into_iter().chain(others) {
        let _ = writeln!(providers, "  {name}:\n    type: compatible");
        let (scheme, host) =
            if reach.wire.encrypts_upstream() { ("https", "localhost") } else { ("http", "127.0.0.1") };
        let _ = writeln!(providers, "    base_url: {scheme}://{host}:{}/v1", reach.upstream_port());
        if reach.wire.encrypts_upstream() {
            let version = if reach.wire == Wire::Http2Upstream { "2" } else { "1.1" };
            let _ = writeln!(
                providers,
                "    tls: {{ca: \"${{ENV:BENCH_CA}}\"}}\n    http_version: \"{version}\""
            );
        }
        let _ = writeln!(
            providers,
            "    api_key: upstream-secret-0123456789\n    models: [{UPSTREAM_MODEL}]\n    protocols: [chat, transcription]"
        );
    }
    let mut text = providers + "endpoints:\n";
    let names = (1..endpoints).map(|index| format!("endpoint-{index:05}"));
    for name in std::iter::once(SELECTOR.to_owned()).chain(names) {
        let _ = writeln!(text, "  {name}:\n    failover:");
        for provider in ["bench", "spare"] {
            let _ = writeln!(text, "      - {{ provider: {provider}, model: {UPSTREAM_MODEL} }}");
        }
    }
    text
}
