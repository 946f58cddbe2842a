//! The gateway under test: the release binary as it is shipped, with its keys checked, its limits on and
//! every exchange recorded.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::payload::{KEY, SELECTOR, UPSTREAM_MODEL};

/// How much there is to look up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Static keys.
    pub(crate) keys: usize,
    /// Endpoints, each with two targets.
    pub(crate) endpoints: usize,
}

impl Size {
    /// A small installation.
    pub(crate) const SMALL: Self = Self { keys: 10, endpoints: 10 };
    /// A large one. A string of the environment holds at most 128 KiB, and so this many keys.
    pub(crate) const LARGE: Self = Self { keys: 2_500, endpoints: 10_000 };
}

/// The command that starts it in `folder`.
pub(crate) fn command(folder: &Path, upstream_port: u16, size: Size) -> Command {
    let config = folder.join("config.yaml");
    std::fs::write(&config, configuration(upstream_port, size.endpoints)).unwrap();
    let keys: Vec<String> = (0..size.keys).map(|index| format!("bench-other-key-{index:027}")).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_llmgw"));
    command
        .arg("serve")
        .env_clear()
        .env("HOME", folder)
        .env("LLMGW_API_KEY", KEY)
        .env("LLMGW_API_KEYS", keys.join(","))
        .env("LLMGW_CREDENTIAL_ENCRYPTION_KEY", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
        .env("LLMGW_PORT", "0")
        .env("LLMGW_STATE_DIR", folder.join("state"))
        .env("LLMGW_CONFIG", config)
        .env("LLMGW_WORKERS", "1")
        .env("LLMGW_LOG", "info");
    command
}

fn configuration(upstream_port: u16, endpoints: usize) -> String {
    let mut providers = String::from("providers:\n");
    for name in ["bench", "spare"] {
        let _ = writeln!(providers, "  {name}:\n    type: compatible");
        let _ = writeln!(providers, "    base_url: http://127.0.0.1:{upstream_port}/v1");
        let _ =
            writeln!(providers, "    api_key: upstream-secret-0123456789\n    models: [{UPSTREAM_MODEL}]");
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
