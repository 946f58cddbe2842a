//! Embeddings of Vertex AI: with the bodies and the paths of Google's own SDK.

use serde_json::{Value, json};

use crate::kinds::{first_line, root};
use crate::support::client::Whole;
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::{Answer, Client, Gateway, Upstream, Yaml};

const PLACE: &str = "projects/p-1/locations/europe-west4/publishers/google/models";

async fn gateway() -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    let file = json!({
        "providers": {"v": {"type": "vertex", "base_url": root(&upstream), "api_key": "ya29.one", "project": "p-1",
            "location": "europe-west4", "models": ["gemini-embedding-001", "text-embedding-005", "gemini-2.5-flash"]}},
        "policies": {"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 0}},
    });
    (Setup::new(&Yaml::new()).yaml(file.to_string()).start().await, upstream)
}

async fn ask_google(gateway: &Gateway, path: &str, body: &Value) -> Whole {
    let client = Client::new(gateway.address(), None).with("x-goog-api-key", ADMIN_KEY);
    client.post(path, body.to_string()).await
}

/// A content as Google's SDK sends it to Vertex AI.
fn content(text: &str) -> Value {
    json!({"content": {"parts": [{"text": text}], "role": "user"}, "embedContentConfig": {"taskType": "RETRIEVAL_QUERY", "outputDimensionality": 2}})
}

#[tokio::test]
async fn requests_of_googles_sdk_pass_unchanged() {
    let (gateway, upstream) = gateway().await;
    let place = "/v1beta1/projects/other/locations/us/publishers/google/models/v";
    let vector = r#"{"values":[0.5,-0.25]}"#;
    let several = json!({"requests": [content("a"), content("b")]});
    for (method, body, answer) in [
        (
            "embedContent",
            content("a"),
            format!(r#"{{"embedding":{vector},"usageMetadata":{{"promptTokenCount":3}}}}"#),
        ),
        ("batchEmbedContents", several, format!(r#"{{"embeddings":[{vector},{vector}]}}"#)),
    ] {
        upstream.then(Answer::json(200, answer.clone()));
        let got = ask_google(&gateway, &format!("{place}/gemini-embedding-001:{method}"), &body).await;
        assert_eq!((got.status, String::from_utf8_lossy(&got.body)), (200, answer.into()), "{method}");
        let sent = upstream.request(upstream.requests().len() - 1).await;
        assert_eq!(
            first_line(&sent),
            format!("POST /v1beta1/{PLACE}/gemini-embedding-001:{method} HTTP/1.1")
        );
        assert_eq!((sent.json(), sent.header("authorization")), (body, Some("Bearer ya29.one")), "{method}");
    }
    let records = gateway.records(2).await;
    assert!(records.iter().all(|record| record["operation"] == "embeddings"), "{records:?}");
}

#[tokio::test]
async fn openais_clients_get_embeddings_of_both_methods() {
    let (gateway, upstream) = gateway().await;
    let request = |model: &str| json!({"model": model, "input": ["a", "b"], "dimensions": 2}).to_string();
    upstream.then(Answer::json(200, r#"{"embeddings":[{"values":[0.5,-0.25]},{"values":[1,2]}]}"#));
    let answer = gateway.client().post("/v1/embeddings", request("v/gemini-embedding-001")).await;
    assert_eq!(
        (answer.status, &answer.json()["data"][1]["embedding"]),
        (200, &json!([1, 2])),
        "{:?}",
        answer.body
    );
    let sent = upstream.request(0).await;
    assert_eq!(
        first_line(&sent),
        format!("POST /v1beta1/{PLACE}/gemini-embedding-001:batchEmbedContents HTTP/1.1")
    );
    let element = |text: &str| json!({"content": {"role": "user", "parts": [{"text": text}]}, "embedContentConfig": {"outputDimensionality": 2}});
    assert_eq!(sent.json(), json!({"requests": [element("a"), element("b")]}));

    let prediction = |values: Value, tokens: f64| json!({"embeddings": {"values": values, "statistics": {"token_count": tokens, "truncated": false}}});
    let predicted =
        json!({"predictions": [prediction(json!([0.5, -0.25]), 3.0), prediction(json!([1, 2]), 4.0)]});
    upstream.then(Answer::json(200, predicted.to_string()));
    let answer = gateway.client().post("/v1/embeddings", request("v/text-embedding-005")).await;
    let list = answer.json();
    assert_eq!((answer.status, &list["data"][0]["embedding"]), (200, &json!([0.5, -0.25])), "{list}");
    assert_eq!(list["usage"], json!({"prompt_tokens": 7, "total_tokens": 7}), "{list}");
    let sent = upstream.request(1).await;
    assert_eq!(first_line(&sent), format!("POST /v1/{PLACE}/text-embedding-005:predict HTTP/1.1"));
    let instances = json!([{"content": "a"}, {"content": "b"}]);
    assert_eq!(sent.json(), json!({"instances": instances, "parameters": {"outputDimensionality": 2}}));
    let records = gateway.records(2).await;
    assert!(records.iter().any(|record| record["tokens"]["input"] == 7), "{records:?}");
}

#[tokio::test]
async fn a_model_without_the_method_is_refused_with_the_reason() {
    let (gateway, upstream) = gateway().await;
    for (model, method, body, reason) in [
        ("text-embedding-005", "embedContent", content("a"), "'predict' alone"),
        ("text-embedding-005", "batchEmbedContents", json!({"requests": [content("a")]}), "'predict' alone"),
        ("gemini-2.5-flash", "embedContent", content("a"), "gemini-2.5-flash"),
        (
            "gemini-embedding-001",
            "generateContent",
            json!({"contents": [{"parts": [{"text": "a"}]}]}),
            "gemini-embedding-001",
        ),
    ] {
        let answer = ask_google(&gateway, &format!("/v1beta/models/v/{model}:{method}"), &body).await;
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["status"]), (400, &json!("INVALID_ARGUMENT")), "{model}: {error}");
        assert!(error["message"].as_str().unwrap().contains(reason), "{model}: {error}");
    }
    assert!(upstream.requests().is_empty());
}
