//! The checks after a round.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::block_in_place;

use super::callers::{Seen, Subject};
use super::changes::{Created, Raised, Revoked};
use super::fault::Fault;
use super::rig::{NODES, Rig};
use crate::support::{Client, chat, wait};

/// A round that has ended: its changes, and the answers that callers got.
pub(super) struct Round {
    pub(super) fault: Fault,
    pub(super) seed: u64,
    /// The node that failed.
    pub(super) victim: usize,
    /// The numbers of the nodes in the database when the fault began.
    pub(super) numbers: Vec<u64>,
    /// When the fault was over.
    pub(super) ended: Instant,
    /// With a budget, with a limit by the minute, without a limit, with the key that was revoked.
    pub(super) subjects: [Arc<Subject>; 4],
    pub(super) seen: Vec<Seen>,
    pub(super) revoked: Revoked,
    pub(super) created: Vec<Created>,
    pub(super) raised: Raised,
    pub(super) counter: String,
}

/// Waits until every node is ready.
pub(super) async fn all_ready(rig: &Rig) {
    for node in &rig.nodes {
        wait::eventually_within(REST_TIME_MAX, "a node to be ready", async || {
            (Client::new(node.address(), None).get("/ready").await.ok()?.status == 200).then_some(())
        })
        .await;
    }
}

/// Checks that the shares of each window are what the window has granted, and not more than its limit. Returns the number
/// of looks.
pub(super) async fn look_at_shares(rig: &Rig, fault: Fault) -> u64 {
    if fault.loses_commits() {
        // A node that claims more than the server knows does so before another one has claimed less.
        wait::eventually_within(REST_TIME_MAX, "the shares to be within the limits", async || {
            found(rig, ABOVE_LIMITS).await.is_empty().then_some(())
        })
        .await;
    }
    for _ in 0..LOOKS {
        let found = found(rig, &format!("{UNEQUAL_SUMS} UNION ALL {ABOVE_LIMITS}")).await;
        assert!(found.is_empty(), "shares and limits differ: {found}");
    }
    LOOKS
}

/// Returns the rows of a query.
async fn found(rig: &Rig, sql: &str) -> String {
    let output = wait::eventually_within(REST_TIME_MAX, "the server to answer", async || {
        block_in_place(|| rig.server.client(&rig.server.url()).arg("--command").arg(sql).output().ok())
            .filter(|output| output.status.success())
    })
    .await;
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Checks everything. Returns the number of changes that were answered and lost with the server's last commits.
pub(super) async fn all(rig: &Rig, round: &Round) -> u64 {
    let [budget, minute, free, doomed] = &round.subjects;
    let used = [rig.arrived.of(&budget.user), rig.arrived.most_within(&minute.user, MINUTE)];
    for (limited, used) in [budget, minute].into_iter().zip(used) {
        let (user, limit) = (&limited.user, limited.limit.unwrap() + round.unknown_to_copy(limited));
        assert!(
            used <= limit,
            "seed {}: {used} requests of {user} reached the upstream: {limit}",
            round.seed
        );
    }
    let lost = revocation(rig, round, doomed).await + changes(rig, round, free).await;
    for subject in &round.subjects {
        let recorded = records(rig, round, subject).await;
        let limit = subject.limit.filter(|_| subject.user == budget.user);
        assert!(limit.is_none_or(|limit| recorded <= limit), "seed {}: {recorded} records", round.seed);
    }
    lost
}

impl Round {
    /// True if a change that was sent then may be among the commits that the server has lost.
    fn may_be_lost(&self, sent: Instant) -> bool {
        self.fault.loses_commits() && sent < self.ended
    }

    /// Returns the most requests of a subject that a node with a copy of the directory may not know of: those that the first
    /// process began before the copy ran.
    fn unknown_to_copy(&self, subject: &Subject) -> u64 {
        if self.fault != Fault::StartCopy {
            return 0;
        }
        let of_first = |seen: &&Seen| {
            (seen.node, seen.status) == (self.victim, 200)
                && seen.user == subject.user
                && seen.started < self.ended
        };
        self.seen.iter().filter(of_first).count() as u64 + RUNNING_MAX
    }
}

/// A published revocation holds at every node that was not named as silent, and at all of them now. If the server has lost it,
/// all nodes serve the key.
async fn revocation(rig: &Rig, round: &Round, doomed: &Subject) -> u64 {
    let Revoked { sent, answered, published, silent } = &round.revoked;
    let shown = rig.admin(1).done("GET", &format!("keys/{}", doomed.key_id), Value::Null).await;
    let is_revoked = shown["state"] == "revoked";
    assert!(is_revoked || round.may_be_lost(*sent), "seed {}: {shown}", round.seed);
    let late = round.seen.iter().filter(|seen| {
        seen.user == doomed.user
            && seen.status == 200
            && seen.started > *answered
            && !silent.contains(&round.numbers[seen.node])
    });
    let late: Vec<&Seen> = late.collect();
    let holds = !published || !is_revoked || late.is_empty();
    assert!(holds, "seed {}: served after {:?}: {late:?}", round.seed, round.revoked);
    let until = Instant::now() + REST_TIME_MAX;
    for at in 0..NODES {
        while let Some(why) = served_otherwise(rig, at, doomed).await {
            assert!(Instant::now() < until, "seed {}: {why}", round.seed);
            tokio::time::sleep(LEDGER_PAUSE).await;
        }
    }
    u64::from(!is_revoked)
}

/// Returns what is wrong if a node serves a key that is revoked, or refuses one that is not.
async fn served_otherwise(rig: &Rig, at: usize, doomed: &Subject) -> Option<String> {
    let shown = rig.admin(1).done("GET", &format!("keys/{}", doomed.key_id), Value::Null).await;
    let expected = if shown["state"] == "revoked" { 401 } else { 200 };
    let answer = rig.addresses.client(at, &doomed.key).chat(chat::request("up/m")).await;
    (answer.status != expected)
        .then(|| format!("status {} at node {at} for the key that is {}", answer.status, shown["state"]))
}

/// Each change was made once, and none was lost unless the server has lost commits.
async fn changes(rig: &Rig, round: &Round, free: &Subject) -> u64 {
    let admin = rig.admin(1);
    let listed = admin.done("GET", &format!("keys?project={}&limit=200", free.project), Value::Null).await;
    let names: Vec<&str> =
        listed["data"].as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap()).collect();
    let mut lost = 0;
    for Created { name, sent } in &round.created {
        let least = usize::from(!round.may_be_lost(*sent));
        let count = names.iter().filter(|known| *known == name).count();
        assert!((least..=1).contains(&count), "{name} is there {count} times: {names:?}");
        lost += u64::from(count == 0);
    }
    let counter = admin.done("GET", &format!("keys/{}", round.counter), Value::Null).await;
    let count: usize = counter["name"].as_str().unwrap().parse().unwrap();
    let Raised { surely, perhaps } = &round.raised;
    let least = surely.iter().filter(|sent| !round.may_be_lost(**sent)).count();
    assert!(
        (least..=surely.len() + perhaps).contains(&count),
        "seed {}: {count} for {:?}",
        round.seed,
        round.raised
    );
    lost
}

/// Each completed answer has one record, each request of the upstream has one, and the sums are those of the records. Returns
/// the number of records of requests that may have reached the upstream.
async fn records(rig: &Rig, round: &Round, subject: &Subject) -> u64 {
    let until = Instant::now() + REST_TIME_MAX;
    loop {
        match ledger(rig, round, subject).await {
            Ok(attempted) => return attempted,
            Err(why) if Instant::now() >= until => {
                panic!("seed {}: the records of {}: {why}", round.seed, subject.user)
            }
            // Nodes that were down or cut off are still storing their records.
            Err(_) => tokio::time::sleep(LEDGER_PAUSE).await,
        }
    }
}

/// Compares the records of a subject with their sums, with the answers that callers got and with the requests that arrived.
async fn ledger(rig: &Rig, round: &Round, subject: &Subject) -> Result<u64, String> {
    let records = exported(rig, round, subject).await?;
    let path = format!("usage?project={}", subject.project);
    let sums = rig.admin(round.victim).call("GET", &path, Value::Null).await;
    if sums.status != 200 || sums.json()["totals"]["requests"] != records.len() {
        return Err(format!("{} records, and another sum: {sums:?}", records.len()));
    }
    let may_be_lost =
        |seen: &Seen| round.fault.loses_records() && seen.node == round.victim && seen.started < round.ended;
    for seen in round.seen.iter().filter(|seen| seen.user == subject.user && seen.status == 200) {
        match records.get(&seen.id) {
            // The copy of the directory tells that the request had begun, and not how it ended.
            Some(record) if may_be_lost(seen) && record["outcome"] == "interrupted" => {}
            Some(record) => assert_eq!(record["outcome"], "completed", "seed {}: {record}", round.seed),
            None if may_be_lost(seen) => {}
            None => return Err(format!("none of {seen:?}")),
        }
    }
    let arrived = rig.arrived.of(&subject.user);
    let attempted = records.values().filter(|record| record["outcome"] != "failed").count() as u64;
    // A whole answer without a hard limit is not recorded if its node is killed; each node has one such caller.
    let unrecorded = u64::from(round.fault.kills_nodes() && subject.limit.is_none());
    if !round.fault.loses_records() && attempted + unrecorded < arrived {
        return Err(format!("{attempted} of {arrived} requests that arrived"));
    }
    Ok(attempted)
}

/// Returns the records of a subject by the IDs of their requests.
async fn exported(rig: &Rig, round: &Round, subject: &Subject) -> Result<HashMap<String, Value>, String> {
    let path = format!("/admin/api/usage/export?format=jsonl&project={}", subject.project);
    let exported =
        rig.admin((round.victim + 1) % NODES).0.get(&path).await.map_err(|error| error.to_string())?;
    let text = String::from_utf8(exported.body.to_vec()).unwrap();
    if exported.status != 200 {
        return Err(text);
    }
    let mut records = HashMap::new();
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let id = record["request_id"].as_str().unwrap().to_owned();
        assert!(records.insert(id.clone(), record).is_none(), "seed {}: {id} is there twice", round.seed);
    }
    Ok(records)
}

/// A request that was admitted before its node paused for 8 s may reach the upstream that much later.
const MINUTE: Duration = Duration::from_secs(50);
/// The most requests of a subject that run at one node.
const RUNNING_MAX: u64 = 2;
const LOOKS: u64 = 5;
const LEDGER_PAUSE: Duration = Duration::from_millis(200);
/// A bound for what must come when all nodes run again, however busy the machine is.
const REST_TIME_MAX: Duration = Duration::from_secs(120);
const UNEQUAL_SUMS: &str = "SELECT w.quota, w.granted, coalesce(sum(s.granted), 0) FROM quota_window AS w \
     LEFT JOIN quota_share AS s ON s.quota = w.quota AND s.start_ms = w.start_ms GROUP BY w.quota, w.start_ms, w.granted \
     HAVING w.granted <> coalesce(sum(s.granted), 0) OR min(s.granted) < 0";
const ABOVE_LIMITS: &str = "SELECT w.quota, w.granted, q.amount FROM quota_window AS w JOIN quotas AS q ON q.id = w.quota \
     WHERE w.granted > q.amount";
