//! Tool calls in conversations that move between vendors: ids, names and signatures on the wire.

use serde_json::{Value, json};

use crate::kinds::{root, with};
use crate::support::{Answer, Upstream};

/// A thought signature as Gemini sends it.
const SIGNATURE: &str = "c2lnbmF0dXJlLW9mLXRob3VnaHRzCg==";

#[tokio::test]
async fn a_chat_of_another_vendor_continues_at_mistral() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let settings =
        json!({"registry_id": "mistral", "base_url": upstream.base_url(), "api_key": "k", "models": ["m"]});
    let gateway = with(&settings).start().await;
    let body = |id: &str| {
        format!(
            "{{\"model\": \"p/m\", \"messages\" : [{{\"role\":\"user\",\"content\":\"call_abc \\u00fc\"}}, \
             {{\"role\":\"assistant\",\"tool_calls\":[{{\"id\":\"{id}\",\"type\":\"function\",\"function\":{{\"name\":\"f\",\"arguments\":\"{{}}\"}}}}]}}, \
             {{\"role\":\"tool\",\"tool_call_id\":\"{id}\",\"content\":\"18\"}}],  \"temperature\":1.0}}"
        )
    };
    assert_eq!(gateway.client().chat(body("call_abc")).await.status, 200);
    let sent = upstream.request(0).await;
    let id = sent.json()["messages"][2]["tool_call_id"].as_str().unwrap().to_owned();
    assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    let want = body(&id).replacen("\"p/m\"", "\"m\"", 1);
    assert_eq!(String::from_utf8_lossy(&sent.body), want, "no other byte differs");
    assert_eq!(gateway.client().chat(body(&id)).await.status, 200);
    assert_eq!(String::from_utf8_lossy(&upstream.request(1).await.body), want, "its own ids stay");
}

#[tokio::test]
async fn a_gemini_thought_signature_round_trips_through_a_messages_client() {
    let upstream = Upstream::start().await;
    let part = json!({"functionCall": {"name": "f", "args": {}}, "thoughtSignature": SIGNATURE});
    let candidate =
        json!({"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0});
    upstream.always(Answer::json(200, json!({"candidates": [candidate]}).to_string()));
    let settings = json!({
        "type": "gemini", "base_url": root(&upstream), "api_key": "k", "models": ["gemini-3-pro-preview"],
    });
    let gateway = with(&settings).start().await;
    let ask = |messages: &Value| {
        json!({"model": "p/gemini-3-pro-preview", "max_tokens": 99, "messages": messages,
            "tools": [{"name": "f", "input_schema": {"type": "object"}}]})
        .to_string()
    };
    let mut messages = json!([{"role": "user", "content": "x"}]);
    let answer = gateway.client().post("/v1/messages", ask(&messages)).await.json();
    let result = json!({"type": "tool_result", "tool_use_id": answer["content"][0]["id"], "content": "y"});
    let turns = messages.as_array_mut().unwrap();
    turns.push(json!({"role": "assistant", "content": answer["content"]}));
    turns.push(json!({"role": "user", "content": [result]}));
    assert_eq!(gateway.client().post("/v1/messages", ask(&messages)).await.status, 200);
    let sent = upstream.request(1).await.json();
    assert_eq!(sent["contents"][1]["parts"][0]["thoughtSignature"], SIGNATURE, "{sent}");
}

#[tokio::test]
async fn an_aborted_upstream_stream_is_an_error_for_a_messages_client() {
    let upstream = Upstream::start().await;
    let chunk = |delta: Value, end: Value| {
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta, "finish_reason": end}]}))
    };
    let text = chunk(json!({"role": "assistant", "content": "half an ans"}), Value::Null);
    let end = chunk(json!({}), json!("insufficient_system_resource"));
    upstream.always(Answer::events(&[text, end, "data: [DONE]\n\n".to_owned()]));
    let settings =
        json!({"type": "compatible", "base_url": upstream.base_url(), "api_key": "k", "models": ["m"]});
    let gateway = with(&settings).start().await;
    let body = json!({"model": "p/m", "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": "x"}]});
    let mut flow = gateway.client().open("POST", "/v1/messages", body.to_string().into()).await.unwrap();
    let bytes: Vec<u8> = flow.rest().await.0.iter().flat_map(|event| event.bytes.to_vec()).collect();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(text.contains("half an ans") && text.contains("event: error"), "{text}");
    assert!(!text.contains("message_stop"), "{text}");
}
