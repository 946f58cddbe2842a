//! Rules of models at the running gateway: the built-in list, rules in the file and in overrides, and what the client
//! learns of them.

use serde_json::{Value, json};

use crate::kinds::{message, root, with};
use crate::support::admin::Admin;
use crate::support::client::Whole;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml};

const SIGNED: &str = "EqQBCgIYAhIM1gbcDa9GJwZA2b3h/+8=";

/// A gateway with one provider `p`, and its upstream.
async fn one(kind: Value, answer: Answer) -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    upstream.always(answer);
    let mut settings = json!({"base_url": root(&upstream), "api_key": "k"});
    for (name, value) in kind.as_object().unwrap() {
        settings[name] = value.clone();
    }
    (with(&settings).start().await, upstream)
}

async fn anthropic(models: Value) -> (Gateway, Upstream) {
    one(json!({"type": "anthropic", "models": models}), message()).await
}

/// Posts the request and returns the answer with what the upstream received.
async fn post(gateway: &Gateway, upstream: &Upstream, path: &str, request: &Value) -> (Whole, Value) {
    let index = upstream.requests().len();
    let answer = gateway.client().post(path, request.to_string()).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    (answer, upstream.request(index).await.json())
}

#[tokio::test]
async fn the_built_in_list_knows_what_claude_refuses() {
    let (gateway, upstream) = anthropic(json!(["claude-opus-4-7", "claude-sonnet-4-5", "other"])).await;
    let ask = |model: &str| {
        json!({"model": model, "messages": [{"role": "user", "content": "hi"}], "temperature": 0.2, "top_p": 0.9,
            "reasoning_effort": "high", "max_tokens": 500_000})
    };
    let (answer, sent) = post(&gateway, &upstream, "/v1/chat/completions", &ask("p/claude-opus-4-7")).await;
    assert_eq!(sent["thinking"], json!({"type": "adaptive", "display": "summarized"}));
    assert_eq!((sent.get("temperature"), &sent["max_tokens"]), (None, &json!(128_000)));
    assert_eq!(answer.header("x-llmgw-dropped"), Some("temperature, top_p"));
    assert_eq!(answer.header("x-llmgw-adapted"), Some("messages; max_tokens=128000"));
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert_eq!(record["dropped"], json!(["temperature", "top_p", "max_tokens=128000"]));
    let (answer, sent) = post(&gateway, &upstream, "/v1/chat/completions", &ask("p/other")).await;
    assert_eq!(
        (&sent["temperature"], &sent["max_tokens"]),
        (&json!(0.2), &json!(500_000)),
        "nothing is known"
    );
    assert_eq!(
        (answer.header("x-llmgw-dropped"), answer.header("x-llmgw-adapted")),
        (None, Some("messages"))
    );
}

#[tokio::test]
async fn an_explanation_names_what_the_rules_would_change() {
    let (gateway, upstream) = anthropic(json!(["claude-opus-4-7"])).await;
    let body = json!({"model": "p/claude-opus-4-7", "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.2, "max_tokens": 500_000});
    let asked = json!({"path": "/v1/chat/completions", "body": body});
    let explained = Admin(gateway.client()).done("POST", "explain", asked).await;
    let want = json!({"provider": "p", "model": "claude-opus-4-7", "adapted": "messages",
        "dropped": ["temperature"], "changed": ["max_tokens=128000"]});
    assert_eq!(explained["candidates"][0], want, "{explained}");
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn unsigned_thoughts_do_not_reach_claude_from_a_messages_client() {
    let (gateway, upstream) = anthropic(json!(["claude-sonnet-4-5", "kimi-k2.5"])).await;
    let ask = |model: &str, signature: &str| {
        json!({"model": model, "max_tokens": 20_000, "thinking": {"type": "enabled", "budget_tokens": 2_000},
        "messages": [
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "f is needed", "signature": signature},
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "r"}]},
        ]})
    };
    let (answer, sent) = post(&gateway, &upstream, "/v1/messages", &ask("p/claude-sonnet-4-5", "")).await;
    assert_eq!(sent["messages"][1]["content"][0]["type"], "tool_use");
    assert_eq!(sent.get("thinking"), None, "the turn began without thoughts that the target signed");
    assert_eq!(answer.header("x-llmgw-dropped"), Some("messages.*.content.*[thinking], thinking"));
    assert_eq!(answer.header("x-llmgw-adapted"), None);
    for (model, signature) in [("p/claude-sonnet-4-5", SIGNED), ("p/kimi-k2.5", "")] {
        let (answer, sent) = post(&gateway, &upstream, "/v1/messages", &ask(model, signature)).await;
        assert_eq!(sent["messages"][1]["content"][0]["signature"], signature, "{model}");
        assert_eq!((&sent["thinking"]["type"], answer.header("x-llmgw-dropped")), (&json!("enabled"), None));
    }
}

#[tokio::test]
async fn an_operator_sets_rules_in_the_file_and_in_an_override() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let members = "models: [{id: m, rules: {sampling: none, reasoning_back: tool_calls}}]";
    let gateway = Gateway::start(&Yaml::new().provider_with("up", upstream.base_url(), members)).await;
    let ask = json!({"model": "up/m", "max_tokens": 100, "temperature": 0.2, "top_p": 0.9, "messages": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "more"},
    ]});
    let (answer, sent) = post(&gateway, &upstream, "/v1/messages", &ask).await;
    assert_eq!((sent.get("temperature"), sent.get("top_p")), (None, None));
    assert_eq!(sent["messages"][1]["reasoning_content"], "hm");
    assert_eq!(answer.header("x-llmgw-dropped"), Some("temperature, top_p"));
    let admin = Admin(gateway.client());
    let new = json!({"provider": "up", "model": "m", "facts": {"rules": {"sampling": "one"}}});
    admin.done("POST", "catalog/overrides", new).await;
    let (answer, sent) = post(&gateway, &upstream, "/v1/messages", &ask).await;
    assert_eq!((&sent["temperature"], sent.get("top_p")), (&json!(0.2), None));
    assert_eq!(sent["messages"][1]["reasoning_content"], "hm", "the file's rule still applies");
    assert_eq!(answer.header("x-llmgw-dropped"), Some("top_p"));
    let shown = admin.done("GET", "catalog?provider=up", Value::Null).await;
    assert_eq!(
        shown["data"][0]["rules"],
        json!({"sampling": "one", "reasoning_back": "tool_calls"}),
        "{shown}"
    );
}

#[tokio::test]
async fn a_model_without_tools_is_skipped_for_a_request_with_tools() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let yaml = Yaml::new()
        .provider_with("bare", upstream.base_url(), "models: [{id: m, tools: false}]")
        .provider_with("able", upstream.base_url(), "models: [m]")
        .endpoint("line", &[("bare", "m"), ("able", "m")]);
    let gateway = Gateway::start(&yaml).await;
    let mut ask = json!({"model": "line", "messages": [{"role": "user", "content": "x"}]});
    let (answer, _) = post(&gateway, &upstream, "/v1/chat/completions", &ask).await;
    assert_eq!(answer.header("x-llmgw-provider"), Some("bare"));
    ask["tools"] = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
    let (answer, _) = post(&gateway, &upstream, "/v1/chat/completions", &ask).await;
    assert_eq!(answer.header("x-llmgw-provider"), Some("able"));
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert_eq!(record["trace"][0]["result"], "no_tools");
    ask["model"] = json!("bare/m");
    let answer = gateway.client().post("/v1/chat/completions", ask.to_string()).await;
    assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("tools")));
}

#[tokio::test]
async fn claude_code_reasons_beside_tools_with_a_model_that_does_so_in_responses_only() {
    // agentgateway/agentgateway#2501, BerriAI/litellm PR 34569, danny-avila/LibreChat#14355.
    let whole = json!({"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "up",
        "output": [{"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}",
            "status": "completed"}],
        "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}});
    let upstream = Upstream::start().await;
    upstream.always(Answer::json(200, whole.to_string()));
    let base = upstream.base_url();
    let yaml = format!(
        "providers:\n  both: {{type: openai, base_url: '{base}', api_key: k, models: [gpt-5.6-terra]}}\n  \
         chat: {{type: openai, base_url: '{base}', api_key: k, protocols: [chat], models: [gpt-5.6-terra]}}\n"
    );
    let gateway = Setup::new(&Yaml::new()).yaml(yaml).start().await;
    let ask = |model: &str| {
        json!({"model": model, "max_tokens": 20_000, "thinking": {"type": "adaptive"},
            "output_config": {"effort": "max"}, "messages": [{"role": "user", "content": "x"}],
            "tools": [{"name": "f", "input_schema": {"type": "object"}}]})
    };
    let (answer, sent) = post(&gateway, &upstream, "/v1/messages", &ask("both/gpt-5.6-terra")).await;
    assert_eq!(sent["reasoning"]["effort"], "xhigh", "{sent}");
    assert_eq!(answer.header("x-llmgw-adapted"), Some("responses; reasoning.effort=xhigh"));
    assert_eq!(answer.json()["content"][0]["type"], "tool_use");
    upstream.always(Answer::completion("hello"));
    let (answer, sent) = post(&gateway, &upstream, "/v1/messages", &ask("chat/gpt-5.6-terra")).await;
    assert_eq!(sent["reasoning_effort"], "none", "{sent}");
    assert_eq!(answer.header("x-llmgw-adapted"), Some("chat; reasoning_effort=none"));
}
