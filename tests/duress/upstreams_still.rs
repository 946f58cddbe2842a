//! Upstreams that stand still before they can take a request: in the TLS handshake, in the preface of HTTP/2, or with a
//! limit of no streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use super::Rig;
use super::upstreams_http2::http2;
use super::upstreams_tls::Peer;
use crate::support::h2_frames::{FrameUpstream, MAX_CONCURRENT_STREAMS, Manners, Reaction, frame, settings};
use crate::support::h2_frames::{GOAWAY, SETTINGS};
use crate::support::tls::Authority;
use crate::support::{Yaml, chat, wait};

const POLICIES: &str = "retry_max_attempts: 1\ncircuit_failure_threshold: 0";

/// The connections of a peer that stands still.
#[derive(Clone, Default)]
struct Standing {
    opened: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
}

impl Standing {
    fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    /// Waits until the gateway has closed all connections.
    async fn all_closed(&self) {
        wait::eventually_within(2 * wait::PATIENCE, "the end of the connections", async || {
            (self.closed.load(Ordering::Relaxed) == self.opened()).then_some(())
        })
        .await;
    }
}

/// Starts a peer that accepts connections, says `words` on each, and then only reads.
async fn still(words: Vec<u8>) -> (Peer, Standing) {
    let standing = Standing::default();
    let counts = standing.clone();
    let peer = Peer::start(move |mut tcp| {
        let (words, counts) = (words.clone(), counts.clone());
        async move {
            counts.opened.fetch_add(1, Ordering::Relaxed);
            let _ = tcp.write_all(&words).await;
            let mut received = [0; 4 << 10];
            while tcp.read(&mut received).await.is_ok_and(|length| length > 0) {}
            counts.closed.fetch_add(1, Ordering::Relaxed);
        }
    })
    .await;
    (peer, standing)
}

/// Sends `count` requests at once; returns the statuses and the texts of their errors.
async fn burst(rig: &Rig, count: usize) -> Vec<(u16, String)> {
    let mut burst = JoinSet::new();
    for _ in 0..count {
        let client = rig.gateway.client();
        burst.spawn(async move {
            let answer = client.chat(chat::request("up/m")).await;
            let text = answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
            (answer.status, text)
        });
    }
    burst.join_all().await
}

/// The first half of a ServerHello with a message of 122 bytes.
fn half_of_a_server_hello() -> Vec<u8> {
    [&[0x16, 3, 3, 0, 122, 2, 0, 0, 118, 3, 3][..], &[7; 50]].concat()
}

/// The limit of a dial: 10 s.
#[tokio::test]
async fn a_tls_handshake_that_stands_still_has_a_time_limit() {
    const REQUESTS: usize = 50;
    let authority = Authority::new(&[b"h2"]);
    for (name, words, version) in [
        ("nothing", Vec::new(), "auto"),
        ("half a ServerHello", half_of_a_server_hello(), "auto"),
        ("half a ServerHello over HTTP/1.1", half_of_a_server_hello(), "1.1"),
    ] {
        let (peer, standing) = still(words).await;
        let members = format!("http_version: \"{version}\"");
        let yaml = Yaml::new().provider_with("up", peer.base_url(), &members).policies(POLICIES);
        let rig = Rig::with(yaml, None, |setup| {
            setup.env("LLMGW_EXTRA_CA_FILE", authority.ca_file().to_str().unwrap())
        })
        .await;
        let began = Instant::now();
        let outcomes = rig
            .row(&format!("upstream: its TLS says {name}"), async {
                let (outcomes, ()) = tokio::join!(burst(&rig, REQUESTS), async {
                    wait::eventually("a dial", async || (standing.opened() > 0).then_some(())).await;
                    rig.rests("upstream: its TLS stands still").await;
                });
                outcomes
            })
            .await;
        assert!(began.elapsed() >= Duration::from_secs(10), "{:?}", began.elapsed());
        for (status, text) in outcomes {
            assert!(
                status == 502 && text.contains("there was no connection within 10 s"),
                "{name}: {status} {text}"
            );
        }
        // With HTTP/1.1, each request has a connection of its own.
        let most = if version == "auto" { 8 } else { REQUESTS };
        assert!(standing.opened() <= most, "{name}: {} connections", standing.opened());
        standing.all_closed().await;
    }
}

/// The client's own timeout is shorter than that of the dial. Nothing waits for the dial then, and it ends all the same.
#[tokio::test]
async fn a_request_does_not_wait_for_a_handshake_beyond_its_timeout() {
    let (peer, standing) = still(half_of_a_server_hello()).await;
    let yaml = Yaml::new().provider_with("up", peer.base_url(), "timeout: 1").policies(POLICIES);
    let rig = Rig::start(yaml, false, &[]).await;
    rig.row("upstream: its TLS stands still, a timeout of 1 s", async {
        for _ in 0..3 {
            let (status, body) = rig.ask("up/m").await.expect("an answer");
            assert_eq!(status, 504, "{body:?}");
        }
    })
    .await;
    assert_eq!(standing.opened(), 1, "the requests share a dial");
    standing.all_closed().await;
}

/// The server's preface is its SETTINGS (RFC 9113 section 3.4).
#[tokio::test]
async fn an_upstream_without_settings_has_failed_after_their_time_limit() {
    for (name, words) in [
        ("nothing", Vec::new()),
        ("half of its SETTINGS", settings(&[(MAX_CONCURRENT_STREAMS, 100)])[..12].to_vec()),
        ("the head of its SETTINGS", frame(SETTINGS, 0, 0, &[0; 6])[..9].to_vec()),
    ] {
        let (peer, standing) = still(words).await;
        let base_url = peer.base_url().replace("https://", "http://");
        let rig = Rig::start(http2(base_url, "timeout: 100").policies(POLICIES), false, &[]).await;
        let began = Instant::now();
        let outcomes = rig
            .row(&format!("upstream: its HTTP/2 says {name}"), async {
                let (outcomes, ()) = tokio::join!(burst(&rig, 50), async {
                    wait::eventually("a dial", async || (standing.opened() > 0).then_some(())).await;
                    rig.rests("upstream: its HTTP/2 stands still").await;
                });
                outcomes
            })
            .await;
        let took = began.elapsed();
        let reasons = ["it sent no HTTP/2 settings within 10 s", "there was no connection within 10 s"];
        for (status, text) in &outcomes {
            assert!(
                *status == 502 && reasons.iter().any(|reason| text.contains(reason)),
                "{name}: {status} {text}"
            );
        }
        let first = outcomes.iter().filter(|(_, text)| text.contains(reasons[0])).count();
        assert_eq!(first, standing.opened(), "{name}: the requests that the connections had taken");
        assert!(took < Duration::from_secs(30), "{name}: not the timeout of the provider, {took:?}");
        standing.all_closed().await;
    }
}

/// The same within TLS, which has chosen HTTP/2.
#[tokio::test]
async fn an_upstream_without_settings_within_tls_has_failed_after_their_time_limit() {
    let authority = Authority::new(&[b"h2"]);
    let acceptor = authority.acceptor();
    let peer = Peer::start(move |tcp| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(tcp).await else { return };
            let mut received = [0; 4 << 10];
            while stream.read(&mut received).await.is_ok_and(|length| length > 0) {}
        }
    })
    .await;
    let yaml = Yaml::new().provider_with("up", peer.base_url(), "timeout: 100").policies(POLICIES);
    let rig = Rig::with(yaml, None, |setup| {
        setup.env("LLMGW_EXTRA_CA_FILE", authority.ca_file().to_str().unwrap())
    })
    .await;
    let began = Instant::now();
    let (status, body) =
        rig.row("upstream: its HTTP/2 says nothing within TLS", rig.ask("up/m")).await.expect("an answer");
    let text = String::from_utf8_lossy(&body);
    assert!(status == 502 && text.contains("it sent no HTTP/2 settings within 10 s"), "{status} {text}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

/// A limit of no streams that is raised later: what has waited is served, on the one connection.
#[tokio::test]
async fn a_stream_limit_of_zero_that_is_raised_is_waited_for() {
    let manners = Manners { settings: vec![(MAX_CONCURRENT_STREAMS, 0)], ..Manners::default() };
    let upstream = FrameUpstream::with(manners, |_, _| Reaction::Answer).await;
    let rig = Rig::start(http2(upstream.base_url(), "timeout: 20").policies(POLICIES), false, &[]).await;
    rig.row("upstream: SETTINGS_MAX_CONCURRENT_STREAMS 0, then 100", async {
        let client = rig.gateway.client();
        let first = tokio::spawn(async move { client.chat(chat::request("up/m")).await.status });
        upstream.until("the settings to be read", |counts| counts.settings_acks >= 1).await;
        upstream.say(0, settings(&[(MAX_CONCURRENT_STREAMS, 100)]));
        assert_eq!(first.await.unwrap(), 200);
        for (status, text) in burst(&rig, 20).await {
            assert_eq!(status, 200, "{text}");
        }
    })
    .await;
    assert_eq!(upstream.counts().connections, 1);
}

/// One that never is. A request that was sent before the settings arrived is refused, and goes to two other connections; one
/// that was not waits for the limit to rise, until its timeout.
#[tokio::test]
async fn a_stream_limit_of_zero_that_stays_fails_requests_in_bounded_time() {
    const REQUESTS: usize = 20;
    let manners = Manners { settings: vec![(MAX_CONCURRENT_STREAMS, 0)], ..Manners::default() };
    let upstream = FrameUpstream::with(manners, |_, _| Reaction::Refuse).await;
    let rig = Rig::start(http2(upstream.base_url(), "timeout: 5").policies(POLICIES), false, &[]).await;
    let began = Instant::now();
    let outcomes = rig
        .row("upstream: SETTINGS_MAX_CONCURRENT_STREAMS 0 for ever", async {
            let mut outcomes = burst(&rig, 1).await;
            outcomes.extend(burst(&rig, REQUESTS).await);
            outcomes
        })
        .await;
    for (status, text) in outcomes {
        assert!(matches!(status, 502 | 504), "{status} {text}");
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let counts = upstream.counts();
    assert!(counts.connections <= 3 * (REQUESTS + 1), "{counts:?}");
}

/// An upstream that says GOAWAY instead of SETTINGS.
#[tokio::test]
async fn an_upstream_that_leaves_before_its_settings_has_failed_at_once() {
    let goaway = frame(GOAWAY, 0, 0, &[0; 8]);
    for (name, words) in
        [("a GOAWAY", goaway.clone()), ("SETTINGS and a GOAWAY", [settings(&[]), goaway].concat())]
    {
        let (peer, standing) = still(words).await;
        let base_url = peer.base_url().replace("https://", "http://");
        let rig = Rig::start(http2(base_url, "timeout: 60").policies(POLICIES), false, &[]).await;
        let began = Instant::now();
        rig.row(&format!("upstream: its HTTP/2 says {name}"), async {
            let outcomes = burst(&rig, 10).await;
            for (status, text) in outcomes {
                assert_eq!(status, 502, "{name}: {text}");
            }
        })
        .await;
        assert!(began.elapsed() < Duration::from_secs(30), "{name}: {:?}", began.elapsed());
        standing.all_closed().await;
    }
}
