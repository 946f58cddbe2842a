//! A start is sent only once, unless it certainly had no effect.

use serde_json::json;

use super::{GEMINI_NAME, PATH, Rig, VERTEX_NAME, config, post};
use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::h2_upstream::{H2Answer, H2Upstream};
use crate::support::raw::{self, Raw};
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, gateway::ADMIN_KEY};

fn eager() -> serde_json::Value {
    json!({"retry_max_attempts": 3, "retry_initial_backoff_seconds": 0.001, "circuit_failure_threshold": 0})
}

#[tokio::test]
async fn a_start_that_may_have_created_a_video_is_never_retried() {
    let rig = Rig::with(&eager()).await;
    for (what, answer, status) in [
        ("a close before an answer", Answer::new().close(), 502),
        ("a reset before an answer", Answer::new().reset(), 502),
        ("half an answer", Answer::json(200, r#"{"name":"operations/1"}"#).cut_after(90), 502),
        ("no answer", Answer::json(200, "<html>"), 502),
        ("no operation", Answer::json(200, "{}"), 502),
        ("an error of the server", Answer::error(500), 500),
        ("an overloaded server", Answer::error(503), 503),
        ("a time-out of a proxy", Answer::error(504), 504),
    ] {
        let before = rig.upstream.requests().len();
        rig.upstream.then(answer);
        let answer = post(&rig.client(), json!({"model": "line", "prompt": "a cat"})).await;
        assert_eq!((answer.status, answer.header("x-llmgw-attempts")), (status, Some("1")), "{what}");
        let message = answer.json()["error"]["message"].to_string();
        assert!(message.contains("billed as a second video"), "{what}: {message}");
        assert_eq!(rig.upstream.requests().len() - before, 1, "{what}");
    }
}

#[tokio::test]
async fn a_start_that_times_out_is_not_retried() {
    let upstream = Upstream::start().await;
    let mut settings = config(&upstream, &eager());
    settings["providers"]["gemini"]["timeout"] = json!(0.2);
    let gateway = Setup::new(&Yaml::new()).yaml(settings.to_string()).start().await;
    upstream.then(Answer::hang_forever());
    let answer = post(&gateway.client(), json!({"model": "line", "prompt": "a cat"})).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (504, "upstream_timeout"));
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("billed as a second video"));
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_video_start_never_uses_an_idle_connection() {
    let rig = Rig::with(&eager()).await;
    // The connection of this response stays open and idle.
    rig.upstream.then(Answer::completion("hello"));
    assert_eq!(rig.client().chat(chat::request("openai/veo")).await.status, 200);
    rig.upstream.then(Answer::new().close());
    let answer = post(&rig.client(), json!({"model": "openai/veo", "prompt": "a cat"})).await;
    assert_eq!(answer.status, 502);
    assert_eq!(rig.upstream.requests().len(), 2, "the start came once");
    assert_ne!(rig.upstream.request(1).await.connection, rig.upstream.request(0).await.connection);
}

#[tokio::test]
async fn a_start_that_was_refused_may_be_sent_again() {
    let rig = Rig::with(&eager()).await;
    rig.upstream.then(Answer::error(429)).then(Answer::json(200, json!({"name": GEMINI_NAME}).to_string()));
    let answer = post(&rig.client(), json!({"model": "line", "prompt": "a cat"})).await;
    assert_eq!((answer.status, answer.header("x-llmgw-attempts")), (202, Some("2")));
    rig.upstream.then(Answer::error(400));
    let answer = post(&rig.client(), json!({"model": "line", "prompt": "a cat"})).await;
    assert_eq!((answer.status, rig.upstream.requests().len()), (400, 3));
    assert!(!answer.json()["error"]["message"].to_string().contains("billed as a second video"));

    let nobody = Upstream::start().await;
    let settings = config(&nobody, &eager());
    drop(nobody);
    let gateway = Setup::new(&Yaml::new()).yaml(settings.to_string()).start().await;
    let answer = post(&gateway.client(), json!({"model": "line", "prompt": "a cat"})).await;
    assert_eq!(
        (answer.status, answer.header("x-llmgw-attempts")),
        (502, Some("3")),
        "no upstream was reached"
    );
    assert!(!answer.json()["error"]["message"].to_string().contains("billed as a second video"));
}

#[tokio::test]
async fn a_client_disconnect_aborts_a_video_start() {
    let rig = Rig::with(&eager()).await;
    rig.upstream.then(Answer::hang_forever());
    let body = json!({"model": "line", "prompt": "a cat"}).to_string();
    let mut client = Raw::open(rig.gateway.address()).await;
    let request = raw::post(ADMIN_KEY, "", &body).replace("/v1/chat/completions", PATH);
    client.send(request).await;
    rig.upstream.request(0).await;
    drop(client);
    rig.upstream.closed(0).await;
    let records = rig.gateway.records(1).await;
    assert_eq!((&records[0]["outcome"], records.len()), (&json!("cancelled"), 1));
    assert_eq!(rig.upstream.requests().len(), 1);
}

#[tokio::test]
async fn unsupported_video_members_are_rejected_before_a_call() {
    let rig = Rig::start().await;
    for (model, name, value) in [
        ("gemini/veo", "prompt", json!(7)),
        ("gemini/veo", "seconds", json!("soon")),
        ("gemini/veo", "n", json!(2)),
        ("gemini/veo", "stream", json!(true)),
        ("gemini/veo", "image", json!("https://example.com/a.png")),
        ("gemini/veo", "user", json!("me")),
        ("openai/veo", "seed", json!(1)),
        ("openai/veo", "negative_prompt", json!("dogs")),
    ] {
        let mut body = json!({"model": model, "prompt": "a cat"});
        body[name] = value;
        let answer = post(&rig.client(), body).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(name)), "{model}");
    }
    let answer = post(&rig.client(), json!({"model": "gemini/veo"})).await;
    assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("prompt")));
    assert!(rig.upstream.requests().is_empty());
}

#[tokio::test]
async fn a_video_is_started_and_polled_over_http2() {
    let job = r#"{"id":"video_1","object":"video","status":"in_progress","progress":5}"#;
    let answer = H2Answer {
        status: 200,
        content_type: "application/json",
        pieces: vec![job.into()],
        gate: None,
        reset: false,
    };
    let upstream = H2Upstream::start(answer).await;
    let settings = "protocols: [videos]\nhttp_version: \"2\"";
    let gateway = Gateway::start(&Yaml::new().provider_with("up", upstream.base_url(), settings)).await;
    let answer = post(&gateway.client(), json!({"model": "m", "prompt": "a cat"})).await;
    assert_eq!(answer.status, 202, "{:?}", answer.body);
    let operation = answer.json()["operation"].clone();
    for _ in 0..2 {
        let answer = post(&gateway.client(), json!({"model": "m", "operation": operation})).await;
        assert_eq!((answer.status, &answer.json()["progress"]), (200, &json!(5)));
    }
    let request = upstream.request(2).await;
    assert!(
        request.head.starts_with("GET ") && request.head.contains("/v1/videos/video_1 "),
        "{}",
        request.head
    );
    assert_eq!((request.header("content-type"), request.body.len()), (None, 0));
}

#[tokio::test]
async fn polls_do_not_count_against_a_quota() {
    let rig = Rig::start().await;
    let admin = Admin(rig.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    let limit = json!({"subject": {"kind": "key", "id": key.id}, "metric": "requests", "window": "minute", "limit": 1});
    admin.create("quotas", limit).await;
    let client = Client::new(rig.gateway.address(), Some(&key.key));
    let operation = rig.begin(&client, "line", json!({"name": GEMINI_NAME})).await;
    for _ in 0..3 {
        rig.upstream.then(Answer::json(200, json!({"name": GEMINI_NAME}).to_string()));
        let answer = post(&client, json!({"model": "line", "operation": operation})).await;
        assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("running")));
    }
    let answer = post(&client, json!({"model": "line", "prompt": "a dog"})).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (429, "quota_exceeded"));
}

#[tokio::test]
async fn explain_names_the_target_of_a_start_and_of_a_poll() {
    let rig = Rig::start().await;
    let operation = rig.begin(&rig.client(), "vertex/veo", json!({"name": VERTEX_NAME})).await;
    let admin = Admin(rig.client());
    let ask = async |body: serde_json::Value| {
        admin.done("POST", "explain", json!({"path": PATH, "body": body})).await
    };
    let plan = ask(json!({"model": "line", "prompt": "a cat"})).await;
    assert_eq!(plan["candidates"], json!([{"provider": "gemini", "model": "veo"}]), "{plan}");
    let plan = ask(json!({"model": "openai/veo", "prompt": "a cat", "seed": 1})).await;
    assert_eq!(plan["refusal"]["param"], "seed", "{plan}");
    let plan = ask(json!({"model": "line", "operation": operation})).await;
    assert_eq!(plan["candidates"], json!([{"provider": "vertex", "model": "veo"}]), "{plan}");
    let plan = ask(json!({"model": "line", "operation": "vop_x"})).await;
    assert_eq!(plan["refusal"]["param"], "operation", "{plan}");
    assert_eq!(rig.upstream.requests().len(), 1, "no upstream was asked");
}
