//! The scenarios: request, answer and load pattern, and one measurement of each.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::load::{Expected, Load, Tally};
use super::payload::{self, Asks, Stream};
use super::proxy::{Kind, Proxy};
use super::threads;
use super::upstream::{Script, Upstream};
use super::wire::Wire;

/// The unit to which CPU time is related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Request,
    Chunk,
    /// A million bytes of requests.
    Megabyte,
}

/// The load pattern.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Drive {
    /// This number of connections; each sends its next request as soon as it has the answer.
    Closed(usize),
    /// This number of requests per second.
    Open(u32),
    /// This number of concurrent streams, repeated this number of times.
    Streams(usize, usize),
    /// This number of requests, each on a new connection.
    Fresh(usize),
    /// This number of concurrent, nearly silent streams; measures memory.
    Idle(usize),
}

/// One scenario.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) unit: Unit,
    pub(crate) drive: Drive,
    /// The proxies that take part.
    pub(crate) kinds: &'static [Kind],
    pub(crate) wire: Wire,
    asks: Asks,
    body: Bytes,
    script: Script,
}

/// One measurement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) cpu_us: f64,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) resident_mib: f64,
    /// The memory per stream, for streams that are held open together.
    pub(crate) stream_kib: f64,
    pub(crate) faults: u64,
    /// The CPU time of each thread.
    pub(crate) threads_us: BTreeMap<String, f64>,
}

/// Returns all scenarios; the quick ones are shorter and smaller.
pub(crate) fn all() -> Vec<Scenario> {
    let mut all = clear();
    all.extend(encrypted());
    all
}

fn clear() -> Vec<Scenario> {
    let small = small();
    vec![
        unary("unary", "1 KB in and out, 32 connections, saturated", Drive::Closed(32), &small),
        unary("open", "1 KB in and out, 1,000 requests a second", Drive::Open(1_000), &small),
        unary(
            "prompt",
            "request of 100 kB, 8 connections",
            Drive::Closed(8),
            &payload::request(100_000, false),
        ),
        unary("large", "request of 1 MB, 4 connections", Drive::Closed(4), &payload::request(1 << 20, false)),
        unary("fresh", "1 KB in and out, a new connection each, 16 clients", Drive::Fresh(4_000), &small),
        stream(
            "burst",
            "200 chunks, a write each, no pause, 16 streams",
            Drive::Streams(16, 16),
            flow(200, 1, 0),
        ),
        stream("joined", "200 chunks, 40 to a write, 16 streams", Drive::Streams(16, 60), flow(200, 40, 0)),
        stream("paced-200", "100 chunks, 20 ms apart, 200 streams", Drive::Streams(200, 1), flow(100, 1, 20)),
        stream(
            "paced-1000",
            "100 chunks, 20 ms apart, 1,000 streams",
            Drive::Streams(1_000, 1),
            flow(100, 1, 20),
        ),
        stream(
            "paced-2000",
            "100 chunks, 20 ms apart, 2,000 streams",
            Drive::Streams(2_000, 1),
            flow(100, 1, 20),
        ),
        upload("upload", "a form with a recording of 25 MB, 2 connections", Wire::Clear),
        Scenario {
            kinds: &Kind::LIMITS,
            ..unary(
                "limits",
                "as unary; an administrator's key, a project key, and one with four hard limits",
                Drive::Closed(32),
                &small,
            )
        },
        Scenario {
            kinds: &Kind::LIMITS,
            ..stream("burst-limits", "as burst; the keys of limits", Drive::Streams(16, 16), flow(200, 1, 0))
        },
        Scenario {
            kinds: &Kind::GROWTH,
            ..unary(
                "growth",
                "as unary; 100,000 keys, 10,000 endpoints, 1,000 providers, or a few",
                Drive::Closed(32),
                &small,
            )
        },
        stream("idle", "5,000 streams, a chunk each 2.5 s", Drive::Idle(5_000), flow(3, 1, 2_500)),
    ]
}

/// Returns five scenarios of each encrypted wire.
fn encrypted() -> impl Iterator<Item = Scenario> {
    ENCRYPTED.into_iter().flat_map(|(wire, [unary_name, burst, paced, idle, upload_name])| {
        let scenarios = [
            unary(unary_name, "as unary, encrypted", Drive::Closed(32), &small()),
            stream(burst, "as burst, encrypted", Drive::Streams(16, 16), flow(200, 1, 0)),
            stream(paced, "as paced-200, encrypted", Drive::Streams(200, 1), flow(100, 1, 20)),
            stream(idle, "as idle, encrypted", Drive::Idle(5_000), flow(3, 1, 2_500)),
            upload(upload_name, "as upload, encrypted", wire),
        ];
        scenarios.map(|scenario| Scenario { kinds: &Kind::ENCRYPTED, wire, ..scenario })
    })
}

/// A request of 1 KB.
fn small() -> Bytes {
    payload::request(1_000, false)
}

fn unary(name: &'static str, about: &'static str, drive: Drive, body: &Bytes) -> Scenario {
    Scenario {
        name,
        about,
        unit: Unit::Request,
        drive,
        kinds: &Kind::USUAL,
        wire: Wire::Clear,
        asks: Asks::Chat,
        body: body.clone(),
        script: Script::Whole(payload::completion()),
    }
}

fn upload(name: &'static str, about: &'static str, wire: Wire) -> Scenario {
    Scenario {
        name,
        about,
        unit: Unit::Megabyte,
        drive: Drive::Closed(2),
        kinds: &Kind::USUAL,
        wire,
        asks: Asks::Transcription,
        body: RECORDING.get_or_init(|| payload::form(25_000_000)).clone(),
        script: Script::Whole(payload::transcript()),
    }
}

fn stream(name: &'static str, about: &'static str, drive: Drive, script: Script) -> Scenario {
    Scenario {
        name,
        about,
        unit: Unit::Chunk,
        drive,
        kinds: &Kind::USUAL,
        wire: Wire::Clear,
        asks: Asks::Chat,
        body: payload::request(1_000, true),
        script,
    }
}

fn flow(content: usize, per_write: usize, pace_ms: u64) -> Script {
    let pace = (pace_ms > 0).then(|| Duration::from_millis(pace_ms));
    Script::Flow { stream: Rc::new(Stream::new(content)), per_write, pace }
}

/// The form of all uploads.
static RECORDING: OnceLock<Bytes> = OnceLock::new();

/// The encrypted wires, with the names of their scenarios.
const ENCRYPTED: [(Wire, [&str; 5]); 3] = [
    (
        Wire::TlsClients,
        [
            "unary-tls-clients",
            "burst-tls-clients",
            "paced-tls-clients",
            "idle-tls-clients",
            "upload-tls-clients",
        ],
    ),
    (
        Wire::TlsUpstream,
        [
            "unary-tls-upstream",
            "burst-tls-upstream",
            "paced-tls-upstream",
            "idle-tls-upstream",
            "upload-tls-upstream",
        ],
    ),
    (
        Wire::Http2Upstream,
        [
            "unary-http2-upstream",
            "burst-http2-upstream",
            "paced-http2-upstream",
            "idle-http2-upstream",
            "upload-http2-upstream",
        ],
    ),
];

const WARM_UP: Duration = Duration::from_millis(250);

impl Scenario {
    /// Measures `proxy` once.
    pub(crate) async fn measure(
        &self,
        proxy: &Proxy,
        upstream: &Upstream,
        epoch: Instant,
        quick: bool,
    ) -> Sample {
        upstream.play(self.body.clone(), self.script.clone());
        let time = Duration::from_millis(if quick { 500 } else { 2_000 });
        let load = Rc::new(Load {
            address: proxy.address,
            tls: (self.wire == Wire::TlsClients).then(|| upstream.certificate.client(&["http/1.1"])),
            request: payload::framed(self.asks, &proxy.key, &self.body),
            expected: match &self.script {
                Script::Whole(body) => Expected::Whole(body.clone()),
                Script::Flow { stream, .. } => Expected::Flow(Rc::clone(stream)),
            },
            epoch,
            tally: RefCell::new(Tally::default()),
        });
        self.warm_up(&load).await;
        let idle_bytes = proxy.resident_bytes();
        let cpu_before = settled_cpu_time(proxy).await;
        let threads_before = proxy.threads();
        let begin = Instant::now();
        let peak_bytes = peak_while(proxy, self.run(&load, time, quick)).await;
        let elapsed = begin.elapsed();
        let cpu = settled_cpu_time(proxy).await.saturating_sub(cpu_before);
        let added = threads::since(&threads_before, proxy.threads());
        let streams = if let Drive::Idle(streams) = self.drive { streams } else { 0 };
        let tally = load.tally.take();
        let units = self.units(&tally);
        let threads_us =
            added.into_iter().map(|(name, time)| (name, ratio(time.as_secs_f64() * 1e6, units))).collect();
        let sample = self.sample(&tally, cpu, elapsed, (idle_bytes, peak_bytes, streams));
        Sample { faults: sample.faults + upstream.take_faults(), threads_us, ..sample }
    }

    /// Brings a new process to the state that it has under load; nothing, if its memory or its first connections are
    /// measured.
    async fn warm_up(&self, load: &Rc<Load>) {
        match self.drive {
            Drive::Closed(connections) => load.closed(connections, WARM_UP).await,
            Drive::Open(per_second) => load.open(per_second, WARM_UP).await,
            Drive::Streams(connections, _) => load.streams(connections, 1, Duration::ZERO).await,
            Drive::Fresh(_) | Drive::Idle(_) => return,
        }
        load.tally.take();
    }

    async fn run(&self, load: &Rc<Load>, time: Duration, quick: bool) {
        match self.drive {
            Drive::Closed(connections) => load.closed(connections, time).await,
            Drive::Open(per_second) => load.open(per_second, time).await,
            Drive::Streams(connections, streams) => {
                let streams = if quick { streams.div_ceil(4) } else { streams };
                load.streams(connections, streams, Duration::from_millis(200)).await;
            }
            Drive::Fresh(requests) => load.fresh(16, if quick { requests / 4 } else { requests }).await,
            Drive::Idle(streams) => load.streams(streams, 1, Duration::from_secs(2)).await,
        }
    }

    fn units(&self, tally: &Tally) -> f64 {
        match self.unit {
            Unit::Request => tally.answers as f64,
            Unit::Chunk => tally.events as f64,
            Unit::Megabyte => tally.answers as f64 * self.body.len() as f64 / 1e6,
        }
    }

    fn sample(
        &self,
        tally: &Tally,
        cpu: Duration,
        elapsed: Duration,
        (idle_bytes, peak_bytes, streams): (u64, u64, usize),
    ) -> Sample {
        let units = self.units(tally);
        let mut nanos = tally.nanos.clone();
        nanos.sort_unstable();
        let grown = peak_bytes.saturating_sub(idle_bytes);
        Sample {
            cpu_us: ratio(cpu.as_secs_f64() * 1e6, units),
            per_second: units / elapsed.as_secs_f64(),
            p50_us: quantile(&nanos, 0.50),
            p99_us: quantile(&nanos, 0.99),
            resident_mib: peak_bytes as f64 / f64::from(1 << 20),
            stream_kib: ratio(grown as f64 / 1024.0, streams as f64),
            faults: tally.faults.len() as u64,
            threads_us: BTreeMap::new(),
        }
    }
}

fn quantile(sorted: &[u64], quantile: f64) -> f64 {
    let index = (sorted.len() as f64 * quantile) as usize;
    sorted.get(index).map_or(f64::NAN, |&nanos| nanos as f64 / 1e3)
}

fn ratio(of: f64, to: f64) -> f64 {
    if to > 0.0 { of / to } else { f64::NAN }
}

/// Returns the peak memory of the proxy during `work`.
async fn peak_while(proxy: &Proxy, work: impl Future<Output = ()>) -> u64 {
    let mut peak = proxy.resident_bytes();
    let mut ticks = tokio::time::interval(Duration::from_millis(250));
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            () = &mut work => return peak.max(proxy.resident_bytes()),
            _ = ticks.tick() => peak = peak.max(proxy.resident_bytes()),
        }
    }
}

/// Returns the CPU time after the proxy has become idle, so that writes after an answer are included.
async fn settled_cpu_time(proxy: &Proxy) -> Duration {
    let mut before = proxy.cpu_time();
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        let now = proxy.cpu_time();
        if now.saturating_sub(before) < Duration::from_micros(500) {
            return now;
        }
        before = now;
    }
    before
}
