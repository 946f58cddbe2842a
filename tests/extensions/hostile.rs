//! Extensions that are dead, lie or attack: they cost what a bad upstream costs, nothing more.

use serde_json::{Value, json};

use super::relay::Rig;
use super::{lab, new, path, secret, url};
use crate::secrets::Planted;
use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::upstream::refusing_url;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, wait};

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

/// Whatever an extension answers, the client gets the answer of another provider or an error in its own dialect, and the
/// gateway keeps serving.
#[tokio::test]
async fn an_endpoint_survives_every_lie_of_an_extension() {
    let rig = Rig::start().await;
    let json = |body: Value| Answer::json(200, body.to_string());
    let lies = [
        ("no JSON", Answer::json(200, "{\"choices\": [")),
        ("another document", json(json!({"hello": "world", "error": {"message": "no"}}))),
        ("a page", Answer::whole(200, &[("content-type", "text/html")], "<p>no</p>")),
        ("compressed", Answer::whole(200, &[("content-encoding", "gzip")], "x")),
        (
            "two lengths",
            Answer::new().send("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx"),
        ),
        ("a long head", Answer::new().send(format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(1 << 20)))),
        (
            "interim answers",
            Answer::new().send("HTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n".repeat(10_000)).hang(),
        ),
        ("another protocol", Answer::new().send("SSH-2.0-OpenSSH\r\n").close()),
        (
            "switched protocols",
            Answer::new().send("HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
        ),
        ("a redirect", Answer::whole(307, &[("location", "http://169.254.169.254/")], "")),
        ("a cut answer", Answer::completion("hello").cut_after(150)),
        ("a reset", Answer::new().reset()),
    ];
    for (name, lie) in lies {
        rig.extension.then(lie);
        let served = rig.gateway.client().chat(chat::request("line")).await;
        assert_eq!(served.status, 200, "{name}: {served:?}");
        assert_eq!(served.json()["choices"][0]["message"]["content"], "from the other", "{name}");
    }
    for (name, lie) in [
        ("an error event", Answer::stream().chunk(chat::event(r#"{"error":{"message":"no"}}"#)).end()),
        ("no event", Answer::stream().end()),
        ("a cut stream", Answer::stream().chunk(chat::role()).close()),
    ] {
        rig.extension.then(lie);
        let served = rig.gateway.client().chat_flow(chat::stream_request("own/m")).await;
        assert!(served.status >= 500, "{name}: {}", served.status);
    }
    // What has no end and no content is passed on once it is too long to be held back, and ends with its client.
    let memory = rig.gateway.memory();
    rig.extension.then(Answer::stream().repeat_chunk(format!(": {}\n\n", "x".repeat(8_000))));
    let mut flow = rig.gateway.client().chat_flow(chat::stream_request("own/m")).await;
    flow.pass(16 << 20).await;
    drop(flow);
    assert!(memory.peak() < 64 << 20, "{} bytes", memory.peak());
    rig.extension.then(Answer::completion("well"));
    assert_eq!(rig.gateway.client().chat(chat::request("own/m")).await.status, 200, "it serves on");
}

/// The head of an answer has the provider's `timeout`, whether nothing of it arrives or a part.
#[tokio::test]
async fn a_slow_head_of_an_extension_is_cut_and_fails_over() {
    let rig = Rig::start().await;
    rig.admin.done("PATCH", "providers/own", json!({"timeout": 0.2})).await;
    let part = Answer::new().send("HTTP/1.1 200 OK\r\ncontent-type: appl").hang();
    for (round, slow) in [Answer::hang_forever(), part].into_iter().enumerate() {
        rig.extension.then(slow);
        let served = rig.gateway.client().chat(chat::request("line")).await;
        assert_eq!(served.json()["choices"][0]["message"]["content"], "from the other", "{served:?}");
        rig.extension.closed(2 * round).await;
        rig.extension.then(Answer::hang_forever());
        let mut flow = rig.gateway.client().chat_flow(chat::stream_request("line")).await;
        assert_eq!((flow.status, flow.rest().await.1), (200, true));
    }
    let records = rig.gateway.records(4).await;
    assert!(
        records.iter().all(|record| record["provider"] == "up" && record["attempts"] == 2),
        "{records:?}"
    );
}

/// A missing usage is estimated, and IDs and models that the extension makes up stay within its answer.
#[tokio::test]
async fn an_answer_without_usage_and_with_foreign_ids_is_served_and_recorded() {
    let rig = Rig::start().await;
    let body = json!({
        "id": "chatcmpl-of-another", "object": "chat.completion", "created": 1, "model": "up/m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    })
    .to_string();
    let head = [("content-type", "application/json"), ("x-request-id", "of another"), ("set-cookie", "a=b")];
    rig.extension.then(Answer::whole(200, &head, &body));
    let answer = rig.gateway.client().chat(chat::request("own/m")).await;
    assert_eq!((answer.status, &answer.body[..]), (200, body.as_bytes()), "bytes are unchanged");
    assert_eq!(answer.header("set-cookie"), None);
    let id = answer.header("x-request-id").unwrap();
    let record = rig.gateway.record_of(id).await;
    assert_eq!((&record["provider"], &record["model"]), (&json!("own"), &json!("m")), "{record}");
    assert_eq!(
        (&record["provenance"], &record["upstream_id"]),
        (&json!("estimated"), &Value::Null),
        "{record}"
    );
}

/// An extension that repeats the secret and the credential in errors cannot make the gateway show them.
#[tokio::test]
async fn secrets_that_an_extension_repeats_are_redacted() {
    let rig = Rig::start().await;
    let mut planted = Planted::default();
    planted.add("the secret", secret());
    planted.add("the key", "planted-extension-secret");
    planted.add("the credential", "credential-of-the-lab-0001");
    let words = format!("no: {} and credential-of-the-lab-0001", secret());
    let error = chat::error(&words, "bad");
    let head = [("content-type", "application/json"), ("x-request-id", &*secret()), ("x-debug", &*words)];
    let mut answers = Vec::new();
    for _ in 0..2 {
        rig.extension.then(Answer::whole(400, &head, &error));
        let answer = rig.gateway.client().chat(chat::request("own/m")).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        answers.push(format!("{:?} {:?}", answer.headers, answer.body).into_bytes());
    }
    rig.extension.then(Answer::stream().chunk(chat::content("a")).chunk(chat::event(&error)).end());
    let mut flow = rig.gateway.client().chat_flow(chat::stream_request("own/m")).await;
    answers.extend(flow.rest().await.0.iter().map(|event| event.bytes.to_vec()));
    rig.extension.then(Answer::whole(403, &head, &error));
    answers.push(rig.admin.call("POST", "providers/own/sync", Value::Null).await.body.to_vec());
    rig.gateway.records(3).await;
    for path in
        ["requests", "providers", "providers/own", "extensions", "health/providers", "audit?limit=500"]
    {
        answers.push(rig.admin.call("GET", path, Value::Null).await.body.to_vec());
    }
    for bytes in &answers {
        planted.expect_none("an answer", bytes);
    }
    planted.expect_none("the log", rig.gateway.log().as_bytes());
    let setup = rig.gateway.kill().await;
    planted.expect_none_below(&setup.state());
}
