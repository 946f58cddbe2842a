//! One gateway with its state in PostgreSQL: it keeps what one with files keeps, and says what is different.

use postgres_server::{PostgresServer, installed};
use serde_json::{Value, json};

use super::{database, node};
use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Upstream, Yaml, chat, wait};

const LIMIT: usize = 5;

/// Limits, keys, records and the audit survive kill -9 of the gateway.
#[tokio::test]
async fn a_state_in_postgresql_survives_a_kill_with_its_limits_records_and_audit() {
    let Some(database) = database() else { return };
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let yaml = Yaml::one(upstream.base_url());
    let gateway = node(&yaml, &database.url()).start().await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    let limit = json!({"subject": {"kind": "project", "id": project}, "metric": "requests",
        "window": "month", "limit": LIMIT});
    let limit = admin.create("quotas", limit).await;
    let client = Client::new(gateway.address(), Some(&key.key));
    for _ in 1..LIMIT {
        assert_eq!(client.chat(chat::request("up/m")).await.status, 200);
    }
    // The last records are in the journal alone, or not even there yet.
    let setup = gateway.kill().await;
    assert!(!setup.state().join("gateway.db").exists(), "the directory holds no state");
    let gateway = setup.start().await;
    let client = Client::new(gateway.address(), Some(&key.key));
    assert_eq!(client.chat(chat::request("up/m")).await.status, 200);
    let refused = client.chat(chat::request("up/m")).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("quota_exceeded")));
    let records = gateway.records(LIMIT + 1).await;
    assert_eq!(records.iter().filter(|record| record["outcome"] == "completed").count(), LIMIT);
    let admin = Admin(gateway.client());
    assert_eq!(admin.done("GET", &format!("quotas/{limit}"), Value::Null).await["used"], LIMIT);
    let exported = gateway.client().get("/admin/api/usage/export?format=jsonl").await.unwrap().body;
    assert_eq!(String::from_utf8(exported.to_vec()).unwrap().lines().count(), LIMIT + 1);
    let state = admin.done("GET", "state", Value::Null).await;
    assert!(state["usage"]["store"]["file"].as_str().unwrap().starts_with("PostgreSQL at "), "{state}");
    let audit = gateway.setup().output_of(&["audit", "verify"], 0).await;
    assert!(audit.contains("the audit log is intact"), "{audit}");
    let secrets = gateway.setup().output_of(&["credentials", "verify"], 0).await;
    assert!(secrets.contains("stored secrets open"), "{secrets}");
}

#[tokio::test]
async fn what_belongs_to_files_is_refused_with_what_to_do_instead() {
    let Some(database) = database() else { return };
    let yaml = Yaml::one("http://127.0.0.1:9/v1");
    let gateway = node(&yaml, &database.url()).start().await;
    let backup = Admin(gateway.client()).call("POST", "backups", Value::Null).await;
    assert_eq!(backup.status, 409, "{backup:?}");
    assert!(backup.json()["error"]["message"].as_str().unwrap().contains("pg_dump"), "{backup:?}");
    let setup = gateway.setup();
    for command in [&["backup", "create"][..], &["rollback"]] {
        let said = setup.run(command).await;
        let text = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.status.code(), Some(78), "{command:?}: {text}");
        assert!(text.contains("LLMGW_"), "{command:?}: {text}");
    }
    let doctor = setup.run(&["doctor"]).await;
    let text = String::from_utf8(doctor.stdout).unwrap();
    assert!(text.contains("PostgreSQL ") && text.contains("synchronous_commit is"), "{text}");
    assert!(!text.contains("llmgw:llmgw"), "the password is not shown: {text}");
    drop(gateway);

    // A directory with a state of its own, another key, a setting for files, and a URL that is none.
    let files = Setup::new(&yaml).start().await.kill().await;
    let both = files.env("LLMGW_DATABASE_URL", database.url());
    let text = both.output_of(&["serve"], 78).await;
    assert!(text.contains("holds a state of its own"), "{text}");
    let key = "k".repeat(43) + "=";
    let text = node(&yaml, &database.url()).env("LLMGW_CREDENTIAL_ENCRYPTION_KEY", key);
    let text = text.output_of(&["serve"], 78).await;
    assert!(text.contains("is not the key that"), "{text}");
    let text = node(&yaml, &database.url()).env("LLMGW_USAGE_DB", "true").output_of(&["serve"], 78).await;
    assert!(text.contains("LLMGW_USAGE_DB: is for a state in files"), "{text}");
    let text = node(&yaml, "mysql://u:secret-word@h/d").output_of(&["serve"], 78).await;
    assert!(text.contains("postgres://") && !text.contains("secret-word"), "{text}");
}

/// Requests are served while PostgreSQL is away; the admin API says so, and each record is stored once afterwards.
#[tokio::test]
async fn requests_are_served_while_postgresql_is_away_and_no_record_is_lost() {
    if !installed() {
        return;
    }
    let server = PostgresServer::start();
    let database = server.create_database();
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let gateway = node(&Yaml::one(upstream.base_url()), &database.url()).start().await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    let client = Client::new(gateway.address(), Some(&key.key));
    assert_eq!(client.chat(chat::request("up/m")).await.status, 200);
    gateway.records(1).await;
    server.kill();
    for _ in 0..3 {
        assert_eq!(client.chat(chat::request("up/m")).await.status, 200);
    }
    for (method, path, body) in [("GET", "keys", Value::Null), ("POST", "projects", json!({"name": "green"}))]
    {
        let refused = admin.call(method, path, body).await;
        let code = refused.json()["error"]["code"].clone();
        assert_eq!((refused.status, code), (503, json!("database_unreachable")), "{method} {path}");
    }
    assert_eq!(gateway.client().get("/ready").await.unwrap().status, 200);
    server.restart();
    let green = wait::eventually("a change after the restart", async || {
        let made = admin.call("POST", "projects", json!({"name": "green"})).await;
        (made.status == 201).then_some(made)
    })
    .await;
    assert_eq!(green.json()["name"], "green");
    assert_eq!(gateway.records(4).await.len(), 4);
    let totals = admin.done("GET", "usage", Value::Null).await["totals"].clone();
    assert_eq!(totals["requests"], 4, "{totals}");
}

/// A node that may have missed a revocation refuses project keys; administrators are served.
#[tokio::test]
async fn project_keys_are_refused_when_the_database_was_away_for_too_long() {
    if !installed() {
        return;
    }
    let server = PostgresServer::start();
    let database = server.create_database();
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let setup = node(&Yaml::one(upstream.base_url()), &database.url()).env("LLMGW_STALE_SECONDS", "5");
    let gateway = setup.start().await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    let client = Client::new(gateway.address(), Some(&key.key));
    server.kill();
    let served = client.chat(chat::request("up/m")).await;
    assert_eq!(served.status, 200, "{served:?}");
    let refused = wait::eventually("the refusal of project keys", async || {
        let answer = client.chat(chat::request("up/m")).await;
        (answer.status != 200).then_some(answer)
    })
    .await;
    let code = refused.json()["error"]["code"].clone();
    assert_eq!((refused.status, code), (503, json!("database_unreachable")), "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(gateway.client().get("/ready").await.unwrap().status, 503);
    assert_eq!(gateway.client().chat(chat::request("up/m")).await.status, 200, "administrators are served");
    server.restart();
    wait::eventually("project keys to be accepted again", async || {
        (client.chat(chat::request("up/m")).await.status == 200).then_some(())
    })
    .await;
}
