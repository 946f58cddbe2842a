//! The audit log and its hash chain, through the command line (B-17).

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Gateway, Yaml};

async fn verify(setup: &Setup, code: i32) -> String {
    setup.output_of(&["audit", "verify"], code).await
}

#[tokio::test]
async fn a_changed_audit_row_is_named() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let client = gateway.client();
    for number in 0..10 {
        let created = client.post("/admin/api/principals", format!(r#"{{"name": "p{number}"}}"#)).await;
        assert_eq!(created.status, 201);
    }
    assert!(verify(gateway.setup(), 0).await.contains("10 rows"), "while the gateway runs");
    let setup = gateway.kill().await;
    assert!(verify(&setup, 0).await.contains("10 rows"), "and after a kill -9");
    let database = setup.state().join("gateway.db");
    let change = |sql: &str| {
        let db = rusqlite::Connection::open(&database).unwrap();
        assert_eq!(db.execute(sql, []).unwrap(), 1, "{sql}");
    };
    change("UPDATE audit SET actor = 'admiN' WHERE id = 4");
    assert!(verify(&setup, 1).await.contains("row 4 was changed"));
    change("UPDATE audit SET actor = 'admin' WHERE id = 4");
    assert!(verify(&setup, 0).await.contains("10 rows"));
    change("DELETE FROM audit WHERE id = 10");
    assert!(verify(&setup, 1).await.contains("row 10 is missing"));
    // At startup the gateway rejects rows that it did not write until an operator accepts them; the next row hides
    // nothing.
    let refused = setup.run(&["serve"]).await;
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(74) && stderr.contains("table audit"), "{stderr}");
    rusqlite::Connection::open(&database).unwrap().execute_batch("DELETE FROM row_sums").unwrap();
    let gateway = setup.start().await;
    assert_eq!(client_of(&gateway).post("/admin/api/principals", r#"{"name": "later"}"#).await.status, 201);
    assert!(verify(gateway.setup(), 1).await.contains("missing"));
}

#[tokio::test]
async fn the_api_verifies_the_chain_and_shows_single_records() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let admin = Admin(gateway.client());
    let empty = admin.done("POST", "audit/verify", json!({})).await;
    let none = json!({"ok": true, "rows": 0, "since_ms": null, "broken_at": null, "fault": null});
    assert_eq!(empty, none);
    for number in 0..3 {
        admin.create("principals", json!({"name": format!("p{number}")})).await;
    }
    let whole = admin.done("POST", "audit/verify", json!({})).await;
    let first = admin.done("GET", "audit/1", Value::Null).await;
    assert_eq!((&first["action"], &first["object_kind"]), (&json!("audit.verify"), &json!("audit")));
    assert_eq!(first["detail"]["after"], empty);
    assert_eq!(
        (&whole["ok"], &whole["rows"], &whole["since_ms"]),
        (&json!(true), &json!(4), &first["at_ms"])
    );
    let list = admin.done("GET", "audit?limit=1", Value::Null).await;
    let newest = list["data"][0]["id"].as_i64().unwrap();
    assert_eq!(admin.done("GET", &format!("audit/{newest}"), Value::Null).await, list["data"][0]);
    for unknown in ["audit/999", "audit/0", "audit/x", "audit/99999999999999999999"] {
        assert_eq!(admin.call("GET", unknown, Value::Null).await.status, 404, "{unknown}");
    }
    let shown = admin.done("GET", "audit/verify", Value::Null).await;
    assert_eq!(
        (&shown["ok"], &shown["rows"], &shown["since_ms"]),
        (&json!(true), &json!(5), &first["at_ms"])
    );
    let again = admin.done("GET", "audit/verify", Value::Null).await;
    assert_eq!(again["rows"], 5, "the audit does not record a verification by GET");

    let db = rusqlite::Connection::open(gateway.state().join("gateway.db")).unwrap();
    db.execute("UPDATE audit SET actor = 'admiN' WHERE id = 3", []).unwrap();
    let broken = admin.done("POST", "audit/verify", json!({})).await;
    assert_eq!((&broken["ok"], &broken["broken_at"]), (&json!(false), &json!(3)), "{broken}");
    assert_eq!(broken["fault"], "row 3 was changed");
    let shown = admin.done("GET", "audit/verify", Value::Null).await;
    assert_eq!((&shown["broken_at"], &shown["fault"]), (&broken["broken_at"], &broken["fault"]));
}

fn client_of(gateway: &Gateway) -> crate::support::Client {
    gateway.client()
}

#[tokio::test]
async fn a_verification_needs_a_state_and_its_key() {
    let setup = Setup::new(&Yaml::new());
    assert!(verify(&setup, 74).await.contains("gateway.db"));
    assert!(!setup.state().exists());
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let setup = gateway
        .kill()
        .await
        .env("LLMGW_CREDENTIAL_ENCRYPTION_KEY", "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=");
    assert!(verify(&setup, 78).await.contains("LLMGW_CREDENTIAL_ENCRYPTION_KEY"));
}
