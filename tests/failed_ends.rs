//! Answers that end as failures and answers without any choice are failed attempts: nothing has been sent to the client,
//! so the next target serves it, and a client without one gets an error. After content, the error is an event.

use serde_json::{Value, json};

use crate::kinds::root;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat};

/// Starts a gateway with the endpoint `line`: a target of the kind `kind` that sends `first`, then a compatible one. The
/// endpoint `alone` has only the first.
async fn line(kind: &str, first: Answer) -> (Gateway, Upstream, Upstream) {
    let (one, two) = (Upstream::start().await, Upstream::start().await);
    one.always(first);
    let url = if kind == "compatible" { one.base_url() } else { root(&one) };
    let config = json!({
        "providers": {
            "p0": {"type": kind, "base_url": url, "api_key": "k0", "models": ["m"]},
            "p1": {"type": "compatible", "base_url": two.base_url(), "api_key": "k1", "models": ["m"]},
        },
        "endpoints": {
            "line": {"failover": [{"provider": "p0", "model": "m"}, {"provider": "p1", "model": "m"}]},
            "alone": {"failover": [{"provider": "p0", "model": "m"}]},
        },
        "policies": {"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 0}},
    });
    (Setup::new(&Yaml::new()).yaml(config.to_string()).start().await, one, two)
}

/// Returns a request of each client for the model `model`.
fn requests(model: &str, stream: bool) -> [(&'static str, String); 3] {
    let turns = json!([{"role": "user", "content": "hi"}]);
    [
        ("/v1/chat/completions", json!({"model": model, "stream": stream, "messages": turns}).to_string()),
        (
            "/v1/messages",
            json!({"model": model, "stream": stream, "max_tokens": 9, "messages": turns}).to_string(),
        ),
        ("/v1/responses", json!({"model": model, "stream": stream, "input": "hi"}).to_string()),
    ]
}

fn chunk(choice: &Value) -> String {
    format!(
        "data: {}\n\n",
        json!({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": choice})
    )
}

/// The choices of failed answers, as chat targets send them.
fn failed_choices() -> Vec<(&'static str, Value)> {
    let ended = |members: Value| {
        let mut choice = json!({"index": 0});
        choice.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        json!([choice])
    };
    vec![
        ("OleksandrChekhovskyi/hax#15", ended(json!({"finish_reason": "error"}))),
        ("genkit-ai/genkit#6259", ended(json!({"finish_reason": "insufficient_system_resource"}))),
        ("vllm-project/vllm#57082", ended(json!({"finish_reason": "abort"}))),
        ("NousResearch/hermes-agent#92161", ended(json!({"finish_reason": "network_error"}))),
        (
            "archestra-ai/archestra#5487 behind OpenRouter",
            ended(json!({"finish_reason": "stop", "native_finish_reason": "MALFORMED_FUNCTION_CALL"})),
        ),
        (
            "UKGovernmentBEIS/inspect_ai#1536",
            ended(json!({"finish_reason": "error", "error": {"code": 502, "message": "upstream is gone"}})),
        ),
        ("ENTERPILOT/GoModel#947, keephq/keep#6715", json!([])),
    ]
}

async fn serves_from_the_second(name: &str, kind: &str, first: Answer, stream: bool) {
    let (gateway, one, two) = line(kind, first).await;
    two.always(if stream {
        Answer::events(&chat::events(&["second"]))
    } else {
        Answer::completion("second")
    });
    for (path, body) in requests("line", stream) {
        let answer = gateway.client().post(path, body).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 200, "{name} {path}: {text}");
        assert!(text.contains("second"), "{name} {path}: {text}");
        assert_eq!(answer.header("x-llmgw-provider"), Some("p1"), "{name} {path}");
    }
    for (path, body) in requests("alone", stream) {
        let answer = gateway.client().post(path, body).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(matches!(answer.status, 502 | 503), "{name} {path}: {} {text}", answer.status);
        assert!(answer.json()["error"]["message"].is_string(), "{name} {path}: {text}");
    }
    assert_eq!((one.requests().len(), two.requests().len()), (6, 3), "{name}");
}

#[tokio::test]
async fn a_whole_answer_that_ends_as_a_failure_fails_over() {
    for (name, mut choices) in failed_choices() {
        if let Some(choice) = choices.get_mut(0) {
            choice["message"] = json!({"role": "assistant", "content": ""});
        }
        let usage = json!({"prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9});
        for body in [
            json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}),
            json!({"usage": usage, "model": "m", "choices": choices}),
        ] {
            serves_from_the_second(name, "compatible", Answer::json(200, body.to_string()), false).await;
        }
    }
}

#[tokio::test]
async fn a_stream_that_ends_as_a_failure_before_content_fails_over() {
    for (name, mut choices) in failed_choices() {
        if let Some(choice) = choices.get_mut(0) {
            choice["delta"] = json!({"content": ""});
        }
        let role =
            json!([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]);
        // The end of the stream arrives in a read of its own.
        let answer = Answer::events(&[chunk(&role), chunk(&choices), "data: [DONE]\n\n".to_owned()]);
        serves_from_the_second(name, "compatible", answer, true).await;
        let answer = Answer::events(&[chunk(&choices)]);
        serves_from_the_second(name, "compatible", answer, true).await;
    }
    serves_from_the_second("nothing", "compatible", Answer::events(&["data: [DONE]\n\n"]), true).await;
}

#[tokio::test]
async fn a_stream_that_ends_as_a_failure_after_content_ends_with_an_error_event() {
    let text =
        json!([{"index": 0, "delta": {"role": "assistant", "content": "half"}, "finish_reason": null}]);
    let end = json!([{"index": 0, "delta": {}, "finish_reason": "insufficient_system_resource"}]);
    let events = [chunk(&text), chunk(&end), "data: [DONE]\n\n".to_owned()];
    let (gateway, _one, _two) = line("compatible", Answer::events(&events)).await;
    for ((path, body), (error, end)) in requests("line", true).into_iter().zip([
        ("data: {\"error\":{", "[DONE]"),
        ("event: error\n", "message_stop"),
        ("event: response.failed\n", "response.completed"),
    ]) {
        let mut flow = gateway.client().open("POST", path, body.into()).await.unwrap();
        let bytes: Vec<u8> = flow.rest().await.0.iter().flat_map(|event| event.bytes.to_vec()).collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(text.contains("half") && text.contains(error) && !text.contains(end), "{path}: {text}");
        assert!(text.contains("The upstream ran out of resources"), "{path}: {text}");
    }
    let records = gateway.records(3).await;
    assert!(records.iter().all(|record| record["outcome"] == "cut"), "{records:?}");
}

/// Wei-Shaw/sub2api#7098, agentjido/req_llm#944.
#[tokio::test]
async fn a_malformed_call_of_gemini_fails_over() {
    for word in ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"] {
        let body = json!({
            "candidates": [{"index": 0, "finishReason": word, "finishMessage": "not a call"}],
            "usageMetadata": {"promptTokenCount": 10, "totalTokenCount": 10},
        });
        serves_from_the_second(word, "gemini", Answer::json(200, body.to_string()), false).await;
        let answer = Answer::events(&[format!("data: {body}\n\n")]);
        serves_from_the_second(word, "gemini", answer, true).await;
    }
}

/// A refusal is an answer: the vendor has decided, and another vendor is not asked.
#[tokio::test]
async fn a_filtered_answer_is_served() {
    for word in ["content_filter", "refusal", "sensitive"] {
        let end = json!([{"index": 0, "delta": {}, "finish_reason": word}]);
        let (gateway, _one, two) =
            line("compatible", Answer::events(&[chunk(&end), "data: [DONE]\n\n".to_owned()])).await;
        for (path, body) in requests("line", true) {
            assert_eq!(gateway.client().post(path, body).await.status, 200, "{word} {path}");
        }
        assert_eq!(two.requests().len(), 0, "{word}");
    }
}
