//! Nodes whose clocks are wrong by hours: they say so, and neither admit what other windows of limits would count nor do the jobs
//! that one node does for all.

use serde_json::{Value, json};

use super::several::status;
use super::{database, node};
use crate::support::admin::Admin;
use crate::support::clock::{self, SetClock};
use crate::support::{Answer, Upstream, Yaml, wait};

const HOUR_S: i64 = 3_600;

#[tokio::test]
async fn a_start_with_a_clock_that_is_wrong_by_hours_is_refused() {
    let Some(database) = database() else { return };
    let yaml = Yaml::one("http://127.0.0.1:9/v1");
    let now_s = i64::try_from(shared::clock::unix_ms() / 1_000).unwrap();
    for hours in [-30, -5, 5, 30] {
        let Some(environment) = clock::at(now_s + hours * HOUR_S) else { return };
        let text = node(&yaml, &database.url()).with_clock(environment).output_of(&["serve"], 78).await;
        assert!(
            text.contains("clock and this machine's differ by")
                && text.contains("let both follow a time server"),
            "{hours} hours: {text}"
        );
    }
}

#[tokio::test]
async fn a_node_whose_clock_is_set_wrong_by_hours_refuses_project_keys_until_it_is_right() {
    const LIMIT: usize = 30;
    let Some(database) = database() else { return };
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let (yaml, dir) = (Yaml::one(upstream.base_url()), tempfile::tempdir().unwrap());
    let Some((clock, environment)) = SetClock::right(dir.path()) else { return };
    // It has the duty, because it is the first.
    let setup = node(&yaml, &database.url()).env("LLMGW_NODE_NAME", "n1").with_clock(environment);
    let wrong = setup.start().await;
    wrong.logs("this node has the duty").await;
    let right = node(&yaml, &database.url()).env("LLMGW_NODE_NAME", "n2").start().await;
    let admin = Admin(right.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await.key;
    // The hour may end while the test runs, the other window does not.
    for window in ["hour", "total"] {
        let limit = json!({"subject": {"kind": "project", "id": project}, "metric": "requests",
            "window": window, "limit": LIMIT});
        admin.create("quotas", limit).await;
    }
    let mut served = 0;
    for _ in 0..3 {
        for gateway in [&wrong, &right] {
            assert_eq!(status(gateway, &key).await, 200);
            served += 1;
        }
    }
    for hours in [5, -5, 24 * 400] {
        clock.set_ahead(hours * HOUR_S);
        // A clock that is ahead lets the node take its state for an old one until its next look at the database.
        wait::eventually("the node to refuse the key because of its clock", async || {
            let ready = wrong.client().get("/ready").await.unwrap();
            let is_clock = ready.json()["error"]["message"].as_str()?.contains("clocks of the node");
            (ready.status == 503 && is_clock && status(&wrong, &key).await == 503).then_some(())
        })
        .await;
        let side = if hours > 0 { "ahead of" } else { "behind" };
        wrong.logs(&format!("s {side} that of the database: project keys are refused")).await;
        wrong.logs("no longer has the duty").await;
        right.logs("this node has the duty").await;
        assert_eq!(status(&right, &key).await, 200, "the other node serves on");
        wait::eventually("the difference to be reported", async || {
            let listed = Admin(right.client()).done("GET", "nodes", Value::Null).await;
            let ahead_ms = listed["data"][0]["clock_ahead_ms"].as_i64()?;
            (ahead_ms.abs_diff(hours * HOUR_S * 1_000) < 60_000).then_some(())
        })
        .await;
        clock.set_ahead(0);
        wait::eventually("the node to serve again", async || {
            (status(&wrong, &key).await == 200).then_some(())
        })
        .await;
        served += 2;
    }
    // Both nodes go on until neither has a share left. What the first one had forgotten of the hour counts as used.
    let mut refused = 0;
    while refused < 20 {
        for gateway in [&wrong, &right] {
            match status(gateway, &key).await {
                200 => (served, refused) = (served + 1, 0),
                429 => refused += 1,
                other => panic!("{other}"),
            }
        }
    }
    assert_eq!(upstream.requests().len(), served);
    assert!((LIMIT - 10..=LIMIT).contains(&served), "{served} requests were served");
    let records = wait::eventually("all records", async || {
        let mut records = right.records(served).await;
        records.retain(|record| record["outcome"] == "completed");
        (records.len() >= served).then_some(records.len())
    })
    .await;
    assert_eq!(records, served);
}
