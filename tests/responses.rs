//! OpenAI Responses over targets that speak only chat, where a request keeps no state (RESP-1 to RESP-4).

use serde_json::{Value, json};

use crate::support::{Answer, Gateway, Upstream, Yaml, chat};

async fn start() -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    (Gateway::start(&Yaml::one(upstream.base_url())).await, upstream)
}

fn ask(members: &Value) -> String {
    let mut body = json!({"model": "up/m", "instructions": "Be brief.", "input": "Say hello."});
    for (name, value) in members.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string()
}

#[tokio::test]
async fn a_whole_answer_is_a_response() {
    let (gateway, upstream) = start().await;
    upstream.always(Answer::completion("hello"));
    for path in ["/v1/responses", "/responses"] {
        let answer = gateway.client().post(path, ask(&json!({"store": false, "metadata": {"a": "b"}}))).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        let response = answer.json();
        assert_eq!((&response["object"], &response["status"]), (&json!("response"), &json!("completed")));
        assert_eq!(response["output"][0]["content"][0]["text"], "hello");
        assert_eq!(
            (&response["usage"]["input_tokens"], &response["usage"]["output_tokens"]),
            (&json!(11), &json!(7))
        );
        assert_eq!(answer.header("x-llmgw-adapted"), Some("chat"));
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        assert_eq!((&record["operation"], &record["tokens"]["input"]), (&json!("responses"), &json!(11)));
    }
    let sent = upstream.request(0).await.json();
    assert_eq!(sent["messages"][0]["content"], "Be brief.");
    assert_eq!((&sent["model"], sent.get("store")), (&json!("m"), None));
}

#[tokio::test]
async fn a_stream_has_every_event_in_order_and_ends_with_the_whole() {
    let (gateway, upstream) = start().await;
    upstream.always(Answer::events(&chat::events(&["hel", "lo"])));
    let answer = gateway.client().post("/v1/responses", ask(&json!({"stream": true}))).await;
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events[0]["type"], "response.created");
    let last = &events[events.len() - 1];
    assert_eq!(last["type"], "response.completed");
    assert_eq!(last["response"]["output"][0]["content"][0]["text"], "hello");
    let deltas: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(deltas, "hello");
}

#[tokio::test]
async fn what_needs_the_provider_s_memory_is_refused_before_anything_is_sent() {
    let (gateway, upstream) = start().await;
    for (members, param) in [
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"conversation": "conv_1"}), "conversation"),
        (json!({"store": true}), "store"),
        (json!({"include": ["reasoning.encrypted_content"]}), "include"),
        (json!({"tools": [{"type": "web_search"}]}), "tools.0.type"),
        (
            json!({"input": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}]}),
            "input.0",
        ),
        (json!({"background": true}), "background"),
    ] {
        let answer = gateway.client().post("/v1/responses", ask(&members)).await;
        assert_eq!(answer.status, 400, "{param}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], "unsupported_parameter", "{param}");
        assert!(error["param"].as_str().unwrap().starts_with(param), "{param}: {error}");
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn stored_responses_are_nobodys() {
    let (gateway, upstream) = start().await;
    for (method, path) in [
        ("GET", "/v1/responses/resp_1"),
        ("DELETE", "/v1/responses/resp_1"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("GET", "/responses/resp_1/input_items"),
    ] {
        let answer = gateway.client().send(method, path, bytes::Bytes::new()).await.unwrap();
        assert_eq!((answer.status, answer.error_code().as_str()), (404, "not_found"), "{method} {path}");
        let stranger = crate::support::Client::new(gateway.address(), None);
        assert_eq!(stranger.send(method, path, bytes::Bytes::new()).await.unwrap().status, 401);
    }
    assert!(upstream.requests().is_empty());
}
