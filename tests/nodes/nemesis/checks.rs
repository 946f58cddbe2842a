//! What must hold after a round.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::task::block_in_place;

use super::callers::{Seen, Subject};
use super::changes::{Raised, Revoked};
use super::rig::{NODES, Rig};
use crate::support::{Client, chat, wait};

/// What was done in a round, and what callers saw.
pub(super) struct Round {
    pub(super) seed: u64,
    /// The node that failed.
    pub(super) victim: usize,
    /// The numbers of the nodes in the database when the fault began.
    pub(super) numbers: Vec<u64>,
    /// With a budget, with a limit by the minute, without a limit, with the key that was revoked.
    pub(super) subjects: [Arc<Subject>; 4],
    pub(super) seen: Vec<Seen>,
    pub(super) revoked: Revoked,
    pub(super) raised: Raised,
    pub(super) counter: String,
}

/// Waits until every node is ready.
pub(super) async fn all_ready(rig: &Rig) {
    for node in &rig.nodes {
        wait::eventually("a node to be ready", async || {
            (Client::new(node.address(), None).get("/ready").await.ok()?.status == 200).then_some(())
        })
        .await;
    }
}

/// Checks that the shares of each window are what the window has granted, and not more than its limit. Returns the number
/// of looks.
pub(super) async fn look_at_shares(rig: &Rig) -> u64 {
    let mut looks = 0;
    for _ in 0..5 {
        let found = wait::eventually("the server to answer", async || {
            block_in_place(|| {
                rig.server.client(&rig.server.url()).arg("--command").arg(BROKEN_SHARES).output().ok()
            })
            .filter(|output| output.status.success())
        })
        .await;
        let found = String::from_utf8_lossy(&found.stdout).trim().to_owned();
        assert!(found.is_empty(), "shares and limits differ: {found}");
        looks += 1;
    }
    looks
}

/// Checks everything.
pub(super) async fn all(rig: &Rig, round: &Round) {
    let [budget, minute, free, doomed] = &round.subjects;
    let used = [rig.arrived.of(&budget.user), rig.arrived.most_within(&minute.user, MINUTE)];
    for (limited, used) in [budget, minute].into_iter().zip(used) {
        let (user, limit) = (&limited.user, limited.limit.unwrap());
        assert!(
            used <= limit,
            "seed {}: {used} requests of {user} reached the upstream: {limit}",
            round.seed
        );
    }
    revocation(rig, round, doomed).await;
    changes(rig, round, free).await;
    for subject in &round.subjects {
        records(rig, round, subject).await;
    }
}

/// A published revocation holds at every node that was not named as silent, and at all of them now.
async fn revocation(rig: &Rig, round: &Round, doomed: &Subject) {
    let Revoked { answered, published, silent } = &round.revoked;
    let late = round.seen.iter().filter(|seen| {
        seen.user == doomed.user
            && seen.status == 200
            && seen.started > *answered
            && !silent.contains(&round.numbers[seen.node])
    });
    let late: Vec<&Seen> = late.collect();
    assert!(!published || late.is_empty(), "seed {}: served after {:?}: {late:?}", round.seed, round.revoked);
    for at in 0..NODES {
        wait::eventually("the revoked key to be refused", async || {
            let answer = rig.addresses.client(at, &doomed.key).chat(chat::request("up/m")).await;
            (answer.status == 401).then_some(())
        })
        .await;
    }
}

/// Each change was made once, and none was lost.
async fn changes(rig: &Rig, round: &Round, free: &Subject) {
    let admin = rig.admin(1);
    let listed = admin.done("GET", &format!("keys?project={}&limit=200", free.project), Value::Null).await;
    let names: Vec<&str> =
        listed["data"].as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap()).collect();
    for number in 0..3 {
        let name = format!("made-{}-{number}", round.seed);
        assert_eq!(names.iter().filter(|known| **known == name).count(), 1, "{name}: {names:?}");
    }
    let counter = admin.done("GET", &format!("keys/{}", round.counter), Value::Null).await;
    let (count, Raised { surely, perhaps }) =
        (counter["name"].as_str().unwrap().parse::<u64>().unwrap(), round.raised);
    assert!(
        (surely..=surely + perhaps).contains(&count),
        "seed {}: {count} for {:?}",
        round.seed,
        round.raised
    );
}

/// Each completed answer has one record, each request of the upstream has one, and the sums are those of the records.
async fn records(rig: &Rig, round: &Round, subject: &Subject) {
    let seen = round.seen.iter().filter(|seen| seen.user == subject.user && seen.status == 200);
    let seen = seen.filter(|seen| !rig.fault.loses_records() || seen.node != round.victim);
    let completed: HashSet<&str> = seen.map(|seen| seen.id.as_str()).collect();
    let path = format!("/admin/api/usage/export?format=jsonl&project={}", subject.project);
    let client = rig.admin((round.victim + 1) % NODES).0;
    let mut missing = Vec::new();
    let what = format!("seed {}: the records of {}", round.seed, subject.user);
    let records = wait::eventually(&what, async || {
        let exported = client.get(&path).await.ok().filter(|answer| answer.status == 200)?;
        let text = String::from_utf8(exported.body.to_vec()).unwrap();
        let mut records = HashMap::new();
        for line in text.lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            let id = record["request_id"].as_str().unwrap().to_owned();
            assert!(records.insert(id.clone(), record).is_none(), "seed {}: {id} is there twice", round.seed);
        }
        missing = completed.iter().filter(|id| !records.contains_key(**id)).collect();
        missing.is_empty().then_some(records)
    })
    .await;
    for id in &completed {
        assert_eq!(records[*id]["outcome"], "completed", "{:?}", records[*id]);
    }
    let arrived = rig.arrived.of(&subject.user);
    let attempted = records.values().filter(|record| record["outcome"] != "failed").count() as u64;
    // A whole answer without a hard limit is not recorded if its node is killed; each node has one such caller.
    let unrecorded = u64::from(rig.fault.kills_nodes() && subject.limit.is_none());
    assert!(
        rig.fault.loses_records() || attempted + unrecorded >= arrived,
        "seed {}: {attempted} records of {arrived}",
        round.seed
    );
    let path = format!("usage?project={}", subject.project);
    let sums = rig.admin(round.victim);
    wait::eventually("the sums of the records", async || {
        let sums = sums.call("GET", &path, Value::Null).await;
        (sums.status == 200 && sums.json()["totals"]["requests"] == records.len()).then_some(())
    })
    .await;
}

/// A request that was admitted before its node paused for 8 s may reach the upstream that much later.
const MINUTE: Duration = Duration::from_secs(50);
const BROKEN_SHARES: &str = "SELECT w.quota, w.granted, coalesce(sum(s.granted), 0), q.amount FROM quota_window AS w \
     JOIN quotas AS q ON q.id = w.quota LEFT JOIN quota_share AS s ON s.quota = w.quota AND s.start_ms = w.start_ms \
     GROUP BY w.quota, w.start_ms, w.granted, q.amount \
     HAVING w.granted <> coalesce(sum(s.granted), 0) OR w.granted > q.amount OR min(s.granted) < 0";
