//! Retention, from the variable to the rows (M-115, M-116): what is older than the days that the environment sets is gone, and
//! nothing else.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, clock, wait};

const DAY_SECONDS: i64 = 86_400;

/// Starts the gateway with its clock at `seconds`, and waits until retention has looked at the rows once.
async fn at(setup: Setup, seconds: i64) -> Gateway {
    let gateway = setup.with_clock(clock::at(seconds).expect("a C compiler")).start().await;
    // Up to 4 s between its steps.
    wait::eventually_within(wait::PATIENCE * 3, "a pass of retention", async || {
        let state = Admin(gateway.client()).done("GET", "state", Value::Null).await;
        let jobs = state["jobs"].as_array().unwrap().clone();
        let job = jobs.into_iter().find(|job| job["name"] == "retention").unwrap();
        let ended_ms = job["last_ended_at_ms"].as_i64()?;
        (ended_ms / 1_000 >= seconds).then_some(())
    })
    .await;
    gateway
}

async fn stopped(mut gateway: Gateway) -> Setup {
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().await.code(), Some(0), "{}", gateway.log());
    gateway.kill().await
}

/// Returns whether the project's creation is in the audit, and whether the request is recorded.
async fn kept(gateway: &Gateway) -> (bool, bool) {
    let admin = Admin(gateway.client());
    let audit = admin.done("GET", "audit?limit=500", Value::Null).await.to_string();
    let requests = admin.done("GET", "requests", Value::Null).await;
    (audit.contains("of-long-ago"), !requests["data"].as_array().unwrap().is_empty())
}

#[tokio::test]
async fn rows_older_than_the_days_of_their_variable_are_deleted() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let noon = clock::next_noon();
    let gateway = at(Setup::new(&Yaml::one(upstream.base_url())), noon).await;
    Admin(gateway.client()).project("of-long-ago").await;
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    gateway.records(1).await;
    let setup = stopped(gateway).await;
    // Three days later: nothing is old enough for the defaults.
    let gateway = at(setup, noon + 3 * DAY_SECONDS).await;
    assert_eq!(kept(&gateway).await, (true, true));
    let setup = stopped(gateway).await.env("LLMGW_RETENTION_AUDIT_DAYS", "1");
    let gateway = at(setup, noon + 3 * DAY_SECONDS + 60).await;
    assert_eq!(kept(&gateway).await, (false, true), "only the audit is kept for a day");
    let setup = stopped(gateway).await.env("LLMGW_RETENTION_USAGE_DAYS", "1");
    let gateway = at(setup, noon + 3 * DAY_SECONDS + 120).await;
    assert_eq!(kept(&gateway).await, (false, false));
    let setup = stopped(gateway).await;
    setup.output_of(&["audit", "verify"], 0).await;
}
