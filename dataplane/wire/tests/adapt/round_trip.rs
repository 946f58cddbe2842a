//! Property tests: chat over Responses and Responses over chat are inverse. Conversations and answers keep their meaning
//! in a round trip.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::adapt::{Answers, Asking, Prepared, Traits, find};

use crate::{chat_client, responses_reader};

fn prepare(client: Dialect, target: Dialect, body: &[u8]) -> Prepared {
    let traits = Traits { files: true, custom_tools: true, ..Traits::of("m") };
    let asking = Asking { body, target: &traits, selector: "m", seed: "T", now_s: 1, input_tokens: 0 };
    (find(client, target).unwrap().prepare)(&asking).unwrap()
}

fn relay(answers: &dyn Answers, pieces: &[&[u8]]) -> Vec<u8> {
    let (mut stream, mut out) = (answers.stream(Vec::new()), Vec::new());
    for piece in pieces {
        stream.push(Bytes::copy_from_slice(piece), &mut out);
    }
    stream.end(&mut out);
    assert!(stream.state().done && stream.state().error.is_none(), "{:?}", stream.state());
    out.concat()
}

/// Generates text with difficult characters: quotes, controls, all sorts of line ends, UTF-8 of up to four bytes.
fn text() -> impl Strategy<Value = String> {
    "[ -~\\n\\r\\t\u{0}\u{7f}\u{85}\u{2028}éß\u{1f680}\u{10ffff}]{1,12}"
}

fn name() -> impl Strategy<Value = String> {
    "[a-z_]{1,8}"
}

fn call() -> impl Strategy<Value = Value> {
    (any::<bool>(), name(), text()).prop_map(|(custom, name, text)| {
        if custom {
            return json!({"type": "custom", "custom": {"name": name, "input": text}});
        }
        let arguments = json!({"q": text}).to_string();
        json!({"type": "function", "function": {"name": name, "arguments": arguments}})
    })
}

/// Generates a user message: text, or parts of which the last is an image.
fn user() -> impl Strategy<Value = Value> {
    let part = prop_oneof![
        text().prop_map(|text| json!({"type": "text", "text": text})),
        Just(
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ==", "detail": "low"}})
        ),
        text().prop_map(|name| json!({"type": "file", "file": {"filename": name, "file_data": "data:x"}})),
    ];
    let image = json!({"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "auto"}});
    let parts = proptest::collection::vec(part, 0..4).prop_map(move |mut parts| {
        parts.push(image.clone());
        Value::from(parts)
    });
    prop_oneof![text().prop_map(Value::from), parts]
        .prop_map(|content| json!({"role": "user", "content": content}))
}

/// Generates an assistant message and the results of its calls.
fn turn() -> impl Strategy<Value = Vec<Value>> {
    let content = proptest::option::of(text());
    let calls = proptest::collection::vec((call(), text()), 0..4);
    (content, proptest::option::of(text()), calls).prop_map(|(content, refusal, calls)| {
        let mut messages = vec![json!({"role": "assistant", "content": content})];
        if let Some(refusal) = refusal {
            messages[0]["refusal"] = json!(refusal);
        }
        for (position, (mut call, result)) in calls.into_iter().enumerate() {
            let id = format!("call_{position}");
            call["id"] = json!(id);
            match messages[0].get_mut("tool_calls") {
                Some(calls) => calls.as_array_mut().unwrap().push(call),
                None => messages[0]["tool_calls"] = json!([call]),
            }
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
        }
        if messages[0].as_object().unwrap().len() == 2 && messages[0]["content"].is_null() {
            messages.clear();
        }
        messages
    })
}

fn request() -> impl Strategy<Value = Value> {
    let turns = proptest::collection::vec((user(), turn()), 1..4);
    let tools = proptest::collection::vec((name(), text()), 0..3);
    (text(), turns, tools, any::<bool>()).prop_map(|(system, turns, tools, strict)| {
        let mut messages = vec![json!({"role": "system", "content": system})];
        for (user, turn) in turns {
            messages.push(user);
            messages.extend(turn);
        }
        let mut request = json!({"model": "m", "messages": messages, "temperature": 0.5, "max_tokens": 100});
        let tools = tools.into_iter().map(|(name, text)| {
            let parameters = json!({"type": "object", "properties": {"z": {"const": text}, "a": {}}});
            let mut function = json!({"name": name, "description": text, "parameters": parameters});
            if strict {
                function["strict"] = json!(true);
            }
            json!({"type": "function", "function": function})
        });
        let tools: Vec<Value> = tools.collect();
        if !tools.is_empty() {
            request["tools"] = tools.into();
            request["tool_choice"] = json!("auto");
            request["parallel_tool_calls"] = json!(false);
        }
        let schema = json!({"name": "o", "schema": {"type": "object"}, "strict": strict});
        request["response_format"] = json!({"type": "json_schema", "json_schema": schema});
        request
    })
}

/// Generates the deltas of an answer, one for each chunk.
fn deltas() -> impl Strategy<Value = Vec<Value>> {
    let delta = prop_oneof![
        text().prop_map(|text| json!({"content": text})),
        text().prop_map(|text| json!({"reasoning_content": text})),
        text().prop_map(|text| json!({"refusal": text})),
        (0_u64..3, text()).prop_map(|(index, text)| {
            json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
        }),
        Just(json!({"content": ""})),
        Just(json!({})),
    ];
    proptest::collection::vec(delta, 0..14).prop_map(|mut deltas| {
        let mut begun = [false; 3];
        for delta in &mut deltas {
            let Some(call) = delta.pointer_mut("/tool_calls/0") else { continue };
            let index = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
            if !std::mem::replace(&mut begun[index], true) {
                call["id"] = json!(format!("call_{index}"));
                call["type"] = json!("function");
                call["function"]["name"] = json!(format!("f{index}"));
            }
        }
        deltas
    })
}

/// Returns the content of the deltas as a chat client accumulates it.
fn read_deltas(deltas: &[Value]) -> chat_client::Read {
    let mut read = chat_client::Read::default();
    for delta in deltas {
        read.content.push_str(delta["content"].as_str().unwrap_or_default());
        read.reasoning.push_str(delta["reasoning_content"].as_str().unwrap_or_default());
        read.refusal.push_str(delta["refusal"].as_str().unwrap_or_default());
        if let Some(call) = delta.pointer("/tool_calls/0") {
            let arguments = call["function"]["arguments"].as_str().unwrap();
            let name = format!("f{}", call["index"]);
            match read.calls.iter_mut().find(|known| known[2] == name) {
                Some(known) => known[3].push_str(arguments),
                None => {
                    let id = format!("call_{}", call["index"]);
                    read.calls.push([id, "function".to_owned(), name, arguments.to_owned()]);
                }
            }
        }
    }
    read
}

/// Returns a stream of the deltas. The bits of `framing` select among the framings that servers use.
fn framed(deltas: &[Value], finish: &str, framing: u8) -> Vec<u8> {
    let (line, space) = ([("\n", " "), ("\r\n", ""), ("\r", " ")])[usize::from(framing % 3)];
    let mut out = if framing & 4 == 0 { String::new() } else { "\u{feff}: hello\n\n".to_owned() };
    let mut event = |chunk: &Value| {
        out.push_str(&format!("data:{space}{chunk}{line}{line}"));
        if framing & 8 != 0 {
            out.push_str(&format!(": ping{line}{line}id: 7{line}retry: 5{line}{line}"));
        }
    };
    for (position, delta) in deltas.iter().enumerate() {
        // Chunks that differ only in their text can take a faster path; different marks exclude that path.
        let mark = if framing & 16 == 0 { 0 } else { position };
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": null}]);
        event(&json!({"choices": choices, "usage": null, "mark": mark}));
    }
    let usage =
        json!({"prompt_tokens": 12, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 3}});
    event(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}));
    event(&json!({"choices": [], "usage": usage}));
    out.push_str(&format!("data: [DONE]{line}{line}"));
    out.into_bytes()
}

fn cut(bytes: &[u8], cuts: &[prop::sample::Index]) -> Vec<Vec<u8>> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.sort_unstable();
    let mut from = 0;
    cuts.push(bytes.len());
    cuts.into_iter().map(|to| bytes[std::mem::replace(&mut from, to)..to].to_vec()).collect()
}

proptest! {
    #[test]
    fn requests_round_trip_between_chat_and_responses(request in request()) {
        let there = prepare(Dialect::Chat, Dialect::Responses, request.to_string().as_bytes());
        let mut there: Value = serde_json::from_slice(&there.body).unwrap();
        there["include"] = json!([]);
        let back = prepare(Dialect::Responses, Dialect::Chat, there.to_string().as_bytes());
        let back: Value = serde_json::from_slice(&back.body).unwrap();
        prop_assert_eq!(back, request);
    }

    #[test]
    fn streams_round_trip_between_chat_and_responses(
        deltas in deltas(),
        finish in prop_oneof![Just("stop"), Just("length"), Just("content_filter")],
        framing in 0_u8..32,
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let input = framed(&deltas, finish, framing);
        let pieces = cut(&input, &cuts);
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let there = prepare(Dialect::Responses, Dialect::Chat, br#"{"input":"x","stream":true}"#).answers;
        let events = relay(&*there, &pieces);
        let plain = framed(&deltas, finish, 0);
        prop_assert_eq!(&events, &relay(&*there, &[&plain]), "framing changes nothing");
        responses_reader::read(&events);

        let request = br#"{"messages":[],"stream":true,"stream_options":{"include_usage":true}}"#;
        let back = prepare(Dialect::Chat, Dialect::Responses, request).answers;
        let pieces = cut(&events, &cuts);
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let mut got = chat_client::read(&relay(&*back, &pieces));
        let usage = got.usage.take().unwrap();
        prop_assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(12), &json!(5)));
        prop_assert_eq!(&usage["prompt_tokens_details"]["cached_tokens"], 3);

        let mut want = read_deltas(&deltas);
        let calls = !want.calls.is_empty();
        want.finish = Some(if calls && finish == "stop" { "tool_calls" } else { finish }.to_owned());
        want.done = true;
        // Reasoning that is interrupted by other output comes back as separate paragraphs.
        got.reasoning = got.reasoning.replace("\n\n", "");
        want.reasoning = want.reasoning.replace("\n\n", "");
        prop_assert_eq!(got, want);
    }

    #[test]
    fn whole_responses_round_trip_between_chat_and_responses(deltas in deltas()) {
        let read = read_deltas(&deltas);
        let text = |text: &String| if text.is_empty() { Value::Null } else { json!(text) };
        let calls: Vec<Value> = read.calls.iter().map(|[id, kind, name, arguments]| {
            json!({"id": id, "type": kind, "function": {"name": name, "arguments": arguments}})
        }).collect();
        let message = json!({"role": "assistant", "content": text(&read.content), "refusal": text(&read.refusal),
            "reasoning": text(&read.reasoning), "tool_calls": calls});
        let body = json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).to_string();
        let there = prepare(Dialect::Responses, Dialect::Chat, br#"{"input":"x"}"#).answers;
        let there = there.whole(body.as_bytes()).unwrap();
        let back = prepare(Dialect::Chat, Dialect::Responses, br#"{"messages":[]}"#).answers;
        let back = back.whole(&there.body).unwrap();
        let mut got = chat_client::Read::of_whole(&serde_json::from_slice(&back.body).unwrap());
        got.usage = None;
        let finish = if read.calls.is_empty() { "stop" } else { "tool_calls" };
        let want = chat_client::Read { finish: Some(finish.to_owned()), done: true, ..read };
        prop_assert_eq!(got, want);
        prop_assert_eq!(there.output_bytes, back.output_bytes);
    }
}
