//! The gateway under test, the release binary with one provider per row, and the floor that it is compared with.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use tempfile::TempDir;

use super::payload::Pair;
use super::{proc, process};
use crate::SETTLING;

pub(crate) const KEY: &str = "bench-admin-key-0123456789abcdef";

/// The gateway's process. Dropping this value ends it.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    child: Child,
    _folder: TempDir,
}

/// Pins the calling thread, and the threads and processes that it starts from now on, to one core.
pub(crate) fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).expect("this machine has two cores");
}

impl Gateway {
    pub(crate) fn start(pairs: &[Pair], upstreams: &[SocketAddr]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut yaml = String::from("providers:\n");
        for (pair, upstream) in pairs.iter().zip(upstreams) {
            let _ = writeln!(yaml, "  {}:\n    base_url: http://{upstream}{}", pair.name, pair.base);
            let _ = writeln!(yaml, "    api_key: \"{}\"", pair.key);
            if !pair.provider.contains("models:") {
                let _ = writeln!(yaml, "    models: [m]");
            }
            for line in pair.provider.lines() {
                let _ = writeln!(yaml, "    {line}");
            }
        }
        let config = folder.path().join("config.yaml");
        std::fs::write(&config, yaml).unwrap();
        pin(0);
        let mut child = Command::new(env!("CARGO_BIN_EXE_llmgw"))
            .arg("serve")
            .env_clear()
            .env("HOME", folder.path())
            .env("LLMGW_API_KEY", KEY)
            .env("LLMGW_CREDENTIAL_ENCRYPTION_KEY", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
            .env("LLMGW_PORT", "0")
            .env("LLMGW_STATE_DIR", folder.path().join("state"))
            .env("LLMGW_CONFIG", config)
            .env("LLMGW_WORKERS", "1")
            .env("LLMGW_DRAIN_DELAY_SECONDS", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        pin(1);
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut output = String::new();
        let address = lines.by_ref().find_map(|line| {
            output.push_str(&line);
            output.push('\n');
            line.split_once("listening on http://").map(|(_, address)| address.trim().to_owned())
        });
        std::thread::spawn(move || lines.for_each(|line| eprintln!("llmgw: {line}")));
        let address = address.expect(&output).parse().unwrap();
        Self { address, child, _folder: folder }
    }

    /// Returns the resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        proc::resident_bytes(self.child.id())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// A bare pass-through to one upstream. Dropping this value ends its process.
pub(crate) struct Floor {
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Floor {
    /// Starts this program as the pass-through, and waits until it listens.
    pub(crate) fn start(upstream: SocketAddr) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        pin(0);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--floor", &port.to_string(), &upstream.to_string()])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        pin(1);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let is_up = (0..2_000).any(|_| {
            std::thread::park_timeout(Duration::from_millis(5));
            TcpStream::connect(address).is_ok()
        });
        assert!(is_up, "nothing listens on {address}");
        Self { address, child }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the CPU time of a process after it has become idle, so that writes after an answer are included.
pub(crate) fn settled_cpu_time(pid: u32) -> Duration {
    let mut before = proc::cpu_time(pid);
    for _ in 0..40 {
        std::thread::park_timeout(SETTLING);
        let now = proc::cpu_time(pid);
        if now.saturating_sub(before) < Duration::from_micros(500) {
            return now;
        }
        before = now;
    }
    before
}

impl Drop for Gateway {
    fn drop(&mut self) {
        process::terminate(&mut self.child);
    }
}
