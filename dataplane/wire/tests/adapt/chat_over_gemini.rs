//! Chat clients over Gemini targets: observed behaviour of Gemini, and whole conversations in both directions.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use shared::operation::Dialect;
use shared::usage::TokenCounts;
use wire::adapt::{Answers, Asking, BadAnswer, Traits, find};
use wire::stream::StreamState;

use crate::chat_choices::{Read, read, read_whole};
use crate::known_rules::known;
use crate::pair::{cuttings, fixture, fixture_json};

fn prepare(request: &Value) -> (Value, Box<dyn Answers>) {
    let body = request.to_string();
    let target = known("gemini-2.5-flash");
    let asking = Asking {
        body: body.as_bytes(),
        target: &target,
        selector: "fast",
        seed: "T",
        now_s: 1,
        input_tokens: 0,
    };
    let prepared = (find(Dialect::Chat, Dialect::Gemini).unwrap().prepare)(&asking).unwrap();
    (serde_json::from_slice(&prepared.body).unwrap(), prepared.answers)
}

fn answers() -> Box<dyn Answers> {
    prepare(&json!({"model": "fast", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "x"}]}))
    .1
}

fn relay(pieces: &[&[u8]]) -> (Vec<u8>, StreamState) {
    let (mut stream, mut out) = (answers().stream(vec!["canary-secret".to_owned()]), Vec::new());
    for piece in pieces {
        stream.push(Bytes::copy_from_slice(piece), &mut out);
    }
    stream.end(&mut out);
    (out.concat(), stream.state().clone())
}

fn events(events: &[Value]) -> Vec<u8> {
    events.iter().map(|event| format!("data: {event}\r\n\r\n")).collect::<String>().into_bytes()
}

fn text(text: &str) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}]})
}

fn finish(reason: &str) -> Value {
    json!({"candidates": [{"finishReason": reason, "index": 0}]})
}

#[test]
fn the_recorded_response_and_stream_have_the_same_meaning() {
    let whole = answers().whole(&fixture("gemini/response.json")).unwrap();
    let usage = TokenCounts {
        input: 20,
        cache_read: 100,
        cache_write: 0,
        output: 18,
        reasoning: 12,
        ..TokenCounts::ZERO
    };
    assert_eq!(whole.usage, Some(usage));
    let (out, state) = relay(&[&fixture("gemini/stream.sse")]);
    assert_eq!(state.usage, Some(usage));
    let (streamed, whole) = (read(&out), read_whole(&whole.body));
    assert_eq!(streamed.choices[0].content, whole[0].content);
    assert_eq!(streamed.choices[0].reasoning, whole[0].reasoning);
    assert_eq!(streamed.choices[0].finish_reason, whole[0].finish_reason);
    assert_eq!(streamed.choices[0].ids, ["call_T_0", "call_T_1"]);
    assert!(streamed.done && state.done && state.finished && state.content);
}

#[test]
fn a_blocked_prompt_finishes_with_content_filter() {
    let body = fixture("gemini/response_blocked.json");
    let whole = answers().whole(&body).unwrap();
    let want = Read { finish_reason: Some("content_filter".to_owned()), ..Read::default() };
    assert_eq!(read_whole(&whole.body), std::slice::from_ref(&want));
    let event = fixture_json("gemini/response_blocked.json");
    let (out, state) = relay(&[&events(&[event])]);
    assert_eq!(read(&out).choices, [want]);
    assert!(!state.content && state.done);
    assert_eq!(state.usage.map(|usage| usage.input), Some(8));
}

#[test]
fn an_error_event_ends_the_stream_and_is_redacted() {
    let error =
        json!({"error": {"code": 503, "message": "overloaded: canary-secret", "status": "UNAVAILABLE"}});
    for event in [error.clone(), json!([error])] {
        let (out, state) = relay(&[&events(&[text("a"), event, text("b")])]);
        let read = read(&out);
        assert_eq!(read.choices[0].content, "a");
        let error = read.error.unwrap();
        assert_eq!(error["type"], "UNAVAILABLE");
        assert!(!error["message"].as_str().unwrap().contains("canary-secret"));
        assert!(!read.done && state.content && !state.done);
        assert_eq!(state.error.unwrap().status, Some(503));
    }
    let (_, state) = relay(&[&events(&[fixture_json("gemini/error.json")])]);
    assert!(!state.content);
    assert_eq!(state.error.unwrap().status, Some(429));
}

#[test]
fn an_error_body_with_status_200_is_an_error() {
    let BadAnswer::Error(error) = answers().whole(&fixture("gemini/error.json")).unwrap_err() else {
        panic!("it is one")
    };
    assert_eq!((error.status, error.message.as_str()), (Some(429), "Resource has been exhausted"));
    for body in ["", "[]", "{}", "<html>", r#"{"candidates":"x"}"#] {
        assert!(matches!(answers().whole(body.as_bytes()), Err(BadAnswer::Invalid(_))), "{body}");
    }
}

#[test]
fn a_repeated_finish_reason_ends_the_response_once() {
    let mut candidate = text("a");
    candidate["candidates"][0]["finishReason"] = json!("STOP");
    let (out, state) = relay(&[&events(&[candidate.clone(), candidate])]);
    let read = read(&out);
    assert_eq!((read.choices[0].content.as_str(), read.done), ("aa", true));
    assert!(state.done);
}

#[test]
fn gemini_finish_reasons_become_chat_finish_reasons() {
    let rows = [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("LANGUAGE", "content_filter"),
        ("IMAGE_SAFETY", "content_filter"),
        ("MODEL_ARMOR", "content_filter"),
        ("OTHER", "stop"),
        ("A_NEW_ONE", "stop"),
    ];
    for (theirs, ours) in rows {
        let (out, _) = relay(&[&events(&[text("a"), finish(theirs)])]);
        assert_eq!(read(&out).choices[0].finish_reason.as_deref(), Some(ours), "{theirs}");
        let mut whole = text("a");
        whole["candidates"][0]["finishReason"] = json!(theirs);
        let whole = answers().whole(whole.to_string().as_bytes()).unwrap();
        assert_eq!(read_whole(&whole.body)[0].finish_reason.as_deref(), Some(ours), "{theirs}");
    }
}

#[test]
fn a_gemini_stream_that_breaks_off_stays_open() {
    for input in [events(&[text("a")]), b"data: {\"candid".to_vec(), Vec::new()] {
        let (out, state) = relay(&[&input]);
        assert!(!state.done && !state.finished && state.error.is_none());
        assert!(!read(&out).done);
    }
}

#[test]
fn an_unterminated_last_event_counts_if_it_is_complete() {
    let input = [events(&[text("a")]), format!("data: {}", finish("STOP")).into_bytes()].concat();
    let (out, state) = relay(&[&input]);
    assert!(read(&out).done && state.done);
    let (_, state) = relay(&[&input[..input.len() - 1]]);
    assert!(!state.done && state.error.is_none());
}

#[test]
fn a_malformed_gemini_event_ends_the_stream_with_502() {
    let (out, state) = relay(&[b"data: {\"candidates\": 5}\n\n"]);
    assert_eq!(read(&out).error.unwrap()["code"], "upstream_invalid_response");
    assert_eq!(state.error.unwrap().status, Some(502));
    let (_, state) = relay(&[b": comment\n\nevent: x\n\ndata:\n\ndata: {}\n\ndata: [DONE]\n\n"]);
    assert_eq!(state, StreamState::default(), "but this is nothing at all");
}

#[test]
fn a_response_with_invalid_usage_is_accepted_without_usage() {
    let mut chunk = text("x");
    chunk["usageMetadata"] = json!({"promptTokenCount": -1});
    let whole = answers().whole(chunk.to_string().as_bytes()).unwrap();
    assert_eq!((whole.usage, whole.output_bytes), (None, 1));
    let (_, state) = relay(&[&events(&[chunk, finish("STOP")])]);
    assert!(state.done && state.error.is_none() && state.usage.is_none());
}

#[test]
fn each_candidate_becomes_a_choice() {
    let candidate = |index: u64, text: &str| {
        json!({"candidates": [{"index": index, "content": {"parts": [{"text": text},
            {"functionCall": {"name": text, "args": {}}}]}, "finishReason": "STOP"}]})
    };
    let (out, _) = relay(&[&events(&[candidate(0, "a"), candidate(1, "b")])]);
    let read = read(&out);
    assert_eq!(read.choices.len(), 2);
    assert_eq!(read.choices[1].calls, [("b".to_owned(), "{}".to_owned(), None)]);
    assert_ne!(read.choices[0].ids, read.choices[1].ids);
    let many: Vec<Value> = (0..129).map(|index| candidate(index, "x")).collect();
    assert!(relay(&[&events(&many)]).1.error.is_some(), "more choices than a client can ask for");
}

#[test]
fn the_usage_chunk_is_sent_only_if_the_client_requested_it() {
    let request = json!({"model": "fast", "stream": true, "messages": [{"role": "user", "content": "x"}]});
    let (mut stream, mut out) = (prepare(&request).1.stream(Vec::new()), Vec::new());
    stream.push(fixture("gemini/stream.sse").into(), &mut out);
    stream.end(&mut out);
    let out = out.concat();
    assert_eq!(read(&out).usage, None);
    assert!(!String::from_utf8_lossy(&out).contains("usage"));
    assert!(stream.state().usage.is_some(), "the gateway knows it all the same");
}

#[test]
fn thought_signatures_round_trip_through_the_client() {
    let response = json!({"candidates": [{"index": 0, "finishReason": "STOP", "content": {"parts": [
        {"text": "Hm.", "thoughtSignature": "dGV4dA=="},
        {"functionCall": {"id": "fc1", "name": "f", "args": {"a": 1}}, "thoughtSignature": "c2ln"}]}}]});
    let whole = answers().whole(response.to_string().as_bytes()).unwrap();
    let whole: Value = serde_json::from_slice(&whole.body).unwrap();
    let request = json!({"model": "fast", "messages": [{"role": "user", "content": "x"},
        whole["choices"][0]["message"], {"role": "tool", "tool_call_id": "fc1", "content": "ok"}]});
    let (sent, _) = prepare(&request);
    assert_eq!(sent["contents"][1]["parts"], response["candidates"][0]["content"]["parts"]);
    let (out, _) = relay(&[&events(&[response])]);
    assert!(String::from_utf8_lossy(&out).contains("dGV4dA=="), "in a stream too");
    assert_eq!(read(&out).choices[0].calls[0].2.as_deref(), Some("c2ln"));
}

#[test]
fn numbers_and_order_of_arguments_are_kept() {
    let arguments = r#"{"z":12345678901234567890123,"a":1e3,"m":1.10,"s":"A b"}"#;
    let request = json!({"model": "fast", "messages": [{"role": "user", "content": "x"}, {"role": "assistant",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}]}]});
    let target = Traits::of("m");
    let body = request.to_string();
    let asking = Asking {
        body: body.as_bytes(),
        target: &target,
        selector: "fast",
        seed: "T",
        now_s: 1,
        input_tokens: 0,
    };
    let sent = (find(Dialect::Chat, Dialect::Gemini).unwrap().prepare)(&asking).unwrap().body;
    assert!(String::from_utf8_lossy(&sent).contains(arguments));
    let pretty = arguments.replace(',', ",\n ").replace(':', " : ");
    let response = format!(
        r#"{{"candidates":[{{"content":{{"parts":[{{"functionCall":{{"name":"f","args": {pretty} }}}}]}}}}]}}"#
    );
    let whole = answers().whole(response.as_bytes()).unwrap();
    assert_eq!(read_whole(&whole.body)[0].calls[0].1, arguments);
}

/// Generates a part of an answer.
fn part() -> impl Strategy<Value = Value> {
    let word = ".{0,12}";
    prop_oneof![
        word.prop_map(|text| json!({"text": text})),
        word.prop_map(|text| json!({"text": text, "thought": true})),
        ("[a-z_]{1,8}", word, any::<i32>(), proptest::option::of("[A-Za-z0-9+/]{4}")).prop_map(
            |(name, text, number, signature)| {
                let mut part = json!({"functionCall": {"name": name, "args": {"t": text, "n": [number]}}});
                if let Some(signature) = signature {
                    part["thoughtSignature"] = json!(signature);
                }
                part
            }
        ),
    ]
}

fn expected(parts: &[Value]) -> Read {
    let mut read = Read::default();
    for part in parts {
        if let Some(call) = part.get("functionCall") {
            let signature = part["thoughtSignature"].as_str().map(str::to_owned);
            read.calls.push((call["name"].as_str().unwrap().to_owned(), call["args"].to_string(), signature));
            read.ids.push(format!("call_T_{}", read.ids.len()));
        } else if part["thought"] == true {
            read.reasoning.push_str(part["text"].as_str().unwrap());
        } else {
            read.content.push_str(part["text"].as_str().unwrap());
        }
    }
    read.finish_reason = Some(if read.calls.is_empty() { "stop" } else { "tool_calls" }.to_owned());
    read
}

proptest! {
    #[test]
    fn whole_responses_and_streams_have_the_same_meaning_at_any_split(
        parts in proptest::collection::vec(part(), 0..8),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        crlf in any::<bool>(),
    ) {
        let want = expected(&parts);
        let chunk = |parts: &[Value]| json!({"candidates": [{"index": 0, "content": {"parts": parts}}]});
        let mut whole = chunk(&parts);
        whole["candidates"][0]["finishReason"] = json!("STOP");
        let body = answers().whole(whole.to_string().as_bytes()).unwrap().body;
        prop_assert_eq!(&read_whole(&body), std::slice::from_ref(&want));
        let mut stream: Vec<Value> = parts.chunks(2).map(chunk).collect();
        stream.push(finish("STOP"));
        let mut input = String::from_utf8(events(&stream)).unwrap();
        if !crlf {
            input = input.replace("\r\n", "\n");
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.sort_unstable();
        let (mut pieces, mut from) = (Vec::new(), 0);
        for cut in cuts.into_iter().chain([input.len()]) {
            pieces.push(&input.as_bytes()[from..cut]);
            from = cut;
        }
        let (out, state) = relay(&pieces);
        prop_assert_eq!(state.content, !(want.content.is_empty() && want.reasoning.is_empty() && want.calls.is_empty()));
        prop_assert_eq!(&read(&out).choices, std::slice::from_ref(&want));
    }

    #[test]
    fn conversations_keep_their_meaning(turns in proptest::collection::vec(turn(), 1..6)) {
        let first = (vec![json!({"role": "user", "content": "Hi"})], vec![json!(["user", {"text": "Hi"}])]);
        let turns = || std::iter::once(&first).chain(&turns);
        let messages: Vec<Value> = turns().flat_map(|turn| turn.0.clone()).collect();
        let want: Vec<Value> = turns().flat_map(|turn| turn.1.clone()).collect();
        let (sent, _) = prepare(&json!({"model": "fast", "messages": messages}));
        let got: Vec<Value> = sent["contents"].as_array().unwrap().iter().flat_map(|content| {
            let role = content["role"].clone();
            content["parts"].as_array().unwrap().iter().map(move |part| json!([role, part])).collect::<Vec<_>>()
        }).collect();
        prop_assert_eq!(got, want);
        let roles: Vec<_> =
            sent["contents"].as_array().unwrap().iter().map(|content| content["role"].clone()).collect();
        prop_assert!(roles.windows(2).all(|pair| pair[0] != pair[1]), "neighbours of one role are one");
    }
}

/// Messages of a chat request, and the parts that they must become.
type Turn = (Vec<Value>, Vec<Value>);

fn turn() -> impl Strategy<Value = Turn> {
    let word = ".{1,12}";
    prop_oneof![
        word.prop_map(|text| {
            (vec![json!({"role": "user", "content": text})], vec![json!(["user", {"text": text}])])
        }),
        (word, "[A-Za-z0-9+/]{4}").prop_map(|(text, bytes)| {
            let url = format!("data:image/png;base64,{bytes}");
            let image = json!({"type": "image_url", "image_url": {"url": url}});
            let content = json!([image, {"type": "text", "text": text}]);
            let parts = vec![
                json!(["user", {"inlineData": {"mimeType": "image/png", "data": bytes}}]),
                json!(["user", {"text": text}]),
            ];
            (vec![json!({"role": "user", "content": content})], parts)
        }),
        (word, "[a-z]{1,6}", "[a-z_]{1,8}", word, word).prop_map(|(text, id, name, key, result)| {
            let arguments = json!({key: [null, {"x": text}]});
            let call = json!({"id": id, "type": "function",
                "function": {"name": name, "arguments": arguments.to_string()}});
            let messages = vec![
                json!({"role": "assistant", "content": text, "tool_calls": [call]}),
                json!({"role": "tool", "tool_call_id": id, "content": format!("<{result}")}),
            ];
            let response = json!({"result": format!("<{result}")});
            let parts = vec![
                json!(["model", {"text": text}]),
                json!(["model", {"functionCall": {"id": id, "name": name, "args": arguments}}]),
                json!(["user", {"functionResponse": {"id": id, "name": name, "response": response}}]),
            ];
            (messages, parts)
        }),
    ]
}

#[test]
fn a_recorded_stream_gives_the_same_bytes_at_any_split() {
    let input = fixture("gemini/stream.sse");
    let whole = relay(&[&input]);
    for pieces in cuttings(&input) {
        assert_eq!(relay(&pieces), whole, "cut at {}", pieces[0].len());
    }
}

#[test]
fn a_recorded_stream_gives_the_same_result_at_any_split() {
    let input = fixture("gemini/stream.sse");
    let whole = relay(&[&input]);
    for pieces in cuttings(&input) {
        assert!(relay(&pieces) == whole, "cut at {}", pieces[0].len());
    }
}
