//! Further names and patterns of endpoints: what a selector means, what two objects cannot share, and agents that send the
//! names of their vendor (SEL-1, SEL-2).

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat};

/// A gateway with the provider `up` of the models `m`, `claude-opus-4-1` and `twin`, the provider `other` of `twin`, and
/// three endpoints with further names.
async fn gateway(upstream: &Upstream) -> Gateway {
    upstream.always(Answer::completion("hello"));
    let up = upstream.base_url();
    let yaml = format!(
        "providers:
  up: {{type: compatible, base_url: '{up}', models: [m, claude-opus-4-1, 'claude-3:8b', twin]}}
  other: {{type: compatible, base_url: '{up}', models: [twin]}}
endpoints:
  smart: {{failover: [{{provider: up, model: m}}], also: [claude-sonnet-5, 'claude-sonnet-5[1m]', 'claude-*', claude-opus-4-1]}}
  quick: {{failover: [{{provider: up, model: m}}], also: ['claude-haiku-*', 'qwen3:8b']}}
  rest: {{failover: [{{provider: up, model: m}}], also: ['*']}}
"
    );
    Setup::new(&Yaml::new()).yaml(yaml).start().await
}

#[tokio::test]
async fn a_selector_means_the_first_that_has_it_in_the_order_of_precedence() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    let mut asked = Vec::new();
    for (selector, kind, name) in [
        ("up/claude-opus-4-1", "model", "up/claude-opus-4-1"),
        ("smart", "endpoint", "smart"),
        ("claude-sonnet-5", "endpoint", "smart"),
        ("claude-sonnet-5[1m]", "endpoint", "smart"),
        ("claude-sonnet-5-20260115", "endpoint", "smart"),
        // An exact further name takes precedence over the alias, and the alias over patterns.
        ("claude-opus-4-1", "endpoint", "smart"),
        ("claude-3:8b", "alias", "up/claude-3:8b"),
        ("claude-haiku-4-5-20251001", "endpoint", "quick"),
        ("claude-haiku-", "endpoint", "quick"),
        ("qwen3:8b", "endpoint", "quick"),
        ("qwen3:8b-fp16", "endpoint", "rest"),
        // Two models have this name: it is no alias.
        ("twin", "endpoint", "rest"),
        ("up/unknown", "endpoint", "rest"),
        ("Smart", "endpoint", "rest"),
    ] {
        let question = json!({"path": "/v1/chat/completions", "body": {"model": selector, "messages": []}});
        let explained = Admin(gateway.client()).done("POST", "explain", question).await;
        assert_eq!(explained["resolved"], json!({"kind": kind, "name": name}), "{selector}");
        assert_eq!(client.chat(chat::request(selector)).await.status, 200, "{selector}");
        asked.push((selector, if kind == "endpoint" { json!(name) } else { Value::Null }));
    }
    let mut recorded: Vec<_> = gateway
        .records(asked.len())
        .await
        .iter()
        .map(|record| (record["selector"].as_str().unwrap().to_owned(), record["endpoint"].clone()))
        .collect();
    recorded.sort_by(|a, b| a.0.cmp(&b.0));
    asked.sort_by_key(|(selector, _)| *selector);
    let wanted: Vec<_> = asked.into_iter().map(|(selector, name)| (selector.to_owned(), name)).collect();
    assert_eq!(recorded, wanted, "the record has the selector as sent");
}

#[tokio::test]
async fn exact_names_are_listed_as_endpoints_and_patterns_are_not() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    let list = client.get("/v1/models").await.unwrap().json();
    let of_endpoints: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|model| model["owned_by"] == "endpoint")
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    let want =
        ["claude-opus-4-1", "claude-sonnet-5", "claude-sonnet-5[1m]", "quick", "qwen3:8b", "rest", "smart"];
    assert_eq!(of_endpoints, want);
    let shown = client.get("/v1/models/claude-sonnet-5%5B1m%5D").await.unwrap();
    assert_eq!((shown.status, &shown.json()["owned_by"]), (200, &json!("endpoint")));
    // A key that may use another endpoint only neither sees nor uses the names: lists see the endpoint.
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project, "endpoints": ["quick"], "models": []})).await;
    let own = crate::support::Client::new(gateway.address(), Some(&key.key));
    let list = own.get("/v1/models").await.unwrap().json();
    let ids: Vec<_> =
        list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["quick", "qwen3:8b"]);
    for (selector, status) in
        [("qwen3:8b", 200), ("claude-haiku-5", 200), ("claude-sonnet-5", 403), ("x", 403)]
    {
        assert_eq!(own.chat(chat::request(selector)).await.status, status, "{selector}");
    }
}

#[tokio::test]
async fn without_further_names_an_unknown_selector_stays_unknown() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    for selector in ["claude-sonnet-5", "x", "up/x", "*"] {
        let answer = gateway.client().chat(chat::request(selector)).await;
        assert_eq!((answer.status, answer.error_code().as_str()), (404, "model_not_found"), "{selector}");
    }
}

/// The requests of a session of Claude Code with its built-in names for the model, the small model, and the long context.
#[tokio::test]
async fn claude_code_works_with_its_own_names_against_one_endpoint() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let yaml = format!(
        "providers:\n  up: {{type: compatible, base_url: '{}', models: [m]}}\nendpoints:\n  \
         agents: {{failover: [{{provider: up, model: m}}], also: ['claude-*']}}\n",
        upstream.base_url()
    );
    let gateway = Setup::new(&Yaml::new()).yaml(yaml).start().await;
    let client =
        gateway.client().with("anthropic-version", "2023-06-01").with("user-agent", "claude-cli/2.1.329");
    for name in [
        "claude-sonnet-4-5-20250929",
        "claude-haiku-4-5-20251001",
        "claude-opus-4-1-20250805",
        "claude-sonnet-5[1m]",
    ] {
        for path in ["/v1/messages?beta=true", "/v1/messages/count_tokens?beta=true"] {
            let body =
                json!({"model": name, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
            let answer = client.post(path, body.to_string()).await;
            assert_eq!(answer.status, 200, "{name} {path}: {answer:?}");
        }
    }
    assert!(upstream.requests().iter().all(|request| request.json()["model"] == "m"));
}

#[tokio::test]
async fn names_of_the_api_are_refused_if_something_else_has_them() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let admin = Admin(gateway.client());
    let members = json!([{"provider": "up", "model": "m"}]);
    let made = json!({"name": "own", "failover": members, "also": ["mine", "mine-*"]});
    let made = admin.done("POST", "endpoints", made).await;
    assert_eq!(made["also"], json!(["mine", "mine-*"]));
    for (name, param) in [
        ("quick", "also[1]"),
        ("own", "also[1]"),
        ("up", "also[1]"),
        ("up/x", "also[1]"),
        ("claude-haiku-*", "also[1]"),
        ("qwen3:8b", "also[1]"),
        ("mine", "also[1]"),
        ("fine", "also[1]"),
        ("a b", "also[1]"),
        ("a*b", "also[1]"),
        ("", "also[1]"),
    ] {
        let body = json!({"name": "second", "failover": members, "also": ["fine", name]});
        for query in ["", "?dry_run=true"] {
            let answer = admin.call("POST", &format!("endpoints{query}"), body.clone()).await;
            assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(param)), "{name}");
        }
    }
    for (path, body) in [
        ("endpoints", json!({"name": "mine", "failover": members})),
        ("providers", json!({"id": "mine", "type": "echo"})),
    ] {
        let answer = admin.call("POST", path, body).await;
        assert_eq!(answer.status, 409, "{path}: {answer:?}");
    }
    let client = gateway.client();
    for selector in ["mine", "mine-2"] {
        assert_eq!(client.chat(chat::request(selector)).await.status, 200, "{selector}");
    }
    let records = gateway.records(2).await;
    assert!(records.iter().all(|record| record["endpoint"] == "own"), "{records:?}");
    admin.done("PUT", "endpoints/own", json!({"failover": members})).await;
    assert_eq!(admin.done("GET", "endpoints/own", Value::Null).await["also"], json!([]));
}

/// The file takes precedence for a name that an endpoint of the database has too, and the API says so.
#[tokio::test]
async fn the_file_takes_precedence_for_a_further_name() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let admin = Admin(gateway.client());
    let members = json!([{"provider": "other", "model": "twin"}]);
    admin
        .done("POST", "endpoints", json!({"name": "own", "failover": members, "also": ["later", "later-*"]}))
        .await;
    let text = std::fs::read_to_string(gateway.setup().config_path()).unwrap();
    gateway.write_config(text.replace("also: ['*']", "also: ['later-*', later]"));
    gateway.logs("the changed configuration file is in effect").await;
    let client = gateway.client();
    for selector in ["later", "later-2"] {
        assert_eq!(client.chat(chat::request(selector)).await.status, 200);
    }
    let records = gateway.records(2).await;
    assert!(records.iter().all(|record| record["endpoint"] == "rest"), "{records:?}");
    let shown = admin.done("GET", "endpoints/own", Value::Null).await;
    let warnings = shown["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].as_str().unwrap().contains("'later' has no effect"), "{warnings:?}");
}

/// The example of docs/routing-and-failover.md#names-with-a-suffix.
#[tokio::test]
async fn a_suffix_of_a_name_becomes_a_header() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let up = upstream.base_url();
    let yaml = format!(
        "providers:
  claude: {{type: compatible, base_url: '{up}', models: [claude-sonnet-5]}}
  claude-long:
    type: compatible
    base_url: '{up}'
    models: [{{id: claude-sonnet-5, headers: {{anthropic-beta: context-1m-2025-08-07}}}}]
endpoints:
  sonnet: {{also: [claude-sonnet-5], failover: [{{provider: claude, model: claude-sonnet-5}}]}}
  sonnet-long: {{also: ['claude-sonnet-5[1m]'], failover: [{{provider: claude-long, model: claude-sonnet-5}}]}}
"
    );
    let gateway = Setup::new(&Yaml::new()).yaml(yaml).start().await;
    let wanted = [("claude-sonnet-5", None), ("claude-sonnet-5[1m]", Some("context-1m-2025-08-07"))];
    for (place, (name, header)) in wanted.into_iter().enumerate() {
        let answer = gateway.client().chat(chat::request(name)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let sent = upstream.request(place).await;
        assert_eq!(sent.header("anthropic-beta"), header, "{name}");
        assert_eq!(sent.json()["model"], "claude-sonnet-5");
    }
}
