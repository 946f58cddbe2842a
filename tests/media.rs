//! Operations other than conversations: embeddings, speech, transcription and images go to exactly one target and pass
//! unchanged (EMB-1, AUD-1, AUD-2, IMG-1).

use serde_json::json;

use crate::support::{Answer, Gateway, Upstream, Yaml, chat};

const MEMBERS: &str = "protocols: [chat, embeddings, speech, transcription, images]";

/// Starts a gateway with two providers behind `line`, both of which accept everything; retries as in `policies`.
async fn pair(policies: &str) -> (Gateway, Upstream, Upstream) {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let yaml = Yaml::new()
        .provider_with("p0", first.base_url(), MEMBERS)
        .provider_with("p1", second.base_url(), MEMBERS)
        .endpoint("line", &[("p0", "m"), ("p1", "m")])
        .endpoint("gpt", &[("p1", "gpt-image-1")])
        .policies(policies);
    (Gateway::start(&yaml).await, first, second)
}

const ONCE: &str = "retry_max_attempts: 1\ncircuit_failure_threshold: 0";
const TWICE: &str =
    "retry_max_attempts: 2\nretry_initial_backoff_seconds: 0.001\ncircuit_failure_threshold: 0";

fn vectors() -> String {
    json!({
        "object": "list", "model": "m",
        "data": [{"object": "embedding", "index": 0, "embedding": "AAAAPwAAgL4="}],
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    })
    .to_string()
}

#[tokio::test]
async fn embeddings_pass_unchanged_with_their_usage() {
    let (gateway, first, _second) = pair(ONCE).await;
    first.always(Answer::json(200, vectors()));
    for path in ["/v1/embeddings", "/embeddings"] {
        let body =
            r#"{ "input":["a", "b"],"model" : "line", "encoding_format":"base64","input_type":"query" }"#;
        let answer = gateway.client().post(path, body).await;
        assert_eq!((answer.status, &answer.body[..]), (200, vectors().as_bytes()));
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("x-llmgw-provider"), Some("p0"));
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        assert_eq!(record["operation"], "embeddings");
        assert_eq!((&record["tokens"]["input"], &record["provenance"]), (&json!(5), &json!("reported")));
    }
    let request = first.request(0).await;
    assert!(request.head.starts_with("POST /v1/embeddings "), "{}", request.head);
    assert_eq!(
        request.body,
        r#"{ "input":["a", "b"],"model" : "m", "encoding_format":"base64","input_type":"query" }"#
    );
}

#[tokio::test]
async fn embeddings_are_retried_only_at_the_first_target() {
    let (gateway, first, second) = pair(TWICE).await;
    second.always(Answer::json(200, vectors()));
    let body = r#"{"model":"line","input":"a"}"#;
    first.then(Answer::json(503, chat::error("busy", "overloaded"))).then(Answer::json(200, vectors()));
    let answer = gateway.client().post("/v1/embeddings", body).await;
    assert_eq!((answer.status, answer.header("x-llmgw-attempts")), (200, Some("2")));
    first.always(Answer::json(503, chat::error("busy", "overloaded")));
    let answer = gateway.client().post("/v1/embeddings", body).await;
    assert_eq!((answer.status, answer.header("x-llmgw-attempts")), (503, Some("2")));
    assert_eq!(answer.header("x-llmgw-provider"), Some("p0"));
    assert_eq!((first.requests().len(), second.requests().len()), (4, 0));
}

#[tokio::test]
async fn large_embeddings_pass_unchanged() {
    let (gateway, first, _second) = pair(ONCE).await;
    let numbers = vec!["-0.012345678"; 200_000].join(",");
    let large = format!(
        r#"{{"object":"list","data":[{{"index":0,"embedding":[{numbers}]}}],"usage":{{"prompt_tokens":9,"total_tokens":9}}}}"#
    );
    first.always(Answer::json(200, &large));
    let answer = gateway.client().post("/v1/embeddings", r#"{"model":"line","input":"a"}"#).await;
    assert!(answer.body == large.as_bytes(), "{} bytes came", answer.body.len());
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert_eq!(record["tokens"]["input"], 9);
}

#[tokio::test]
async fn speech_passes_unchanged() {
    let (gateway, first, second) = pair(ONCE).await;
    let sound: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    first.then(Answer::whole(200, &[("content-type", "audio/mpeg")], &sound));
    let body = r#"{"model":"line","input":"Hello there.","voice":"alloy"}"#;
    let answer = gateway.client().post("/v1/audio/speech", body).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("audio/mpeg")));
    assert!(answer.body == sound, "{} bytes came", answer.body.len());
    let request = first.request(0).await;
    assert!(request.head.starts_with("POST /v1/audio/speech "), "{}", request.head);
    assert_eq!(request.body, r#"{"model":"m","input":"Hello there.","voice":"alloy"}"#);
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert_eq!((&record["operation"], &record["cost_micro_usd"]), (&json!("speech"), &json!(null)));

    first.then(Answer::json(429, chat::error("slow down", "rate_limit_exceeded")));
    let answer = gateway.client().post("/audio/speech", body).await;
    assert_eq!((answer.status, answer.header("content-type")), (429, Some("application/json")));
    assert_eq!((answer.error_code().as_str(), second.requests().len()), ("rate_limit_exceeded", 0));
}

#[tokio::test]
async fn a_transcription_keeps_every_byte_of_its_form_but_the_model() {
    let (gateway, first, _second) = pair(ONCE).await;
    first.always(Answer::whole(
        200,
        &[("content-type", "text/vtt")],
        "WEBVTT\n\n00:00.000 --> 00:01.000\nhi\n",
    ));
    let file: Vec<u8> = (0..300_000_u32).map(|n| (n % 253) as u8).collect();
    let form = |model: &str| {
        let mut form =
            b"--cut\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n".to_vec();
        form.extend_from_slice(&file);
        let fields = format!(
            "\r\n--cut\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n--cut\r\n\
             Content-Disposition: form-data; name=\"timestamp_granularities[]\"\r\n\r\nword\r\n--cut--\r\n"
        );
        form.extend_from_slice(fields.as_bytes());
        form
    };
    let client = gateway.client().with("content-type", "multipart/form-data; boundary=cut");
    for path in ["/v1/audio/transcriptions", "/audio/transcriptions"] {
        let answer = client.send("POST", path, form("line").into()).await.unwrap();
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/vtt")));
        assert_eq!(answer.body, "WEBVTT\n\n00:00.000 --> 00:01.000\nhi\n");
    }
    let request = first.request(0).await;
    assert_eq!(request.header("content-type"), Some("multipart/form-data; boundary=cut"));
    assert!(request.body == form("m"), "{} bytes arrived", request.body.len());

    let answer =
        client.send("POST", "/v1/audio/transcriptions", "--cut\r\n\r\n\r\n--cut--".into()).await.unwrap();
    assert_eq!((answer.status, answer.json()["error"]["param"].as_str()), (400, Some("model")));
    let answer = gateway.client().post("/v1/audio/transcriptions", r#"{"model":"line"}"#).await;
    assert_eq!(answer.status, 400);
    assert_eq!(first.requests().len(), 2);
}

#[tokio::test]
async fn a_target_without_the_operation_is_not_called() {
    let upstream = Upstream::start().await;
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), "protocols: [chat]");
    let gateway = Gateway::start(&yaml).await;
    let answer = gateway.client().post("/v1/embeddings", r#"{"model":"up/m","input":"a"}"#).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (400, "unsupported_route"));
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    let error = &answer.json()["error"];
    assert_eq!(error["param"], "model", "{error}");
    let message = "'up/m' does not support the embeddings protocol. Use /v1/chat/completions, /v1/responses, \
                   /v1/messages or /v1beta/models/{model}:generateContent, or name another model.";
    assert_eq!(error["message"], message);
    assert!(upstream.requests().is_empty());
}

fn images(image: &str) -> String {
    format!(
        r#"{{"created":1795000000,"data":[{image}],"size":"1024x1024",
            "usage":{{"input_tokens":5,"input_tokens_details":{{"image_tokens":0,"text_tokens":5}},"output_tokens":272,"total_tokens":277}}}}"#
    )
}

#[tokio::test]
async fn images_pass_inline_with_their_usage() {
    let (gateway, first, second) = pair(TWICE).await;
    let large = images(&format!(r#"{{"b64_json":"{}"}}"#, "iVBO".repeat(1 << 20)));
    first.always(Answer::json(200, &large));
    for path in ["/v1/images/generations", "/images/generations"] {
        let body = r#"{"model":"line","prompt":"a cat","n":1,"output_format":"png"}"#;
        let answer = gateway.client().post(path, body).await;
        assert!(answer.status == 200 && answer.body == large.as_bytes(), "{} bytes", answer.body.len());
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        assert_eq!(
            (&record["operation"], &record["tokens"]["image_output"]),
            (&json!("images"), &json!(272))
        );
    }
    let request = first.request(0).await;
    assert!(request.head.starts_with("POST /v1/images/generations "), "{}", request.head);
    let want = r#"{"model":"m","response_format":"b64_json","prompt":"a cat","n":1,"output_format":"png"}"#;
    assert_eq!(request.body, want, "a server of which nothing is known is want for inline images");

    // OpenAI's later models reject `response_format`.
    let body = r#"{"prompt":"a cat","response_format":"b64_json","model":"gpt"}"#;
    second.always(Answer::json(200, images(r#"{"b64_json":"AAAA"}"#)));
    assert_eq!(gateway.client().post("/v1/images/generations", body).await.status, 200);
    assert_eq!(second.request(0).await.body, r#"{"prompt":"a cat","model":"gpt-image-1"}"#);
}

#[tokio::test]
async fn an_image_url_is_rejected_and_never_fetched() {
    let (gateway, first, second) = pair(TWICE).await;
    let url = format!("{}/made/s3cret.png", first.base_url());
    first.always(Answer::json(200, images(&format!(r#"{{"url":"{url}"}}"#))));
    let body = r#"{"model":"line","prompt":"a cat"}"#;
    let answer = gateway.client().post("/v1/images/generations", body).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (502, "upstream_invalid_response"));
    let message = answer.json()["error"]["message"].to_string();
    assert!(message.contains("b64_json") && !message.contains("s3cret"), "{message}");
    assert_eq!((first.requests().len(), second.requests().len()), (1, 0), "made once, and not fetched");

    for format in ["url", "base64"] {
        let body = format!(r#"{{"model":"line","prompt":"a cat","response_format":"{format}"}}"#);
        let answer = gateway.client().post("/v1/images/generations", body).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.json()["error"]["param"], "response_format");
    }
    assert_eq!(first.requests().len(), 1, "refused before anything is sent");
}

#[tokio::test]
async fn an_image_stream_sends_partial_images_first() {
    let (gateway, first, _second) = pair(ONCE).await;
    let event = |kind: &str, image: &str| {
        format!("event: image_generation.{kind}\ndata: {{\"type\":\"image_generation.{kind}\",{image}}}\n\n")
    };
    let usage = r#""b64_json":"BBBB","usage":{"input_tokens":5,"output_tokens":272,"total_tokens":277}"#;
    let stream = [event("partial_image", r#""b64_json":"AAAA""#), event("completed", usage)].concat();
    first.then(Answer::whole(200, &[("content-type", "text/event-stream")], &stream));
    let body = r#"{"model":"line","prompt":"a cat","stream":true,"partial_images":1}"#;
    let answer = gateway.client().post("/v1/images/generations", body).await;
    assert_eq!((answer.status, &answer.body[..]), (200, stream.as_bytes()));
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert_eq!((&record["tokens"]["image_output"], &record["outcome"]), (&json!(272), &json!("completed")));

    // An upstream that cannot stream returns the whole response.
    first.then(Answer::json(200, images(r#"{"b64_json":"AAAA"}"#)));
    let answer = gateway.client().post("/v1/images/generations", body).await;
    assert!(answer.header("content-type").unwrap().starts_with("text/event-stream"));
    let text = String::from_utf8_lossy(&answer.body);
    assert!(text.starts_with("event: image_generation.completed\ndata: {"), "{text}");

    let url = event("completed", r#""url":"https://x""#);
    first.then(Answer::whole(200, &[("content-type", "text/event-stream")], &url));
    let answer = gateway.client().post("/v1/images/generations", body).await;
    assert_eq!(answer.status, 502);
}

/// Reports: garrytan/gbrain #220, openclaw/openclaw #59048, openai/openai-node #2150, mudler/LocalAI #9135 (all of servers
/// that ignore `encoding_format`), mem0ai/mem0 #5170 (zeros of a quarter of the dimensions).
#[tokio::test]
async fn embeddings_have_the_form_that_the_client_asked_for() {
    let (gateway, first, _second) = pair(ONCE).await;
    let answer = |vector: &str, count: usize| {
        let entry =
            |index: usize| format!(r#"{{"object":"embedding","index":{index},"embedding":{vector}}}"#);
        let data: Vec<String> = (0..count).map(entry).collect();
        let data = data.join(",");
        format!(
            r#"{{"object":"list","model":"m","data":[{data}],"usage":{{"prompt_tokens":5,"total_tokens":5}}}}"#
        )
    };
    let (numbers, base64) = ("[0.5, -0.25]", "\"AAAAPwAAgL4=\"");
    for count in [1, 3_000] {
        for (asked, sent, want) in [
            (r#","encoding_format":"base64""#, numbers, base64),
            (r#","encoding_format":"base64""#, base64, base64),
            (r#","encoding_format":"float""#, base64, "[0.5,-0.25]"),
            ("", base64, "[0.5,-0.25]"),
            ("", numbers, numbers),
            (r#","encoding_format":"int8""#, base64, base64),
        ] {
            first.then(Answer::json(200, answer(sent, count)));
            let got = gateway
                .client()
                .post("/v1/embeddings", format!(r#"{{"model":"line","input":"a"{asked}}}"#))
                .await;
            let text = String::from_utf8_lossy(&got.body).into_owned();
            assert_eq!((got.status, text), (200, answer(want, count)), "{asked}: {count} of {sent}");
            let record = gateway.record_of(got.header("x-request-id").unwrap()).await;
            assert_eq!(record["tokens"]["input"], 5, "{record}");
        }
    }
}
