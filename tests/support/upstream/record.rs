//! The record of an upstream: each request with its bytes, and the time at which the other side closed each connection.
//! Both can be awaited, so that tests need no fixed delays.

use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::watch;

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// The number of its connection, counted from 0.
    pub(crate) connection: usize,
    /// The time at which its last byte arrived.
    pub(crate) at: Instant,
    /// The request line and header lines, without the empty line.
    pub(crate) head: String,
    /// The body, without transfer coding.
    pub(crate) body: Bytes,
}

impl Received {
    /// Returns the value of the header `name`. `None` if it is absent or repeated.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        match self.headers(name).as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Returns all values of the header `name`.
    pub(crate) fn headers(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }

    /// Returns the body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the upstream got JSON")
    }
}

/// The record of one upstream.
pub(crate) struct Record(watch::Sender<Seen>);

#[derive(Default)]
struct Seen {
    requests: Vec<Received>,
    closed: HashMap<usize, Instant>,
}

impl Default for Record {
    fn default() -> Self {
        Self(watch::Sender::new(Seen::default()))
    }
}

impl Record {
    /// Records a request.
    pub(crate) fn arrived(&self, received: Received) {
        self.0.send_modify(|seen| seen.requests.push(received));
    }

    /// Records that the other side has closed `connection`.
    pub(crate) fn gone(&self, connection: usize) {
        self.0.send_modify(|seen| {
            seen.closed.entry(connection).or_insert_with(Instant::now);
        });
    }

    pub(crate) fn requests(&self) -> Vec<Received> {
        self.0.borrow().requests.clone()
    }

    pub(crate) fn closed_count(&self) -> usize {
        self.0.borrow().closed.len()
    }

    pub(crate) async fn request(&self, index: usize) -> Received {
        let mut receiver = self.0.subscribe();
        let seen = receiver.wait_for(|seen| seen.requests.len() > index).await;
        seen.expect("the record lives as long as its upstream").requests[index].clone()
    }

    pub(crate) async fn closed(&self, connection: usize) -> Instant {
        let mut receiver = self.0.subscribe();
        let seen = receiver.wait_for(|seen| seen.closed.contains_key(&connection)).await;
        seen.expect("the record lives as long as its upstream").closed[&connection]
    }
}
