//! Several candidates, and log probabilities, between Gemini and Chat.

use serde_json::{Value, json};

use crate::kinds::root;
use crate::support::client::Whole;
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::{Answer, Client, Gateway, Upstream, Yaml};

/// Starts a gateway with a chat target `c/m`, and targets that have one answer a request: `a/m`, `r/m`, `b/m`.
async fn gateway() -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    let file = json!({
        "providers": {
            "c": {"type": "compatible", "base_url": upstream.base_url(), "models": ["m"]},
            "a": {"type": "anthropic", "base_url": root(&upstream), "api_key": "k", "models": ["m"]},
            "r": {"type": "openai", "base_url": upstream.base_url(), "api_key": "k", "force_api_support": true,
                "models": [{"id": "m", "protocols": ["responses"]}]},
            "b": {"type": "bedrock", "base_url": root(&upstream), "region": "eu-west-1", "api_key": "A:s", "models": ["m"]},
        },
        "policies": {"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 0}},
    });
    (Setup::new(&Yaml::new()).yaml(file.to_string()).start().await, upstream)
}

async fn ask(gateway: &Gateway, path: &str, config: Value) -> Whole {
    let body = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "generationConfig": config});
    let client = Client::new(gateway.address(), None).with("x-goog-api-key", ADMIN_KEY);
    client.post(&format!("/v1beta/models/{path}"), body.to_string()).await
}

fn choice(index: u64, text: &str, end: &str) -> Value {
    json!({"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": end})
}

fn chunk(index: u64, delta: Value, end: Value) -> String {
    let mut choice = json!({"index": index});
    (choice["delta"], choice["finish_reason"]) = (delta, end);
    format!("data: {}\n\n", json!({"object": "chat.completion.chunk", "choices": [choice]}))
}

fn usage() -> Value {
    json!({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7})
}

fn frames(answer: &Whole) -> Vec<Value> {
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    text.split("\r\n\r\n")
        .filter_map(|frame| frame.strip_prefix("data: "))
        .map(|frame| serde_json::from_str(frame).unwrap())
        .collect()
}

#[tokio::test]
async fn each_choice_of_a_chat_target_is_a_candidate() {
    let (gateway, upstream) = gateway().await;
    let body = json!({"choices": [choice(1, "two", "length"), choice(0, "one", "stop")], "usage": usage()});
    upstream.then(Answer::json(200, body.to_string()));
    let answer = ask(&gateway, "c/m:generateContent", json!({"candidateCount": 2})).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    assert_eq!(upstream.request(0).await.json()["n"], 2);
    let read = answer.json();
    let candidate = |index: u64, text: &str, end: &str| json!({"content": {"parts": [{"text": text}], "role": "model"}, "finishReason": end, "index": index});
    assert_eq!(read["candidates"], json!([candidate(0, "one", "STOP"), candidate(1, "two", "MAX_TOKENS")]));
    assert_eq!(read["usageMetadata"]["candidatesTokenCount"], 4, "counted once: {read}");
    let records = gateway.records(1).await;
    assert_eq!(records[0]["tokens"]["output"], 4, "{}", records[0]);
}

#[tokio::test]
async fn a_client_that_wants_one_candidate_gets_one() {
    let (gateway, upstream) = gateway().await;
    for (wanted, choices, want) in [
        (json!({}), json!([choice(0, "one", "stop"), choice(1, "two", "stop")]), 1),
        (json!({"candidateCount": 1}), json!([choice(1, "one", "stop")]), 1),
        (json!({"candidateCount": 2}), json!([choice(0, "one", "stop")]), 1),
    ] {
        let body = json!({"choices": choices, "usage": usage()});
        upstream.then(Answer::json(200, body.to_string()));
        let answer = ask(&gateway, "c/m:generateContent", wanted.clone()).await;
        let read = answer.json();
        let candidates = read["candidates"].as_array().unwrap();
        assert_eq!(candidates.len(), want, "{wanted}: {read}");
        assert_eq!(candidates[0]["content"]["parts"][0]["text"], "one", "{wanted}: {read}");
    }
}

#[tokio::test]
async fn streamed_candidates_keep_their_index_calls_and_ends() {
    let (gateway, upstream) = gateway().await;
    let call = json!({"index": 0, "id": "c1", "function": {"name": "f", "arguments": "{\"x\":1}"}});
    let events = [
        chunk(0, json!({"role": "assistant", "content": "a"}), Value::Null),
        chunk(1, json!({"role": "assistant", "content": "b"}), Value::Null),
        chunk(0, json!({"content": "c"}), Value::Null),
        chunk(1, json!({"tool_calls": [call]}), Value::Null),
        chunk(0, json!({}), json!("length")),
        chunk(1, json!({}), json!("tool_calls")),
        format!("data: {}\n\n", json!({"choices": [], "usage": usage()})),
        "data: [DONE]\n\n".to_owned(),
    ];
    upstream.then(Answer::events(&events));
    let answer = ask(&gateway, "c/m:streamGenerateContent?alt=sse", json!({"candidateCount": 2})).await;
    let frames = frames(&answer);
    let (mut texts, mut calls, mut ends) = ([String::new(), String::new()], Vec::new(), Vec::new());
    for candidate in frames.iter().flat_map(|frame| frame["candidates"].as_array().unwrap()) {
        let index = candidate["index"].as_u64().unwrap();
        for part in candidate["content"]["parts"].as_array().unwrap() {
            texts[usize::try_from(index).unwrap()].push_str(part["text"].as_str().unwrap_or_default());
            calls.extend(part.get("functionCall").map(|call| (index, call["args"].clone())));
        }
        ends.extend(candidate["finishReason"].as_str().map(|end| (index, end.to_owned())));
    }
    assert_eq!(texts, ["ac", "b"], "{frames:?}");
    assert_eq!(calls, [(1, json!({"x": 1}))], "{frames:?}");
    assert_eq!(ends, [(0, "MAX_TOKENS".to_owned()), (1, "STOP".to_owned())], "{frames:?}");
    let with_usage = frames.iter().filter(|frame| frame.get("usageMetadata").is_some()).count();
    assert_eq!(
        (with_usage, &frames.last().unwrap()["usageMetadata"]["candidatesTokenCount"]),
        (1, &json!(4))
    );
}

#[tokio::test]
async fn a_stream_that_is_cut_off_in_one_candidate_is_not_complete() {
    let (gateway, upstream) = gateway().await;
    let events = [
        chunk(0, json!({"content": "a"}), Value::Null),
        chunk(1, json!({"content": "b"}), Value::Null),
        chunk(0, json!({}), json!("stop")),
    ];
    upstream.then(Answer::events(&events));
    let answer = ask(&gateway, "c/m:streamGenerateContent?alt=sse", json!({"candidateCount": 2})).await;
    let frames = frames(&answer);
    assert!(frames.last().unwrap().get("error").is_some(), "{frames:?}");
    assert!(!format!("{frames:?}").contains("finishReason"), "{frames:?}");
}

#[tokio::test]
async fn a_target_that_has_none_refuses_candidates_and_log_probabilities_by_the_clients_name() {
    let (gateway, upstream) = gateway().await;
    for path in ["a/m", "r/m", "b/m"] {
        for (config, name) in [
            (json!({"candidateCount": 2}), "generationConfig.candidateCount"),
            (json!({"responseLogprobs": true}), "generationConfig.responseLogprobs"),
        ] {
            let answer = ask(&gateway, &format!("{path}:generateContent"), config).await;
            let error = &answer.json()["error"];
            assert_eq!(
                (answer.status, &error["status"]),
                (400, &json!("INVALID_ARGUMENT")),
                "{path}: {error}"
            );
            assert!(error["message"].as_str().unwrap().contains(&format!("'{name}'")), "{path}: {error}");
            assert_eq!(error["details"][1]["fieldViolations"][0]["field"], name, "{path}: {error}");
        }
    }
    assert!(upstream.requests().is_empty());
}

/// A token in chat's form, with one other likely token.
fn token(text: &str, logprob: f64) -> Value {
    let likeliest = json!([{"token": text, "logprob": logprob, "bytes": null}, {"token": "x", "logprob": -3.5, "bytes": null}]);
    json!({"token": text, "logprob": logprob, "bytes": text.as_bytes(), "top_logprobs": likeliest})
}

/// The same in Gemini's form: the chosen token, and the likely tokens at its place.
fn steps(tokens: &[(&str, f64)]) -> Value {
    let one = |text: &str, logprob: f64| json!({"token": text, "logProbability": logprob});
    let tops: Vec<Value> = tokens
        .iter()
        .map(|(text, logprob)| json!({"candidates": [one(text, *logprob), one("x", -3.5)]}))
        .collect();
    let chosen: Vec<Value> = tokens.iter().map(|(text, logprob)| one(text, *logprob)).collect();
    json!({"topCandidates": tops, "chosenCandidates": chosen})
}

#[tokio::test]
async fn log_probabilities_of_a_chat_target_reach_a_gemini_client() {
    let (gateway, upstream) = gateway().await;
    let with = |index: u64, member: &str, text: &str, tokens: &Value, end: Value| {
        let message = json!({"role": "assistant", "content": text});
        json!({"index": index, member: message, "logprobs": {"content": tokens, "refusal": null}, "finish_reason": end})
    };
    let tokens = json!([token("He", -0.5), token("y", -1.0)]);
    let body = json!({"choices": [with(0, "message", "Hey", &tokens, json!("stop"))], "usage": usage()});
    upstream.then(Answer::json(200, body.to_string()));
    let config = json!({"responseLogprobs": true, "logprobs": 2});
    let answer = ask(&gateway, "c/m:generateContent", config.clone()).await;
    let sent = upstream.request(0).await.json();
    assert_eq!((&sent["logprobs"], &sent["top_logprobs"]), (&json!(true), &json!(2)), "{sent}");
    let candidate = answer.json()["candidates"][0].clone();
    assert_eq!(candidate["logprobsResult"], steps(&[("He", -0.5), ("y", -1.0)]), "{candidate}");
    assert_eq!(candidate["avgLogprobs"], -0.75, "{candidate}");

    let event = |choice: Value| format!("data: {}\n\n", json!({"choices": [choice]}));
    let events = [
        event(with(0, "delta", "He", &json!([token("He", -0.5)]), Value::Null)),
        event(with(0, "delta", "y", &json!([token("y", -1.0)]), Value::Null)),
        event(json!({"index": 0, "delta": {}, "finish_reason": "stop"})),
        "data: [DONE]\n\n".to_owned(),
    ];
    upstream.then(Answer::events(&events));
    let answer = ask(&gateway, "c/m:streamGenerateContent?alt=sse", config).await;
    let frames = frames(&answer);
    let seen: Vec<(&Value, &Value, &Value)> = frames
        .iter()
        .map(|frame| &frame["candidates"][0])
        .map(|of| (&of["content"]["parts"][0]["text"], &of["logprobsResult"], &of["avgLogprobs"]))
        .collect();
    let [first, second] = [steps(&[("He", -0.5)]), steps(&[("y", -1.0)])];
    let (none, average) = (Value::Null, json!(-0.75));
    let want = [(&json!("He"), &first, &none), (&json!("y"), &second, &none), (&json!(""), &none, &average)];
    assert_eq!(seen, want, "{frames:?}");
}

#[tokio::test]
async fn log_probabilities_of_a_gemini_target_reach_a_chat_client() {
    let upstream = Upstream::start().await;
    let file = json!({"providers": {"p": {"type": "gemini", "base_url": root(&upstream), "api_key": "k", "models": ["m"]}}});
    let gateway = Setup::new(&Yaml::new()).yaml(file.to_string()).start().await;
    let piece = |text: &str, tokens: &[(&str, f64)], end: Value| {
        let content = json!({"role": "model", "parts": [{"text": text}]});
        json!({"candidates": [{"content": content, "finishReason": end, "index": 0, "logprobsResult": steps(tokens)}]})
    };
    let whole = piece("Hey", &[("He", -0.5), ("y", -1.0)], json!("STOP"));
    upstream.then(Answer::json(200, whole.to_string()));
    let mut request = json!({"model": "p/m", "messages": [{"role": "user", "content": "hi"}], "logprobs": true, "top_logprobs": 2});
    let answer = gateway.client().chat(request.to_string()).await;
    let sent = upstream.request(0).await.json()["generationConfig"].clone();
    assert_eq!(sent, json!({"responseLogprobs": true, "logprobs": 2}));
    let in_chat = |text: &str, logprob: f64| {
        let mut token = token(text, logprob);
        token["bytes"] = Value::Null;
        token
    };
    let want = json!({"content": [in_chat("He", -0.5), in_chat("y", -1.0)], "refusal": null});
    assert_eq!(answer.json()["choices"][0]["logprobs"], want, "{:?}", answer.body);

    let pieces = [piece("He", &[("He", -0.5)], Value::Null), piece("y", &[("y", -1.0)], json!("STOP"))];
    upstream.then(Answer::events(&pieces.map(|piece| format!("data: {piece}\r\n\r\n"))));
    request["stream"] = json!(true);
    let answer = gateway.client().chat(request.to_string()).await;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let chunks = text.split("\n\n").filter_map(|event| event.strip_prefix("data: {"));
    let seen: Vec<(Value, Value)> = chunks
        .map(|chunk| serde_json::from_str::<Value>(&format!("{{{chunk}")).unwrap()["choices"][0].clone())
        .filter(|choice| !choice["logprobs"].is_null())
        .map(|choice| (choice["delta"]["content"].clone(), choice["logprobs"]["content"].clone()))
        .collect();
    let want = [("He", -0.5), ("y", -1.0)];
    assert_eq!(seen, want.map(|(text, logprob)| (json!(text), json!([in_chat(text, logprob)]))), "{text}");
}
