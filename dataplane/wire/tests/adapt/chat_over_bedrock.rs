//! Chat clients over Bedrock targets: recorded frames, observed behaviour of Converse, and whole conversations in both
//! directions.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use shared::operation::Dialect;
use shared::usage::TokenCounts;
use wire::adapt::{Answers, Asking, BadAnswer, find};
use wire::stream::StreamState;

use crate::chat_choices::{Read, read, read_whole};
use crate::known_rules::known;
use crate::pair::{cuttings, fixture};

const CLAUDE: &str = "anthropic.claude-sonnet-4-5";

fn prepare(model: &str, request: &Value) -> (Value, Box<dyn Answers>) {
    let body = request.to_string();
    let target = known(model);
    let asking = Asking {
        body: body.as_bytes(),
        target: &target,
        selector: "fast",
        seed: "T",
        now_s: 1,
        input_tokens: 0,
    };
    let prepared = (find(Dialect::Chat, Dialect::Bedrock).unwrap().prepare)(&asking).unwrap();
    (serde_json::from_slice(&prepared.body).unwrap(), prepared.answers)
}

fn question(thinking: bool) -> Value {
    let mut request = json!({"model": "fast", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "x"}]});
    if thinking {
        request["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
    }
    request
}

fn answers() -> Box<dyn Answers> {
    prepare(CLAUDE, &question(false)).1
}

fn relay_to(answers: &dyn Answers, pieces: &[&[u8]]) -> (Vec<u8>, StreamState) {
    let (mut stream, mut out) = (answers.stream(vec!["canary-secret".to_owned()]), Vec::new());
    for piece in pieces {
        stream.push(Bytes::copy_from_slice(piece), &mut out);
    }
    stream.end(&mut out);
    (out.concat(), stream.state().clone())
}

fn relay(pieces: &[&[u8]]) -> (Vec<u8>, StreamState) {
    relay_to(&*answers(), pieces)
}

/// Returns a frame with these headers, all of type string.
pub(crate) fn frame(headers: &[(&str, &str)], payload: &str) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in headers {
        head.push(u8::try_from(name.len()).unwrap());
        head.extend(name.as_bytes());
        head.push(7);
        head.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        head.extend(value.as_bytes());
    }
    let total = u32::try_from(16 + head.len() + payload.len()).unwrap();
    let mut bytes = [total.to_be_bytes(), u32::try_from(head.len()).unwrap().to_be_bytes()].concat();
    bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
    bytes.extend(head);
    bytes.extend(payload.as_bytes());
    bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
    bytes
}

fn event(kind: &str, payload: &Value) -> Vec<u8> {
    let headers = [(":event-type", kind), (":content-type", "application/json"), (":message-type", "event")];
    frame(&headers, &payload.to_string())
}

pub(crate) fn delta(block: u64, delta: &Value) -> Vec<u8> {
    event("contentBlockDelta", &json!({"contentBlockIndex": block, "delta": delta, "p": "abcdefgh"}))
}

pub(crate) fn stop(reason: &str) -> Vec<u8> {
    event("messageStop", &json!({"stopReason": reason}))
}

fn usage() -> Value {
    json!({"inputTokens": 20, "outputTokens": 30, "totalTokens": 60, "cacheReadInputTokens": 7,
        "cacheWriteInputTokens": 3})
}

#[test]
fn max_tokens_is_accepted_in_any_number_notation() {
    for bound in ["100", "1e2", "100.0"] {
        let mut request = question(false);
        request["max_tokens"] = serde_json::from_str(bound).unwrap();
        let (sent, _) = prepare(CLAUDE, &request);
        assert_eq!(sent["inferenceConfig"]["maxTokens"], 100, "{bound}");
    }
}

#[test]
fn recorded_frames_become_chunks_at_any_split() {
    let input = fixture("bedrock/converse_stream.bin");
    let (out, state) = relay(&[&input]);
    let answer = read(&out);
    let want = Read {
        content: "Héllo".to_owned(),
        calls: vec![("get_weather".to_owned(), r#"{"city":"Oslo"}"#.to_owned(), None)],
        ids: vec!["tooluse_1".to_owned()],
        finish_reason: Some("tool_calls".to_owned()),
        ..Read::default()
    };
    assert_eq!(answer.choices, [want]);
    assert!(answer.done && state.done && state.finished && state.content);
    let counted = TokenCounts {
        input: 20,
        cache_read: 100,
        cache_write: 0,
        output: 30,
        reasoning: 0,
        ..TokenCounts::ZERO
    };
    assert_eq!(state.usage, Some(counted), "usage comes after the stop, and its input is without the cache");
    let usage = answer.usage.unwrap();
    assert_eq!((&usage["prompt_tokens"], &usage["total_tokens"]), (&json!(120), &json!(150)));
    for pieces in cuttings(&input) {
        assert_eq!(relay(&pieces), (out.clone(), state.clone()), "cut at {}", pieces[0].len());
    }
}

#[test]
fn a_recorded_exception_is_an_error_before_content() {
    let (out, state) = relay(&[&fixture("bedrock/converse_exception.bin")]);
    let error = state.error.unwrap();
    assert_eq!((error.status, error.message.as_str()), (Some(429), "Too many requests"));
    assert!(!state.content && !state.done);
    let error = read(&out).error.unwrap();
    assert_eq!((&error["type"], &error["code"]), (&json!("rate_limit_error"), &json!("throttlingException")));
}

#[test]
fn a_wrong_checksum_ends_the_stream_with_502() {
    let (out, state) = relay(&[&fixture("bedrock/converse_bad_crc.bin")]);
    assert_eq!(state.error.unwrap().status, Some(502));
    assert_eq!(read(&out).error.unwrap()["code"], "upstream_invalid_response");
}

#[test]
fn exceptions_have_the_status_of_their_kind_and_are_cleaned() {
    let rows = [
        ("throttlingException", 429),
        ("serviceQuotaExceededException", 429),
        ("modelNotReadyException", 429),
        ("validationException", 400),
        ("accessDeniedException", 403),
        ("resourceNotFoundException", 404),
        ("modelTimeoutException", 408),
        ("serviceUnavailableException", 503),
        ("modelStreamErrorException", 502),
        ("internalServerException", 500),
        ("aNewException", 500),
    ];
    for (kind, status) in rows {
        let headers = [(":message-type", "exception"), (":exception-type", kind)];
        let input = [
            delta(0, &json!({"text": "a"})),
            frame(&headers, r#"{"message":"no: canary-secret"}"#),
            delta(0, &json!({"text": "b"})),
        ]
        .concat();
        let (out, state) = relay(&[&input]);
        let (answer, error) = (read(&out), state.error.unwrap());
        assert_eq!(error.status, Some(status), "{kind}");
        assert_eq!(answer.choices[0].content, "a");
        assert!(!error.message.contains("canary") && !String::from_utf8_lossy(&out).contains("canary"));
    }
    let headers = [(":message-type", "error"), (":error-code", "InternalError"), (":error-message", "broke")];
    let (_, state) = relay(&[&frame(&headers, "")]);
    assert_eq!(state.error.map(|error| error.message).as_deref(), Some("broke"));
}

#[test]
fn bedrock_stop_reasons_become_chat_finish_reasons() {
    let rows = [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("guardrail_intervened", "content_filter"),
        ("content_filtered", "content_filter"),
    ];
    for (theirs, ours) in rows {
        let (out, _) = relay(&[&[delta(0, &json!({"text": "a"})), stop(theirs)].concat()]);
        let answer = read(&out);
        assert_eq!((answer.choices[0].finish_reason.as_deref(), answer.done), (Some(ours), true), "{theirs}");
        let body = json!({"output": {"message": {"role": "assistant", "content": [{"text": "a"}]}},
            "stopReason": theirs, "usage": usage()});
        let whole = answers().whole(body.to_string().as_bytes()).unwrap();
        assert_eq!(read_whole(&whole.body)[0].finish_reason.as_deref(), Some(ours), "{theirs}");
    }
}

#[test]
fn a_bedrock_stream_without_metadata_is_complete_after_its_stop() {
    let (out, state) = relay(&[&stop("end_turn")]);
    assert!(read(&out).done && state.done && state.usage.is_none());
    let (out, state) = relay(&[&delta(0, &json!({"text": "a"}))]);
    assert!(!read(&out).done && !state.done && state.content, "and has broken off before");
    let whole = [delta(0, &json!({"text": "a"})), stop("end_turn")].concat();
    let (_, state) = relay(&[&whole[..whole.len() - 1]]);
    assert!(!state.finished && state.error.is_none(), "half a frame is nothing");
}

#[test]
fn tool_calls_are_numbered_without_other_blocks() {
    let start = |block: u64, id: &str| {
        event(
            "contentBlockStart",
            &json!({"contentBlockIndex": block,
            "start": {"toolUse": {"toolUseId": id, "name": "f"}}}),
        )
    };
    let arguments = |block: u64, text: &str| delta(block, &json!({"toolUse": {"input": text}}));
    let ends = |block: u64| event("contentBlockStop", &json!({"contentBlockIndex": block}));
    let input = [
        delta(0, &json!({"text": "Hm."})),
        ends(0),
        start(1, "a"),
        start(2, "b"),
        arguments(2, "{\"n\":"),
        arguments(1, "{}"),
        arguments(2, "2}"),
        ends(1),
        ends(2),
        start(3, "c"),
        arguments(3, ""),
        ends(3),
        stop("tool_use"),
        event("metadata", &json!({"usage": usage(), "metrics": {"latencyMs": 3}})),
    ]
    .concat();
    let answer = read(&relay(&[&input]).0);
    let call = |arguments: &str| ("f".to_owned(), arguments.to_owned(), None);
    assert_eq!(answer.choices[0].calls, [call("{}"), call("{\"n\":2}"), call("{}")]);
    assert_eq!(answer.choices[0].ids, ["a", "b", "c"]);
}

#[test]
fn open_tool_calls_are_bounded() {
    let start = |block: u64| {
        event(
            "contentBlockStart",
            &json!({"contentBlockIndex": block,
            "start": {"toolUse": {"toolUseId": "a", "name": "f"}}}),
        )
    };
    let most: Vec<u8> = (0..128).flat_map(start).collect();
    assert_eq!(relay(&[&most]).1.error, None);
    assert!(relay(&[&most, &start(128)]).1.error.is_some());
}

#[test]
fn server_tools_and_unknown_events_are_skipped() {
    let input = [
        event("messageStart", &json!({"role": "assistant"})),
        event("aNewEvent", &json!([1])),
        event(
            "contentBlockStart",
            &json!({"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "s",
            "name": "nova_grounding", "type": "server_tool_use"}}}),
        ),
        delta(0, &json!({"toolUse": {"input": "{}"}})),
        delta(1, &json!({"citation": {"title": "x"}})),
        delta(2, &json!({"text": "a"})),
        stop("end_turn"),
    ]
    .concat();
    let answer = read(&relay(&[&input]).0);
    let want = Read { content: "a".to_owned(), finish_reason: Some("stop".to_owned()), ..Read::default() };
    assert_eq!(answer.choices, [want]);
}

#[test]
fn a_malformed_bedrock_event_ends_the_stream_with_502() {
    let (_, state) = relay(&[&event("contentBlockDelta", &json!({"delta": 5}))]);
    assert_eq!(state.error.unwrap().status, Some(502));
}

#[test]
fn clients_that_use_thinking_get_signed_thinking_blocks() {
    let input = [
        delta(0, &json!({"reasoningContent": {"text": "h"}})),
        delta(0, &json!({"reasoningContent": {"text": "m"}})),
        delta(0, &json!({"reasoningContent": {"signature": "c2ln"}})),
        event("contentBlockStop", &json!({"contentBlockIndex": 0})),
        delta(1, &json!({"reasoningContent": {"redactedContent": "cmVk"}})),
        event("contentBlockStop", &json!({"contentBlockIndex": 1})),
        delta(2, &json!({"text": "a"})),
        stop("end_turn"),
    ]
    .concat();
    let thinker = prepare(CLAUDE, &question(true)).1;
    let answer = read(&relay_to(&*thinker, &[&input]).0);
    assert_eq!(answer.choices[0].reasoning, "hm");
    let want = json!([
        {"index": 0, "type": "thinking", "thinking": "h"},
        {"index": 0, "type": "thinking", "thinking": "m"},
        {"index": 0, "type": "thinking", "signature": "c2ln"},
        {"index": 1, "type": "redacted_thinking", "data": "cmVk"},
    ]);
    assert_eq!(json!(answer.thinking), want);
    let plain = read(&relay(&[&input]).0);
    assert_eq!((plain.choices[0].reasoning.as_str(), plain.thinking.len()), ("hm", 0));
    // The pieces, sent back as they were received, become the original blocks.
    let history = json!({"role": "assistant", "content": "a", "thinking_blocks": answer.thinking});
    let (sent, _) = prepare(
        CLAUDE,
        &json!({"model": "fast",
        "messages": [{"role": "user", "content": "x"}, history]}),
    );
    let blocks = json!([
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": "cmVk"}},
        {"text": "a"},
    ]);
    assert_eq!(sent["messages"][1]["content"], blocks);
    let body =
        json!({"output": {"message": {"role": "assistant", "content": blocks}}, "stopReason": "end_turn"});
    let whole = thinker.whole(body.to_string().as_bytes()).unwrap();
    let whole: Value = serde_json::from_slice(&whole.body).unwrap();
    let want = json!([{"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "cmVk"}]);
    assert_eq!(whole["choices"][0]["message"]["thinking_blocks"], want);
}

#[test]
fn bodies_that_are_no_bedrock_response_are_rejected() {
    for body in ["", "[]", "{}", "<html>", r#"{"output":{}}"#] {
        assert!(matches!(answers().whole(body.as_bytes()), Err(BadAnswer::Invalid(_))), "{body}");
    }
    let error = answers().whole(br#"{"message":"The model is busy."}"#).unwrap_err();
    assert!(matches!(error, BadAnswer::Error(error) if error.message == "The model is busy."));
}

#[test]
fn cited_text_becomes_content_and_usage_has_disjoint_classes() {
    let body = json!({"output": {"message": {"role": "assistant", "content": [
        {"citationsContent": {"content": [{"text": "a"}, {"text": "b"}], "citations": [{"title": "x"}]}}]}},
        "stopReason": "end_turn", "usage": usage()});
    let whole = answers().whole(body.to_string().as_bytes()).unwrap();
    assert_eq!(read_whole(&whole.body)[0].content, "ab");
    let want = TokenCounts {
        input: 20,
        cache_read: 7,
        cache_write: 3,
        output: 30,
        reasoning: 0,
        ..TokenCounts::ZERO
    };
    assert_eq!(whole.usage, Some(want));
    let whole: Value = serde_json::from_slice(&whole.body).unwrap();
    let want = json!({"prompt_tokens": 30, "completion_tokens": 30, "total_tokens": 60,
        "prompt_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 0}});
    assert_eq!(whole["usage"], want);
}

#[test]
fn members_with_default_and_unknown_values_change_nothing() {
    let mut request = question(false);
    request["n"] = json!(1);
    request["modalities"] = json!(["text"]);
    request["store"] = json!(false);
    request["logit_bias"] = json!({});
    request["presence_penalty"] = json!(0);
    request["unheard_of"] = json!(true);
    assert_eq!(prepare(CLAUDE, &request).0, prepare(CLAUDE, &question(false)).0);
}

/// Generates a block of an answer.
fn block() -> impl Strategy<Value = Value> {
    let word = ".{1,12}";
    prop_oneof![
        word.prop_map(|text| json!({"text": text})),
        word.prop_map(
            |text| json!({"reasoningContent": {"reasoningText": {"text": text, "signature": "c2ln"}}})
        ),
        ("[a-zA-Z0-9_-]{1,12}", "[a-z_]{1,8}", word, any::<i32>()).prop_map(|(id, name, text, number)| {
            json!({"toolUse": {"toolUseId": id, "name": name, "input": {"t": text, "n": [number]}}})
        }),
    ]
}

fn expected(blocks: &[Value]) -> Read {
    let mut read = Read::default();
    for block in blocks {
        read.content.push_str(block["text"].as_str().unwrap_or(""));
        let thought = block.pointer("/reasoningContent/reasoningText/text").and_then(Value::as_str);
        read.reasoning.push_str(thought.unwrap_or(""));
        if let Some(call) = block.get("toolUse") {
            read.calls.push((call["name"].as_str().unwrap().to_owned(), call["input"].to_string(), None));
            read.ids.push(call["toolUseId"].as_str().unwrap().to_owned());
        }
    }
    read.finish_reason = Some(if read.calls.is_empty() { "stop" } else { "tool_calls" }.to_owned());
    read
}

/// Returns the frames of a block, with text and arguments split into two pieces.
fn frames(block: u64, whole: &Value) -> Vec<u8> {
    let halves = |text: &str| -> [String; 2] {
        let at = text.floor_char_boundary(text.len() / 2);
        [text[..at].to_owned(), text[at..].to_owned()]
    };
    let mut bytes = Vec::new();
    if let Some(text) = whole["text"].as_str() {
        bytes.extend(halves(text).iter().flat_map(|half| delta(block, &json!({"text": half}))));
    } else if let Some(call) = whole.get("toolUse") {
        let start = json!({"toolUse": {"toolUseId": call["toolUseId"], "name": call["name"]}});
        bytes.extend(event("contentBlockStart", &json!({"contentBlockIndex": block, "start": start})));
        let arguments = call["input"].to_string();
        bytes.extend(
            halves(&arguments).iter().flat_map(|half| delta(block, &json!({"toolUse": {"input": half}}))),
        );
    } else {
        let text = whole.pointer("/reasoningContent/reasoningText/text").unwrap();
        bytes.extend(delta(block, &json!({"reasoningContent": {"text": text}})));
    }
    bytes.extend(event("contentBlockStop", &json!({"contentBlockIndex": block})));
    bytes
}

proptest! {
    #[test]
    fn whole_responses_and_streams_have_the_same_meaning_at_any_split(
        blocks in proptest::collection::vec(block(), 0..6),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let want = expected(&blocks);
        let reason = if want.calls.is_empty() { "end_turn" } else { "tool_use" };
        let body = json!({"output": {"message": {"role": "assistant", "content": blocks}}, "stopReason": reason,
            "usage": usage()});
        let whole = answers().whole(body.to_string().as_bytes()).unwrap();
        prop_assert_eq!(&read_whole(&whole.body), std::slice::from_ref(&want));
        let mut input = event("messageStart", &json!({"role": "assistant"}));
        for (position, block) in blocks.iter().enumerate() {
            input.extend(frames(position.try_into().unwrap(), block));
        }
        input.extend(stop(reason));
        input.extend(event("metadata", &json!({"usage": usage(), "metrics": {"latencyMs": 3}})));
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.sort_unstable();
        let (mut pieces, mut from) = (Vec::new(), 0);
        for cut in cuts.into_iter().chain([input.len()]) {
            pieces.push(&input[from..cut]);
            from = cut;
        }
        let (out, state) = relay(&pieces);
        prop_assert_eq!(state.usage, whole.usage);
        prop_assert_eq!(&read(&out).choices, std::slice::from_ref(&want));
    }

    #[test]
    fn conversations_keep_their_meaning(turns in proptest::collection::vec(turn(), 1..6)) {
        let first = (vec![json!({"role": "user", "content": "Hi"})], vec![json!(["user", {"text": "Hi"}])]);
        let turns = || std::iter::once(&first).chain(&turns);
        let messages: Vec<Value> = turns().flat_map(|turn| turn.0.clone()).collect();
        let want: Vec<Value> = turns().flat_map(|turn| turn.1.clone()).collect();
        let tools = json!([{"type": "function", "function": {"name": "f"}}]);
        let (sent, _) = prepare(CLAUDE, &json!({"model": "fast", "messages": messages, "tools": tools}));
        let messages = sent["messages"].as_array().unwrap();
        let got: Vec<Value> = messages.iter().flat_map(|message| {
            let role = message["role"].clone();
            message["content"].as_array().unwrap().iter().map(move |block| json!([role, block])).collect::<Vec<_>>()
        }).collect();
        prop_assert_eq!(got, want);
        prop_assert!(messages.windows(2).all(|pair| pair[0]["role"] != pair[1]["role"]));
    }
}

/// Messages of a chat request, and the blocks that they must become.
type Turn = (Vec<Value>, Vec<Value>);

fn turn() -> impl Strategy<Value = Turn> {
    let word = "[^\\s\\pC].{0,12}";
    prop_oneof![
        word.prop_map(|text| {
            (vec![json!({"role": "user", "content": text})], vec![json!(["user", {"text": text}])])
        }),
        (word, "[A-Za-z0-9+/]{4}").prop_map(|(text, bytes)| {
            let url = format!("data:image/webp;base64,{bytes}");
            let image = json!({"type": "image_url", "image_url": {"url": url}});
            let content = json!([image, {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]);
            let blocks = vec![
                json!(["user", {"image": {"format": "webp", "source": {"bytes": bytes}}}]),
                json!(["user", {"text": text}]),
                json!(["user", {"cachePoint": {"type": "default"}}]),
            ];
            (vec![json!({"role": "user", "content": content})], blocks)
        }),
        (word, "[a-z]{1,6}", "[a-z_]{1,8}", word, word).prop_map(|(text, id, name, key, result)| {
            let arguments = json!({key: [null, {"x": text}]});
            let call = json!({"id": id, "type": "function",
                "function": {"name": name, "arguments": arguments.to_string()}});
            let thinking = json!([{"type": "thinking", "thinking": text, "signature": "c2ln"}]);
            let messages = vec![
                json!({"role": "assistant", "content": text, "tool_calls": [call], "thinking_blocks": thinking}),
                json!({"role": "tool", "tool_call_id": id, "content": result}),
            ];
            let blocks = vec![
                json!(["assistant", {"reasoningContent":
                    {"reasoningText": {"text": text, "signature": "c2ln"}}}]),
                json!(["assistant", {"text": text}]),
                json!(["assistant", {"toolUse": {"toolUseId": id, "name": name, "input": arguments}}]),
                json!(["user", {"toolResult": {"toolUseId": id, "content": [{"text": result}]}}]),
            ];
            (messages, blocks)
        }),
    ]
}
