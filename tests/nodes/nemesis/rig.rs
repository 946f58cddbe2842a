//! The parts that a row runs on: the server, a proxy to it for each node, the nodes, and an upstream that counts requests.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postgres_server::{PostgresProxy, PostgresServer};
use serde_json::Value;

use crate::nodes::node;
use crate::support::admin::Admin;
use crate::support::gateway::{ADMIN_KEY, Gateway, Setup};
use crate::support::{Answer, Client, Upstream, Yaml};

/// The number of nodes.
pub(super) const NODES: usize = 3;

pub(super) struct Rig {
    pub(super) nodes: Vec<Gateway>,
    pub(super) addresses: Addresses,
    pub(super) proxies: Vec<PostgresProxy>,
    pub(super) server: PostgresServer,
    pub(super) arrived: Arrived,
    yaml: Yaml,
    _upstream: Upstream,
}

/// The addresses of the nodes, which change when a node is started again.
#[derive(Clone, Default)]
pub(super) struct Addresses(Arc<[AtomicU16; NODES]>);

/// The times of the requests that reached the upstream, by their `user`.
#[derive(Clone, Default)]
pub(super) struct Arrived(Arc<Mutex<HashMap<String, Vec<Instant>>>>);

impl Rig {
    pub(super) async fn start() -> Self {
        let server = PostgresServer::start();
        let upstream = Upstream::start().await;
        let arrived = Arrived::default();
        let counting = arrived.clone();
        upstream.answering(move |request| {
            counting.count(request.json()["user"].as_str().unwrap_or_default());
            Answer::completion("ok")
        });
        let proxies = (0..NODES).map(|_| PostgresProxy::start(server.address())).collect();
        let (nodes, addresses, yaml) = (Vec::new(), Addresses::default(), Yaml::one(upstream.base_url()));
        let mut rig = Self { nodes, addresses, proxies, server, arrived, yaml, _upstream: upstream };
        for at in 0..NODES {
            let node = rig.setup(at).start().await;
            rig.put(at, node);
        }
        rig
    }

    /// Returns the setup of a node with an empty disk.
    pub(super) fn setup(&self, at: usize) -> Setup {
        node(&self.yaml, &self.server.url_at(self.proxies[at].address()))
            .env("LLMGW_NODE_NAME", format!("n{at}"))
    }

    /// Takes a node out of its place, to which callers go on sending.
    pub(super) fn take(&mut self, at: usize) -> Gateway {
        self.nodes.remove(at)
    }

    /// Puts a node into the place of the one that was taken.
    pub(super) fn put(&mut self, at: usize, gateway: Gateway) {
        self.addresses.set(at, gateway.address());
        self.nodes.insert(at, gateway);
    }

    /// Returns the number that the database gave to the node.
    pub(super) fn number(&self, at: usize) -> u64 {
        let file = std::fs::read(self.nodes[at].state().join("node.json")).unwrap();
        serde_json::from_slice::<Value>(&file).unwrap()["node"].as_u64().unwrap()
    }

    pub(super) fn admin(&self, at: usize) -> Admin {
        Admin(self.nodes[at].client())
    }
}

impl Addresses {
    /// Returns a client of the node that is there now, with a key.
    pub(super) fn client(&self, at: usize, key: &str) -> Client {
        let port = self.0[at].load(Ordering::SeqCst);
        Client::new(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Some(key))
    }

    pub(super) fn admin(&self, at: usize) -> Client {
        self.client(at, ADMIN_KEY).with("content-type", "application/json")
    }

    fn set(&self, at: usize, address: SocketAddr) {
        self.0[at].store(address.port(), Ordering::SeqCst);
    }
}

impl Arrived {
    /// Returns the number of requests of a user.
    pub(super) fn of(&self, user: &str) -> u64 {
        self.0.lock().unwrap().get(user).map_or(0, Vec::len) as u64
    }

    /// Returns the largest number of requests of a user within this time.
    pub(super) fn most_within(&self, user: &str, time: Duration) -> u64 {
        let mut times = self.0.lock().unwrap().get(user).cloned().unwrap_or_default();
        times.sort_unstable();
        let within =
            |(at, first): (usize, &Instant)| times[at..].partition_point(|late| *late - *first < time);
        times.iter().enumerate().map(within).max().unwrap_or_default() as u64
    }

    fn count(&self, user: &str) {
        self.0.lock().unwrap().entry(user.to_owned()).or_default().push(Instant::now());
    }
}
