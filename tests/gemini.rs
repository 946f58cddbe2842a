//! Gemini clients: native relays to Gemini, and adaptations to targets of other protocols.

use serde_json::{Value, json};

use crate::kinds::{first_line, generated, root};
use crate::support::client::Whole;
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::{Answer, Client, Gateway, Upstream, Yaml};

const STREAM: &str = "/v1beta/models/p/m:streamGenerateContent";

/// Starts a gateway with the providers `p`, which speaks Gemini, and `c`, which speaks chat.
async fn pair() -> (Gateway, Upstream, Upstream) {
    let (google, chat) = (Upstream::start().await, Upstream::start().await);
    let file = json!({
        "providers": {
            "p": {"type": "gemini", "base_url": root(&google), "api_key": "AIza-up", "models": ["m", {"id": "gemini-embedding-001", "prices": {"input": 1000}}]},
            "c": {"type": "compatible", "base_url": chat.base_url(), "models": ["org/model:8b"]},
        },
        "endpoints": {"line": {"failover": [
            {"provider": "p", "model": "m"}, {"provider": "c", "model": "org/model:8b"}]}},
        "policies": {"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 0}},
    });
    let gateway = Setup::new(&Yaml::new()).yaml(file.to_string()).start().await;
    (gateway, google, chat)
}

fn keyless(gateway: &Gateway) -> Client {
    Client::new(gateway.address(), None)
}

/// Asks with the key where Google's SDKs put it.
async fn ask(gateway: &Gateway, path: &str, body: &str) -> Whole {
    keyless(gateway).with("x-goog-api-key", ADMIN_KEY).post(path, body.to_owned()).await
}

fn question() -> String {
    json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}).to_string()
}

fn frame(text: &str, end: &Value, tokens: u64) -> String {
    let answer = json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": end, "index": 0}],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": tokens, "totalTokenCount": 3 + tokens}});
    format!("data: {answer}\r\n\r\n")
}

fn streamed() -> (Answer, String) {
    let frames = [frame("a", &Value::Null, 1), frame("b", &Value::Null, 2), frame("c", &json!("STOP"), 3)];
    (Answer::events(&frames), frames.concat())
}

#[tokio::test]
async fn a_native_request_and_its_answer_pass_byte_for_byte() {
    let (gateway, google, _) = pair().await;
    let body =
        "{ \"contents\" : [{\"parts\":[{\"text\":\"h\\u0069\"}]}],\n \"generation_config\":{\"top_p\":1} }";
    for path in [
        "/v1beta/models/p/m:generateContent",
        "/v1/models/p%2Fm:generateContent",
        "/v1beta1/publishers/google/models/p/m:generateContent",
        "/v1beta1/projects/x/locations/eu/publishers/google/models/p/m:generateContent",
    ] {
        google.then(generated());
        let answer = ask(&gateway, path, body).await;
        assert_eq!(answer.status, 200, "{path}: {:?}", answer.body);
        assert_eq!(answer.json()["candidates"][0]["content"]["parts"][0]["text"], "hello");
        let sent = google.request(google.requests().len() - 1).await;
        assert_eq!(first_line(&sent), "POST /v1beta/models/m:generateContent HTTP/1.1", "{path}");
        assert_eq!(sent.header("x-goog-api-key"), Some("AIza-up"));
        assert_eq!(String::from_utf8_lossy(&sent.body), body, "{path}");
    }
    let records = gateway.records(4).await;
    assert_eq!(records[0]["operation"], "generate_content", "{}", records[0]);
    assert_eq!(records[0]["tokens"]["output"], 1, "{}", records[0]);
}

#[tokio::test]
async fn a_native_stream_passes_unchanged_or_as_one_array() {
    let (gateway, google, _) = pair().await;
    let (answer, events) = streamed();
    google.then(answer);
    let native = ask(&gateway, &format!("{STREAM}?alt=sse"), &question()).await;
    assert_eq!(String::from_utf8_lossy(&native.body), events);
    let sent = google.request(0).await;
    assert_eq!(first_line(&sent), "POST /v1beta/models/m:streamGenerateContent?alt=sse HTTP/1.1");
    google.then(streamed().0);
    let array = ask(&gateway, STREAM, &question()).await;
    assert_eq!(array.header("content-type"), Some("application/json"));
    let elements = array.json();
    assert_eq!(elements.as_array().unwrap().len(), 3, "{elements}");
    assert_eq!(elements[2]["candidates"][0]["finishReason"], "STOP");
    let records = gateway.records(2).await;
    assert!(records.iter().all(|record| record["tokens"]["output"] == 3), "{records:?}");
    let unknown = ask(&gateway, "/v1beta/models/nobody:streamGenerateContent", &question()).await;
    assert_eq!((unknown.status, &unknown.json()[0]["error"]["status"]), (404, &json!("NOT_FOUND")));
}

#[tokio::test]
async fn a_key_is_taken_from_each_place_and_never_passed_on() {
    let (gateway, google, _) = pair().await;
    google.always(generated());
    let path = "/v1beta/models/p/m:generateContent";
    let in_query = format!("{path}?alt=json&key={ADMIN_KEY}");
    for (headers, path, want) in [
        (vec![("x-goog-api-key", ADMIN_KEY.to_owned())], path, 200),
        (
            vec![("x-goog-api-key", String::new()), ("authorization", format!("Bearer {ADMIN_KEY}"))],
            path,
            200,
        ),
        (vec![("x-api-key", ADMIN_KEY.to_owned())], path, 200),
        (vec![], in_query.as_str(), 200),
        (vec![("x-goog-api-key", "other".to_owned())], in_query.as_str(), 400),
        (vec![("x-goog-api-key", "other".to_owned())], path, 401),
        (vec![], path, 401),
    ] {
        let client = headers.iter().fold(keyless(&gateway), |client, (name, value)| client.with(name, value));
        let answer = client.post(path, question()).await;
        assert_eq!(answer.status, want, "{headers:?} {path}: {:?}", answer.body);
        assert!(!String::from_utf8_lossy(&answer.body).contains(ADMIN_KEY));
        if want == 401 {
            let error = &answer.json()["error"];
            assert_eq!((&error["code"], &error["status"]), (&json!(401), &json!("UNAUTHENTICATED")));
            assert_eq!(error["details"][0]["reason"], "API_KEY_INVALID");
        }
    }
    assert!(google.requests().iter().all(|sent| !sent.head.contains(ADMIN_KEY)), "it went upstream");
    assert!(!gateway.log().contains(ADMIN_KEY));
}

#[tokio::test]
async fn a_chat_target_serves_a_gemini_client() {
    let (gateway, _, chat) = pair().await;
    chat.then(Answer::completion("hello"));
    let body = json!({
        "system_instruction": {"parts": [{"text": "Be brief."}]},
        "contents": [{"role": "user", "parts": [{"text": "hi"}, {"inline_data": {"mime_type": "image/png", "data": "iVBORw0KGgo"}}]}],
        "generationConfig": {"maxOutputTokens": "9"}});
    let answer = ask(&gateway, "/v1/models/c/org/model:8b:generateContent", &body.to_string()).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    assert_eq!(answer.header("x-llmgw-adapted"), Some("chat"));
    let read = answer.json();
    assert_eq!(read["candidates"][0]["content"]["parts"], json!([{"text": "hello"}]), "{read}");
    assert_eq!(
        (&read["modelVersion"], &read["candidates"][0]["finishReason"]),
        (&json!("org/model:8b"), &json!("STOP"))
    );
    let sent = chat.request(0).await.json();
    assert_eq!((&sent["model"], &sent["max_tokens"]), (&json!("org/model:8b"), &json!(9)), "{sent}");
    assert_eq!(sent["messages"][0], json!({"role": "system", "content": "Be brief."}));
    assert_eq!(sent["messages"][1]["content"][1]["image_url"]["url"], "data:image/png;base64,iVBORw0KGgo=");
    assert_eq!(sent.get("stream"), None);
    let refused = json!({"contents": [{"parts": [{"text": "x"}]}], "tools": [{"googleSearch": {}}]});
    let refused = ask(&gateway, "/v1/models/c/org/model:8b:generateContent", &refused.to_string()).await;
    let error = &refused.json()["error"];
    assert_eq!((refused.status, &error["status"]), (400, &json!("INVALID_ARGUMENT")), "{error}");
    assert_eq!(error["details"][1]["fieldViolations"][0]["field"], "tools.0.googleSearch");
}

#[tokio::test]
async fn a_gemini_stream_fails_over_to_a_chat_target_before_output() {
    let (gateway, google, chat) = pair().await;
    google.then(Answer::error(503));
    let chunk = |delta: Value, end: Value| {
        let chunk = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": end}]});
        format!("data: {chunk}\n\n")
    };
    chat.then(Answer::events(&[
        chunk(json!({"content": "Hé\u{2028}"}), Value::Null),
        chunk(json!({}), json!("stop")),
        "data: [DONE]\n\n".to_owned(),
    ]));
    let answer = ask(&gateway, "/v1beta/models/line:streamGenerateContent?alt=sse", &question()).await;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!(answer.header("x-llmgw-attempts"), Some("2"), "{text}");
    assert!(
        text.starts_with("data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hé\\u2028\"}]"),
        "{text}"
    );
    assert!(text.ends_with("}\r\n\r\n") && text.contains("\"finishReason\":\"STOP\""), "{text}");
    assert_eq!(chat.request(0).await.json()["stream"], true);
}

#[tokio::test]
async fn lists_of_models_have_the_shape_of_the_client() {
    let (gateway, _, _) = pair().await;
    let google = keyless(&gateway).with("x-goog-api-key", ADMIN_KEY);
    for path in ["/v1beta/models", "/v1/models"] {
        let list = google.get(path).await.unwrap().json();
        let names: Vec<&str> =
            list["models"].as_array().unwrap().iter().map(|model| model["name"].as_str().unwrap()).collect();
        assert!(
            names.contains(&"models/c/org/model:8b") && names.contains(&"models/line"),
            "{path}: {names:?}"
        );
    }
    let model = google.get("/v1beta/models/c/org/model:8b").await.unwrap().json();
    assert_eq!(
        model["supportedGenerationMethods"],
        json!([
            "generateContent",
            "streamGenerateContent",
            "countTokens",
            "embedContent",
            "batchEmbedContents"
        ])
    );
    let model = google.get("/v1beta/models/p/m").await.unwrap().json();
    assert_eq!(
        model["supportedGenerationMethods"],
        json!(["generateContent", "streamGenerateContent", "countTokens"])
    );
    let plain = gateway.client().get("/v1/models").await.unwrap().json();
    assert_eq!(plain["object"], "list");
}

#[tokio::test]
async fn what_google_stores_is_refused_with_advice_in_its_envelope() {
    let (gateway, _, _) = pair().await;
    let google = keyless(&gateway).with("x-goog-api-key", ADMIN_KEY);
    for (path, advice) in [
        ("/upload/v1beta/files", "inlineData"),
        ("/v1beta/cachedContents", "caches"),
        ("/v1/interactions", "generateContent"),
        ("/v1beta/models/p/m:batchGenerateContent", "generateContent"),
    ] {
        let answer = google.post(path, "{}".to_owned()).await;
        let error = answer.json()["error"].clone();
        assert!((400..500).contains(&answer.status), "{path}: {error}");
        assert!(error["message"].as_str().unwrap().contains(advice), "{path}: {error}");
        assert!(error["status"].is_string() && error["code"] == answer.status, "{path}: {error}");
    }
}

#[tokio::test]
async fn tokens_are_counted_by_a_gemini_target_and_otherwise_estimated() {
    let (gateway, google, _) = pair().await;
    let wrapped =
        json!({"generateContentRequest": {"model": "models/p/m", "contents": [{"parts": [{"text": "hi"}]}]}});
    for body in [question(), wrapped.to_string()] {
        google.then(Answer::json(200, r#"{"totalTokens":31}"#));
        let counted = ask(&gateway, "/v1beta/models/p/m:countTokens", &body).await;
        assert_eq!((counted.status, counted.json()), (200, json!({"totalTokens": 31})), "{body}");
        let sent = google.request(google.requests().len() - 1).await;
        assert_eq!(first_line(&sent), "POST /v1beta/models/m:countTokens HTTP/1.1");
        assert_eq!(sent.json()["generateContentRequest"]["model"], "models/m");
        let estimated = ask(&gateway, "/v1beta/models/c/org/model:8b:countTokens", &question()).await;
        assert_eq!(estimated.header("x-llmgw-token-count"), Some("estimate"));
        assert_eq!(estimated.json(), json!({"totalTokens": 2}));
    }
    let empty = ask(&gateway, "/v1beta/models/p/m:countTokens", "{}").await;
    assert_eq!((empty.status, &empty.json()["error"]["status"]), (400, &json!("INVALID_ARGUMENT")));
}

fn content(text: &str) -> Value {
    json!({"parts": [{"text": text}]})
}

#[tokio::test]
async fn native_embeddings_pass_byte_for_byte_but_for_the_models_of_a_batch() {
    let (gateway, google, _) = pair().await;
    let one = "{ \"content\" : {\"parts\":[{\"text\":\"h\\u0069\"}]}, \"output_dimensionality\":2 }";
    let answer = r#"{ "embedding" : {"values":[0.10, -1e-3]} }"#;
    for path in [
        "/v1beta/models/p/gemini-embedding-001:embedContent",
        "/v1/models/p%2Fgemini-embedding-001:embedContent",
        "/v1beta1/publishers/google/models/p/gemini-embedding-001:embedContent",
        "/v1beta1/projects/x/locations/eu/publishers/google/models/p/gemini-embedding-001:embedContent",
    ] {
        google.then(Answer::json(200, answer));
        let got = ask(&gateway, path, one).await;
        assert_eq!((got.status, String::from_utf8_lossy(&got.body)), (200, answer.into()), "{path}");
        let sent = google.request(google.requests().len() - 1).await;
        assert_eq!(first_line(&sent), "POST /v1beta/models/gemini-embedding-001:embedContent HTTP/1.1");
        assert_eq!(sent.header("x-goog-api-key"), Some("AIza-up"));
        assert_eq!(String::from_utf8_lossy(&sent.body), one, "{path}");
    }
    let batch = |model: &str| {
        format!(
            "{{\"requests\" : [{{\"model\":\"{model}\",\"content\":{{\"parts\":[{{\"text\":\"four\"}}]}}}}]}}"
        )
    };
    google
        .then(Answer::json(200, r#"{"embeddings":[{"values":[1]}],"usageMetadata":{"promptTokenCount":9}}"#));
    let path = "/v1/models/p/gemini-embedding-001:batchEmbedContents";
    let got = ask(&gateway, path, &batch("models/p/gemini-embedding-001")).await;
    assert_eq!(got.status, 200, "{:?}", got.body);
    let sent = google.request(4).await;
    assert_eq!(first_line(&sent), "POST /v1beta/models/gemini-embedding-001:batchEmbedContents HTTP/1.1");
    assert_eq!(String::from_utf8_lossy(&sent.body), batch("models/gemini-embedding-001"));
    let other = ask(&gateway, path, &batch("models/other")).await;
    let error = &other.json()["error"];
    assert_eq!((other.status, &error["status"]), (400, &json!("INVALID_ARGUMENT")), "{error}");
    assert_eq!(error["details"][1]["fieldViolations"][0]["field"], "requests.0.model", "{error}");
    let records = gateway.records(6).await;
    let counted = |record: &Value| (record["operation"].clone(), record["tokens"]["input"].clone());
    let batch = records.iter().find(|record| record["tokens"]["input"] == 9);
    let batch = batch.unwrap_or_else(|| panic!("{records:?}"));
    assert_eq!(
        (&batch["operation"], batch["cost_micro_usd"].as_f64()),
        (&json!("embeddings"), Some(9_000.0)),
        "{batch}"
    );
    let estimated = records.iter().filter(|record| counted(record) == (json!("embeddings"), json!(1)));
    assert_eq!(estimated.count(), 4, "what Google does not report is estimated: {records:?}");
}

#[tokio::test]
async fn embeddings_are_adapted_in_both_directions() {
    let (gateway, google, chat) = pair().await;
    chat.then(Answer::json(
        200,
        r#"{"object":"list","data":[{"index":1,"embedding":[2]},{"index":0,"embedding":[1.50]}],"usage":{"prompt_tokens":3,"total_tokens":3}}"#,
    ));
    let batch = json!({"requests": [
        {"model": "models/c/org/model:8b", "content": content("a"), "taskType": "RETRIEVAL_QUERY"},
        {"model": "c/org/model:8b", "content": content("b")}]});
    let path = "/v1beta/models/c/org/model:8b:batchEmbedContents";
    let answer = ask(&gateway, path, &batch.to_string()).await;
    assert_eq!(answer.header("x-llmgw-adapted"), Some("embeddings"), "{:?}", answer.body);
    assert_eq!(
        answer.json(),
        json!({"embeddings": [{"values": [1.5]}, {"values": [2]}],
            "usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 3}})
    );
    let sent = chat.request(0).await;
    assert_eq!(first_line(&sent), "POST /v1/embeddings HTTP/1.1");
    assert_eq!(sent.json(), json!({"model": "org/model:8b", "input": ["a", "b"]}));

    google.then(Answer::json(200, r#"{"embeddings":[{"values":[0.5,0.25]}]}"#));
    let ask_openai = json!({"model": "p/gemini-embedding-001", "input": "abcd", "dimensions": 2,
        "encoding_format": "base64"});
    let answer = gateway.client().post("/v1/embeddings", ask_openai.to_string()).await;
    assert_eq!(answer.header("x-llmgw-adapted"), Some("gemini_embeddings"), "{:?}", answer.body);
    let list = answer.json();
    assert_eq!(list["data"][0]["embedding"], "AAAAPwAAgD4=", "{list}");
    let sent = google.request(0).await;
    assert_eq!(first_line(&sent), "POST /v1beta/models/gemini-embedding-001:batchEmbedContents HTTP/1.1");
    assert_eq!(
        sent.json(),
        json!({"requests": [{"model": "models/gemini-embedding-001", "content": content("abcd"), "outputDimensionality": 2}]})
    );
    google.then(Answer::json(
        429,
        r#"{"error":{"code":429,"message":"Too many.","status":"RESOURCE_EXHAUSTED"}}"#,
    ));
    let refused = gateway.client().post("/v1/embeddings", ask_openai.to_string()).await;
    assert_eq!((refused.status, &refused.json()["error"]["message"]), (429, &json!("Too many.")));
    chat.then(Answer::json(400, r#"{"error":{"message":"Too long.","type":"invalid_request_error"}}"#));
    let refused = ask(&gateway, path, &batch.to_string()).await;
    let error = &refused.json()["error"];
    assert_eq!((&error["code"], &error["status"]), (&json!(400), &json!("INVALID_ARGUMENT")), "{error}");
    let records = gateway.records(4).await;
    assert!(records.iter().all(|record| record["operation"] == "embeddings"), "{records:?}");
    // A model that only converses makes no embeddings, and the reverse.
    let body = json!({"content": content("a")}).to_string();
    let refused = ask(&gateway, "/v1beta/models/p/m:embedContent", &body).await;
    assert_eq!((refused.status, &refused.json()["error"]["status"]), (400, &json!("INVALID_ARGUMENT")));
    let refused = ask(&gateway, "/v1/models/p/gemini-embedding-001:generateContent", &question()).await;
    assert_eq!(refused.status, 400, "{:?}", refused.body);
}
