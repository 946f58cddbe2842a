//! Tests videos: the upstream requests and the reading of the answers.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use shared::operation::Dialect;

use super::{About, Vendor, Video, VideoState, media_type, poll_body, polled};
use crate::envelope::StreamError;
use crate::request::{HeadScan, Naming, ScanError, build};
use crate::translation::{BadAnswer, Rejection};

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../../fixtures/videos/", $name, ".json"))
    };
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn start(vendor: Vendor, body: &Value) -> Result<Value, Rejection> {
    let sent = vendor.start(&mut body.to_string().into_bytes())?;
    Ok(serde_json::from_slice(&sent).unwrap())
}

fn state(vendor: Vendor, answer: &str) -> VideoState {
    vendor.state(&Bytes::copy_from_slice(answer.as_bytes())).unwrap()
}

/// Returns a start with one more member.
fn with(name: &str, value: Value) -> Value {
    let mut body = json!({"model": "m", "prompt": "p"});
    body[name] = value;
    body
}

const ABOUT: About<'_> =
    About { operation: "vop_01", created_at: 1_795_000_000, provider: "google", model: "veo" };

#[test]
fn recorded_starts_are_translated_for_each_vendor() {
    let body = parsed(fixture!("start_request"));
    assert_eq!(start(Vendor::OpenAi, &body).unwrap(), parsed(fixture!("open_ai_start")));
    assert_eq!(start(Vendor::Google, &body).unwrap(), parsed(fixture!("google_start")));
}

#[test]
fn video_responses_match_their_vectors() {
    let json = |bytes: Bytes| serde_json::from_slice::<Value>(&bytes).unwrap();
    assert_eq!(json(ABOUT.started()), parsed(fixture!("start_response")));
    assert_eq!(json(ABOUT.running(Some(40))), parsed(fixture!("poll_running")));
    assert_eq!(json(ABOUT.at("gs://bucket/1/sample_0.mp4", "video/mp4")), parsed(fixture!("poll_url")));
    let VideoState::Failed(error) = state(Vendor::Google, fixture!("gemini_filtered")) else {
        panic!("no failure")
    };
    assert_eq!(json(ABOUT.failed(&error)), parsed(fixture!("poll_failed")));
    let VideoState::Done(Video::Inline { base64, media_type }) =
        state(Vendor::Google, fixture!("vertex_done"))
    else {
        panic!("no video")
    };
    let (head, tail) = ABOUT.around(&media_type);
    assert_eq!(json([head, base64, tail].concat().into()), parsed(fixture!("poll_done")));
}

#[test]
fn a_poll_is_distinguished_from_a_start_and_has_no_other_members() {
    let poll = fixture!("poll_request");
    let head = |body: &str| -> Result<_, ScanError> {
        let mut scan = HeadScan::new(Dialect::Videos);
        scan.push(body.as_bytes())?;
        scan.finish()
    };
    assert!(head(poll).unwrap().is_poll);
    assert!(!head(fixture!("start_request")).unwrap().is_poll);
    assert!(!head(r#"{"model":"m","prompt":"p","operation":null}"#).unwrap().is_poll);
    assert_eq!(head(r#"{"model":"m","operation":null}"#).unwrap_err().param.as_deref(), Some("prompt"));
    assert_eq!(head(r#"{"operation":"vop_1"}"#).unwrap_err().param.as_deref(), Some("model"));
    assert_eq!(polled(&mut poll.as_bytes().to_vec()).unwrap(), "vop_01");
    for (body, param) in [
        (json!({"model": "m", "operation": "o", "prompt": "p"}), "prompt"),
        (json!({"model": "m", "operation": "o", "n": 1}), "n"),
        (json!({"model": "m", "operation": 7}), "operation"),
        (json!({"model": "m"}), "operation"),
    ] {
        assert_eq!(polled(&mut body.to_string().into_bytes()).unwrap_err().param, param, "{body}");
    }
    let null = json!({"model": "m", "operation": "o", "prompt": null});
    assert_eq!(polled(&mut null.to_string().into_bytes()).unwrap(), "o");
}

#[test]
fn every_member_of_a_start_is_translated_or_rejected_by_name() {
    let image = "data:image/png;base64,iVBORw0KGgo=";
    let all = json!({
        "model": "veo", "prompt": "a cat", "seconds": "6", "aspect_ratio": "9:16", "resolution": "1080p", "n": 1,
        "seed": 7, "negative_prompt": "dogs", "image": image, "generate_audio": false, "stream": false,
    });
    assert_eq!(
        start(Vendor::Google, &all).unwrap(),
        json!({
            "instances": [{
                "prompt": "a cat", "image": {"bytesBase64Encoded": "iVBORw0KGgo=", "mimeType": "image/png"},
            }],
            "parameters": {
                "aspectRatio": "9:16", "resolution": "1080p", "negativePrompt": "dogs", "durationSeconds": 6,
                "seed": 7, "generateAudio": false,
            },
        })
    );
    let shape = |ratio: &str| with("aspect_ratio", json!(ratio));
    assert_eq!(start(Vendor::OpenAi, &shape("9:16")).unwrap()["size"], "720x1280");
    assert_eq!(start(Vendor::OpenAi, &shape("16:9")).unwrap()["size"], "1280x720");
    assert_eq!(
        start(Vendor::OpenAi, &with("image", json!(image))).unwrap()["input_reference"]["image_url"],
        image
    );
    assert_eq!(
        start(Vendor::OpenAi, &with("generate_audio", json!(true))).unwrap(),
        json!({"model": "m", "prompt": "p"})
    );
    assert_eq!(
        start(Vendor::OpenAi, &with("resolution", json!("720p"))).unwrap(),
        json!({"model": "m", "prompt": "p"})
    );
    assert_eq!(start(Vendor::OpenAi, &with("size", json!("1024x1792"))).unwrap()["size"], "1024x1792");
    for (size, ratio, resolution) in
        [("1280x720", "16:9", "720p"), ("1080x1920", "9:16", "1080p"), ("3840x2160", "16:9", "4k")]
    {
        let sent = start(Vendor::Google, &with("size", json!(size))).unwrap();
        assert_eq!(sent["parameters"], json!({"aspectRatio": ratio, "resolution": resolution}), "{size}");
    }
    for (vendor, name, value) in [
        (Vendor::OpenAi, "seed", json!(1)),
        (Vendor::OpenAi, "negative_prompt", json!("x")),
        (Vendor::OpenAi, "generate_audio", json!(false)),
        (Vendor::OpenAi, "aspect_ratio", json!("1:1")),
        (Vendor::OpenAi, "resolution", json!("1080p")),
        (Vendor::Google, "size", json!("1024x1792")),
        (Vendor::Google, "size", json!("1280x1280")),
    ] {
        assert_eq!(start(vendor, &with(name, value)).unwrap_err().param, name, "{vendor:?}");
    }
}

#[test]
fn members_with_invalid_values_are_rejected_by_name() {
    for (name, value) in [
        ("prompt", json!("")),
        ("prompt", json!(" \n")),
        ("prompt", json!(["p"])),
        ("seconds", json!(0)),
        ("seconds", json!(1.5)),
        ("seconds", json!("8s")),
        ("seconds", json!("")),
        ("size", json!("720p")),
        ("size", json!("0x720")),
        ("size", json!("+1x+2")),
        ("size", json!("1x2x3")),
        ("aspect_ratio", json!("wide")),
        ("resolution", json!("4k\" ")),
        ("n", json!(2)),
        ("seed", json!(-1)),
        ("seed", json!(4_294_967_296_u64)),
        ("image", json!("https://example.com/a.png")),
        ("image", json!("data:text/html;base64,AAAA")),
        ("image", json!("data:image/png;base64,")),
        ("image", json!("data:image/png;base64,\u{e9}")),
        ("generate_audio", json!("yes")),
        ("stream", json!(true)),
        ("user", json!("me")),
    ] {
        for vendor in [Vendor::OpenAi, Vendor::Google] {
            let refused = start(vendor, &with(name, value.clone())).unwrap_err();
            assert_eq!(refused.param, name, "{vendor:?} {value}");
        }
    }
    let both = json!({"model": "m", "prompt": "p", "size": "1280x720", "resolution": "720p"});
    assert_eq!(start(Vendor::Google, &both).unwrap_err().param, "resolution");
}

#[test]
fn the_operation_name_is_read_from_the_vendors_start_response() {
    for (vendor, answer, want) in [
        (Vendor::OpenAi, fixture!("openai_video"), Ok("video_1")),
        (Vendor::Google, fixture!("gemini_running"), Ok("models/veo-3.1-generate-preview/operations/abc123")),
        (Vendor::OpenAi, "{}", Err(())),
        (Vendor::Google, r#"{"name":""}"#, Err(())),
        (Vendor::Google, r#"{"name":7}"#, Err(())),
        (Vendor::Google, "<html>", Err(())),
    ] {
        let started = vendor.started(answer.as_bytes());
        assert_eq!(started.as_deref().map_err(|_| ()), want, "{answer}");
    }
    let long = json!({"id": "v".repeat(1025)}).to_string();
    assert!(matches!(Vendor::OpenAi.started(long.as_bytes()), Err(BadAnswer::Invalid(_))));
    let error = br#"{"error":{"message":"no","code":"moderation"}}"#;
    assert!(matches!(Vendor::OpenAi.started(error), Err(BadAnswer::Error(error)) if error.message == "no"));
    assert_eq!(poll_body("a\"b"), r#"{"operationName":"a\"b"}"#);
}

#[test]
fn every_video_state_of_each_vendor_is_read() {
    let open_ai = |status: &str, more: &str| {
        state(Vendor::OpenAi, &format!(r#"{{"id":"video_1","status":"{status}"{more}}}"#))
    };
    assert_eq!(state(Vendor::OpenAi, fixture!("openai_video")), VideoState::Running(Some(0)));
    assert_eq!(open_ai("in_progress", r#","progress":33.6"#), VideoState::Running(Some(33)));
    assert_eq!(open_ai("in_progress", r#","progress":1e9"#), VideoState::Running(Some(100)));
    assert_eq!(open_ai("in_progress", ""), VideoState::Running(None));
    assert_eq!(open_ai("completed", ""), VideoState::Done(Video::Kept));
    let failed = |state: VideoState| match state {
        VideoState::Failed(StreamError { message, code, .. }) => (message, code.unwrap_or_default()),
        VideoState::Running(_) | VideoState::Done(_) => panic!("{state:?}"),
    };
    let failure = failed(open_ai("failed", r#","error":{"code":"moderation_blocked","message":"no"}"#));
    assert_eq!(failure, ("no".to_owned(), "moderation_blocked".to_owned()));
    assert!(failed(open_ai("failed", r#","error":null"#)).0.contains("sent no reason"));
    assert_eq!(state(Vendor::Google, fixture!("gemini_running")), VideoState::Running(None));
    assert_eq!(
        state(Vendor::Google, r#"{"name":"o","done":false,"metadata":{}}"#),
        VideoState::Running(None)
    );
    let VideoState::Done(Video::At { address, .. }) = state(Vendor::Google, fixture!("gemini_done")) else {
        panic!()
    };
    assert_eq!(address, "https://generativelanguage.googleapis.com/v1beta/files/xyz:download?alt=media");
    let VideoState::Done(Video::At { address, .. }) = state(Vendor::Google, fixture!("vertex_bucket")) else {
        panic!()
    };
    assert_eq!(address, "gs://bucket/1/sample_0.mp4");
    let failure = failed(state(Vendor::Google, fixture!("vertex_failed")));
    assert_eq!(failure, ("The prompt could not be submitted.".to_owned(), "invalid_argument".to_owned()));
    let failure = failed(state(Vendor::Google, r#"{"name":"o","done":true}"#));
    assert_eq!(failure.0, "The provider ended the operation without a video.");
    for (vendor, answer) in [
        (Vendor::OpenAi, "{}"),
        (Vendor::OpenAi, r#"{"status":"lost"}"#),
        (Vendor::Google, "{}"),
        (Vendor::Google, r#"{"name":"o","error":{"message":"busy"}}"#),
        (Vendor::Google, r#"{"done":"yes"}"#),
        (Vendor::Google, ""),
    ] {
        assert!(vendor.state(&Bytes::from_static(answer.as_bytes())).is_err(), "{answer}");
    }
}

#[test]
fn an_invalid_video_media_type_becomes_video_mp4() {
    for (given, want) in [
        (Some("video/webm"), "video/webm"),
        (Some("video/x-matroska"), "video/x-matroska"),
        (Some("image/png"), "video/mp4"),
        (Some("video/\"}"), "video/mp4"),
        (Some("video/"), "video/mp4"),
        (None, "video/mp4"),
    ] {
        assert_eq!(media_type(given), want, "{given:?}");
    }
}

proptest! {
    #[test]
    fn any_prompt_text_reaches_the_upstream_unchanged(
        prompt in "\\PC*[\\S]\\PC*", negative in proptest::option::of("\\PC*"), seed: u32, seconds in 1..86_400_u64,
        selector in "[a-z/]{1,30}",
    ) {
        let body = json!({
            "affinity_key": "k", "seed": seed, "model": selector, "prompt": prompt, "seconds": seconds,
            "negative_prompt": negative, "fallback_timeout_ms": 5,
        })
        .to_string();
        let mut scan = HeadScan::new(Dialect::Videos);
        scan.push(body.as_bytes()).unwrap();
        let head = scan.finish().unwrap();
        prop_assert_eq!(&head.model, &selector);
        let mut built = build(&[body.into()], &head, Naming::Model("up\"stream"), false, None).concat();
        let google: Value = serde_json::from_slice(&Vendor::Google.start(&mut built.clone()).unwrap()).unwrap();
        prop_assert_eq!(&google["instances"], &json!([{"prompt": prompt}]));
        let mut parameters = json!({"durationSeconds": seconds, "seed": seed});
        if let Some(negative) = &negative {
            parameters["negativePrompt"] = json!(negative);
        }
        prop_assert_eq!(&google["parameters"], &parameters);
        let refused = Vendor::OpenAi.start(&mut built).unwrap_err();
        prop_assert_eq!(refused.param, "seed");
        let plain = json!({"model": "up\"stream", "prompt": prompt, "seconds": seconds}).to_string();
        let sent: Value = serde_json::from_slice(&Vendor::OpenAi.start(&mut plain.into_bytes()).unwrap()).unwrap();
        prop_assert_eq!(sent, json!({"model": "up\"stream", "prompt": prompt, "seconds": seconds.to_string()}));
    }

    #[test]
    fn any_error_text_and_url_become_valid_json(message in "\\PC*", code in proptest::option::of("\\PC*"), address in "\\PC*") {
        let error = StreamError { message: message.clone(), code: code.clone(), ..StreamError::default() };
        let shown: Value = serde_json::from_slice(&ABOUT.failed(&error)).unwrap();
        prop_assert_eq!(&shown["error"], &json!({"message": message, "type": "upstream_error", "param": null, "code": code}));
        let shown: Value = serde_json::from_slice(&ABOUT.at(&address, "video/mp4")).unwrap();
        prop_assert_eq!(&shown["video"]["url"], &json!(address));
    }
}
