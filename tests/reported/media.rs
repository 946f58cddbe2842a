//! Speech, transcriptions, images and videos: characters, seconds, pictures, and their own classes of tokens.

use serde_json::{Value, json};

use super::{Rig, assert_record, data};
use crate::support::Answer;

const SPEECH: &str = "/v1/audio/speech";
const IMAGES: &str = "/v1/images/generations";
const VIDEOS: &str = "/v1/videos/generations";

#[tokio::test]
async fn speech_is_billed_by_the_characters_of_its_text() {
    let rig = Rig::start().await;
    let body = json!({"model": "openai/m", "input": "Gr\u{fc}\u{df} dich \u{1f680}", "voice": "alloy"});
    let sound = || Answer::whole(200, &[("content-type", "audio/mpeg")], "sound");
    let record = rig.record_of(SPEECH, &body, sound()).await;
    assert_eq!((&record["units"]["characters"], &record["provenance"]), (&json!(11), &json!("estimated")));
    assert_eq!(record["cost_micro_usd"], json!(165.0 + record["tokens"]["input"].as_f64().unwrap()));
    let mut unpriced = body.clone();
    unpriced["model"] = json!("openai/unpriced");
    let record = rig.record_of(SPEECH, &unpriced, sound()).await;
    assert_eq!((&record["units"]["characters"], &record["cost_micro_usd"]), (&json!(11), &Value::Null));
}

#[tokio::test]
async fn speech_in_events_has_the_tokens_that_it_reports() {
    let rig = Rig::start().await;
    let events = data(&[
        json!({"type": "speech.audio.delta", "audio": "AAAA"}),
        json!({"type": "speech.audio.done", "usage": {"input_tokens": 4, "output_tokens": 20, "total_tokens": 24,
            "output_token_details": {"audio_tokens": 20}}}),
    ]);
    let body = json!({"model": "openai/m", "input": "Hello", "voice": "alloy", "stream_format": "sse"});
    let record = rig.record_of(SPEECH, &body, events).await;
    let (tokens, units) = (json!({"input": 4, "audio_output": 20}), json!({"characters": 5}));
    assert_record(&record, &tokens, &units, None, Some(75.0 + 4.0 + 1_600.0));
    let metrics = rig.gateway.client().get("/metrics").await.unwrap();
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    for line in ["llmgw_input_tokens_total 4", "llmgw_output_tokens_total 20"] {
        assert!(text.lines().any(|found| found == line), "tokens of every class count: {text}");
    }
}

#[tokio::test]
async fn transcriptions_are_billed_by_the_second_or_by_tokens() {
    let rig = Rig::start().await;
    let form = "--cut\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.mp3\"\r\n\r\nsound\r\n\
        --cut\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nopenai/m\r\n--cut--\r\n";
    let client = rig.gateway.client().with("content-type", "multipart/form-data; boundary=cut");
    let by_seconds = json!({"text": "hello", "usage": {"type": "duration", "seconds": 9}});
    let verbose = json!({"task": "transcribe", "duration": 1.5, "text": "hello", "segments": []});
    let old = json!({"task": "transcribe", "duration": "1.5", "text": "hello", "segments": []});
    for (answer, ms, cost) in
        [(by_seconds, 9_000, 54_000.0), (verbose, 1_500, 9_000.0), (old, 1_500, 9_000.0)]
    {
        rig.upstream.then(Answer::json(200, answer.to_string()));
        let reply = client.send("POST", "/v1/audio/transcriptions", form.into()).await.unwrap();
        let record = rig.gateway.record_of(reply.header("x-request-id").unwrap()).await;
        let output = record["tokens"]["output"].as_f64().unwrap();
        assert_eq!((&record["units"]["audio_ms"], &record["tokens"]["input"]), (&json!(ms), &json!(0)));
        assert_eq!(record["cost_micro_usd"], json!(cost + 10.0 * output), "{record}");
    }
    let by_tokens = json!({"text": "hello", "usage": {"type": "tokens", "input_tokens": 14, "output_tokens": 5,
        "input_token_details": {"text_tokens": 2, "audio_tokens": 12}, "total_tokens": 19}});
    rig.upstream.then(Answer::json(200, by_tokens.to_string()));
    let reply = client.send("POST", "/v1/audio/transcriptions", form.into()).await.unwrap();
    let record = rig.gateway.record_of(reply.header("x-request-id").unwrap()).await;
    let tokens = json!({"input": 2, "audio_input": 12, "output": 5});
    assert_record(&record, &tokens, &json!({}), None, Some(2.0 + 480.0 + 50.0));
}

#[tokio::test]
async fn pictures_are_counted_with_their_quality_and_size() {
    let rig = Rig::start().await;
    let images = |more: Value| {
        let mut body = json!({"created": 1, "data": [{"b64_json": "AAAA"}, {"b64_json": "BBBB"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Answer::json(200, body.to_string())
    };
    let two = json!({"images": 2});
    // The response takes precedence over the request.
    let body = json!({"model": "openai/m", "prompt": "a cat", "n": 2, "size": "auto", "quality": "auto"});
    let response = json!({"quality": "high", "size": "1024x1536", "usage": {"input_tokens": 50, "output_tokens": 272,
        "input_tokens_details": {"text_tokens": 10, "image_tokens": 40}, "total_tokens": 322}});
    let record = rig.record_of(IMAGES, &body, images(response)).await;
    assert_eq!(record["picture"], "high/1024x1536");
    let tokens = json!({"input": 10, "image_input": 40, "image_output": 272});
    assert_record(&record, &tokens, &two, None, Some(500_000.0 + 10.0 + 320.0 + 8_160.0));
    // The request applies if the response does not name the values.
    let body =
        json!({"model": "openai/m", "prompt": "a cat", "n": 2, "size": "1024x1024", "quality": "standard"});
    let record = rig.record_of(IMAGES, &body, images(json!({}))).await;
    assert_eq!((&record["picture"], &record["units"]["images"]), (&json!("standard/1024x1024"), &json!(2)));
    assert_eq!(record["cost_micro_usd"], json!(80_000.0 + record["tokens"]["input"].as_f64().unwrap()));
    // A picture class without a price, and no tokens to bill instead.
    let body = json!({"model": "openai/m", "prompt": "a cat", "size": "512x512"});
    let record = rig.record_of(IMAGES, &body, images(json!({}))).await;
    assert_eq!((&record["picture"], &record["cost_micro_usd"]), (&json!("512x512"), &Value::Null));
}

#[tokio::test]
async fn an_image_stream_counts_only_completed_images() {
    let rig = Rig::start().await;
    let events = data(&[
        json!({"type": "image_generation.partial_image", "b64_json": "AAAA", "partial_image_index": 0}),
        json!({"type": "image_generation.completed", "b64_json": "AAAA", "quality": "low", "size": "1024x1024",
            "usage": {"input_tokens": 5, "output_tokens": 272, "total_tokens": 277}}),
    ]);
    let body = json!({"model": "openai/m", "prompt": "a cat", "stream": true, "partial_images": 1});
    let record = rig.record_of(IMAGES, &body, events).await;
    assert_eq!(record["picture"], "low/1024x1024");
    let tokens = json!({"input": 5, "image_output": 272});
    assert_record(&record, &tokens, &json!({"images": 1}), None, Some(40_000.0 + 5.0 + 8_160.0));
}

#[tokio::test]
async fn videos_are_billed_by_the_second_when_they_begin() {
    let rig = Rig::start().await;
    let begun = |more: Value| {
        let mut body = json!({"id": "video_1", "object": "video", "status": "queued"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Answer::json(200, body.to_string())
    };
    let named = json!({"name": "models/m/operations/1"});
    let rows = [
        (
            json!({"model": "openai/m"}),
            begun(json!({"seconds": "4", "size": "720x1280"})),
            4_000,
            json!("720x1280"),
        ),
        (json!({"model": "openai/m", "seconds": 8}), begun(json!({})), 8_000, Value::Null),
        (
            json!({"model": "gemini/m", "seconds": "6", "size": "1280x720"}),
            Answer::json(200, named.to_string()),
            6_000,
            json!("1280x720"),
        ),
    ];
    for (mut body, answer, ms, picture) in rows {
        body["prompt"] = json!("a cat");
        let record = rig.record_of(VIDEOS, &body, answer).await;
        assert_eq!((&record["units"]["video_ms"], &record["picture"]), (&json!(ms), &picture));
        let input = record["tokens"]["input"].as_f64().unwrap();
        assert_eq!(record["cost_micro_usd"], json!(f64::from(ms) * 100.0 + input), "{record}");
    }
    let body = json!({"model": "gemini/m", "prompt": "a cat"});
    let record = rig.record_of(VIDEOS, &body, Answer::json(200, named.to_string())).await;
    assert_eq!(record["cost_micro_usd"], Value::Null, "of a length that is not known");
}
