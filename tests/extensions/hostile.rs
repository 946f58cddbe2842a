//! Extensions that are dead, lie or attack: they cost what a bad upstream costs, nothing more.

use serde_json::{Value, json};

use super::{lab, new, path, secret, url};
use crate::secrets::Planted;
use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::upstream::refusing_url;
use crate::support::{Answer, Gateway, Upstream, Yaml, wait};

#[tokio::test]
async fn a_probe_of_a_lying_extension_reports_the_lie() {
    let (gateway, upstream) = (Gateway::start(&Yaml::new()).await, Upstream::start().await);
    let admin = Admin(gateway.client());
    admin.done("POST", "extensions", new("liar", &url(&upstream))).await;
    for (answer, want) in [
        (Answer::json(200, "{"), "not a description"),
        (Answer::json(200, r#"{"protocol": 9, "providers": []}"#), "speaks version 1"),
        (Answer::whole(200, &[("content-type", "text/html")], "<p>hello"), "not a description"),
        (Answer::json(401, "{}"), "status 401"),
        (Answer::json(302, "{}"), "status 302"),
        (Answer::json(200, vec![b' '; 300 << 10]), "larger than"),
        (Answer::whole(200, &[("content-encoding", "gzip")], "x"), "compressed"),
        (Answer::new().send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{").close(), "broke"),
        (Answer::new().send("nonsense\r\n\r\n").close(), "HTTP"),
    ] {
        upstream.then(answer);
        let probed = admin.done("POST", "extensions/liar/probe", Value::Null).await;
        let check = &probed["last_check"];
        assert_eq!((&check["ok"], &probed["providers"]), (&json!(false), &json!([])), "{probed}");
        assert!(check["error"]["message"].as_str().unwrap().contains(want), "{want}: {check}");
    }
    let dead = refusing_url().await.replace("/v1", "");
    for url in [dead.as_str(), "unix:/nowhere/e.sock"] {
        admin.done("PATCH", "extensions/liar", json!({"url": url})).await;
        let probed = admin.done("POST", "extensions/liar/probe", Value::Null).await;
        assert_eq!(probed["last_check"]["error"]["status"], Value::Null, "{probed}");
    }
}

#[tokio::test]
async fn a_failed_probe_keeps_the_providers_of_the_last_good_one() {
    let (gateway, upstream) = (Gateway::start(&Yaml::new()).await, lab().await);
    let admin = Admin(gateway.client());
    admin.done("POST", "extensions", new("lab", &url(&upstream))).await;
    let good = admin.done("POST", "extensions/lab/probe", Value::Null).await;
    upstream.then(Answer::error(500));
    let failed = admin.done("POST", "extensions/lab/probe", Value::Null).await;
    assert_eq!((&failed["last_check"]["ok"], &failed["providers"]), (&json!(false), &good["providers"]));
    let models = Answer::json(503, "{}");
    upstream.answering(move |request| match path(request) {
        "/v1/lab/models" => models.clone(),
        _ => super::described(request).unwrap(),
    });
    let partly = admin.done("POST", "extensions/lab/probe", Value::Null).await;
    assert_eq!(partly["last_check"]["ok"], true, "{partly}");
    assert_eq!(partly["providers"][0]["error"]["status"], 503, "{partly}");
}

/// The secret of an extension is in no answer, log line, file or backup, even if the extension repeats it.
#[tokio::test]
async fn the_secret_of_an_extension_is_stored_sealed_and_never_shown() {
    let upstream = Upstream::start().await;
    upstream.answering(|request| match path(request) {
        "/v1/info" => Answer::json(
            200,
            json!({"protocol": 1, "name": secret(), "version": format!("v {}", secret()), "providers": [
                {"id": "lab", "name": format!("say {}", secret())},
            ]})
            .to_string(),
        ),
        "/v1/lab/models" => Answer::json(200, json!({"data": [{"id": secret()}, {"id": "m"}]}).to_string()),
        _ => Answer::unscripted(),
    });
    let gateway = Setup::new(&Yaml::new()).env("LLMGW_LOG", "trace").start().await;
    let admin = Admin(gateway.client());
    let mut answers = Vec::new();
    let mut call = async |method: &str, path: &str, body: Value| {
        answers.push((format!("{method} {path}"), admin.call(method, path, body).await.body.to_vec()));
    };
    call("POST", "extensions?dry_run=true", new("lab", &url(&upstream))).await;
    call("POST", "extensions", new("lab", &url(&upstream))).await;
    call("PATCH", "extensions/lab", json!({"secret": secret()})).await;
    call("PATCH", "extensions/lab", json!({"secret": {"wrong": secret()}})).await;
    call("PATCH", "extensions/lab", json!({"url": format!("http://{}@127.0.0.1", secret())})).await;
    call("POST", "extensions/lab/probe", Value::Null).await;
    upstream.then(Answer::error(401)).then(Answer::json(200, json!(secret()).to_string()));
    call("POST", "extensions/lab/probe", Value::Null).await;
    call("POST", "extensions/lab/probe", Value::Null).await;
    call("POST", "backups", json!({})).await;
    for path in [
        "extensions",
        "extensions/lab",
        "search?q=lab",
        "state",
        "audit?limit=500",
        "audit/export?format=csv",
    ] {
        call("GET", path, Value::Null).await;
    }
    wait::eventually("a backup", async || {
        let list = admin.done("GET", "backups", Value::Null).await;
        (list["data"].as_array()?.len() == 1 && list["is_running"] == false).then_some(())
    })
    .await;
    let mut planted = Planted::default();
    planted.add("the secret", secret());
    planted.add("the key", "planted-extension-secret");
    for (place, bytes) in &answers {
        planted.expect_none(place, bytes);
    }
    planted.expect_none("the log", gateway.log().as_bytes());
    let setup = gateway.kill().await;
    assert!(planted.expect_none_below(&setup.state()) >= 4);
}
