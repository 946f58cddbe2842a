//! `body` and `headers` of providers and models, through the real binary: the bytes that arrive at the upstream, secrets in
//! them, what is shown, and the faults.

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat};

const SECRET: &str = "planted-secret-of-a-member-77aa31";

fn yaml(upstream: &Upstream, kind: &str, members: &str) -> String {
    let base = match kind {
        "anthropic" => upstream.base_url().trim_end_matches("/v1").to_owned(),
        _ => upstream.base_url().to_string(),
    };
    format!("providers:\n  up:\n    type: {kind}\n    base_url: {base}\n    api_key: k\n{members}")
}

async fn started(upstream: &Upstream, kind: &str, members: &str) -> Gateway {
    let setup = Setup::new(&Yaml::new()).env("MEMBER_SECRET", SECRET);
    setup.yaml(yaml(upstream, kind, members)).start().await
}

const MEMBERS: &str = r#"    headers: {x-one: of-provider, x-two: of-provider}
    body:
      defaults: {temperature: 0.2, user: "${ENV:MEMBER_SECRET}"}
      set: {provider: {order: [a, "b"]}, safe: true}
      remove: [top_k, logit_bias]
    models:
      - plain
      - id: own
        headers: {x-two: of-model, x-three: "${ENV:MEMBER_SECRET}"}
        body:
          defaults: {top_k: 40}
          set: {safe: null}
          remove: [temperature]
"#;

/// A body of which every byte is known.
fn body(model: &str, more: &str) -> String {
    format!(r#"{{"model":"{model}", "messages":[{{"role":"user","content":"top_k \"safe\""}}]{more}}}"#)
}

#[tokio::test]
async fn the_bytes_of_a_native_request_differ_only_by_the_members() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let gateway = started(&upstream, "compatible", MEMBERS).await;
    let user = format!(r#""user":"{SECRET}""#);
    let added = r#""provider":{"order":["a","b"]},"safe":true,"#;
    for (place, (model, more, want)) in [
        ("plain", "", format!(r#"{{"temperature":0.2,{user},{added}"model":"plain", M}}"#)),
        (
            "plain",
            r#", "top_k": 3 ,"temperature" : 1.0,"safe":[false, 1]"#,
            format!(r#"{{{user},"provider":{{"order":["a","b"]}},"model":"plain", M ,"temperature" : 1.0,"safe":true}}"#),
        ),
        (
            "plain",
            r#","temperature":null,"provider":{"x":1},"user":"me","safe":0,"logit_bias":{"top_k":1}"#,
            r#"{"model":"plain", M,"temperature":0.2,"provider":{"order":["a","b"]},"user":"me","safe":true}"#.to_owned(),
        ),
        (
            "own",
            r#","temperature":1"#,
            format!(r#"{{"top_k":40,"safe":null,{user},"provider":{{"order":["a","b"]}},"model":"own", M}}"#),
        ),
        (
            "own",
            r#","top_k":7,"safe":1,"logit_bias":{}"#,
            format!(r#"{{{user},"provider":{{"order":["a","b"]}},"model":"own", M,"top_k":7,"safe":null}}"#),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let sent = body(&format!("up/{model}"), more);
        let answer = gateway.client().chat(sent.clone()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let messages = r#""messages":[{"role":"user","content":"top_k \"safe\""}]"#;
        let received = upstream.requests()[place].clone();
        let got = String::from_utf8(received.body.to_vec()).unwrap().replace(messages, "M");
        assert_eq!(got, want, "{sent}");
        let headers = ["x-one", "x-two", "x-three"].map(|name| received.header(name).unwrap_or("-").to_owned());
        let own = ["of-provider", "of-model", SECRET].map(str::to_owned);
        let plain = ["of-provider", "of-provider", "-"].map(str::to_owned);
        assert_eq!(headers, if model == "own" { own } else { plain }, "{sent}");
        assert_eq!(received.header("content-length"), Some(&*received.body.len().to_string()));
    }
}

#[tokio::test]
async fn adapted_requests_and_streams_get_the_members_too() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::json(500, "{}"));
    let members = "    body: {set: {metadata: {user_id: x}}, defaults: {max_tokens: 77}, remove: [temperature]}\n    models: [m]\n";
    let gateway = started(&upstream, "anthropic", members).await;
    for stream in [false, true] {
        let body = json!({"model": "up/m", "stream": stream, "temperature": 0.5,
            "messages": [{"role": "user", "content": "hi"}]});
        gateway.client().chat(body.to_string()).await;
        let sent = upstream.requests().last().unwrap().json();
        assert_eq!(sent["metadata"], json!({"user_id": "x"}), "{sent}");
        assert_eq!((&sent["temperature"], sent["model"].as_str()), (&Value::Null, Some("m")), "{sent}");
        assert!(sent["max_tokens"].as_u64().unwrap() > 77, "what the adaptation sets is no gap: {sent}");
    }
}

#[tokio::test]
async fn what_settings_change_is_recorded_and_explained_without_values() {
    let upstream = Upstream::start().await;
    let broken = chat::error(&format!("bad user {SECRET}"), "bad");
    upstream.always(Answer::json(400, broken));
    let gateway = started(&upstream, "compatible", MEMBERS).await;
    let sent: Value = serde_json::from_str(&body("up/plain", r#","top_k":3"#)).unwrap();
    let question = json!({"path": "/v1/chat/completions", "body": sent});
    let explained = Admin(gateway.client()).done("POST", "explain", question).await;
    let words = ["temperature: default", "user: default", "provider: set", "safe: set", "top_k: removed"];
    assert_eq!(explained["candidates"][0]["body"], json!(words), "{explained}");
    let answer = gateway.client().chat(sent.to_string()).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert_eq!(record["dropped"], json!(words), "{record}");
    let shown = Admin(gateway.client()).done("GET", "providers/up", Value::Null).await;
    assert_eq!(
        shown["body"]["defaults"],
        json!({"temperature": 0.2, "user": "${ENV:MEMBER_SECRET}"}),
        "{shown}"
    );
    assert_eq!(shown["models"][0]["headers"], json!({"x-two": "••••", "x-three": "••••"}), "{shown}");
    assert_eq!(shown["models"][0]["body"]["remove"], json!(["temperature"]), "{shown}");
    let printed = gateway.setup().output_of(&["config", "show"], 0).await;
    assert!(printed.contains("models.own.body temperature: removed"), "{printed}");
    let answered = String::from_utf8_lossy(&answer.body).into_owned();
    for text in
        [shown.to_string(), printed, answered, record.to_string(), explained.to_string(), gateway.log()]
    {
        assert!(!text.contains(SECRET), "{text}");
    }
}

/// Sends the mask of a header back, to a model that has it and to another one.
async fn headers_that_are_shown_are_kept_or_refused(admin: &Admin, made: &Value) {
    let mut models = made["models"].clone();
    let unknown = json!([{"id": "m", "headers": {"x-own": "••••"}}]);
    for (method, path, body) in [
        ("PATCH", "providers/up", json!({"models": unknown})),
        (
            "POST",
            "providers",
            json!({"id": "other", "type": "compatible", "base_url": made["base_url"], "models": unknown}),
        ),
    ] {
        let refused = admin.call(method, path, body).await;
        let param = refused.json()["error"]["param"].clone();
        assert_eq!((refused.status, param), (400, json!("models[0].headers.x-own")), "{refused:?}");
        assert!(refused.json().to_string().contains("is the placeholder of a secret"), "{refused:?}");
    }
    // A change of another model sends the list as it was shown.
    models[0] = json!({"id": "m", "vision": true});
    admin.done("PATCH", "providers/up", json!({"models": models})).await;
}

#[tokio::test]
async fn the_api_stores_members_and_refuses_what_cannot_be_changed() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let gateway = Setup::new(&Yaml::new()).env("MEMBER_SECRET", SECRET).start().await;
    let admin = Admin(gateway.client());
    let written = json!({"set": {"user": "${ENV:MEMBER_SECRET}"}, "remove": ["top_k"]});
    let own = json!({"id": "own", "headers": {"x-own": "1"}, "body": {"defaults": {"seed": 7}}});
    let provider = json!({"id": "up", "type": "compatible", "base_url": upstream.base_url().to_string(), "api_key": "k",
        "models": ["m", own], "body": written});
    let made = admin.done("POST", "providers", provider).await;
    let shown = json!({"id": "own", "headers": {"x-own": "••••"}, "body": {"defaults": {"seed": 7}}});
    assert_eq!((&made["body"], &made["models"][1]), (&written, &shown), "{made}");
    headers_that_are_shown_are_kept_or_refused(&admin, &made).await;
    assert_eq!(gateway.client().chat(chat::request("up/own")).await.status, 200);
    let sent = upstream.requests()[0].clone();
    assert_eq!((&sent.json()["user"], &sent.json()["seed"]), (&json!(SECRET), &json!(7)));
    assert_eq!(sent.header("x-own"), Some("1"));
    for (change, why) in [
        (json!({"body": {"set": {"model": "x"}}}), "body.set.model: 'model' decides where a request goes"),
        (json!({"body": {"remove": ["messages"]}}), "body.remove[0]: 'messages' is the content"),
        (json!({"body": {"defaults": {"stream": true}}}), "body.defaults.stream: 'stream' decides"),
        (json!({"body": {"set": {"input": 1}}}), "'input' is the content"),
        (json!({"body": {"set": {"n": 9}}}), "'n' decides what a request costs"),
        (json!({"body": {"set": {"a b": 1}}}), "member names must be"),
        (json!({"body": {"set": {"x": 1}, "defaults": {"x": 2}}}), "'x' occurs twice"),
        (json!({"body": {"set": {"x": "${FILE:/etc/passwd}"}}}), "is for the configuration file only"),
        (json!({"body": {"set": {"x": ["${ENV:LLMGW_API_KEY}"]}}}), "is a setting of the gateway itself"),
        (
            json!({"body": {"set": {"x": "Bearer ${ENV:MEMBER_SECRET}"}}}),
            "a reference must be the whole value",
        ),
        (json!({"body": {"set": {"x": "y".repeat(70_000)}}}), "the maximum is 65536"),
        (
            json!({"body": {"remove": (0..65).map(|at| format!("m{at}")).collect::<Vec<_>>()}}),
            "at most 64 members",
        ),
        (json!({"models": [{"id": "m", "body": {}}]}), "models[0].body: changes nothing"),
        (json!({"models": [{"id": "m", "headers": {"Authorization": "x"}}]}), "is a credential"),
        (json!({"models": [{"id": "m", "headers": {"x-api-key": "x"}}]}), "is a credential"),
        (json!({"models": [{"id": "m", "headers": {"x-goog-api-key": "x"}}]}), "is a credential"),
        (json!({"models": [{"id": "m", "headers": {"Host": "x"}}]}), "is set by llmgw itself"),
        (json!({"models": [{"id": "m", "headers": {"transfer-encoding": "x"}}]}), "is set by llmgw itself"),
    ] {
        let answer = admin.call("PATCH", "providers/up", change.clone()).await;
        assert_eq!(answer.status, 400, "{change}: {answer:?}");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(why), "{change}: {message}");
    }
    let cleared = admin.done("PATCH", "providers/up", json!({"body": null, "models": ["own"]})).await;
    assert_eq!(cleared.get("body").unwrap_or(&Value::Null), &Value::Null, "{cleared}");
    gateway.client().chat(chat::request("up/own")).await;
    let plain = upstream.requests()[1].clone();
    assert_eq!(
        plain.json(),
        json!({"model": "own", "messages": [{"role": "user", "content": "Say hello."}]})
    );
}
