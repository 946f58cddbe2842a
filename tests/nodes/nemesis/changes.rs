//! Changes that are made while something fails: each is repeated at another node until it is answered.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

use super::rig::{Addresses, NODES};
use crate::support::client::Whole;
use crate::support::random::Random;
use crate::support::{Client, wait};

/// The answer to the revocation of a key.
#[derive(Clone, Debug)]
pub(super) struct Revoked {
    pub(super) sent: Instant,
    pub(super) answered: Instant,
    pub(super) published: bool,
    /// The numbers of the nodes that were not heard of.
    pub(super) silent: Vec<u64>,
}

/// A key that was created.
#[derive(Clone, Debug)]
pub(super) struct Created {
    pub(super) name: String,
    pub(super) sent: Instant,
}

/// The changes that raised a counter.
#[derive(Clone, Debug, Default)]
pub(super) struct Raised {
    /// When each change that was made was sent.
    pub(super) surely: Vec<Instant>,
    /// The number of changes whose answers were lost.
    pub(super) perhaps: usize,
}

/// Sends changes to nodes.
#[derive(Clone)]
pub(super) struct Changes {
    pub(super) addresses: Addresses,
    pub(super) random: Random,
}

impl Changes {
    /// Revokes a key.
    pub(super) async fn revoke(mut self, key: String) -> Revoked {
        self.random.pause_ms(0, 1_000).await;
        let path = format!("keys/{key}");
        let (answer, sent) = self.repeat("PATCH", &path, &json!({"state": "revoked"}), None).await;
        let silent = answer.header("x-llmgw-silent-nodes").unwrap_or_default();
        Revoked {
            sent,
            answered: Instant::now(),
            published: answer.header("x-llmgw-published") == Some("true"),
            silent: silent.split(',').filter_map(|node| node.trim().parse().ok()).collect(),
        }
    }

    /// Creates three keys, each with an idempotency key of its own.
    pub(super) async fn create_keys(mut self, project: String, seed: u64) -> Vec<Created> {
        let mut created = Vec::new();
        for number in 0..3 {
            let name = format!("made-{seed}-{number}");
            let body = json!({"name": name, "project": project});
            let (_, sent) = self.repeat("POST", "keys", &body, Some(&name)).await;
            created.push(Created { name, sent });
            self.random.pause_ms(0, 400).await;
        }
        created
    }

    /// Raises the number that is the name of a key, as often as fits into the time, with `If-Match`.
    pub(super) async fn raise(mut self, key: String) -> Raised {
        let (path, mut raised) = (format!("/admin/api/keys/{key}"), Raised::default());
        for _ in 0..6 {
            let client = self.admin();
            let Some(shown) = answered(client.send("GET", &path, Bytes::new())).await else { continue };
            let Some(tag) = shown.header("etag").filter(|_| shown.status == 200) else { continue };
            let count: u64 = shown.json()["name"].as_str().unwrap().parse().unwrap();
            let client = self.admin().with("if-match", tag);
            let body = Bytes::from(json!({"name": (count + 1).to_string()}).to_string());
            let sent = Instant::now();
            match answered(client.send("PATCH", &path, body)).await {
                Some(answer) if answer.status == 200 => raised.surely.push(sent),
                Some(answer) if matches!(answer.status, 409 | 412) => {}
                _ => raised.perhaps += 1,
            }
            self.random.pause_ms(0, 200).await;
        }
        raised
    }

    /// Sends a change to one node after the other until one has made it. Returns also when it was sent to that node.
    async fn repeat(
        &mut self,
        method: &str,
        path: &str,
        body: &Value,
        once: Option<&str>,
    ) -> (Whole, Instant) {
        let (path, body) = (format!("/admin/api/{path}"), Bytes::from(body.to_string()));
        let made = async {
            loop {
                let mut client = self.admin();
                if let Some(once) = once {
                    client = client.with("idempotency-key", once);
                }
                let sent = Instant::now();
                match answered(client.send(method, &path, body.clone())).await {
                    Some(answer) if matches!(answer.status, 200 | 201) => return (answer, sent),
                    _ => self.random.pause_ms(10, 100).await,
                }
            }
        };
        wait::within(CHANGE_TIME_MAX, &path, made).await
    }

    /// Returns an administrator's client of any node.
    fn admin(&mut self) -> Client {
        let at = usize::try_from(self.random.between(0, NODES as u64)).unwrap();
        self.addresses.admin(at)
    }
}

async fn answered<E>(sent: impl Future<Output = Result<Whole, E>>) -> Option<Whole> {
    tokio::time::timeout(ANSWER_TIME_MAX, sent).await.ok()?.ok()
}

const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
const CHANGE_TIME_MAX: Duration = Duration::from_secs(120);
