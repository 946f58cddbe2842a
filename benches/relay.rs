//! Measures the whole gateway on loopback, next to a bare hyper pass-through and nginx, in interleaved rounds:
//!
//! ```text
//! cargo bench --bench relay -- [--quick] [--rounds N] [--only NAME,..] [--proxies NAME,..] [--encrypted]
//! cargo bench --bench relay -- --soak MINUTES
//! ```
//!
//! `upload` relates CPU time to the megabytes of a form with a recording; `limits` compares keys without and with quotas. What
//! an adapted stream costs beside a native one is measured by `adaptations.rs`.
//!
//! `--encrypted` adds scenarios with TLS from clients, and with TLS to the upstream by HTTP/1.1 and HTTP/2, against a floor that
//! does the same.
//!
//! `--proxies llmgw,llmgw-otlp,llmgw-capture` compares the gateway with one that exports a tenth of its spans, and one that
//! captures bodies. The collector of `llmgw-otlp-refused`, `llmgw-otlp-slow` and `llmgw-otlp-hanging` refuses connections,
//! takes 5 s for an export, or never answers.
//!
//! The proxy under test runs alone on core 0; upstream and load generator share core 1. CPU time is what the kernel
//! accounts to the proxy's process, including the usage record of each exchange. Machines are noisy: the ratios, which
//! are computed within each round, are more reliable than the absolute figures.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench prints, and stops when its rig is broken"
)]

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};
use support::proxy::{Kind, Proxy, RIG_CORE, Reach, pin};
use support::report::{self, Rounds};
use support::scenario::{self, Sample, Scenario};
use support::upstream::Upstream;
use support::wire::Wire;
use support::{floor, library, payload, soak};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, port, upstream, wire, certificate] = arguments.as_slice()
        && first == "--floor"
    {
        let wire = Wire::named(wire).unwrap();
        return floor::run(port.parse().unwrap(), upstream, wire, Path::new(certificate));
    }
    if let [first, keys] = arguments.as_slice()
        && first == "--library"
    {
        return library::run(keys.parse().unwrap());
    }
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    pin(RIG_CORE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, run(&Options::parse(&arguments)));
}

/// The options from the command line.
struct Options {
    rounds: usize,
    quick: bool,
    /// The duration in minutes of the soak that replaces the scenarios.
    soak: Option<u32>,
    only: Option<Vec<String>>,
    /// True if the scenarios with TLS run too.
    encrypted: bool,
    kinds: Vec<Kind>,
}

impl Options {
    fn parse(arguments: &[String]) -> Self {
        let value = |name: &str| {
            let at = arguments.iter().position(|argument| argument == name)?;
            arguments.get(at + 1).cloned()
        };
        let list =
            |name: &str| value(name).map(|names| names.split(',').map(str::to_owned).collect::<Vec<_>>());
        let quick = arguments.iter().any(|argument| argument == "--quick");
        let wanted = list("--proxies");
        let is_wanted = |kind: &Kind| match &wanted {
            Some(names) => names.iter().any(|name| name == kind.name()),
            None => !kind.is_variant(),
        };
        Self {
            rounds: value("--rounds").map_or(if quick { 1 } else { 5 }, |rounds| rounds.parse().unwrap()),
            quick,
            soak: value("--soak").map(|minutes| minutes.parse().unwrap()),
            only: list("--only"),
            encrypted: arguments.iter().any(|argument| argument == "--encrypted"),
            kinds: Kind::all().filter(is_wanted).filter(|kind| kind.is_installed()).collect(),
        }
    }

    fn takes(&self, scenario: &Scenario) -> bool {
        match &self.only {
            Some(names) => names.iter().any(|name| name == scenario.name),
            // More streams than a proxy on one core can pace, so it runs only on request; and so do the encrypted ones, which
            // double the time.
            None => scenario.name != "paced-2000" && (self.encrypted || scenario.wire == Wire::Clear),
        }
    }
}

async fn run(options: &Options) {
    let epoch = Instant::now();
    let upstream = Upstream::start(epoch).await;
    tokio::task::spawn_local(stay_awake());
    if let Some(minutes) = options.soak {
        return soak::run(minutes, &upstream, epoch).await;
    }
    let scenarios: Vec<Scenario> = scenario::all().into_iter().filter(|s| options.takes(s)).collect();
    let needed = |kind: &&Kind| scenarios.iter().any(|scenario| scenario.kinds.contains(kind));
    let kinds: Vec<Kind> = options.kinds.iter().filter(needed).copied().collect();
    println!("key {} characters, model {}", payload::KEY.len(), payload::UPSTREAM_MODEL);
    for proxy in start(&kinds, &upstream.reach(Wire::Clear)).await {
        let mib = proxy.resident_bytes() as f64 / f64::from(1 << 20);
        println!("idle memory of {}: {mib:.1} MiB", proxy.kind.name());
    }
    for scenario in &scenarios {
        let mut kinds: Vec<Kind> =
            kinds.iter().filter(|kind| scenario.kinds.contains(kind)).copied().collect();
        if kinds.is_empty() {
            continue;
        }
        let mut rounds = Rounds::new();
        for _ in 0..options.rounds {
            rounds.push(round(scenario, &kinds, &upstream, epoch, options.quick).await);
            // Each kind takes each place of a round: what comes first finds another machine than what comes last.
            kinds.rotate_left(1);
        }
        report::print(scenario, &rounds);
    }
}

/// Keeps the thread of upstream and load from sleeping. The kernel would charge each of its wake-ups to the proxy that sends,
/// about a tenth of the proxy's CPU time on a virtual machine, and the more often, the slower the proxy. Real clients and
/// upstreams are other machines.
async fn stay_awake() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// Starts all proxies and waits until they are idle.
async fn start(kinds: &[Kind], reach: &Reach<'_>) -> Vec<Proxy> {
    let proxies = kinds.iter().map(|&kind| Proxy::start(kind, reach)).collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    proxies
}

/// Measures new processes of all kinds, one after the other. How a process lies in memory changes its CPU time by some per
/// cent for as long as it lives, and allocators keep memory from earlier loads.
async fn round(
    scenario: &Scenario,
    kinds: &[Kind],
    upstream: &Upstream,
    epoch: Instant,
    quick: bool,
) -> Vec<(Kind, Sample)> {
    let proxies = start(kinds, &upstream.reach(scenario.wire)).await;
    let mut samples = Vec::new();
    for proxy in &proxies {
        samples.push((proxy.kind, scenario.measure(proxy, upstream, epoch, quick).await));
    }
    samples
}
