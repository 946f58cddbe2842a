//! The soak: mixed load on one gateway for a long time, with its memory use per minute.
//!
//! Each minute has whole answers at a fixed rate, new connections, bursts of chunks and paced streams, clients that
//! disconnect in the middle, and keys that are created, rotated and revoked. A memory leak shows as a slope.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::payload::{self, Asks, KEY};
use super::proxy::{Kind, Proxy};
use super::scenario::{self, Scenario};
use super::upstream::Upstream;
use super::wire::Wire;

/// The scenarios of each minute.
const LOADS: [&str; 4] = ["open", "fresh", "burst", "paced-200"];
/// The number of disconnecting clients, and of key rotations, per minute.
const LEAVING: usize = 50;
const ROTATIONS: usize = 12;

/// Runs for this number of minutes and prints one line for each.
pub(crate) async fn run(minutes: u32, upstream: &Upstream, epoch: Instant) {
    let loads: Vec<Scenario> =
        scenario::all().into_iter().filter(|load| LOADS.contains(&load.name)).collect();
    let proxy = Proxy::start(Kind::Llmgw, &upstream.reach(Wire::Clear));
    let address = proxy.address;
    let project = tokio::task::spawn_blocking(move || {
        admin(address, "POST", "projects", &json!({ "name": "soak" }))["id"].as_str().unwrap().to_owned()
    });
    let project = project.await.unwrap();
    println!("minute  resident MiB  descriptors  keys made  faults");
    let (mut faults, mut keys) = (0, 0);
    for minute in 0..minutes {
        let end = Instant::now() + Duration::from_secs(60);
        for load in &loads {
            faults += load.measure(&proxy, upstream, epoch, true).await.faults;
        }
        // The upstream runs on this thread.
        let (address, project) = (proxy.address, project.clone());
        let rotating = tokio::task::spawn_blocking(move || {
            leave(address);
            rotate(address, &project)
        });
        keys += rotating.await.unwrap();
        tokio::time::sleep(end.saturating_duration_since(Instant::now())).await;
        let mib = proxy.resident_bytes() as f64 / f64::from(1 << 20);
        println!("{minute:6}  {mib:12.1}  {:11}  {keys:9}  {faults:6}", proxy.descriptors());
    }
}

/// Runs clients that request a stream and disconnect at once.
fn leave(address: SocketAddr) {
    let request = payload::framed(Asks::Chat, KEY, &payload::request(1_000, true));
    for _ in 0..LEAVING {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(&request).unwrap();
        let mut first = [0; 64];
        let _ = client.read(&mut first);
        let _ = client.shutdown(Shutdown::Both);
    }
}

/// Creates a key, rotates it several times and revokes the last one. Returns the number of keys created.
fn rotate(address: SocketAddr, project: &str) -> usize {
    let minted = admin(address, "POST", "keys", &json!({ "name": "soak", "project": project }));
    let mut id = minted["id"].as_str().unwrap_or_default().to_owned();
    for _ in 0..ROTATIONS {
        let next = admin(address, "POST", &format!("keys/{id}/rotate"), &json!({ "overlap_seconds": 0 }));
        let Some(next) = next["id"].as_str() else { break };
        id = next.to_owned();
    }
    admin(address, "PATCH", &format!("keys/{id}"), &json!({ "state": "revoked" }));
    1 + ROTATIONS
}

/// Calls the admin API once.
fn admin(address: SocketAddr, method: &str, path: &str, body: &Value) -> Value {
    let body = body.to_string();
    let mut client = TcpStream::connect(address).unwrap();
    let head = format!(
        "{method} /admin/api/{path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {KEY}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    assert!(head.starts_with("HTTP/1.1 2"), "{method} {path}: {answer}");
    serde_json::from_str(body).unwrap_or_default()
}
