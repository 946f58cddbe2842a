//! Cache marks for clients that send none, through the real binary: the bytes that are added, what keeps them away, and a
//! conversation at an upstream that prices by prefixes.

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml};

const MARK: &str = r#""cache_control":{"type":"ephemeral"},"#;
const HOUR: &str = r#""cache_control":{"type":"ephemeral","ttl":"1h"},"#;

async fn started(upstream: &Upstream, kind: &str, settings: &str, model: &str) -> Gateway {
    let base = upstream.base_url().trim_end_matches("/v1").to_owned();
    let yaml = format!(
        "providers:\n  up: {{type: {kind}, base_url: '{base}', api_key: 'k:s', models: ['{model}'], {settings}}}\n"
    );
    Setup::new(&Yaml::new()).yaml(yaml).start().await
}

fn message(input: u64, read: u64, written: u64) -> Answer {
    let usage = json!({"input_tokens": input, "output_tokens": 5, "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written});
    let answer = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "usage": usage,
        "stop_reason": "end_turn", "content": [{"type": "text", "text": "ok"}]});
    Answer::json(200, answer.to_string())
}

/// The body of a Messages request with about `tokens` tokens.
fn body(tokens: usize, more: &str) -> String {
    let text = "word".repeat(tokens);
    format!(
        r#"{{"model":"up/m","max_tokens":9,"messages":[{{"role":"user","content":[{{"type":"text","text":"{text}"{more}}}]}}]}}"#
    )
}

#[tokio::test]
async fn the_sent_body_differs_by_the_mark_alone() {
    for (settings, mark) in [("prompt_cache: auto", MARK), ("prompt_cache: 1h", HOUR), ("timeout: 9", "")] {
        let upstream = Upstream::start().await;
        upstream.always(message(1, 0, 0));
        let gateway = started(&upstream, "anthropic", settings, "m").await;
        for (tokens, more, is_marked) in [
            (2_000, "", true),
            (500, "", false),
            (2_000, r#","cache_control":{"type":"ephemeral"}"#, false),
            (2_000, r#","x":[{"y":{"cache_control":null}}]"#, false),
        ] {
            let sent = body(tokens, more);
            let answer = gateway.client().post("/v1/messages", sent.clone()).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let got = String::from_utf8(upstream.requests().last().unwrap().body.to_vec()).unwrap();
            let mark = if is_marked { mark } else { "" };
            let want = sent.replacen("\"up/m\"", "\"m\"", 1).replacen('{', &format!("{{{mark}"), 1);
            assert!(got == want, "{settings} {tokens} {more}: {} {}", got.len(), want.len());
            let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
            let names = record["dropped"].as_array().cloned().unwrap_or_default();
            let shown = if mark.is_empty() { Vec::new() } else { vec![json!("cache_mark: added")] };
            assert_eq!(names, shown, "{settings} {tokens} {more}");
        }
        // Clients of other protocols, by adaptation.
        let long = json!({"model": "up/m", "messages": [{"role": "user", "content": "word".repeat(2_000)}]});
        assert_eq!(gateway.client().chat(long.to_string()).await.status, 200);
        let got = String::from_utf8(upstream.requests().last().unwrap().body.to_vec()).unwrap();
        assert!(got.starts_with(&format!("{{{mark}")), "{}", &got[..80]);
        assert_eq!(got.contains("cache_control"), !mark.is_empty());
        let question = json!({"path": "/v1/chat/completions", "body": long});
        let explained = Admin(gateway.client()).done("POST", "explain", question).await;
        let body = if mark.is_empty() { Value::Null } else { json!(["cache_mark: added"]) };
        assert_eq!(explained["candidates"][0]["body"], body, "{explained}");
    }
}

#[tokio::test]
async fn bedrock_gets_cache_points_for_models_that_take_them() {
    let whole = json!({"output": {"message": {"role": "assistant", "content": [{"text": "hello"}]}},
        "stopReason": "end_turn", "usage": {"inputTokens": 3, "outputTokens": 1, "totalTokens": 4}, "metrics": {"latencyMs": 1}});
    let default = json!({"cachePoint": {"type": "default"}});
    let hour = json!({"cachePoint": {"type": "default", "ttl": "1h"}});
    for (model, settings, last, tools) in [
        ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", "prompt_cache: auto", Some(&default), true),
        ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", "prompt_cache: 1h", Some(&hour), true),
        ("amazon.nova-pro-v1:0", "prompt_cache: 1h", Some(&default), false),
        ("meta.llama3-70b-instruct-v1:0", "prompt_cache: auto", None, false),
        ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", "timeout: 9", None, false),
    ] {
        let upstream = Upstream::start().await;
        upstream.always(Answer::json(200, whole.to_string()));
        let gateway = started(&upstream, "bedrock", &format!("region: eu-west-1, {settings}"), model).await;
        let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
        let body = json!({"model": format!("up/{model}"), "tools": [tool], "messages": [
            {"role": "system", "content": "s"}, {"role": "user", "content": "word".repeat(2_000)}]});
        let answer = gateway.client().chat(body.to_string()).await;
        assert_eq!(answer.status, 200, "{model}: {answer:?}");
        let sent = upstream.requests()[0].json();
        let about = format!("{model} {settings}");
        let place = |list: &Value| list.as_array().unwrap().get(1).cloned();
        assert_eq!(place(&sent["system"]), last.cloned(), "{about}");
        assert_eq!(place(&sent["messages"][0]["content"]), last.cloned(), "{about}");
        assert_eq!(place(&sent["toolConfig"]["tools"]), last.cloned().filter(|_| tools), "{about}");
    }
}

/// The upstream caches what lies before the last block of a marked request, as the vendor does.
#[tokio::test]
async fn a_conversation_of_ten_turns_reads_from_the_second_on() {
    let upstream = Upstream::start().await;
    let gateway = started(&upstream, "anthropic", "prompt_cache: auto", "m").await;
    let (mut messages, mut cached) = (Vec::new(), String::new());
    for turn in 0..10 {
        messages.push(json!({"role": "user", "content": format!("{turn} {}", "word".repeat(1_500))}));
        let body = json!({"model": "up/m", "max_tokens": 9, "messages": messages});
        // What the upstream will see of this turn decides its answer, so it is computed from the conversation.
        let prompt = messages.iter().map(Value::to_string).collect::<String>();
        let read = if prompt.starts_with(&cached) { cached.len() as u64 / 4 } else { 0 };
        let written = prompt.len() as u64 / 4 - read;
        upstream.then(message(1, read, written));
        let answer = gateway.client().post("/v1/messages", body.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let sent = upstream.requests()[turn].json();
        assert_eq!(sent["cache_control"], json!({"type": "ephemeral"}), "turn {turn}");
        let sent_prompt: String = sent["messages"].as_array().unwrap().iter().map(Value::to_string).collect();
        assert!(sent_prompt == prompt, "turn {turn}: the prefix stays as it is");
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        assert_eq!(record["tokens"]["cache_read"].as_u64().unwrap() > 0, turn > 0, "turn {turn}: {record}");
        cached = prompt;
        messages.push(json!({"role": "assistant", "content": "ok"}));
    }
}

#[tokio::test]
async fn a_mark_does_not_follow_a_request_to_another_target() {
    let (claude, other) = (Upstream::start().await, Upstream::start().await);
    claude.always(Answer::error(529));
    other.always(Answer::completion("hello"));
    let base = claude.base_url().trim_end_matches("/v1").to_owned();
    let yaml = format!(
        "policies: {{defaults: {{retry_max_attempts: 1}}}}\nproviders:\n  a: {{type: anthropic, base_url: '{base}', api_key: k, models: [m], prompt_cache: auto}}\n  \
         b: {{type: compatible, base_url: '{}', api_key: k, models: [m]}}\nendpoints:\n  line: {{failover: [{{provider: a, model: m}}, {{provider: b, model: m}}]}}\n",
        other.base_url()
    );
    let gateway = Setup::new(&Yaml::new()).yaml(yaml).start().await;
    let body = json!({"model": "line", "messages": [{"role": "user", "content": "word".repeat(2_000)}]});
    assert_eq!(gateway.client().chat(body.to_string()).await.status, 200);
    assert!(claude.requests()[0].json()["cache_control"].is_object());
    let sent = String::from_utf8(other.requests()[0].body.to_vec()).unwrap();
    assert!(!sent.contains("cache"), "{}", &sent[..100]);
    let admin = Admin(gateway.client());
    for (kind, status) in [("compatible", 400), ("vertex", 400), ("azure_openai", 400), ("anthropic", 201)] {
        let provider = json!({"id": "own", "type": kind, "base_url": "http://127.0.0.1:9", "api_key": "k", "project": "p",
            "prompt_cache": "1h"});
        let provider = match kind {
            "vertex" => provider,
            _ => {
                let mut provider = provider;
                provider.as_object_mut().unwrap().remove("project");
                provider
            }
        };
        let answer = admin.call("POST", "providers", provider).await;
        assert_eq!(answer.status, status, "{kind}: {answer:?}");
        if status == 400 {
            assert!(
                answer.json()["error"]["message"].as_str().unwrap().contains("prompt_cache: type"),
                "{answer:?}"
            );
        } else {
            assert_eq!(answer.json()["prompt_cache"], "1h");
        }
    }
}
