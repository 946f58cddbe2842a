//! The time until a revoked key is refused at every node, measured under load (ADM-9).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use super::{database, node};
use crate::support::admin::{Admin, NewKey};
use crate::support::figure::{figure, times};
use crate::support::gateway::Gateway;
use crate::support::{Answer, Client, Upstream, Yaml, chat, wait};

/// Keys are revoked one after the other, each at another node than the one before, while callers keep all nodes busy. Once the
/// answer says that the revocation is published, no node admits a request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures for minutes, and needs a machine of its own"]
async fn a_revoked_key_is_refused_at_every_node() {
    let Some(database) = database() else { return };
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let yaml = Yaml::one(upstream.base_url());
    let mut nodes = Vec::new();
    for number in 1..=NODES {
        nodes.push(node(&yaml, &database.url()).env("LLMGW_NODE_NAME", format!("n{number}")).start().await);
    }
    let project = Admin(nodes[0].client()).project("blue").await;
    let key = async |at: usize| Admin(nodes[at].client()).key(json!({"project": project})).await;
    let load = Load::start(&nodes, &key(0).await);
    let (mut answered, mut refused) = (Vec::new(), Vec::new());
    for number in 0..KEYS {
        let (answer, last) = revoke(&nodes, number % NODES, key(number % NODES).await).await;
        answered.push(answer);
        refused.push(last);
    }
    let load = load.stop().await;
    figure("ADM-9", format!("a revocation is answered: {}", times(&mut answered)));
    figure(
        "ADM-9",
        format!("a revoked key is refused at {NODES} nodes with {load}: {}", times(&mut refused)),
    );
}

/// Revokes a key that all nodes serve. Returns the times until the answer, and until every node had refused the key.
async fn revoke(nodes: &[Gateway], at: usize, key: NewKey) -> (Duration, Duration) {
    let mut probes = JoinSet::new();
    for node in nodes {
        let client = Client::new(node.address(), Some(&key.key));
        // On a busy machine the answer to the creation may not have waited until all nodes had the key.
        wait::eventually("the node to serve the key", async || {
            (client.chat(chat::request("up/m")).await.status == 200).then_some(())
        })
        .await;
        probes.spawn(refused(client));
    }
    let (path, began) = (format!("keys/{}", key.id), Instant::now());
    let answer = Admin(nodes[at].client()).call("PATCH", &path, json!({"state": "revoked"})).await;
    let answered = Instant::now();
    let probes = probes.join_all().await;
    let last = probes.iter().map(|probe| probe.refused).max().unwrap();
    if answer.header("x-llmgw-published") == Some("true") {
        let admitted = probes.iter().filter_map(|probe| probe.last_admitted).max();
        assert!(admitted.is_none_or(|sent| sent < answered), "admitted after {answer:?}");
    }
    (answered - began, last - began)
}

/// The requests with a key at one node until it is refused.
struct Probe {
    /// When the last request was sent that the node admitted.
    last_admitted: Option<Instant>,
    refused: Instant,
}

async fn refused(client: Client) -> Probe {
    let mut last_admitted = None;
    loop {
        let sent = Instant::now();
        match client.chat(chat::request("up/m")).await.status {
            200 => last_admitted = Some(sent),
            401 => return Probe { last_admitted, refused: Instant::now() },
            other => panic!("{other}"),
        }
    }
}

/// Callers that send one request after the other to each node.
struct Load {
    callers: JoinSet<u64>,
    stop: Arc<AtomicBool>,
    began: Instant,
}

impl Load {
    fn start(nodes: &[Gateway], key: &NewKey) -> Self {
        let (mut callers, stop) = (JoinSet::new(), Arc::<AtomicBool>::default());
        for node in nodes.iter().cycle().take(CALLERS * NODES) {
            let (client, stop) = (Client::new(node.address(), Some(&key.key)), Arc::clone(&stop));
            callers.spawn(async move {
                let mut served = 0;
                while !stop.load(Ordering::SeqCst) {
                    assert_eq!(client.chat(chat::request("up/m")).await.status, 200);
                    served += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                served
            });
        }
        Self { callers, stop, began: Instant::now() }
    }

    /// Ends the callers, and describes what they sent.
    async fn stop(self) -> String {
        self.stop.store(true, Ordering::SeqCst);
        let served: u64 = self.callers.join_all().await.into_iter().sum();
        let seconds = self.began.elapsed().as_secs().max(1);
        format!("{} requests/s", served / seconds)
    }
}

const NODES: usize = 3;
const KEYS: usize = 1_000;
/// The callers of each node, and the pause of each between two requests.
const CALLERS: usize = 2;
const PAUSE: Duration = Duration::from_millis(20);
