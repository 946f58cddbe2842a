//! Every path under duress: HTTP/2 and TLS on both sides, with peers that send too little, too much or nonsense. Each row
//! of the table asserts what honest neighbours on the same worker notice, and prints it with the memory, the CPU time and
//! the connections that the row costs: `cargo test --test main -- duress --nocapture | grep ^figure`.

mod addresses;
mod clients_http2;
mod clients_tls;
mod fairness;
mod held;
mod tenants;
mod uploads;
mod upstreams_frames;
mod upstreams_heads;
mod upstreams_http2;
mod upstreams_still;
mod upstreams_tls;

use std::cell::Cell;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;

use crate::support::figure::{figure, promised, times};
use crate::support::gateway::{ADMIN_KEY, Gateway, Setup};
use crate::support::h2_wire;
use crate::support::tls::Authority;
use crate::support::{Answer, Upstream, Yaml, chat, proc, wait};

/// A gateway with one worker, whose neighbours ask for the model of a provider of their own.
struct Rig {
    gateway: Gateway,
    /// Whose certificate the gateway shows, if its clients use TLS.
    authority: Option<Authority>,
    /// True while the neighbours pause, so that the CPU time is that of the peers alone.
    is_quiet: Cell<bool>,
    _good: Upstream,
}

/// Most of the memory that a row may cost.
const ROW_BYTES_MAX: u64 = 32 << 20;
/// Most of the time that a neighbour may wait.
const NEIGHBOUR_MAX: Duration = Duration::from_secs(1);
/// The pause between two neighbours, so that the CPU time is not mostly theirs.
const PACE: Duration = Duration::from_millis(20);
/// Neighbours of each row.
const NEIGHBOURS_MIN: usize = 5;

impl Rig {
    /// Starts a gateway with the providers of `yaml` and one for neighbours. Its clients use TLS if `tls` is true.
    async fn start(yaml: Yaml, tls: bool, variables: &[(&str, &str)]) -> Self {
        let authority = tls.then(|| Authority::new(&[]));
        Self::with(yaml, authority, |setup| {
            variables.iter().fold(setup, |setup, (name, value)| setup.env(name, *value))
        })
        .await
    }

    async fn with(yaml: Yaml, authority: Option<Authority>, change: impl FnOnce(Setup) -> Setup) -> Self {
        let good = Upstream::start().await;
        good.always(Answer::completion("ok"));
        let yaml = yaml.provider("good", good.base_url());
        let mut setup = Setup::new(&yaml).env("LLMGW_WORKERS", "1");
        if let Some(authority) = &authority {
            setup = setup
                .env("LLMGW_TLS_CERT_FILE", authority.ca_file().to_str().unwrap())
                .env("LLMGW_TLS_KEY_FILE", authority.key_file().to_str().unwrap());
        }
        let rig =
            Self { gateway: change(setup).launch().await, authority, is_quiet: Cell::default(), _good: good };
        wait::eventually("the gateway to serve", async || (rig.ask("good/m").await?.0 == 200).then_some(()))
            .await;
        rig
    }

    fn tls(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    /// Sends a chat request over HTTP/1.1; returns the status and the body.
    async fn ask(&self, model: &str) -> Option<(u16, Bytes)> {
        let request = http::Request::post("/v1/chat/completions")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(chat::request(model))));
        self.send(request.unwrap()).await
    }

    async fn send(&self, mut request: http::Request<Full<Bytes>>) -> Option<(u16, Bytes)> {
        let headers = request.headers_mut();
        headers.insert("host", "localhost".parse().unwrap());
        headers.insert("authorization", format!("Bearer {ADMIN_KEY}").parse().unwrap());
        let socket = h2_wire::socket(&self.gateway, self.tls(), b"http/1.1").await.ok()?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.ok()?;
        let driving = tokio::spawn(connection);
        let answer = sender.send_request(request).await.ok()?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.ok()?.to_bytes();
        driving.abort();
        Some((status, body))
    }

    /// Returns the number of open client connections, without that of the query itself.
    async fn connections(&self) -> usize {
        let request = http::Request::get("/metrics").body(Full::default()).unwrap();
        let (_, body) = self.send(request).await.expect("metrics");
        let text = String::from_utf8(body.to_vec()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("llmgw_connections ")).expect("a gauge");
        line.parse::<usize>().unwrap() - 1
    }

    /// Runs a row of the table, with honest neighbours beside it, and returns its outcome.
    async fn row<T>(&self, name: &str, duress: impl Future<Output = T>) -> T {
        let memory = self.gateway.memory();
        let (cpu, began) = (proc::cpu_time(self.gateway.pid()), Instant::now());
        let mut waits = Vec::new();
        let neighbours = async {
            loop {
                if self.is_quiet.get() {
                    tokio::time::sleep(PACE).await;
                    continue;
                }
                let sent_at = Instant::now();
                let status = self.ask("good/m").await.map(|(status, _)| status);
                assert_eq!(status, Some(200), "{name}: a neighbour\n{}", self.gateway.log());
                waits.push(sent_at.elapsed());
                tokio::time::sleep(PACE).await;
                if waits.len() >= NEIGHBOURS_MIN {
                    tokio::task::yield_now().await;
                }
            }
        };
        let outcome = tokio::select! {
            biased;
            outcome = duress => Some(outcome),
            () = neighbours => None,
        };
        let connections = self.connections().await;
        let spent = proc::cpu_time(self.gateway.pid()).saturating_sub(cpu);
        let (peak, took) = (memory.peak(), began.elapsed());
        while waits.len() < NEIGHBOURS_MIN {
            let sent_at = Instant::now();
            assert_eq!(self.ask("good/m").await.map(|(status, _)| status), Some(200), "{name}: afterwards");
            waits.push(sent_at.elapsed());
        }
        let slowest = waits.iter().copied().max().unwrap_or_default();
        let over = if self.authority.is_some() { "TLS" } else { "clear text" };
        figure(
            "duress",
            format!(
                "{name}, clients over {over}: neighbours {}; memory +{} KiB; CPU {:.0} ms in {:.1} s; {connections} connections",
                times(&mut waits),
                peak >> 10,
                spent.as_secs_f64() * 1e3,
                took.as_secs_f64(),
            ),
        );
        assert!(slowest < promised(NEIGHBOUR_MAX), "{name}: a neighbour waited {slowest:?}");
        assert!(peak <= ROW_BYTES_MAX, "{name}: {} KiB", peak >> 10);
        outcome.expect("neighbours never end")
    }

    /// Asserts that the gateway is at rest although peers stand still: the least CPU time of some windows.
    async fn rests(&self, name: &str) {
        const WINDOW: Duration = Duration::from_millis(250);
        let mut least = WINDOW;
        self.is_quiet.set(true);
        for _ in 0..4 {
            let before = proc::cpu_time(self.gateway.pid());
            tokio::time::sleep(WINDOW).await;
            least = least.min(proc::cpu_time(self.gateway.pid()).saturating_sub(before));
        }
        self.is_quiet.set(false);
        let share = least.as_secs_f64() / WINDOW.as_secs_f64() * 100.0;
        figure("duress", format!("{name}: {share:.1} % of a core while nothing happens"));
        assert!(least < WINDOW / 20, "{name}: {least:?} of {WINDOW:?}");
    }
}
