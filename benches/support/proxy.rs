//! Proxy processes: started on the core under test, awaited, measured and killed.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use tempfile::TempDir;

use super::collector::Collector;
use super::payload::KEY;
use super::upstream::Ports;
use super::wire::{Certificate, Wire};
use super::{llmgw, nginx, proc, process, threads};

/// The core of the proxy under test.
pub(crate) const PROXY_CORE: usize = 0;
/// The number of listeners of [`Kind::Live`], the most that the gateway permits.
const LISTENERS: usize = 16;
/// The core of everything else.
pub(crate) const RIG_CORE: usize = 1;

/// The proxy between the load and the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No proxy.
    Direct,
    /// A bare hyper pass-through.
    Floor,
    /// nginx.
    Nginx,
    /// The gateway.
    Llmgw,
    /// The gateway with as many listeners of its live stream as it permits.
    Live,
    /// The gateway that exports the spans of a tenth of the requests, and metrics, by OTLP to such a collector.
    Otlp(Collector),
    /// The gateway that captures all bodies.
    Capture,
    /// The gateway, whose clients have a project key.
    Keyed,
    /// The gateway, whose clients have a project key with hard limits by the hour and by the minute.
    Limited,
    /// The gateway inside the bench, with few keys and endpoints.
    Few,
    /// The gateway inside the bench, with many keys and endpoints.
    Many,
}

impl Kind {
    /// The kinds of all scenarios but that of growth, in the order of the table.
    pub(crate) const USUAL: [Self; 10] = [
        Self::Direct,
        Self::Floor,
        Self::Nginx,
        Self::Llmgw,
        Self::Live,
        Self::Otlp(Collector::Accepts),
        Self::Otlp(Collector::Refuses),
        Self::Otlp(Collector::Slow),
        Self::Otlp(Collector::Hangs),
        Self::Capture,
    ];
    /// The kinds of scenarios with TLS.
    pub(crate) const ENCRYPTED: [Self; 3] = [Self::Direct, Self::Floor, Self::Llmgw];
    /// The kinds of the scenario of growth.
    pub(crate) const GROWTH: [Self; 4] = [Self::Direct, Self::Floor, Self::Few, Self::Many];
    /// The kinds of the scenarios of limits.
    pub(crate) const LIMITS: [Self; 5] = [Self::Direct, Self::Floor, Self::Llmgw, Self::Keyed, Self::Limited];

    /// Returns all kinds, in the order of the table.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::USUAL.into_iter().chain([Self::Keyed, Self::Limited, Self::Few, Self::Many])
    }

    /// True for the gateway with more features, which is compared with [`Kind::Llmgw`] and runs only on request.
    pub(crate) fn is_variant(self) -> bool {
        matches!(self, Self::Live | Self::Otlp(_) | Self::Capture)
    }

    /// Returns the name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Floor => "floor",
            Self::Nginx => "nginx",
            Self::Llmgw => "llmgw",
            Self::Live => "llmgw-live",
            Self::Otlp(Collector::Accepts) => "llmgw-otlp",
            Self::Otlp(Collector::Refuses) => "llmgw-otlp-refused",
            Self::Otlp(Collector::Slow) => "llmgw-otlp-slow",
            Self::Otlp(Collector::Hangs) => "llmgw-otlp-hanging",
            Self::Capture => "llmgw-capture",
            Self::Keyed => "llmgw-key",
            Self::Limited => "llmgw-limits",
            Self::Few => "llmgw-few",
            Self::Many => "llmgw-many",
        }
    }

    /// True if the proxy is installed.
    pub(crate) fn is_installed(self) -> bool {
        self != Self::Nginx || nginx::path().is_some()
    }
}

/// How a proxy is reached, and what it reaches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach<'a> {
    pub(crate) wire: Wire,
    pub(crate) ports: Ports,
    pub(crate) certificate: &'a Certificate,
}

impl Reach<'_> {
    /// Returns the port of the upstream that a proxy uses.
    pub(crate) fn upstream_port(&self) -> u16 {
        match self.wire {
            Wire::Clear | Wire::TlsClients => self.ports.clear,
            Wire::TlsUpstream => self.ports.tls,
            Wire::Http2Upstream => self.ports.http2,
        }
    }

    /// Returns the port of the upstream that clients use without a proxy.
    fn direct_port(&self) -> u16 {
        if self.wire == Wire::TlsClients { self.ports.tls } else { self.ports.clear }
    }
}

/// A running proxy. Dropping this value ends its process.
pub(crate) struct Proxy {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    /// The key of its clients.
    pub(crate) key: String,
    child: Option<Child>,
    _folder: TempDir,
}

impl Proxy {
    /// Starts `kind` in front of the upstream and waits until it accepts connections.
    pub(crate) fn start(kind: Kind, reach: &Reach<'_>) -> Self {
        let upstream_port = reach.upstream_port();
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (child, address) = match kind {
            Kind::Direct => (None, local(reach.direct_port())),
            Kind::Floor => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command
                    .args([
                        "--floor",
                        &port.to_string(),
                        &format!("127.0.0.1:{upstream_port}"),
                        reach.wire.name(),
                    ])
                    .arg(reach.certificate.folder());
                (Some(spawn(command)), local(port))
            }
            Kind::Nginx => {
                let file = folder.path().join("nginx.conf");
                std::fs::write(&file, nginx::configuration(folder.path(), port, upstream_port)).unwrap();
                let mut command = Command::new(nginx::path().expect("asked before"));
                command.arg("-p").arg(folder.path()).arg("-c").arg(file);
                (Some(spawn(command)), local(port))
            }
            Kind::Llmgw | Kind::Live | Kind::Keyed | Kind::Limited => {
                gateway(llmgw::command(folder.path(), reach, llmgw::FEW))
            }
            Kind::Otlp(collector) => {
                let mut command = llmgw::command(folder.path(), reach, llmgw::FEW);
                command
                    .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{}", collector.start()))
                    .env("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
                    .env("OTEL_TRACES_SAMPLER_ARG", "0.1");
                gateway(command)
            }
            Kind::Capture => {
                let mut command = llmgw::command(folder.path(), reach, llmgw::FEW);
                command.env("LLMGW_LOG_REQUEST_BODIES", "true");
                gateway(command)
            }
            Kind::Few => library(folder.path(), reach, llmgw::FEW, llmgw::FEW),
            Kind::Many => library(folder.path(), reach, llmgw::MANY_ENDPOINTS, llmgw::MANY_KEYS),
        };
        wait_for(address);
        if kind == Kind::Live {
            (0..LISTENERS).for_each(|_| listen(address));
        }
        let key = match kind {
            Kind::Keyed => llmgw::project_key(address, false),
            Kind::Limited => llmgw::project_key(address, true),
            _ => KEY.to_owned(),
        };
        Self { kind, address, key, child, _folder: folder }
    }

    /// Returns the CPU time so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.child.as_ref().map_or(Duration::ZERO, |child| proc::cpu_time(child.id()))
    }

    /// Returns the CPU time of each thread so far.
    pub(crate) fn threads(&self) -> BTreeMap<String, Duration> {
        self.child.as_ref().map(|child| threads::cpu_times(child.id())).unwrap_or_default()
    }

    /// Returns the resident memory in bytes, child processes included.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let Some(child) = &self.child else { return 0 };
        let own = proc::resident_bytes(child.id());
        own + proc::children(child.id()).into_iter().map(proc::resident_bytes).sum::<u64>()
    }
}

impl Proxy {
    /// Returns the number of open file descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        let Some(child) = &self.child else { return 0 };
        std::fs::read_dir(format!("/proc/{}/fd", child.id())).map_or(0, Iterator::count)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        if !matches!(self.kind, Kind::Floor | Kind::Nginx) {
            return process::terminate(child);
        }
        for worker in proc::children(child.id()) {
            let pid = i32::try_from(worker).ok().and_then(rustix::process::Pid::from_raw);
            let _ = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Pins the calling thread, and the threads and processes that it starts from now on, to one core.
pub(crate) fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).expect("this machine has two cores");
}

fn spawn(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // A child inherits the core of the thread that starts it.
    pin(PROXY_CORE);
    let child = command.spawn();
    pin(RIG_CORE);
    child.unwrap()
}

/// Starts the gateway that is built into this binary.
fn library(folder: &Path, reach: &Reach<'_>, endpoints: usize, keys: usize) -> (Option<Child>, SocketAddr) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--library", &keys.to_string()]);
    llmgw::prepare(&mut command, folder, reach, endpoints);
    gateway(command)
}

/// Starts the gateway and reads its address from its log.
fn gateway(mut command: Command) -> (Option<Child>, SocketAddr) {
    command.stderr(Stdio::piped());
    let mut child = spawn(command);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut output = String::new();
    let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let address = line.split_once("listening on http").and_then(|(_, url)| url.split_once("://"));
        let address = address.map(|(_, address)| address.trim().to_owned());
        output.push_str(&line);
        output.push('\n');
        address
    });
    // Later lines are printed, so that the pipe never fills up.
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            eprintln!("llmgw: {line}");
        }
    });
    let address = address.unwrap_or_else(|| panic!("llmgw did not start:\n{output}"));
    (Some(child), address.parse().unwrap())
}

/// Reads the live stream of a gateway until its process ends.
fn listen(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET /admin/api/live HTTP/1.1\r\nhost: bench.test\r\nx-api-key: {KEY}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200", "a listener was rejected");
    std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn wait_for(address: SocketAddr) {
    for _ in 0..2_000 {
        if TcpStream::connect(address).is_ok() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    panic!("nothing listens on {address}");
}
