//! Codex over targets that do not speak Responses (`responses_fallback: agents`).

use serde_json::{Value, json};

use crate::kinds::{root, with};
use crate::support::admin::Admin;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml};

const PATCH: &str = "*** Begin Patch\n*** Add File: a.txt\n+hello\n*** End Patch\n";
const SIGNATURE: &str = "EqQBCgIYAhIM1gbcDa9GJwZA2b3h/+8=";

/// A vendor's settings, and its answers: a patch, a command, and the end, with reasoning before each call.
struct Vendor {
    settings: Value,
    answers: [Value; 3],
    /// What the last request contains of the reasoning of the first answer.
    returned: &'static str,
}

fn chat() -> Vendor {
    let answer = |message: Value, end: &str| {
        let choice = json!({"index": 0, "message": message, "finish_reason": end});
        json!({"id": "c", "object": "chat.completion", "choices": [choice]})
    };
    let call = |why: &str, id: &str, name: &str, arguments: &Value| {
        let function = json!({"name": name, "arguments": arguments.to_string()});
        let calls = json!([{"id": id, "type": "function", "function": function}]);
        answer(
            json!({"role": "assistant", "content": null, "reasoning_content": why, "tool_calls": calls}),
            "tool_calls",
        )
    };
    Vendor {
        settings: json!({"type": "compatible", "models": [{"id": "m", "rules": {"reasoning_back": "all"}}]}),
        answers: [
            call("why 1", "c1", "apply_patch", &json!({"input": PATCH})),
            call("why 2", "c2", "exec_command", &json!({"cmd": "cat a.txt"})),
            answer(json!({"role": "assistant", "content": "Done."}), "stop"),
        ],
        returned: r#""reasoning_content":"why 1""#,
    }
}

fn messages() -> Vendor {
    let answer = |content: Value, end: &str| {
        json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": end, "content": content,
            "usage": {"input_tokens": 3, "output_tokens": 1}})
    };
    let call = |why: &str, id: &str, name: &str, input: &Value| {
        let thought = json!({"type": "thinking", "thinking": why, "signature": SIGNATURE});
        answer(json!([thought, {"type": "tool_use", "id": id, "name": name, "input": input}]), "tool_use")
    };
    Vendor {
        settings: json!({"type": "anthropic", "models": [{"id": "m", "reasoning": true}]}),
        answers: [
            call("why 1", "t1", "apply_patch", &json!({"input": PATCH})),
            call("why 2", "t2", "exec_command", &json!({"cmd": "cat a.txt"})),
            answer(json!([{"type": "text", "text": "Done."}]), "end_turn"),
        ],
        returned: r#"{"type":"thinking","thinking":"why 1","signature":"EqQBCgIYAhIM1gbcDa9GJwZA2b3h/+8="}"#,
    }
}

fn gemini() -> Vendor {
    let answer = |parts: Value| json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]});
    let call = |why: &str, name: &str, args: &Value| {
        let call = json!({"functionCall": {"name": name, "args": args}, "thoughtSignature": "c2lnbmVk"});
        answer(json!([{"text": why, "thought": true}, call]))
    };
    Vendor {
        settings: json!({"type": "gemini", "models": ["m"]}),
        answers: [
            call("why 1", "apply_patch", &json!({"input": PATCH})),
            call("why 2", "exec_command", &json!({"cmd": "cat a.txt"})),
            answer(json!([{"text": "Done."}])),
        ],
        returned: r#""thoughtSignature":"c2lnbmVk""#,
    }
}

fn bedrock() -> Vendor {
    let answer = |content: Value, end: &str| {
        json!({"output": {"message": {"role": "assistant", "content": content}}, "stopReason": end,
            "usage": {"inputTokens": 3, "outputTokens": 1, "totalTokens": 4}})
    };
    let call = |why: &str, id: &str, name: &str, input: &Value| {
        let thought = json!({"reasoningContent": {"reasoningText": {"text": why, "signature": SIGNATURE}}});
        answer(json!([thought, {"toolUse": {"toolUseId": id, "name": name, "input": input}}]), "tool_use")
    };
    Vendor {
        settings: json!({"type": "bedrock", "region": "eu-west-1",
            "models": [{"id": "anthropic.claude-sonnet-4-20250514-v1:0", "reasoning": true}]}),
        answers: [
            call("why 1", "t1", "apply_patch", &json!({"input": PATCH})),
            call("why 2", "t2", "exec_command", &json!({"cmd": "cat a.txt"})),
            answer(json!([{"text": "Done."}]), "end_turn"),
        ],
        returned: r#""reasoningText":{"text":"why 1","signature":"EqQBCgIYAhIM1gbcDa9GJwZA2b3h/+8="}"#,
    }
}

/// A request as Codex sends it.
fn ask(model: &str, input: &Value) -> String {
    let command = json!({"type": "function", "name": "exec_command", "strict": false,
        "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}}});
    let patch = json!({"type": "custom", "name": "apply_patch", "description": "Edits files.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}});
    let more = json!({"type": "namespace", "name": "multi_agent_v1", "tools": [{"type": "function", "name": "spawn_agent",
        "parameters": {"type": "object", "properties": {}}}]});
    json!({
        "model": model, "input": input, "tools": [command, patch, more, {"type": "web_search"}], "tool_choice": "auto",
        "parallel_tool_calls": true, "store": false, "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "medium", "summary": "auto"}, "prompt_cache_key": "k", "text": {"verbosity": "low"},
        "client_metadata": {"a": "b"},
    })
    .to_string()
}

fn user() -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Write a.txt."}]})
}

/// Returns the items with which the client continues after an answer: the answer's own, and a result of each call.
fn continued(answer: &Value) -> Vec<Value> {
    let mut items = answer["output"].as_array().unwrap().clone();
    let results = items.iter().filter(|item| !item["call_id"].is_null()).map(|call| {
        let kind = format!("{}_output", call["type"].as_str().unwrap());
        json!({"type": kind, "call_id": call["call_id"], "output": "done"})
    });
    let results: Vec<Value> = results.collect();
    items.extend(results);
    items
}

#[tokio::test]
async fn codex_works_over_chat_messages_gemini_and_bedrock() {
    for Vendor { mut settings, answers, returned } in [chat(), messages(), gemini(), bedrock()] {
        let upstream = Upstream::start().await;
        let kind = settings["type"].as_str().unwrap().to_owned();
        let base_url = if kind == "compatible" { upstream.base_url() } else { root(&upstream) };
        let key = if kind == "bedrock" { "AKIDEXAMPLE:secret" } else { "k" };
        settings["base_url"] = json!(base_url);
        settings["api_key"] = json!(key);
        settings["responses_fallback"] = json!("agents");
        let model = settings["models"][0]["id"]
            .as_str()
            .or_else(|| settings["models"][0].as_str())
            .unwrap()
            .to_owned();
        let gateway = with(&settings).start().await;
        let (mut input, mut kinds) = (vec![user()], Vec::new());
        for answer in answers {
            upstream.then(Answer::json(200, answer.to_string()));
            let answer =
                gateway.client().post("/v1/responses", ask(&format!("p/{model}"), &json!(input))).await;
            assert_eq!(answer.status, 200, "{kind}: {:?}", answer.body);
            assert_eq!(answer.header("x-llmgw-dropped"), Some("tools.web_search"), "{kind}");
            let answer = answer.json();
            kinds.extend(answer["output"].as_array().unwrap().iter().map(|item| item["type"].clone()));
            input.extend(continued(&answer));
        }
        let want = ["reasoning", "custom_tool_call", "reasoning", "function_call", "message"];
        assert_eq!(kinds, want, "{kind}");
        assert_eq!(input[2]["input"], PATCH, "{kind}");
        assert_eq!(input[1]["summary"][0]["text"], "why 1", "{kind}");
        let body = String::from_utf8(upstream.request(2).await.body.to_vec()).unwrap();
        assert!(body.contains(returned), "{kind}: {body}");
        assert!(body.contains("Begin Patch") && !body.contains("encrypted_content"), "{kind}: {body}");
    }
}

#[tokio::test]
async fn sealed_reasoning_is_refused_for_other_owners_and_by_native_targets() {
    let upstream = Upstream::start().await;
    let yaml = Yaml::new()
        .provider_with("up", upstream.base_url(), "responses_fallback: agents")
        .provider_with("strict", upstream.base_url(), "")
        .provider_with("native", upstream.base_url(), "protocols: [responses]");
    let gateway = Gateway::start(&yaml).await;
    let admin = Admin(gateway.client());
    let (ours, theirs) = (admin.project("ours").await, admin.project("theirs").await);
    let mut clients = Vec::new();
    for project in [&ours, &ours, &theirs] {
        let key = admin.key(json!({"project": project})).await;
        clients.push(Client::new(gateway.address(), Some(&key.key)));
    }
    let [maker, colleague, stranger] = &clients[..] else { unreachable!() };
    upstream.always(Answer::json(200, chat().answers[0].to_string()));
    let made = maker.post("/v1/responses", ask("up/m", &json!([user()]))).await;
    assert_eq!(made.status, 200, "{:?}", made.body);
    let mut input = vec![user()];
    input.extend(continued(&made.json()));
    let mut changed = input.clone();
    let sealed = changed[1]["encrypted_content"].as_str().unwrap().to_owned();
    changed[1]["encrypted_content"] = json!(sealed[..sealed.len() - 4]);
    let foreign = json!([{"type": "reasoning", "summary": [], "encrypted_content": "gAAAAABh"}]);
    let sealed_at = json!("input.1.encrypted_content");
    for (client, model, input, status, param) in [
        (maker, "up/m", json!(input), 200, &Value::Null),
        (colleague, "up/m", json!(input), 200, &Value::Null),
        (stranger, "up/m", json!(input), 400, &sealed_at),
        (maker, "up/m", json!(changed), 400, &sealed_at),
        (maker, "up/m", foreign, 400, &json!("input.0.encrypted_content")),
        (maker, "native/m", json!(input), 400, &json!("input")),
        (maker, "strict/m", json!(input), 400, &json!("include")),
        (maker, "up/m", json!([{"type": "compaction_trigger"}]), 400, &json!("input.0.type")),
    ] {
        let answer = client.post("/v1/responses", ask(model, &input)).await;
        assert_eq!(answer.status, status, "{model}: {:?}", answer.body);
        assert_eq!(&answer.json()["error"]["param"], param, "{model}");
    }
}
