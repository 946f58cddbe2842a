//! The periodic jobs in `GET state`: all of them, with their last run and error, which a restart does not forget.

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::upstream::refusing_url;
use crate::support::{Answer, Gateway, Upstream, Yaml, clock, skipped, wait};

const DAY_S: i64 = 24 * 60 * 60;

async fn jobs(gateway: &Gateway) -> Vec<Value> {
    let state = Admin(gateway.client()).done("GET", "state", Value::Null).await;
    state["jobs"].as_array().unwrap().clone()
}

/// Waits until the job `name` has ended a run that `is_wanted`.
async fn ended(gateway: &Gateway, name: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    wait::eventually_within(2 * wait::PATIENCE, name, async || {
        let job = jobs(gateway).await.into_iter().find(|job| job["name"] == name)?;
        (job["last_ended_at_ms"].is_u64() && is_wanted(&job)).then_some(job)
    })
    .await
}

#[tokio::test]
async fn every_periodic_job_is_listed_with_its_interval() {
    let gateway = Setup::new(&Yaml::one(refusing_url().await))
        .env("LLMGW_PRICES_URL", refusing_url().await)
        .env("LLMGW_BACKUP_SCHEDULE", "30 3 * * *")
        .start()
        .await;
    let mut listed: Vec<(String, String)> = jobs(&gateway)
        .await
        .iter()
        .map(|job| (job["name"].as_str().unwrap().to_owned(), job["interval"].as_str().unwrap().to_owned()))
        .collect();
    listed.sort();
    let want = [
        ("affinity_file", "every minute"),
        ("alert_evaluation", "every 2 s"),
        ("backup", "30 3 * * *"),
        ("catalog_sync", "daily"),
        ("price_file", "every 10 s"),
        ("price_list", "daily"),
        ("restore_rehearsal", "daily"),
        ("retention", "every 10 minutes"),
        ("sign_in_refresh", "when due"),
        ("token_renewal", "when due"),
        ("webhook_delivery", "when due"),
    ];
    assert_eq!(listed, want.map(|(name, interval)| (name.to_owned(), interval.to_owned())));
    let feed = ended(&gateway, "price_list", |job| job["last_error"].is_string()).await;
    assert!(feed["next_at_ms"].as_u64().unwrap() > feed["last_ended_at_ms"].as_u64().unwrap(), "{feed}");
    let alerts = ended(&gateway, "alert_evaluation", |job| job["last_error"].is_null()).await;
    assert!(alerts["last_started_at_ms"].is_u64(), "{alerts}");
}

#[tokio::test]
async fn a_kill_and_a_restart_forget_neither_the_last_run_of_a_job_nor_its_error() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    std::fs::create_dir_all(gateway.state().join("backups")).unwrap();
    // A file where the backup makes a folder.
    std::fs::write(gateway.state().join("backups/.draft"), "a file").unwrap();
    Admin(gateway.client()).done("POST", "backups", json!({})).await;
    let failed = ended(&gateway, "backup", |job| job["last_error"].is_string()).await;
    assert_eq!((&failed["interval"], &failed["next_at_ms"]), (&"on request".into(), &Value::Null));
    let database = gateway.state().join("gateway.db");
    wait::eventually("the run in the database", async || {
        let db = rusqlite::Connection::open(&database).unwrap();
        db.query_row("SELECT error FROM job_runs WHERE job = 'backup'", [], |row| row.get::<_, String>(0))
            .ok()
    })
    .await;
    let gateway = gateway.restart().await;
    let kept = ended(&gateway, "backup", |_| true).await;
    for member in ["last_started_at_ms", "last_ended_at_ms", "last_error"] {
        assert_eq!(kept[member], failed[member], "{member}");
    }
    let list = Admin(gateway.client()).done("GET", "backups", Value::Null).await;
    assert_eq!(list["last_failure"]["message"], failed["last_error"]);
    assert_eq!(list["last_failure"]["at_ms"], failed["last_ended_at_ms"]);
}

/// Lists are read again a day after they were read, without a request.
#[tokio::test]
async fn catalogs_are_read_again_after_a_day() {
    let upstream = Upstream::start().await;
    let list = |models: &[&str]| {
        let data: Vec<Value> = models.iter().map(|id| json!({"id": id})).collect();
        Answer::json(200, json!({"object": "list", "data": data}).to_string())
    };
    upstream.always(list(&["m"]));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    Admin(gateway.client()).done("POST", "catalog/sync", json!({})).await;
    let now_s = i64::try_from(shared::clock::unix_ms() / 1_000).unwrap();
    let Some(clock) = clock::at(now_s + DAY_S) else {
        return skipped("there is no C compiler to set the gateway's clock with");
    };
    upstream.always(list(&["m", "new"]));
    let gateway = gateway.kill().await.with_clock(clock).start().await;
    let job = ended(&gateway, "catalog_sync", |_| true).await;
    assert_eq!((upstream.requests().len(), &job["last_error"]), (2, &Value::Null));
    wait::eventually("the new model", async || {
        let page = Admin(gateway.client()).done("GET", "catalog?q=new", Value::Null).await;
        (page["data"][0]["id"] == "up/new").then_some(())
    })
    .await;
}
