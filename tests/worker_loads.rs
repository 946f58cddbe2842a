//! Connections weigh unequally: clients that keep one worker busy are asked to open new connections, which go to a worker
//! with room. No request fails by that.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::raw::{Raw, post};
use crate::support::{Gateway, Yaml, proc, wait};

/// A client that sends requests one after the other, each as soon as it has the answer, and opens a new connection when
/// it is asked to.
async fn keep_busy(gateway: SocketAddr, mut connection: Raw) {
    let message = json!({"role": "user", "content": "word ".repeat(2_000)});
    let request = post(ADMIN_KEY, "", &json!({"model": "echo/echo", "messages": [message]}).to_string());
    loop {
        connection.send(&request).await;
        let answer = connection.read_until("\"usage\"").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        if answer.contains("connection: close") {
            connection = Raw::open(gateway).await;
        }
    }
}

/// Returns the CPU time of the thread of a worker.
fn worker_time(gateway: &Gateway, worker: usize) -> Duration {
    let (names, times) = (proc::threads(gateway.pid(), "comm"), proc::threads(gateway.pid(), "schedstat"));
    let name = format!("data-{worker}");
    let (_, times) = names.iter().zip(times).find(|(thread, _)| thread.trim() == name).unwrap();
    Duration::from_nanos(times.split_whitespace().next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn busy_connections_of_one_worker_spread_over_both() {
    let yaml = Yaml::new().further("providers: {echo: {type: echo}}\n");
    let gateway = Setup::new(&yaml).env("LLMGW_WORKERS", "2").start().await;
    // Accept alternates between workers at rest, so all busy connections are at one of them, with as many idle ones as at
    // the other.
    let (mut busy, mut idle) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        busy.push(Raw::open(gateway.address()).await);
        idle.push(Raw::open(gateway.address()).await);
    }
    let mut clients = JoinSet::new();
    for connection in busy {
        clients.spawn(keep_busy(gateway.address(), connection));
    }
    let before = [0, 1].map(|worker| worker_time(&gateway, worker));
    wait::eventually_within(6 * wait::PATIENCE, "both workers to serve the clients", async || {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(clients.try_join_next().is_none(), "a client has failed");
        let worked = [0, 1].map(|worker| worker_time(&gateway, worker).saturating_sub(before[worker]));
        worked.iter().all(|time| *time > WORKED_MIN).then_some(())
    })
    .await;
}

/// CPU time of a worker that has served some of the clients: a resting one takes a few milliseconds in that time.
const WORKED_MIN: Duration = Duration::from_millis(200);
