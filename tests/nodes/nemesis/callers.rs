//! Callers of project keys: loops of requests at each node, and what came back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use tokio::task::JoinSet;

use super::rig::{Addresses, NODES, Rig};
use crate::support::admin::Admin;
use crate::support::random::Random;

/// A project with one key, whose requests the upstream knows by their `user`.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) user: String,
    pub(super) project: String,
    pub(super) key_id: String,
    pub(super) limit: Option<u64>,
    pub(super) key: String,
}

impl Subject {
    /// Creates a project, with a hard limit of requests in a window if there is one.
    pub(super) async fn create(admin: &Admin, user: String, limit: Option<(&str, u64)>) -> Self {
        let project = admin.project(&user).await;
        if let Some((window, most)) = limit {
            let quota = json!({"subject": {"kind": "project", "id": project}, "metric": "requests",
                "window": window, "limit": most});
            admin.create("quotas", quota).await;
        }
        let key = admin.key(json!({"project": project})).await;
        Self { user, project, key_id: key.id, limit: limit.map(|(_, most)| most), key: key.key }
    }
}

/// An answer that a caller got.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) user: String,
    pub(super) node: usize,
    pub(super) started: Instant,
    pub(super) status: u16,
    pub(super) id: String,
}

/// The callers of a round.
pub(super) struct Callers {
    tasks: JoinSet<Vec<Seen>>,
    stop: Arc<AtomicBool>,
}

impl Callers {
    /// Starts `each` callers of each subject at each node.
    pub(super) fn start(rig: &Rig, subjects: &[(Arc<Subject>, usize)], random: &mut Random) -> Self {
        let (mut tasks, stop) = (JoinSet::new(), Arc::<AtomicBool>::default());
        for (subject, each) in subjects {
            for at in (0..NODES).cycle().take(each * NODES) {
                let to = (rig.addresses.clone(), at);
                tasks.spawn(calls(to, Arc::clone(subject), random.part(), Arc::clone(&stop)));
            }
        }
        Self { tasks, stop }
    }

    /// Lets the callers finish, and returns all answers.
    pub(super) async fn stop(self) -> Vec<Seen> {
        self.stop.store(true, Ordering::SeqCst);
        self.tasks.join_all().await.concat()
    }
}

/// Sends one request after the other until it is told to stop.
async fn calls(
    (addresses, at): (Addresses, usize),
    subject: Arc<Subject>,
    mut random: Random,
    stop: Arc<AtomicBool>,
) -> Vec<Seen> {
    let body =
        json!({"model": "up/m", "user": subject.user, "messages": [{"role": "user", "content": "Hi."}]});
    let body = Bytes::from(body.to_string());
    let mut seen = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let client = addresses.client(at, &subject.key).with("content-type", "application/json");
        let started = Instant::now();
        let sent = client.send("POST", "/v1/chat/completions", body.clone());
        // A node that is killed or paused does not answer.
        if let Ok(Ok(answer)) = tokio::time::timeout(ANSWER_TIME_MAX, sent).await {
            let id = answer.header("x-request-id").unwrap_or_default().to_owned();
            let status = answer.status;
            assert!(matches!(status, 200 | 401 | 429 | 503), "{}: {answer:?}", subject.user);
            seen.push(Seen { user: subject.user.clone(), node: at, started, status, id });
        }
        random.pause_ms(100, 400).await;
    }
    seen
}

const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
