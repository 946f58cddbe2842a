//! Images from Google's models: requests and answers are translated between OpenAI's protocol and Google's (IMG-1).

use serde_json::{Value, json};

use crate::support::gateway::Setup;
use crate::support::upstream::Received;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat};

const ROUTE: &str = "/v1/images/generations";

/// Starts a gateway with the provider `g`, which has these settings in addition to its address and models. Two
/// consecutive failures open its circuit, if they count.
async fn google(upstream: &Upstream, mut settings: Value) -> Gateway {
    settings["base_url"] = upstream.base_url().trim_end_matches("/v1").into();
    settings["models"] = json!(["gemini-2.5-flash-image", "imagen-4.0-generate-001"]);
    let config = json!({
        "providers": {"g": settings},
        "policies": {"defaults": {"retry_max_attempts": 3, "retry_initial_backoff_seconds": 0.001,
            "circuit_failure_threshold": 2, "circuit_cooldown_seconds": 600}},
    });
    Setup::new(&Yaml::new()).yaml(config.to_string()).start().await
}

async fn gemini(upstream: &Upstream) -> Gateway {
    google(upstream, json!({"type": "gemini", "api_key": "AIza-1"})).await
}

fn generated(parts: &Value) -> Answer {
    let body = json!({
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 1290, "totalTokenCount": 1295,
            "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 1290}]},
    });
    Answer::json(200, body.to_string())
}

fn drawn() -> Answer {
    generated(&json!([{"text": "Here."}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]))
}

fn predicted() -> Answer {
    let image = |data: &str| json!({"mimeType": "image/jpeg", "bytesBase64Encoded": data});
    Answer::json(200, json!({"predictions": [image("AAAA"), image("BBBB")]}).to_string())
}

fn first_line(request: &Received) -> &str {
    request.head.lines().next().unwrap()
}

#[tokio::test]
async fn gemini_images_use_generate_content() {
    let upstream = Upstream::start().await;
    let gateway = gemini(&upstream).await;
    upstream.always(drawn());
    for path in [ROUTE, "/images/generations"] {
        let body = r#"{"model":"g/gemini-2.5-flash-image","prompt":"a \ud83d\udc08","size":"1536x1024",
            "response_format":"b64_json","quality":"high"}"#;
        let answer = gateway.client().post(path, body).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("x-llmgw-adapted"), Some("gemini"));
        let generated = answer.json();
        assert!(generated["created"].as_u64() > Some(1_700_000_000));
        assert_eq!(
            (&generated["data"], &generated["output_format"]),
            (&json!([{"b64_json": "AAAA"}]), &json!("png"))
        );
        assert_eq!(
            generated["usage"]["output_tokens_details"],
            json!({"image_tokens": 1290, "text_tokens": 0})
        );
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        assert_eq!((&record["operation"], &record["provenance"]), (&json!("images"), &json!("reported")));
        assert_eq!(
            (&record["tokens"]["input"], &record["tokens"]["image_output"]),
            (&json!(5), &json!(1290))
        );
    }
    let request = upstream.request(0).await;
    assert_eq!(first_line(&request), "POST /v1beta/models/gemini-2.5-flash-image:generateContent HTTP/1.1");
    assert_eq!((request.header("x-goog-api-key"), request.header("authorization")), (Some("AIza-1"), None));
    let want = json!({
        "contents": [{"role": "user", "parts": [{"text": "a 🐈"}]}],
        "generationConfig": {"responseModalities": ["TEXT", "IMAGE"], "imageConfig": {"aspectRatio": "3:2"}},
    });
    assert_eq!(request.json(), want);
}

#[tokio::test]
async fn imagen_images_use_predict_on_gemini_and_vertex() {
    let vertex =
        json!({"type": "vertex", "api_key": "ya29.one", "project": "p-1", "location": "europe-west4"});
    let place = "/v1/projects/p-1/locations/europe-west4/publishers/google/models";
    for (settings, place) in
        [(json!({"type": "gemini", "api_key": "AIza-1"}), "/v1beta/models"), (vertex, place)]
    {
        let upstream = Upstream::start().await;
        let gateway = google(&upstream, settings).await;
        upstream.then(predicted()).then(drawn());
        let body = r#"{"model":"g/imagen-4.0-generate-001","prompt":"a cat","n":2,"size":"2048x2048",
            "output_format":"jpeg","output_compression":80}"#;
        let answer = gateway.client().post(ROUTE, body).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        let generated = answer.json();
        assert_eq!(generated["data"], json!([{"b64_json": "AAAA"}, {"b64_json": "BBBB"}]));
        assert_eq!((&generated["output_format"], generated.get("usage")), (&json!("jpeg"), None));
        let body = r#"{"model":"g/gemini-2.5-flash-image","prompt":"a cat"}"#;
        assert_eq!(gateway.client().post(ROUTE, body).await.status, 200);
        let requests = upstream.requests();
        let lines: Vec<&str> = requests.iter().map(first_line).collect();
        let want = [
            format!("POST {place}/imagen-4.0-generate-001:predict HTTP/1.1"),
            format!("POST {place}/gemini-2.5-flash-image:generateContent HTTP/1.1"),
        ];
        assert_eq!(lines, want);
        let want = json!({
            "instances": [{"prompt": "a cat"}],
            "parameters": {"sampleCount": 2, "aspectRatio": "1:1", "sampleImageSize": "2K", "includeRaiReason": true,
                "outputOptions": {"mimeType": "image/jpeg", "compressionQuality": 80}},
        });
        assert_eq!(requests[0].json(), want);
    }
}

#[tokio::test]
async fn an_image_refused_by_google_is_the_openai_moderation_error() {
    let upstream = Upstream::start().await;
    let gateway = gemini(&upstream).await;
    let rows = [
        ("gemini-2.5-flash-image", json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})),
        ("gemini-2.5-flash-image", json!({"candidates": [{"finishReason": "IMAGE_SAFETY"}]})),
        ("imagen-4.0-generate-001", json!({"predictions": [{"raiFilteredReason": "No: AIza-1."}]})),
    ];
    for (position, (model, response)) in rows.iter().enumerate() {
        upstream.then(Answer::json(200, response.to_string()));
        let body = json!({"model": format!("g/{model}"), "prompt": "x"}).to_string();
        let answer = gateway.client().post(ROUTE, body).await;
        assert_eq!((answer.status, answer.error_code().as_str()), (400, "moderation_blocked"));
        let error = &answer.json()["error"];
        assert_eq!(error["type"], "image_generation_user_error");
        assert!(!error.to_string().contains("AIza-1"), "{error}");
        assert_eq!(upstream.requests().len(), position + 1, "asked once, and the circuit stays closed");
    }
}

#[tokio::test]
async fn a_response_without_an_image_is_a_502_that_quotes_it() {
    let upstream = Upstream::start().await;
    let gateway = gemini(&upstream).await;
    let body = r#"{"model":"g/gemini-2.5-flash-image","prompt":"a cat"}"#;
    for (response, words) in [
        (
            generated(&json!([{"text": "Which cat do you mean? AIza-1"}])),
            "Its message: Which cat do you mean?",
        ),
        (Answer::json(200, "{}"), "sent no reason"),
    ] {
        upstream.then(response);
        let answer = gateway.client().post(ROUTE, body).await;
        assert_eq!((answer.status, answer.error_code().as_str()), (502, "upstream_invalid_response"));
        let message = answer.json()["error"]["message"].to_string();
        assert!(message.contains(words) && !message.contains("AIza-1"), "{message}");
    }
    assert_eq!(
        upstream.requests().len(),
        2,
        "what is paid for is not made again, and a chat opens no circuit"
    );
    for status in [502, 502, 503] {
        upstream.then(Answer::json(200, "<html>"));
        assert_eq!(gateway.client().post(ROUTE, body).await.status, status, "the target itself is at fault");
    }
}

#[tokio::test]
async fn unsupported_image_members_are_rejected_before_a_call() {
    let upstream = Upstream::start().await;
    let gateway = gemini(&upstream).await;
    let (flash, imagen) = ("g/gemini-2.5-flash-image", "g/imagen-4.0-generate-001");
    let rows = [
        (flash, "n", json!(2)),
        (imagen, "n", json!(5)),
        (flash, "size", json!("4096x1024")),
        (flash, "size", json!("2048x2048")),
        (imagen, "size", json!("1536x1024")),
        (flash, "response_format", json!("url")),
        (flash, "stream", json!(true)),
        (imagen, "stream", json!(true)),
        (imagen, "output_format", json!("webp")),
        (flash, "background", json!("transparent")),
        (flash, "prompt", json!(["a cat"])),
    ];
    for (model, param, value) in rows {
        let mut body = json!({"model": model, "prompt": "a cat"});
        body[param] = value;
        let answer = gateway.client().post(ROUTE, body.to_string()).await;
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.json()["error"]["param"], param, "{body}");
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn google_errors_keep_their_status() {
    let upstream = Upstream::start().await;
    let gateway = gemini(&upstream).await;
    let body = r#"{"model":"g/gemini-2.5-flash-image","prompt":"a cat"}"#;
    let error = json!({"error": {"code": 400, "message": "The model does not make images.",
        "status": "INVALID_ARGUMENT"}});
    upstream.then(Answer::json(400, error.to_string()));
    let answer = gateway.client().post(ROUTE, body).await;
    assert_eq!(answer.status, 400);
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("does not make images"));
    upstream.then(Answer::json(503, chat::error("busy", "overloaded"))).then(drawn());
    let answer = gateway.client().post(ROUTE, body).await;
    assert_eq!((answer.status, answer.header("x-llmgw-attempts")), (200, Some("2")), "nothing was made yet");
}
