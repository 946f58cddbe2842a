//! Recorded exchanges of `dataplane/wire/fixtures` through a whole gateway: those that the gateway passes through
//! unparsed, and its own model lists compared with the vendors'.

use serde_json::{Value, json};

use crate::support::{Answer, Gateway, Upstream, Yaml};

fn fixture(path: &str) -> Vec<u8> {
    std::fs::read(format!("{}/dataplane/wire/fixtures/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

async fn serving(protocols: &str) -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    let members = format!("protocols: [{protocols}]");
    let mut yaml = Yaml::new().provider_with("up", upstream.base_url(), &members);
    for selector in ["tts", "whisper", "e", "fast"] {
        yaml = yaml.endpoint(selector, &[("up", "target-model")]);
    }
    (Gateway::start(&yaml).await, upstream)
}

/// Returns the input tokens of text and sound.
fn input_of(tokens: &Value) -> u64 {
    ["input", "audio_input"].iter().map(|class| tokens[class].as_u64().unwrap()).sum()
}

#[tokio::test]
async fn recorded_sound_subtitles_and_embeddings_pass_unchanged() {
    let (gateway, upstream) = serving("speech, transcription, embeddings").await;
    let form = "multipart/form-data; boundary=----llmgwtest";
    let (json, stream) = ("application/json", "text/event-stream");
    let rows = [
        ("/v1/audio/speech", "audio/speech_request.json", json, "audio/speech_stream.sse", stream, Some(3)),
        (
            "/v1/audio/transcriptions",
            "audio/multipart.bin",
            form,
            "audio/transcription_json.json",
            json,
            Some(14),
        ),
        (
            "/v1/audio/transcriptions",
            "audio/multipart.bin",
            form,
            "audio/transcription_verbose.json",
            json,
            None,
        ),
        (
            "/v1/audio/transcriptions",
            "audio/multipart.bin",
            form,
            "audio/transcription.srt",
            "text/plain",
            None,
        ),
        (
            "/v1/audio/transcriptions",
            "audio/multipart.bin",
            form,
            "audio/transcription.vtt",
            "text/vtt",
            None,
        ),
        (
            "/v1/audio/transcriptions",
            "audio/multipart.bin",
            form,
            "audio/transcription_stream.sse",
            stream,
            Some(14),
        ),
        ("/v1/embeddings", "embeddings/request.json", json, "embeddings/response_base64.json", json, Some(2)),
        ("/v1/embeddings", "embeddings/request_tokens.json", json, "embeddings/response.json", json, Some(2)),
    ];
    for (position, (path, request, sends, response, receives, input)) in rows.into_iter().enumerate() {
        let (request, response) = (fixture(request), fixture(response));
        upstream.then(Answer::whole(200, &[("content-type", receives)], &response));
        let client = gateway.client().with("content-type", sends);
        let answer = client.send("POST", path, request.clone().into()).await.unwrap();
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(receives)), "{path}");
        assert!(answer.body == response, "{path}: {:?}", answer.body);
        let sent = String::from_utf8_lossy(&request).into_owned();
        let want = ["\"tts\"", "\"e\"", "\r\n\r\nwhisper\r\n"]
            .into_iter()
            .find(|model| sent.contains(model))
            .map(|model| {
                let other =
                    if model.starts_with('"') { "\"target-model\"" } else { "\r\n\r\ntarget-model\r\n" };
                sent.replacen(model, other, 1)
            });
        let got = upstream.request(position).await;
        assert_eq!(String::from_utf8_lossy(&got.body), want.unwrap(), "{path}");
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        let reported = (record["provenance"] == "reported").then(|| input_of(&record["tokens"]));
        assert_eq!(reported, input, "{path} {receives}: {record}");
    }
}

#[tokio::test]
async fn a_recorded_token_count_reaches_the_client_unchanged() {
    let (gateway, upstream) = serving("messages").await;
    let mut request: Value = serde_json::from_slice(&fixture("messages/count_request.json")).unwrap();
    let response = fixture("messages/count_response.json");
    upstream.then(Answer::json(200, String::from_utf8(response.clone()).unwrap()));
    request["model"] = json!("fast");
    let answer = gateway.client().post("/v1/messages/count_tokens", request.to_string()).await;
    assert_eq!((answer.status, answer.header("x-llmgw-token-count")), (200, None));
    assert!(answer.body == response, "{:?}", answer.body);
    request["model"] = json!("target-model");
    assert_eq!(upstream.request(0).await.json(), request);
}

/// Checks that `ours` has all members of `recorded`, each of the same type.
fn has_members(ours: &Value, recorded: &Value, place: &str) {
    for (name, value) in recorded.as_object().unwrap() {
        let own = ours.get(name).unwrap_or_else(|| panic!("{place}.{name} is missing: {ours}"));
        assert_eq!(
            std::mem::discriminant(own),
            std::mem::discriminant(value),
            "{place}.{name}: {own} is not like {value}"
        );
        if ["object", "type", "id", "lifecycle", "has_more", "first_id", "last_id"].contains(&&**name) {
            assert_eq!(own, value, "{place}.{name}");
        }
    }
}

#[tokio::test]
async fn model_lists_have_the_members_the_vendor_sdks_need() {
    let upstream = Upstream::start().await;
    let yaml = Yaml::new().provider("up", upstream.base_url()).endpoint("fast", &[("up", "m")]);
    let gateway = Gateway::start(&yaml).await;
    let plain = gateway.client().get("/v1/models").await.unwrap().json();
    let client = gateway.client().with("anthropic-version", "2023-06-01");
    let anthropic = client.get("/v1/models?limit=1000").await.unwrap().json();
    for (ours, file) in [(plain, "list_openai"), (anthropic, "list_anthropic")] {
        let mut recorded: Value = serde_json::from_slice(&fixture(&format!("models/{file}.json"))).unwrap();
        let entry = recorded["data"][0].clone();
        let data = ours["data"].as_array().unwrap();
        let fast = data.iter().find(|model| model["id"] == "fast").unwrap();
        has_members(fast, &entry, file);
        // The list has other models as well; its fields name its own first and last one.
        let first_and_last = [data.first(), data.last()].map(|model| model.unwrap()["id"].clone());
        if recorded.get("first_id").is_some() {
            recorded["first_id"] = first_and_last[0].clone();
            recorded["last_id"] = first_and_last[1].clone();
        }
        has_members(&ours, &recorded, file);
    }
}
