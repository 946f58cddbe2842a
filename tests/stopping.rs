//! The delay after SIGTERM (OPS-3): the gateway serves on while load balancers notice that it is not ready, and no request
//! that reaches it in that time fails.

use std::net::SocketAddr;

use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::http2;
use crate::support::admin::Admin;
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::raw::{Raw, post};
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, wait};

/// Starts a gateway in front of an upstream that answers, with this delay in seconds.
async fn with_delay(seconds: &str) -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let setup = Setup::new(&Yaml::one(upstream.base_url()));
    (setup.env("LLMGW_DRAIN_DELAY_SECONDS", seconds).start().await, upstream)
}

/// Sends SIGTERM and waits until `/ready` answers 503 on a new connection.
async fn begin_to_stop(gateway: &Gateway) {
    gateway.signal(Signal::TERM);
    wait::eventually("503 from /ready", async || {
        (gateway.client().get("/ready").await.unwrap().status == 503).then_some(())
    })
    .await;
}

fn request() -> String {
    post(ADMIN_KEY, "", &chat::request("m"))
}

#[tokio::test]
async fn after_sigterm_new_and_idle_connections_are_served_for_the_delay() {
    let (mut gateway, _upstream) = with_delay("3600").await;
    let (mut used, mut unused) = (Raw::open(gateway.address()).await, Raw::open(gateway.address()).await);
    for idle in [&mut used, &mut unused] {
        idle.send(request()).await;
        let answer = idle.read_until("\"usage\"").await;
        assert!(!answer.contains("connection: close"), "{answer}");
    }
    let mut multiplexed = http2::connect(&gateway).await;
    begin_to_stop(&gateway).await;
    let state = Admin(gateway.client()).done("GET", "state", Value::Null).await;
    let left_ms = state["verdict"]["reasons"][0]["figures"]["left_ms"].as_u64();
    assert!(left_ms > Some(3_000_000), "the delay is an hour: {state}");
    // A connection from before gets an answer, which is its last one.
    used.send(request()).await;
    let reply = used.reply().await;
    assert!(
        reply.closed && reply.text.contains("\"usage\"") && reply.text.contains("connection: close"),
        "{reply:?}"
    );
    // So does a new one.
    let mut new = Raw::open(gateway.address()).await;
    new.send(request()).await;
    let reply = new.reply().await;
    assert_eq!((reply.status, reply.closed), (200, true), "{reply:?}");
    assert!(reply.text.contains("connection: close"), "{reply:?}");
    // HTTP/2 goes on.
    for _ in 0..2 {
        multiplexed.ready().await.unwrap();
        let answer = multiplexed.send_request(http2::post(chat::request("m"))).await.unwrap();
        assert_eq!(answer.status(), 200);
    }
    // A second signal ends the delay; only now the idle connections end.
    gateway.signal(Signal::TERM);
    let reply = unused.reply().await;
    assert!(reply.closed && reply.text.is_empty(), "{reply:?}");
    wait::eventually("GOAWAY", async || multiplexed.is_closed().then_some(())).await;
    assert_eq!(gateway.exit().await.code(), Some(0), "{}", gateway.log());
}

#[tokio::test]
async fn an_interrupt_from_a_terminal_has_no_delay() {
    let (mut gateway, _upstream) = with_delay("3600").await;
    gateway.signal(Signal::INT);
    assert_eq!(gateway.exit().await.code(), Some(0), "{}", gateway.log());
}

/// Sends one request on a connection of its own. Returns false if the connection is refused.
async fn is_answered(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address).await else { return false };
    stream.write_all(request().as_bytes()).await.expect("the connection was opened");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the connection is not reset");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"usage\""), "{answer:?}");
    true
}

/// A connection that is being opened while the listener closes is served, or refused; it is never opened and then reset.
#[tokio::test]
async fn every_connection_that_opens_before_the_end_of_the_delay_is_answered() {
    let (mut gateway, _upstream) = with_delay("1").await;
    let address = gateway.address();
    begin_to_stop(&gateway).await;
    let mut clients = JoinSet::new();
    for _ in 0..8 {
        clients.spawn(async move {
            let mut answered = 0;
            while is_answered(address).await {
                answered += 1;
            }
            answered
        });
    }
    while let Some(client) = wait::within(wait::PATIENCE, "the last answer", clients.join_next()).await {
        assert!(client.unwrap() > 0);
    }
    assert_eq!(gateway.exit().await.code(), Some(0), "{}", gateway.log());
    assert!(Client::new(address, None).get("/health").await.is_err());
}
