//! Streams through the gateway: no byte is changed, no event is held back, no end is invented (CHAT-4, STR-1, ERR-3).

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::support::figure::{figure, promised, times};
use crate::support::{Answer, Gate, Gateway, Upstream, Yaml, chat};

/// Starts a gateway in front of one upstream with the model `m`.
async fn gateway_with_upstream() -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    (gateway, upstream)
}

/// Returns streams that real servers send, in forms that a parser might normalize.
fn odd_streams() -> Vec<(&'static str, String)> {
    let plain: String =
        chat::events(&["a", "b"]).iter().map(|event| String::from_utf8_lossy(event).into_owned()).collect();
    let lead = r#"{"id":"c","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}"#;
    let end = r#"{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    vec![
        ("plain", plain.clone()),
        ("CRLF", plain.replace('\n', "\r\n")),
        ("lone CR", plain.replace('\n', "\r")),
        ("BOM", format!("\u{feff}{plain}")),
        ("comments", format!(": PROCESSING\n\n: again\n\n{plain}")),
        ("no space after the colon", plain.replace("data: ", "data:")),
        ("other fields", format!("id: 7\nretry: 10\nevent: chunk\n{plain}")),
        (
            "data over two lines",
            format!("data: {{\"choices\":[{{\"delta\":\ndata: {{\"content\":\"x\"}}}}]}}\n\n{plain}"),
        ),
        ("odd spacing", format!("data:  {}\n\ndata: {end}\n\ndata: [DONE]\n\n", lead.replace(':', " : "))),
        (
            "escapes",
            format!(
                "data: {}\n\ndata: {end}\n\ndata: [DONE]\n\n",
                lead.replace("\"x\"", r#""\u00e9\ud83d\ude00\/""#)
            ),
        ),
        (
            "unknown members",
            format!(
                "data: {}\n\ndata: {end}\n\ndata: [DONE]\n\n",
                lead.replace("\"c\"", "\"c\",\"x_vendor\":{\"a\":[1e3,1.0]}")
            ),
        ),
        ("events after the end marker", format!("{plain}: bye\n\ndata: {{\"late\":true}}\n\n")),
    ]
}

#[tokio::test]
async fn every_byte_of_a_stream_arrives_unchanged() {
    let (gateway, upstream) = gateway_with_upstream().await;
    for (name, stream) in odd_streams() {
        upstream.then(Answer::events(&[&stream]));
        let answer = gateway.client().chat(chat::stream_request_with_usage("m")).await;
        assert_eq!(answer.status, 200, "{name}");
        assert_eq!(String::from_utf8_lossy(&answer.body), stream, "{name}");
    }
}

#[tokio::test]
async fn every_byte_of_a_stream_in_pieces_arrives_unchanged() {
    let (gateway, upstream) = gateway_with_upstream().await;
    for (name, stream) in odd_streams() {
        for length in [1, 3, 64] {
            let pieces: Vec<&[u8]> = stream.as_bytes().chunks(length).collect();
            upstream.then(Answer::events(&pieces));
            let answer = gateway.client().chat(chat::stream_request_with_usage("m")).await;
            assert_eq!(String::from_utf8_lossy(&answer.body), stream, "{name} in pieces of {length}");
        }
    }
}

#[tokio::test]
async fn an_answer_byte_by_byte_arrives_unchanged() {
    let (gateway, upstream) = gateway_with_upstream().await;
    let stream = chat::events(&["a", "b"]).concat();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\ntransfer-encoding:chunked\r\n\r\n";
    let size = format!("{:X};x=y\r\n", stream.len());
    let framed = [head.as_bytes(), size.as_bytes(), &stream, b"\r\n0\r\n\r\n"].concat();
    upstream.then(Answer::new().drip(&framed));
    assert_eq!(gateway.client().chat(chat::stream_request_with_usage("m")).await.body, stream);
}

#[tokio::test]
async fn a_stream_with_a_length_instead_of_chunks_arrives_unchanged() {
    let (gateway, upstream) = gateway_with_upstream().await;
    let stream = chat::events(&["a"]).concat();
    upstream.then(Answer::whole(200, &[("content-type", "text/event-stream")], &stream));
    assert_eq!(gateway.client().chat(chat::stream_request_with_usage("m")).await.body, stream);
}

#[tokio::test]
async fn a_stream_that_ends_with_its_connection_arrives_unchanged() {
    let (gateway, upstream) = gateway_with_upstream().await;
    let stream = chat::events(&["a"]).concat();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    upstream.then(Answer::new().send(head).send(stream.clone()).close());
    assert_eq!(gateway.client().chat(chat::stream_request_with_usage("m")).await.body, stream);
}

#[tokio::test]
async fn the_usage_chunk_is_always_requested_and_sent_only_if_the_client_asked() {
    let (gateway, upstream) = gateway_with_upstream().await;
    let events = chat::events(&["a", "b"]);
    upstream.always(Answer::events(&events));
    let answer = gateway.client().chat(chat::stream_request("m")).await;
    let without: Vec<u8> =
        events.iter().filter(|event| **event != chat::usage()).flatten().copied().collect();
    assert_eq!(String::from_utf8_lossy(&answer.body), String::from_utf8_lossy(&without));
    assert_eq!(upstream.request(0).await.json()["stream_options"]["include_usage"], true);

    let answer = gateway.client().chat(chat::stream_request_with_usage("m")).await;
    assert_eq!(answer.body, events.concat());
}

#[tokio::test]
async fn a_usage_chunk_with_choices_is_always_forwarded() {
    let (gateway, upstream) = gateway_with_upstream().await;
    let finish = chat::event(
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#,
    );
    let events = [chat::role(), chat::content("a"), finish, chat::done()];
    upstream.always(Answer::events(&events));
    assert_eq!(gateway.client().chat(chat::stream_request("m")).await.body, events.concat());
}

/// P5: no event waits for the next one, and none is delayed for long.
#[tokio::test]
async fn each_event_arrives_before_the_next_is_written() {
    let (gateway, upstream) = gateway_with_upstream().await;
    let gate = Gate::new();
    let pieces: Vec<String> = (0..100).map(|index| format!("piece {index}")).collect();
    let events = chat::events(&pieces.iter().map(String::as_str).collect::<Vec<_>>());
    upstream.always(Answer::gated_events(&events, &gate));
    // The role chunk may be held until there is content (FAIL-6).
    gate.open(2);
    let mut flow = gateway.client().chat_flow(chat::stream_request_with_usage("m")).await;
    assert_eq!(flow.event().await.bytes, events[0]);
    assert_eq!(flow.event().await.bytes, events[1]);
    let mut delays = Vec::new();
    for event in &events[2..] {
        let released = Instant::now();
        gate.open(1);
        let arrived = flow.event().await;
        assert_eq!(arrived.bytes, *event);
        delays.push(arrived.at - released);
    }
    assert!(flow.next().await.is_none());
    figure("P5", format!("each event at the client after the upstream wrote it: {}", times(&mut delays)));
    let longest = delays[delays.len() - 1];
    assert!(longest < promised(Duration::from_millis(50)), "{delays:?}");
}

#[tokio::test]
async fn an_incomplete_event_is_forwarded_at_once() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let gate = Gate::new();
    let (first, second) = (chat::content("first"), chat::content("second"));
    let (head, tail) = second.split_at(40);
    let answer = Answer::stream().chunk(&first).chunk(head).wait(&gate).chunk(tail);
    upstream.always(answer.chunk(chat::finish()).chunk(chat::done()).end());
    let mut raw = crate::support::raw::Raw::open(gateway.address()).await;
    let request = crate::support::raw::post(
        crate::support::gateway::ADMIN_KEY,
        "",
        &chat::stream_request_with_usage("m"),
    );
    raw.send(request).await;
    raw.read_until(std::str::from_utf8(head).unwrap()).await;
    gate.open(1);
    raw.read_until("[DONE]").await;
}

#[tokio::test]
async fn a_large_event_arrives_unchanged() {
    let (gateway, upstream) = gateway_with_upstream().await;
    let large = chat::content(&"0123456789abcdef".repeat(512 << 10));
    let events = [chat::role(), large, chat::finish(), chat::done()];
    upstream.always(Answer::events(&events));
    assert_eq!(gateway.client().chat(chat::stream_request_with_usage("m")).await.body, events.concat());
}

#[tokio::test]
async fn stream_headers_forbid_buffering_and_transformation() {
    let (gateway, upstream) = gateway_with_upstream().await;
    upstream.always(Answer::events(&chat::events(&["a"])));
    let answer = gateway.client().with("accept-encoding", "gzip, br").chat(chat::stream_request("m")).await;
    for (name, value) in [
        ("content-type", Some("text/event-stream; charset=utf-8")),
        ("cache-control", Some("no-cache, no-transform")),
        ("x-accel-buffering", Some("no")),
        ("content-encoding", None),
        ("content-length", None),
        ("x-llmgw-provider", Some("up")),
        ("x-llmgw-model", Some("m")),
        ("x-llmgw-attempts", Some("1")),
    ] {
        assert_eq!(answer.header(name), value, "{name}");
    }
    let encoding = upstream.request(0).await.header("accept-encoding").map(str::to_owned);
    assert!(
        encoding.is_none_or(|encoding| encoding == "identity"),
        "no compression is asked of the upstream"
    );
}

#[tokio::test]
async fn a_missing_end_marker_is_not_added() {
    let (gateway, upstream) = gateway_with_upstream().await;
    let events = [chat::role(), chat::content("a"), chat::finish()];
    upstream.always(Answer::events(&events));
    let answer = gateway.client().chat(chat::stream_request("m")).await;
    assert_eq!(String::from_utf8_lossy(&answer.body), String::from_utf8_lossy(&events.concat()));
    assert_eq!(gateway.records(1).await[0]["outcome"], "completed", "a finished choice is a whole answer");
}

/// Returns what a client receives of a stream that fails after its first content.
async fn broken_stream(answer: Answer, yaml_members: &str) -> (String, Gateway, Upstream) {
    let upstream = Upstream::start().await;
    let spare = Upstream::start().await;
    spare.always(Answer::completion("never asked"));
    upstream.always(answer);
    let yaml = Yaml::new()
        .provider_with("first", upstream.base_url(), yaml_members)
        .provider("second", spare.base_url())
        .endpoint("line", &[("first", "m"), ("second", "m")])
        .policies("retry_max_attempts: 3\nretry_initial_backoff_seconds: 0.01");
    let gateway = Gateway::start(&yaml).await;
    let mut raw = crate::support::raw::Raw::open(gateway.address()).await;
    let request =
        crate::support::raw::post(crate::support::gateway::ADMIN_KEY, "", &chat::stream_request("line"));
    raw.send(request).await;
    let reply = raw.reply().await;
    assert!(reply.closed, "the connection is ended");
    assert_eq!(reply.status, 200);
    assert_eq!(upstream.requests().len(), 1, "no retry after output");
    assert_eq!(spare.requests().len(), 0, "no failover after output");
    assert_eq!(gateway.records(1).await.len(), 1);
    (reply.text, gateway, upstream)
}

/// Returns the data of the last event of a chunked reply.
fn last_event(text: &str) -> serde_json::Value {
    let data = text.rsplit("data: ").next().unwrap().lines().next().unwrap();
    serde_json::from_str(data).unwrap_or_else(|fault| panic!("{fault} in {data:?}"))
}

#[tokio::test]
async fn a_cut_after_content_ends_with_an_error_event() {
    for ending in [Answer::close, Answer::reset, Answer::end] {
        let answer = ending(Answer::stream().chunk(chat::role()).chunk(chat::content("some")));
        let (text, gateway, _upstream) = broken_stream(answer, "").await;
        assert!(text.contains("some"), "what had come is passed on: {text}");
        assert!(!text.contains("[DONE]"), "{text}");
        let error = &last_event(&text)["error"];
        assert_eq!(error["code"], "upstream_stream_broken", "{text}");
        let record = &gateway.records(1).await[0];
        assert_eq!((&record["outcome"], &record["message"]), (&"cut".into(), &error["message"]));
    }
}

#[tokio::test]
async fn an_error_event_after_content_ends_the_stream() {
    let error = chat::event(&chat::error("the model fell over", "overloaded"));
    let answer = Answer::stream().chunk(chat::role()).chunk(chat::content("some")).chunk(error).hang();
    let (text, gateway, upstream) = broken_stream(answer, "").await;
    assert!(!text.contains("[DONE]"), "{text}");
    assert_eq!(last_event(&text)["error"]["message"], "the model fell over", "{text}");
    assert_eq!(gateway.records(1).await[0]["message"], "the model fell over");
    upstream.closed(0).await;
}

#[tokio::test]
async fn a_stream_that_falls_silent_ends_with_an_error_event() {
    let answer = Answer::stream().chunk(chat::role()).chunk(chat::content("some")).hang();
    let (text, _gateway, upstream) = broken_stream(answer, "stream_idle_timeout: 0.3").await;
    assert!(!text.contains("[DONE]"), "{text}");
    assert!(last_event(&text)["error"]["code"].is_string(), "{text}");
    upstream.closed(0).await;
}

#[tokio::test]
async fn comments_keep_a_silent_stream_alive() {
    let upstream = Upstream::start().await;
    let gateway =
        Gateway::start(&Yaml::new().provider_with("up", upstream.base_url(), "stream_idle_timeout: 1")).await;
    let gate = Gate::new();
    let comment = Bytes::from_static(b": waiting\n\n");
    let mut answer = Answer::stream().chunk(chat::content("a"));
    for _ in 0..6 {
        answer = answer.wait(&gate).chunk(&comment);
    }
    upstream.always(answer.chunk(chat::finish()).chunk(chat::done()).end());
    let mut flow = gateway.client().chat_flow(chat::stream_request("m")).await;
    flow.event().await;
    // The timeout applies to the silence between bytes, so six pauses of 0.3 s pass under a limit of 1 s.
    let mut pauses = tokio::time::interval(Duration::from_millis(300));
    for _ in 0..6 {
        pauses.tick().await;
        gate.open(1);
        assert_eq!(flow.event().await.bytes, comment);
    }
    let (rest, whole) = flow.rest().await;
    assert!(whole);
    assert_eq!(rest.last().unwrap().bytes, chat::done());
}

#[tokio::test]
async fn a_whole_answer_to_a_stream_request_becomes_a_stream() {
    let (gateway, upstream) = gateway_with_upstream().await;
    upstream.always(Answer::completion("all at once"));
    let answer = gateway.client().chat(chat::stream_request("m")).await;
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(text.contains("all at once"), "{text}");
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    for data in text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")) {
        if data != "[DONE]" {
            let chunk: serde_json::Value = serde_json::from_str(data).unwrap();
            assert_eq!(chunk["object"], "chat.completion.chunk", "{chunk}");
        }
    }
}

#[tokio::test]
async fn a_whole_answer_arrives_unchanged() {
    let (gateway, upstream) = gateway_with_upstream().await;
    let body =
        "{ \"id\" : \"c\",\n  \"choices\": [ {} ], \"x\": 1.0e3, \"usage\": {\"prompt_tokens\": 3} }  ";
    upstream.always(Answer::json(200, body));
    assert_eq!(gateway.client().chat(chat::request("m")).await.body, body);
}

#[tokio::test]
async fn only_the_model_of_a_request_is_changed() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), "models: [real-model]");
    let gateway = Gateway::start(&yaml.endpoint("nick", &[("up", "real-model")])).await;
    for (index, body) in [
        r#"{"model":"nick","messages":[{"role":"user","content":"model: \"nick\""}]}"#,
        "{\n  \"messages\" : [ {\"role\":\"user\",\"content\":\"\\u00e9\\ud83d\\ude00\"} ],\t\"model\"\n:  \"nick\" , \"x\":1.50E+2}",
        r#"{"nested":{"model":"nick"},"model":"nick","messages":[],"seed":12345678901234567890}"#,
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(gateway.client().chat(body).await.status, 200, "{body}");
        let sent = upstream.request(index).await.body;
        let at = body.rfind("\"nick\"").filter(|_| index != 0).unwrap_or(9);
        let expected = format!("{}\"real-model\"{}", &body[..at], &body[at + 6..]);
        assert_eq!(String::from_utf8_lossy(&sent), expected);
    }
}
