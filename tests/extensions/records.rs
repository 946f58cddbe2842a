//! The records of extensions in the admin API, and probes.

use serde_json::{Value, json};

use super::{Socket, expect_signed, lab, new, path, url};
use crate::support::admin::Admin;
use crate::support::{Gateway, Yaml};

/// M-112, M-185: `POST /admin/api/extensions` adds a companion extension, audited.
#[tokio::test]
async fn an_extension_is_added_changed_found_and_deleted() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let admin = Admin(gateway.client());
    let dry = admin.done("POST", "extensions?dry_run=true", new("lab", "http://127.0.0.1:9")).await;
    assert_eq!(dry["object"]["name"], "lab", "{dry}");
    assert_eq!(admin.call("GET", "extensions/lab", Value::Null).await.status, 404);

    let made = admin.call("POST", "extensions", new("lab", "http://127.0.0.1:9")).await;
    assert_eq!((made.status, made.header("etag")), (201, Some("\"1\"")), "{made:?}");
    let shown = made.json();
    assert_eq!(
        (&shown["enabled"], &shown["last_check"], &shown["providers"]),
        (&json!(true), &Value::Null, &json!([]))
    );
    assert_eq!(admin.call("POST", "extensions", new("lab", "http://127.0.0.1:9")).await.status, 409);
    for (member, value, want) in [
        ("name", json!("a b"), "name must be"),
        ("url", json!("ftp://x"), "only http"),
        ("url", json!("http://169.254.169.254"), "metadata"),
        ("url", json!("unix:relative.sock"), "absolute path"),
        ("secret", json!("too short"), "openssl rand"),
    ] {
        let mut body = new("other", "http://127.0.0.1:9");
        body[member] = value;
        let refused = admin.call("POST", "extensions", body).await;
        let error = &refused.json()["error"];
        assert_eq!((refused.status, &error["param"]), (400, &json!(member)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(want), "{error}");
    }

    let stale = Admin(gateway.client().with("if-match", "\"7\""));
    assert_eq!(stale.call("PATCH", "extensions/lab", json!({"enabled": false})).await.status, 412);
    let changed = admin.done("PATCH", "extensions/lab", json!({"enabled": false})).await;
    assert_eq!((&changed["enabled"], &changed["version"]), (&json!(false), &json!(2)));
    let listed = async |query: &str| {
        let page = admin.done("GET", &format!("extensions?{query}"), Value::Null).await;
        page["data"].as_array().unwrap().len()
    };
    assert_eq!((listed("q=LA").await, listed("q=127.0").await, listed("q=zz").await), (1, 1, 0));
    let found = admin.done("GET", "search?q=lab", Value::Null).await;
    assert_eq!((&found["data"][0]["kind"], &found["data"][0]["id"]), (&json!("extension"), &json!("lab")));

    admin.done("DELETE", "extensions/lab", Value::Null).await;
    assert_eq!(admin.call("DELETE", "extensions/lab", Value::Null).await.status, 404);
    let audit = admin.done("GET", "audit?limit=50", Value::Null).await;
    let actions: Vec<_> =
        audit["data"].as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap()).collect();
    for action in ["extension.create", "extension.edit", "extension.delete"] {
        assert_eq!(actions.iter().filter(|found| **found == action).count(), 1, "{action} in {actions:?}");
    }
}

#[tokio::test]
async fn a_probe_is_signed_and_stores_providers_and_models() {
    let (gateway, upstream) = (Gateway::start(&Yaml::new()).await, lab().await);
    let (admin, socket) = (Admin(gateway.client()), Socket::before(&upstream));
    for (name, url) in [("tcp", url(&upstream)), ("unix", socket.url())] {
        admin.done("POST", "extensions", new(name, &url)).await;
        let probed = admin.done("POST", &format!("extensions/{name}/probe"), Value::Null).await;
        assert_eq!(probed["last_check"]["ok"], true, "{probed}");
        assert_eq!(probed["last_check"]["reported_name"], "Lab");
        let provider = &probed["providers"][0];
        assert_eq!((&provider["id"], &provider["models"]), (&json!("lab"), &json!(["m", "n"])), "{provider}");
        assert_eq!(admin.done("GET", &format!("extensions/{name}"), Value::Null).await, probed);
    }
    let requests = upstream.requests();
    let paths: Vec<&str> = requests.iter().map(path).collect();
    assert_eq!(paths, ["/v1/info", "/v1/lab/models", "/v1/info", "/v1/lab/models"]);
    let mut ids: Vec<String> = requests.iter().map(expect_signed).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4, "each call has its own ID");

    let moved = admin.done("PATCH", "extensions/tcp", json!({"url": "http://127.0.0.1:9"})).await;
    assert_eq!(
        (&moved["last_check"], &moved["providers"]),
        (&Value::Null, &json!([])),
        "it is another one now"
    );
}
