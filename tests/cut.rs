//! Answers that fail after their first content (ERR-3): an error event and a proper end of the body if the protocol has
//! events, a truncated body otherwise. Also keep-alives in protocols that have them (FAIL-6).

use serde_json::{Value, json};

use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::{Answer, Gate, Gateway, Upstream, Yaml, chat};

/// A provider with every protocol that is relayed unchanged, and one with chat only.
fn yaml(upstream: &Upstream) -> Yaml {
    Yaml::new()
        .provider_with(
            "native",
            upstream.base_url(),
            "protocols: [chat, responses, messages, speech, images]",
        )
        .provider("plain", upstream.base_url())
}

fn event(name: &str, data: &Value) -> Vec<u8> {
    format!("event: {name}\ndata: {data}\n\n").into_bytes()
}

/// The first content of a native stream.
fn response_delta() -> Vec<u8> {
    event(
        "response.output_text.delta",
        &json!({"type": "response.output_text.delta", "sequence_number": 1, "item_id": "m", "output_index": 0,
            "content_index": 0, "delta": "half"}),
    )
}

fn message_delta() -> Vec<u8> {
    event(
        "content_block_delta",
        &json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half"}}),
    )
}

/// (name, path, request, the upstream's first content)
fn streams() -> Vec<(&'static str, &'static str, Value, Vec<u8>)> {
    let messages = json!([{"role": "user", "content": "Say hello."}]);
    let chat_half = chat::content("half").to_vec();
    let chat = |model: &str| json!({"model": model, "stream": true, "messages": messages});
    let message =
        |model: &str| json!({"model": model, "stream": true, "max_tokens": 9, "messages": messages});
    let response = |model: &str| json!({"model": model, "stream": true, "input": "Say hello."});
    let speech = json!({"model": "native/m", "input": "Hello.", "voice": "alloy", "stream_format": "sse"});
    let picture = json!({"model": "native/m", "prompt": "A cat.", "stream": true, "partial_images": 1});
    let sound = event("speech.audio.delta", &json!({"type": "speech.audio.delta", "audio": "AAAA"}));
    let partial = event(
        "image_generation.partial_image",
        &json!({"type": "image_generation.partial_image", "b64_json": "AAAA", "partial_image_index": 0}),
    );
    vec![
        ("chat", "/v1/chat/completions", chat("native/m"), chat_half.clone()),
        ("responses", "/v1/responses", response("native/m"), response_delta()),
        ("messages", "/v1/messages", message("native/m"), message_delta()),
        ("responses on chat", "/v1/responses", response("plain/m"), chat_half.clone()),
        ("messages on chat", "/v1/messages", message("plain/m"), chat_half),
        ("speech", "/v1/audio/speech", speech, sound),
        ("images", "/v1/images/generations", picture, partial),
    ]
}

/// Strings that occur only in complete answers.
const MARKS: [&str; 4] = ["[DONE]", "message_stop", "response.completed", "message_delta"];

#[tokio::test]
async fn a_cut_upstream_stream_ends_with_an_error_event_and_a_proper_end() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&yaml(&upstream)).await;
    for (name, path, request, first) in streams() {
        upstream.then(Answer::stream().chunk(first).close());
        let client = gateway.client().with("content-type", "application/json");
        let mut flow = client.open("POST", path, request.to_string().into()).await.unwrap();
        assert_eq!(flow.status, 200, "{name}");
        let (events, whole) = flow.rest().await;
        let texts: Vec<_> = events.iter().map(|event| String::from_utf8_lossy(&event.bytes)).collect();
        assert!(whole, "{name}: the body ends as the vendor's does: {texts:?}");
        let (last, before) = texts.split_last().unwrap();
        assert!(before.concat().contains(if name == "speech" || name == "images" { "AAAA" } else { "half" }));
        let data: Value = serde_json::from_str(last.split_once("data: ").unwrap().1).unwrap();
        assert!(last.contains("connection broke") && is_error(&data), "{name}: {last}");
        assert!(MARKS.iter().all(|mark| !texts.concat().contains(mark)), "{name}: {texts:?}");
    }
}

/// True if the event is an error in one of the three protocols' formats.
fn is_error(data: &Value) -> bool {
    data["error"]["message"].is_string()
        || (data["type"] == "error" && data["message"].is_string())
        || (data["type"] == "response.failed" && data["response"]["error"]["message"].is_string())
}

#[tokio::test]
async fn the_connection_closes_after_a_failed_stream() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&yaml(&upstream)).await;
    upstream.then(Answer::stream().chunk(chat::content("half")).close());
    let mut raw = crate::support::raw::Raw::open(gateway.address()).await;
    raw.send(crate::support::raw::post(ADMIN_KEY, "", &chat::stream_request("plain/m"))).await;
    let reply = raw.reply().await;
    assert!(reply.closed && reply.text.ends_with("\r\n0\r\n\r\n"), "{}", reply.text);
}

#[tokio::test]
async fn a_cut_response_without_events_is_aborted() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&yaml(&upstream)).await;
    let speech = json!({"model": "native/m", "input": "Hello.", "voice": "alloy"}).to_string();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ntransfer-encoding: chunked\r\n\r\n";
    let sound = Answer::new().send(head).chunk("sound ").close();
    let long = chat::completion(&"long ".repeat(50_000));
    for (path, request, answer) in [
        ("/v1/audio/speech", speech, sound),
        ("/v1/chat/completions", chat::request("plain/m"), Answer::json(200, long).cut_after(200_000)),
    ] {
        upstream.then(answer);
        let client = gateway.client().with("content-type", "application/json");
        let mut flow = client.open("POST", path, request.into()).await.unwrap();
        let (_, whole) = flow.rest().await;
        assert_eq!((flow.status, whole), (200, false), "{path}");
    }
}

#[tokio::test]
async fn no_keepalive_comment_is_written_into_sound() {
    let upstream = Upstream::start().await;
    let setup = Setup::new(&yaml(&upstream)).env("LLMGW_STREAM_KEEPALIVE_SECONDS", "1");
    let gateway = setup.start().await;
    let gate = Gate::new();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ntransfer-encoding: chunked\r\n\r\n";
    let sound = Answer::new().send(head).chunk("sound ").wait(&gate).chunk("of music").end();
    upstream.then(sound);
    // `stream` is not a member of speech requests; a client that sends it gets the same bytes.
    let request =
        json!({"model": "native/m", "input": "Hello.", "voice": "alloy", "stream": true}).to_string();
    let client = gateway.client().with("content-type", "application/json");
    let flow = client.open("POST", "/v1/audio/speech", request.into()).await.unwrap();
    assert_eq!(flow.headers["content-type"], "audio/mpeg");
    // A concurrent event stream shows when a keep-alive is due.
    upstream.then(Answer::stream().chunk(chat::content("half")).hang());
    let mut clock = gateway.client().chat_flow(chat::stream_request("plain/m")).await;
    while !clock.event().await.bytes.starts_with(b": keep-alive") {}
    gate.open(1);
    let whole = flow.whole().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&whole.body), "sound of music");
}
