//! Anthropic Messages over targets that support only chat (MSG-1, MSG-2, MSG-4, M-138, M-175): the same failover,
//! hold-back, cancellation and accounting as for other operations.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Answer, Gate, Gateway, Upstream, Yaml, chat};

fn ask(stream: bool) -> String {
    json!({
        "model": "line", "max_tokens": 100, "stream": stream,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Say hello."}]}],
        "metadata": {"user_id": "user_1"},
    })
    .to_string()
}

async fn line(count: usize) -> (Gateway, Vec<Upstream>) {
    let mut upstreams = Vec::new();
    for _ in 0..count {
        upstreams.push(Upstream::start().await);
    }
    let urls: Vec<String> = upstreams.iter().map(Upstream::base_url).collect();
    (Gateway::start(&Yaml::line(&urls)).await, upstreams)
}

/// Returns the events of a stream as pairs of name and JSON data.
fn events(body: &[u8]) -> Vec<(String, Value)> {
    let text = std::str::from_utf8(body).unwrap();
    text.split_terminator("\n\n")
        .map(|event| {
            let (name, data) = event.split_once('\n').unwrap();
            let name = name.strip_prefix("event: ").unwrap().to_owned();
            (name, serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap())
        })
        .collect()
}

#[tokio::test]
async fn a_whole_response_is_a_message() {
    let (gateway, upstreams) = line(1).await;
    upstreams[0].always(Answer::completion("hello"));
    for path in ["/v1/messages", "/messages"] {
        let answer = gateway.client().with("anthropic-version", "2023-06-01").post(path, ask(false)).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        let message = answer.json();
        assert_eq!(
            (&message["type"], &message["model"]),
            (&json!("message"), &json!("m")),
            "whichever the target uses"
        );
        assert_eq!(message["content"], json!([{"type": "text", "text": "hello"}]));
        assert_eq!(message["stop_reason"], "end_turn");
        assert_eq!(
            (&message["usage"]["input_tokens"], &message["usage"]["output_tokens"]),
            (&json!(11), &json!(7))
        );
        assert_eq!(answer.header("x-llmgw-adapted"), Some("chat"));
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        assert_eq!((&record["operation"], &record["tokens"]["output"]), (&json!("messages"), &json!(7)));
    }
    let request = upstreams[0].request(0).await;
    assert!(request.head.starts_with("POST /v1/chat/completions "), "{}", request.head);
    assert_eq!(request.header("anthropic-version"), None);
    assert_eq!(
        request.json()["messages"],
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}])
    );
    assert_eq!((&request.json()["model"], &request.json()["max_tokens"]), (&json!("m"), &json!(100)));
}

#[tokio::test]
async fn a_messages_stream_fails_over_before_its_first_content() {
    let (gateway, upstreams) = line(2).await;
    upstreams[0].always(Answer::events(&[chat::role(), chat::event(&chat::error("busy", "overloaded"))]));
    upstreams[1].always(Answer::events(&chat::events(&["hel", "lo"])));
    let answer = gateway.client().post("/v1/messages", ask(true)).await;
    assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("p1")));
    let events = events(&answer.body);
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names[0], names[names.len() - 1]), ("message_start", "message_stop"));
    let text: String = events.iter().filter_map(|(_, data)| data["delta"]["text"].as_str()).collect();
    assert_eq!(text, "hello");
    assert_eq!(names.iter().filter(|name| **name == "message_start").count(), 1);
    assert!(upstreams[1].request(0).await.json()["stream_options"]["include_usage"].as_bool().unwrap());
}

#[tokio::test]
async fn an_adapted_stream_starts_with_known_or_estimated_input_tokens() {
    let (gateway, upstreams) = line(1).await;
    let mut early: Value = serde_json::from_slice(&chat::content("x")[6..]).unwrap();
    early["usage"] = json!({"prompt_tokens": 40, "completion_tokens": 1, "total_tokens": 41});
    // 40 bytes of text, including names of types and roles, are estimated as 10 tokens.
    for (first, tokens) in [(chat::role(), 10), (chat::event(&early.to_string()), 40)] {
        upstreams[0].then(Answer::events(&[first, chat::content("y"), chat::event("[DONE]")]));
        let answer = gateway.client().post("/v1/messages", ask(true)).await;
        let (name, start) = &events(&answer.body)[0];
        assert_eq!(
            (name.as_str(), &start["message"]["usage"]["input_tokens"]),
            ("message_start", &json!(tokens))
        );
        assert_eq!(start["message"]["usage"]["output_tokens"], 0);
    }
}

#[tokio::test]
async fn the_first_content_is_sent_before_the_second_arrives() {
    let (gateway, upstreams) = line(1).await;
    let gate = Gate::new();
    let pieces = chat::events(&["one", "two"]);
    let answer = Answer::stream().chunk(chat::role()).chunk(pieces[1].clone()).wait(&gate);
    upstreams[0].always(answer);
    let flow = gateway.client().with("content-type", "application/json");
    let mut flow = flow.open("POST", "/v1/messages", ask(true).into()).await.unwrap();
    let mut seen = String::new();
    while !seen.contains("one") {
        seen.push_str(std::str::from_utf8(&flow.event().await.bytes).unwrap());
    }
    assert!(seen.starts_with("event: message_start"), "{seen}");
    drop(flow);
    upstreams[0].closed(0).await;
    let record = &gateway.records(1).await[0];
    assert_eq!((&record["outcome"], &record["provenance"]), (&json!("cancelled"), &json!("estimated")));
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error_event_and_no_message_stop() {
    let (gateway, upstreams) = line(2).await;
    upstreams[0].always(Answer::stream().chunk(chat::role()).chunk(chat::content("half")).close());
    let answer = gateway.client().with("content-type", "application/json");
    let mut flow = answer.open("POST", "/v1/messages", ask(true).into()).await.unwrap();
    let (events, clean) = flow.rest().await;
    let all: Vec<u8> = events.iter().flat_map(|event| event.bytes.to_vec()).collect();
    let text = String::from_utf8(all).unwrap();
    assert!(
        text.contains("half") && text.contains("event: error") && !text.contains("message_stop"),
        "{text}"
    );
    assert!(clean, "the body ends as the vendor's does");
    assert!(upstreams[1].requests().is_empty());
}

#[tokio::test]
async fn members_a_chat_target_cannot_take_are_rejected_before_a_call() {
    let (gateway, upstreams) = line(2).await;
    let body = json!({
        "model": "line", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
    });
    let answer = gateway.client().post("/v1/messages", body.to_string()).await;
    assert_eq!(answer.status, 400);
    let error = answer.json();
    assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!("invalid_request_error")));
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("tools.0.type"), "{message}");
    assert!(upstreams.iter().all(|upstream| upstream.requests().is_empty()));
}

#[tokio::test]
async fn errors_have_the_envelope_of_the_dialect() {
    let (gateway, upstreams) = line(1).await;
    upstreams[0].always(Answer::json(529, chat::error("overloaded", "overloaded")));
    let answer = gateway.client().post("/v1/messages", ask(false)).await;
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (529, &json!("overloaded_error")));
    let answer = gateway.client().post("/v1/messages", r#"{"model":"line"}"#).await;
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (400, &json!("invalid_request_error")));
    let answer = gateway.client().post("/v1/messages", ask(false).replace("line", "nobody")).await;
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (404, &json!("not_found_error")));
}

#[tokio::test]
async fn an_unknown_member_is_dropped_and_named_in_a_header() {
    let (gateway, upstreams) = line(1).await;
    upstreams[0].always(Answer::completion("hello"));
    for stream in [false, true] {
        let mut body: Value = serde_json::from_str(&ask(false)).unwrap();
        let answer = gateway.client().post("/v1/messages", body.to_string()).await;
        assert_eq!((answer.status, answer.header("x-llmgw-dropped")), (200, None));
        (body["min_p"], body["new_one"], body["stream"]) = (json!(0.1), json!({}), json!(stream));
        let answer = gateway.client().post("/v1/messages", body.to_string()).await;
        assert_eq!((answer.status, answer.header("x-llmgw-dropped")), (200, Some("min_p, new_one")));
    }
    assert!(upstreams[0].request(1).await.json().get("min_p").is_none());
}

#[tokio::test]
async fn a_silent_stream_is_kept_alive_by_pings() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.always(Answer::new().wait(&gate));
    let setup = crate::support::gateway::Setup::new(&Yaml::one(upstream.base_url()));
    let gateway = setup.env("LLMGW_STREAM_KEEPALIVE_SECONDS", "1").start().await;
    let client = gateway.client().with("content-type", "application/json");
    let body = ask(true).replace("line", "up/m");
    let first = async { client.open("POST", "/v1/messages", body.into()).await.unwrap().event().await };
    let event = tokio::time::timeout(Duration::from_secs(10), first).await.unwrap();
    assert_eq!(&event.bytes[..], b"event: ping\ndata: {\"type\": \"ping\"}\n\n");
}

#[tokio::test]
async fn token_counts_of_other_targets_are_estimated_and_not_recorded() {
    let (gateway, upstreams) = line(1).await;
    let body = ask(false);
    let mut counts = Vec::new();
    for path in ["/v1/messages/count_tokens", "/messages/count_tokens", "/v1/messages/count_tokens"] {
        let answer = gateway.client().post(path, body.clone()).await;
        assert_eq!((answer.status, answer.header("x-llmgw-token-count")), (200, Some("estimate")));
        counts.push(answer.json()["input_tokens"].as_u64().unwrap());
    }
    assert!(counts[0] > 3 && counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    let longer = body.replace("Say hello.", &"Say hello. ".repeat(100_000));
    let answer = gateway.client().post("/v1/messages/count_tokens", longer).await;
    assert!(answer.json()["input_tokens"].as_u64().unwrap() > 200_000, "{:?}", answer.body);
    assert!(upstreams[0].requests().is_empty());
    upstreams[0].always(Answer::completion("hello"));
    gateway.client().post("/v1/messages", ask(false)).await;
    assert_eq!(gateway.records(1).await[0]["operation"], "messages");
}

#[tokio::test]
async fn a_messages_target_counts_its_own_tokens() {
    let upstream = Upstream::start().await;
    let base = upstream.base_url();
    let yaml = format!(
        "providers:\n  claude:\n    type: anthropic\n    base_url: {}\n    api_key: upstream-secret\n    models: [m]\n",
        base.trim_end_matches("/v1")
    );
    let gateway = crate::support::gateway::Setup::new(&Yaml::new()).yaml(yaml).start().await;
    upstream.then(Answer::json(200, r#"{"input_tokens":42}"#));
    let body = ask(false).replace("line", "claude/m");
    let client = gateway.client().with("anthropic-beta", "one");
    let answer = client.post("/v1/messages/count_tokens", body.clone()).await;
    assert_eq!(
        (&answer.body[..], answer.header("x-llmgw-token-count")),
        (&br#"{"input_tokens":42}"#[..], None)
    );
    let request = upstream.request(0).await;
    assert!(request.head.starts_with("POST /v1/messages/count_tokens "), "{}", request.head);
    assert_eq!(request.header("anthropic-beta"), Some("one"));
    assert_eq!(request.json()["model"], "m");

    upstream.then(Answer::json(
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"bad"}}"#,
    ));
    let answer = client.post("/v1/messages/count_tokens", body.clone()).await;
    assert_eq!((answer.status, &answer.json()["error"]["message"]), (400, &json!("bad")));
    for useless in
        [Answer::json(404, "{}"), Answer::json(500, "{}"), Answer::json(200, "{}"), Answer::new().close()]
    {
        upstream.then(useless);
        let answer = client.post("/v1/messages/count_tokens", body.clone()).await;
        assert_eq!((answer.status, answer.header("x-llmgw-token-count")), (200, Some("estimate")));
    }
}
