//! Anonymous providers (CFG-9, M-101, M-102): connected and checked only if that is enabled, at most once a day, and never
//! against an operator's decision. No test sends anything to the curated addresses: their names do not resolve.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, faults, wait};

const AUTOMATION: &str = "LLMGW_ANONYMOUS_PROVIDER_AUTOMATION";

/// Look-ups of names fail, and are appended to NAMES_ASKED.
const NO_NAMES: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res) {
    static __typeof__(&getaddrinfo) real;
    if (!real) real = (__typeof__(&getaddrinfo))dlsym(RTLD_NEXT, "getaddrinfo");
    if (!node || (*node >= '0' && *node <= '9')) return real(node, service, hints, res);
    FILE *asked = fopen(getenv("NAMES_ASKED"), "a");
    fprintf(asked, "%s\n", node);
    fclose(asked);
    return EAI_NONAME;
}
"#;

/// Returns a setup whose gateway resolves no names, and the folder with the names that it looked up.
fn without_names() -> (Setup, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let library = faults::compile(dir.path(), "no_names", NO_NAMES).expect("a C compiler");
    let setup = Setup::new(&Yaml::new())
        .env("LD_PRELOAD", library.to_str().unwrap())
        .env("NAMES_ASKED", dir.path().join("asked").to_str().unwrap())
        .env("LLMGW_LOG", "info,control=debug");
    (setup, dir)
}

async fn get(gateway: &Gateway, path: &str) -> Value {
    Admin(gateway.client()).done("GET", path, Value::Null).await
}

/// Returns the ID of the first curated provider.
async fn curated(gateway: &Gateway) -> String {
    get(gateway, "anonymous-providers").await["data"][0]["id"].as_str().unwrap().to_owned()
}

/// Changes the database of a gateway that has stopped.
fn change(state: &Path, sql: &str) {
    let db = rusqlite::Connection::open(state.join("gateway.db")).unwrap();
    db.execute_batch(&format!("{sql}; DELETE FROM row_sums")).unwrap();
}

/// Makes every claim two days old.
const AGE: &str = "UPDATE anonymous_checks SET claimed_at_ms = claimed_at_ms - 172800000";

/// A gateway whose first curated provider is at the address of `upstream`, and is due.
struct Rig {
    setup: Setup,
    upstream: Upstream,
    id: String,
    _dir: TempDir,
}

impl Rig {
    async fn new() -> Self {
        let (setup, dir) = without_names();
        let upstream = Upstream::start().await;
        let gateway = setup.start().await;
        let id = curated(&gateway).await;
        let provider = json!({"id": id, "type": "compatible", "base_url": upstream.base_url()});
        Admin(gateway.client()).create("providers", provider).await;
        let setup = gateway.kill().await.env(AUTOMATION, "true");
        let claim = format!("INSERT INTO anonymous_checks VALUES ('{id}', 0)");
        change(&setup.state(), &format!("UPDATE providers SET is_anonymous = 1; {claim}"));
        Self { setup, upstream, id, _dir: dir }
    }
}

async fn logged(gateway: &Gateway, text: &str) {
    gateway.logs(text).await;
}

fn pong() -> Answer {
    Answer::stream().chunk(chat::content("pong")).chunk(chat::finish()).chunk(chat::done()).end()
}

fn models() -> Answer {
    Answer::json(200, json!({"data": [{"id": "m"}]}).to_string())
}

#[tokio::test]
async fn anonymous_providers_are_connected_only_if_that_is_enabled() {
    let (setup, dir) = without_names();
    let gateway = setup.start().await;
    let listed = get(&gateway, "anonymous-providers").await;
    assert_eq!((&listed["enabled"], &listed["data"][0]["connected"]), (&json!(false), &json!(false)));
    for member in ["name", "terms", "documentation", "checked", "checked_by"] {
        assert!(listed["data"][0][member].is_string(), "{listed}");
    }
    assert_eq!(get(&gateway, "providers").await["data"], json!([]));
    assert!(!dir.path().join("asked").exists(), "no traffic by default");

    let gateway = gateway.kill().await.env(AUTOMATION, "true").start().await;
    let list = get(&gateway, "anonymous-providers").await["data"].as_array().unwrap().clone();
    assert!(list.len() > 1, "{list:?}");
    for curated in &list {
        let id = curated["id"].as_str().unwrap();
        let provider = wait::eventually("the check", async || {
            let provider = Admin(gateway.client()).call("GET", &format!("providers/{id}"), Value::Null).await;
            let shown = (provider.status == 200).then(|| provider.json())?;
            shown["evidence"]["catalog"]["last_error"].is_object().then_some(shown)
        })
        .await;
        assert_eq!(
            (&provider["anonymous"], &provider["credential"]["set"]),
            (&json!(true), &json!(false)),
            "{provider}"
        );
        assert_eq!(provider["base_url"], curated["base_url"]);
        let asked = std::fs::read_to_string(dir.path().join("asked")).unwrap();
        let base_url = curated["base_url"].as_str().unwrap();
        assert!(asked.lines().any(|name| base_url.contains(name)), "{base_url} in {asked}");
        let audit = get(&gateway, &format!("audit?action=provider.create&object=provider/{id}")).await;
        assert_eq!(audit["data"].as_array().unwrap().len(), 1, "{audit}");
        assert_eq!(audit["data"][0]["actor"], "gateway", "{audit}");
    }
    let listed = get(&gateway, "anonymous-providers").await;
    assert_eq!(listed["enabled"], true);
    for shown in listed["data"].as_array().unwrap() {
        assert!(shown["connected"] == true && shown["checked_at_ms"].is_u64(), "{shown}");
    }
    for list in ["keys", "endpoints", "projects", "principals"] {
        assert_eq!(get(&gateway, list).await["data"], json!([]), "{list}");
    }
}

#[tokio::test]
async fn a_check_reads_the_catalog_and_makes_one_tiny_completion_once_a_day() {
    let Rig { setup, upstream, id, _dir } = Rig::new().await;
    upstream.then(models());
    upstream.then(pong());
    let gateway = setup.start().await;
    logged(&gateway, "an anonymous provider completed a request").await;
    let sent = upstream.requests();
    assert_eq!(sent.len(), 2);
    assert!(
        sent[0].head.starts_with("GET /v1/models") && sent[1].head.starts_with("POST /v1/chat/completions")
    );
    assert!(sent.iter().all(|request| !request.head.to_lowercase().contains("authorization")));
    assert!(sent[1].json()["max_tokens"].as_u64().unwrap() <= 16);
    let row = get(&gateway, &format!("catalog?provider={id}&proven=true")).await["data"][0].clone();
    let record = gateway.record_of(row["tested"]["request_id"].as_str().unwrap()).await;
    assert_eq!((&record["key"], &record["provider"]), (&json!("gateway"), &json!(id)));

    upstream.always(Answer::completion("hello"));
    assert_eq!(
        gateway.client().chat(chat::request("m")).await.status,
        404,
        "no name leads to it but its own"
    );
    assert_eq!(gateway.client().chat(chat::request(&format!("{id}/m"))).await.status, 200);
    let gateway = gateway.restart().await;
    logged(&gateway, "it was checked within the last day").await;
    assert_eq!(upstream.requests().len(), 3, "a restart repeats no check");

    let setup = gateway.kill().await;
    change(&setup.state(), AGE);
    upstream.then(models());
    upstream.then(pong());
    let gateway = setup.start().await;
    logged(&gateway, "an anonymous provider completed a request").await;
    assert_eq!(upstream.requests().len(), 5, "the next day's check");
}

#[tokio::test]
async fn a_check_that_is_killed_is_not_repeated_on_the_same_day() {
    let Rig { setup, upstream, _dir, .. } = Rig::new().await;
    upstream.always(Answer::hang_forever());
    let gateway = setup.start().await;
    upstream.request(0).await;
    let gateway = gateway.restart().await;
    logged(&gateway, "it was checked within the last day").await;
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn what_an_operator_disabled_deleted_or_replaced_is_left_alone() {
    let Rig { mut setup, upstream, id, _dir } = Rig::new().await;
    upstream.always(Answer::error(500));
    let path = format!("providers/{id}");
    let mut checks = 0;
    for (method, body, reason) in [
        ("PATCH", json!({"disabled": true}), "an operator has disabled it"),
        (
            "PATCH",
            json!({"disabled": false, "api_key": "sk-of-an-operator"}),
            "an operator has deleted or replaced it",
        ),
        ("DELETE", Value::Null, "an operator has deleted or replaced it"),
    ] {
        let gateway = setup.start().await;
        if checks == 0 {
            upstream.request(0).await;
            logged(&gateway, "the catalog of an anonymous provider cannot be read").await;
            checks = upstream.requests().len();
        }
        Admin(gateway.client()).done(method, &path, body).await;
        setup = gateway.kill().await;
        change(&setup.state(), AGE);
        let gateway = setup.start().await;
        logged(&gateway, reason).await;
        assert_eq!(upstream.requests().len(), checks, "{reason}");
        let listed = get(&gateway, "anonymous-providers").await["data"][0].clone();
        let is_disabled = reason.contains("disabled");
        assert_eq!((&listed["connected"], &listed["disabled"]), (&json!(is_disabled), &json!(is_disabled)));
        setup = gateway.kill().await;
    }
}
