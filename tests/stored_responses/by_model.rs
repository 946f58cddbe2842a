//! The two routes below `/responses/` that name a model: counting the input, and compacting a conversation.

use serde_json::{Value, json};

use super::vendor::COMPACTED;
use super::{Rig, assert_unknown, make, send};
use crate::support::{Answer, wait};

#[tokio::test]
async fn input_is_counted_by_a_native_target_and_estimated_for_others() {
    let rig = Rig::start().await;
    let client = rig.client();
    let body = json!({"model": "line", "input": "four", "tools": [], "reasoning": {"effort": "low"}});
    let counted = client.post("/v1/responses/input_tokens", body.to_string()).await;
    assert_eq!(&*counted.body, br#"{ "object": "response.input_tokens", "input_tokens": 1004 }"#.as_slice());
    let told = ["x-llmgw-provider", "x-llmgw-token-count"].map(|name| counted.header(name));
    assert_eq!(told, [Some("a"), None]);
    let sent = rig.vendors[0].upstream.requests().pop().unwrap();
    assert!(sent.head.starts_with("POST /v1/responses/input_tokens HTTP/1.1"), "{}", sent.head);
    assert_eq!(
        sent.json(),
        json!({"model": "m", "input": "four", "tools": [], "reasoning": {"effort": "low"}})
    );

    let text = "The quick brown fox jumps over the lazy dog. ".repeat(40);
    let estimated = client
        .post(
            "/responses/input_tokens",
            json!({"model": "chat/m", "input": text, "instructions": "Be brief."}).to_string(),
        )
        .await;
    assert_eq!(
        (estimated.status, estimated.header("x-llmgw-token-count")),
        (200, Some("estimate")),
        "{estimated:?}"
    );
    let answer = estimated.json();
    assert_eq!(answer["object"], "response.input_tokens");
    assert!((200..900).contains(&answer["input_tokens"].as_u64().unwrap()), "{answer}");
    // A server of the protocol without this route.
    rig.vendors[0].upstream.then(Answer::error(404));
    let estimated = client.post("/v1/responses/input_tokens", body.to_string()).await;
    assert_eq!((estimated.status, estimated.header("x-llmgw-token-count")), (200, Some("estimate")));
    // A fault of the request is the client's to read.
    rig.vendors[0].upstream.then(Answer::error(400));
    assert_eq!(client.post("/v1/responses/input_tokens", body.to_string()).await.status, 400);
    assert!(rig.chat.requests().is_empty());
}

#[tokio::test]
async fn what_is_stored_is_counted_at_its_provider_alone() {
    let rig = Rig::start().await;
    let client = rig.client();
    let id = make(&client, "b/m", json!({})).await;
    let rig = rig.kill().await;
    let client = client.at(rig.gateway.address());
    let body = |model: &str| json!({"model": model, "input": "next", "previous_response_id": id}).to_string();
    let counted = wait::eventually("the origin", async || {
        let counted = client.post("/v1/responses/input_tokens", body("line")).await;
        (counted.status != 503).then_some(counted)
    })
    .await;
    assert_eq!((counted.status, counted.header("x-llmgw-provider")), (200, Some("b")), "{counted:?}");
    let refused = rig.stranger().post("/v1/responses/input_tokens", body("line")).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (400, "previous_response_not_found"));
    rig.vendors[1].upstream.then(Answer::error(404));
    let refused = client.post("/v1/responses/input_tokens", body("line")).await;
    assert_eq!(
        (refused.status, refused.error_code().as_str()),
        (400, "unsupported_parameter"),
        "{refused:?}"
    );
    assert_eq!(refused.json()["error"]["param"], "previous_response_id");
}

#[tokio::test]
async fn a_conversation_is_compacted_by_a_native_target_and_billed() {
    let rig = Rig::start().await;
    let client = rig.client();
    let ask = |members: Value| {
        let mut body = json!({"model": "line", "input": [{"role": "user", "content": "a long story"}]});
        for (name, value) in members.as_object().unwrap() {
            body[name] = value.clone();
        }
        body.to_string()
    };
    let compacted = client.post("/v1/responses/compact", ask(json!({}))).await;
    assert_eq!((compacted.status, &*compacted.body), (200, COMPACTED.as_bytes()), "byte for byte");
    let sent = rig.vendors[0].upstream.requests().pop().unwrap();
    assert!(sent.head.starts_with("POST /v1/responses/compact HTTP/1.1"), "{}", sent.head);
    let record = rig.gateway.record_of(compacted.header("x-request-id").unwrap()).await;
    let used = ["operation", "provider", "model"].map(|name| record[name].as_str().unwrap().to_owned());
    assert_eq!(used, ["compact_responses", "a", "m"]);
    let tokens = ["input", "output", "reasoning"].map(|class| record["tokens"][class].as_u64());
    assert_eq!(tokens, [Some(139), Some(374), Some(64)], "{record}");
    // It is no stored response.
    assert_unknown(&client, "resp_compacted").await;

    // Another target of the line takes over, as for every request to a model.
    rig.vendors[0].upstream.then(Answer::error(503));
    let compacted = client.post("/v1/responses/compact", ask(json!({}))).await;
    assert_eq!((compacted.status, compacted.header("x-llmgw-provider")), (200, Some("b")));

    for (members, param, words) in [
        (json!({"model": "chat/m"}), "model", "cannot compact a conversation"),
        (json!({"stream": true}), "stream", "arrives whole"),
    ] {
        let refused = client.post("/v1/responses/compact", ask(members)).await;
        assert_eq!(
            (refused.status, refused.error_code().as_str()),
            (400, "unsupported_parameter"),
            "{refused:?}"
        );
        let error = &refused.json()["error"];
        assert!(error["param"] == param && error["message"].as_str().unwrap().contains(words), "{error}");
    }
    assert!(rig.chat.requests().is_empty());

    let id = make(&client, "b/m", json!({})).await;
    let continued = client
        .post(
            "/v1/responses/compact",
            json!({"model": "line", "input": "all", "previous_response_id": id}).to_string(),
        )
        .await;
    assert_eq!((continued.status, continued.header("x-llmgw-provider")), (200, Some("b")), "{continued:?}");
    let own = send(&client, "GET", &format!("/v1/responses/{id}")).await;
    assert_eq!(own.status, 200);
}
