//! Checks that random conversations keep their meaning when translated for a Messages target, and random answers when
//! translated back, whole or in a stream of any framing.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::adapt::{Answers, Asking, Traits, find};

use crate::chat_reader::{plain, read_stream};

/// An item of a conversation, independent of any protocol.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    System(String),
    User(String),
    Image(String),
    Assistant(String),
    Thought(String, String),
    Call(String, String, Value),
    Result(String, String),
}

pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z ]{1,12}",
        r#"[ -~\u{e9}\u{1f680}\u{2028}\n"\\]{1,12}"#,
        any::<String>().prop_filter("no text", |text| !text.is_empty()),
    ]
    .prop_map(|text| if text.trim().is_empty() { "x".to_owned() } else { text })
}

pub(crate) fn input() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|number| json!(number)),
        text().prop_map(|text| json!(text)),
        Just(json!(null)),
        Just(json!(0.25)),
    ];
    vec((text(), leaf), 0..4).prop_map(|members| {
        members
            .into_iter()
            .map(|(name, value)| (name, json!([value, {"x": value}])))
            .collect::<serde_json::Map<_, _>>()
            .into()
    })
}

/// Generates an assistant turn with tool calls, followed by the results of all of them.
fn items() -> impl Strategy<Value = Vec<Item>> {
    let call = ("[a-zA-Z0-9:._é -]{1,80}", "[a-z_]{1,8}", input(), text());
    (proptest::option::of((text(), text())), proptest::option::of(text()), vec(call, 1..4)).prop_map(
        |(thought, words, calls)| {
            let mut items: Vec<Item> =
                thought.map(|(text, signature)| Item::Thought(text, signature)).into_iter().collect();
            items.extend(words.map(Item::Assistant));
            let id = |position: usize, id: &str| format!("{position}{id}");
            items.extend(
                calls
                    .iter()
                    .enumerate()
                    .map(|(n, call)| Item::Call(id(n, &call.0), call.1.clone(), call.2.clone())),
            );
            items.extend(
                calls.iter().enumerate().map(|(n, call)| Item::Result(id(n, &call.0), call.3.clone())),
            );
            items
        },
    )
}

fn conversation() -> impl Strategy<Value = Vec<Item>> {
    let turn = prop_oneof![
        2 => text().prop_map(|text| vec![Item::User(text)]),
        1 => (text(), "[a-z]{1,9}").prop_map(|(text, name)| {
            vec![Item::User(text), Item::Image(format!("https://example.com/{name}.png"))]
        }),
        1 => vec("[A-Za-z0-9+/]{4}", 1..4).prop_map(|data| vec![Item::Image(format!("data:image/png;base64,{}", data.concat()))]),
        1 => text().prop_map(|text| vec![Item::System(text)]),
        2 => text().prop_map(|text| vec![Item::Assistant(text)]),
        2 => items(),
    ];
    (vec(turn, 0..8), text()).prop_map(|(turns, last)| {
        let mut conversation = turns.concat();
        conversation.push(Item::User(last));
        conversation
    })
}

/// Translates a conversation into a chat request. With `split`, each user text is a message; otherwise adjacent user
/// items share one.
fn in_chat(conversation: &[Item], split: bool) -> Value {
    let mut messages: Vec<Value> = Vec::new();
    for item in conversation {
        match item {
            Item::System(text) => messages.push(json!({"role": "developer", "content": text})),
            Item::User(text) if split => messages.push(json!({"role": "user", "content": text})),
            Item::User(text) => part(&mut messages, &json!({"type": "text", "text": text})),
            Item::Image(url) => part(&mut messages, &json!({"type": "image_url", "image_url": {"url": url}})),
            Item::Assistant(text) => match messages.last_mut() {
                Some(last) if last.get("thinking_blocks").is_some() && last["content"].is_null() => {
                    last["content"] = json!(text)
                }
                _ => messages.push(json!({"role": "assistant", "content": text})),
            },
            Item::Thought(text, signature) => messages.push(json!({"role": "assistant", "content": null,
                "thinking_blocks": [{"type": "thinking", "thinking": text, "signature": signature}]})),
            Item::Call(id, name, input) => {
                let call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": input.to_string()}});
                match messages.last_mut() {
                    Some(last) if last["role"] == "assistant" => match last.get_mut("tool_calls") {
                        Some(calls) => calls.as_array_mut().unwrap().push(call),
                        None => last["tool_calls"] = json!([call]),
                    },
                    _ => messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]})),
                }
            }
            Item::Result(id, text) => {
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": text}))
            }
        }
    }
    json!({"model": "fast", "messages": messages})
}

fn part(messages: &mut Vec<Value>, part: &Value) {
    match messages.last_mut() {
        Some(last) if last["role"] == "user" => last["content"].as_array_mut().unwrap().push(part.clone()),
        _ => messages.push(json!({"role": "user", "content": [part]})),
    }
}

/// Reads the conversation of a Messages request. Asserts that roles alternate and that tool results come first in a
/// message.
fn of_messages(body: &Value) -> Vec<Item> {
    let mut understood: Vec<Item> = texts(&body["system"]).into_iter().map(Item::System).collect();
    let mut before = "";
    for message in body["messages"].as_array().unwrap() {
        let role = message["role"].as_str().unwrap();
        assert_ne!(role, before, "turns alternate");
        before = role;
        let Some(blocks) = message["content"].as_array() else {
            understood.push(speech(role, message["content"].as_str().unwrap()));
            continue;
        };
        let results = blocks.iter().take_while(|block| block["type"] == "tool_result").count();
        assert!(blocks[results..].iter().all(|block| block["type"] != "tool_result"), "results come first");
        understood.extend(blocks.iter().map(|block| of_block(role, block)));
    }
    understood
}

fn of_block(role: &str, block: &Value) -> Item {
    let text = |name: &str| block[name].as_str().unwrap().to_owned();
    match block["type"].as_str().unwrap() {
        "text" => speech(role, &text("text")),
        "thinking" => Item::Thought(text("thinking"), text("signature")),
        "tool_use" => Item::Call(text("id"), text("name"), block["input"].clone()),
        "tool_result" => Item::Result(text("tool_use_id"), texts(&block["content"]).concat()),
        "image" => {
            let source = |name: &str| block["source"][name].as_str().unwrap();
            Item::Image(match source("type") {
                "url" => source("url").to_owned(),
                _ => format!("data:{};base64,{}", source("media_type"), source("data")),
            })
        }
        other => panic!("{other}"),
    }
}

fn speech(role: &str, text: &str) -> Item {
    assert!(!text.is_empty());
    if role == "user" { Item::User(text.to_owned()) } else { Item::Assistant(text.to_owned()) }
}

fn texts(content: &Value) -> Vec<String> {
    match content {
        Value::Null => Vec::new(),
        Value::String(text) => vec![text.clone()],
        _ => content
            .as_array()
            .unwrap()
            .iter()
            .map(|block| block["text"].as_str().unwrap().to_owned())
            .collect(),
    }
}

/// Normalizes a conversation: separates the system texts and replaces call ids with numbers in order of appearance.
fn meaning(conversation: Vec<Item>) -> (Vec<Item>, Vec<Item>) {
    let mut ids: Vec<String> = Vec::new();
    let mut number = |id: String| {
        let known = ids.iter().rposition(|known| *known == id);
        let number = known.unwrap_or_else(|| {
            ids.push(id);
            ids.len() - 1
        });
        number.to_string()
    };
    let numbered = conversation.into_iter().map(|item| match item {
        Item::Call(id, name, input) => Item::Call(number(id), name, input),
        Item::Result(id, text) => Item::Result(number(id), text),
        other => other,
    });
    numbered.partition(|item| matches!(item, Item::System(_)))
}

fn answers(seed: &str) -> Box<dyn Answers> {
    let body = json!({"model": "fast", "messages": [{"role": "user", "content": "x"}], "stream": true,
        "stream_options": {"include_usage": true}, "thinking": {"type": "adaptive"}});
    let body = body.to_string();
    let target = Traits::of("claude");
    let asking = Asking {
        body: body.as_bytes(),
        target: &target,
        selector: "fast \"é\"",
        seed,
        now_s: 7,
        input_tokens: 0,
    };
    (find(Dialect::Chat, Dialect::Messages).unwrap().prepare)(&asking).unwrap().answers
}

/// Generates a block of an answer.
fn block() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => text().prop_map(|text| json!({"type": "text", "text": text})),
        1 => (text(), text()).prop_map(|(text, signature)| json!({"type": "thinking", "thinking": text, "signature": signature})),
        1 => text().prop_map(|data| json!({"type": "redacted_thinking", "data": data})),
        3 => ("[a-zA-Z0-9_]{1,20}", "[a-z_]{1,8}", input())
            .prop_map(|(id, name, input)| json!({"type": "tool_use", "id": id, "name": name, "input": input})),
        1 => Just(json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
    ]
}

fn whole_answer() -> impl Strategy<Value = Value> {
    let stop = prop_oneof![
        Just("end_turn"),
        Just("max_tokens"),
        Just("tool_use"),
        Just("refusal"),
        Just("pause_turn")
    ];
    let usage = (0..9_u64, 0..9_u64, 0..9_u64, 0..9_u64, 0..9_u64);
    (vec(block(), 0..6), stop, usage).prop_map(|(content, stop, (input, write, read, output, thinking))| {
        json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": content,
            "stop_reason": stop, "stop_sequence": null, "usage": {"input_tokens": input,
            "cache_creation_input_tokens": write, "cache_read_input_tokens": read, "output_tokens": output + thinking,
            "output_tokens_details": {"thinking_tokens": thinking}}})
    })
}

/// Returns the answer as events, with its texts in pieces of `size` characters.
fn events_of(answer: &Value, size: usize) -> Vec<Value> {
    let mut start = answer.clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    start["usage"] = json!({"input_tokens": 99, "output_tokens": 1});
    let mut events = vec![json!({"type": "message_start", "message": start})];
    for (index, block) in answer["content"].as_array().unwrap().iter().enumerate() {
        let mut begun = block.clone();
        let (member, kind) = match block["type"].as_str().unwrap() {
            "text" => ("text", "text_delta"),
            "thinking" => ("thinking", "thinking_delta"),
            "redacted_thinking" => ("data", ""),
            _ => ("input", "input_json_delta"),
        };
        let text = if member == "input" {
            block["input"].to_string()
        } else {
            block[member].as_str().unwrap().to_owned()
        };
        match member {
            "data" => {}
            "input" => begun["input"] = json!({}),
            _ => begun[member] = json!(""),
        }
        if begun.get("signature").is_some() {
            begun["signature"] = json!("");
        }
        events.push(json!({"type": "content_block_start", "index": index, "content_block": begun}));
        let letters: Vec<char> = text.chars().collect();
        let member = if member == "input" { "partial_json" } else { member };
        for piece in letters.chunks(size).filter(|_| !kind.is_empty() && text != "{}") {
            let piece: String = piece.iter().collect();
            events.push(json!({"type": "content_block_delta", "index": index, "delta": {"type": kind, member: piece}}));
        }
        if let Some(signature) = block.get("signature") {
            let delta = json!({"type": "signature_delta", "signature": signature});
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": answer["stop_reason"]}, "usage": answer["usage"]}));
    events.push(json!({"type": "message_stop"}));
    events
}

/// Writes an event as SSE; the bits of `form` select one of many equivalent forms.
fn framed(event: &Value, form: u8) -> String {
    let end = ["\n", "\r\n", "\r"][usize::from(form % 3)];
    let data = if form & 4 == 0 { event.to_string() } else { escaped(&event.to_string()) };
    let mut lines = Vec::new();
    if form & 8 == 0 {
        lines.push(format!("event: {}", event["type"].as_str().unwrap()));
    }
    if form & 16 != 0 {
        lines.push(": a comment".to_owned());
        lines.push("id: 7".to_owned());
    }
    match data.split_once(",\"delta\"").filter(|_| form & 32 != 0) {
        Some((head, tail)) => lines.extend([format!("data:{head},"), format!("data: \"delta\"{tail}")]),
        None => lines.push(format!("data: {data}  ")),
    }
    let noise = if form & 64 == 0 {
        String::new()
    } else {
        format!("event: ping{end}data: {{\"type\": \"ping\"}}{end}{end}")
    };
    format!("{noise}{}{end}{end}", lines.join(end))
}

/// Returns the same JSON with all characters outside ASCII escaped.
pub(crate) fn escaped(json: &str) -> String {
    let mut out = String::new();
    for letter in json.chars() {
        if letter.is_ascii() {
            out.push(letter);
        } else {
            let mut units = [0; 2];
            letter.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}

proptest! {
    #[test]
    fn conversations_keep_their_meaning(conversation in conversation(), split in any::<bool>()) {
        let has_parts = conversation.iter().any(|item| matches!(item, Item::Image(_)));
        let request = in_chat(&conversation, split && !has_parts).to_string();
        let target = Traits { reasoning: true, ..Traits::of("claude") };
        let asking = Asking { body: request.as_bytes(), target: &target, selector: "fast", seed: "T", now_s: 1, input_tokens: 0 };
        let prepared = (find(Dialect::Chat, Dialect::Messages).unwrap().prepare)(&asking).unwrap();
        let body: Value = serde_json::from_slice(&prepared.body).unwrap();
        prop_assert_eq!(meaning(of_messages(&body)), meaning(conversation));
    }

    #[test]
    fn whole_responses_and_streams_keep_their_meaning_in_any_framing(
        answer in whole_answer(),
        size in 1..5_usize,
        forms in vec(any::<u8>(), 1..6),
        cuts in vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let answers = answers("T");
        let whole = answers.whole(answer.to_string().as_bytes()).unwrap();
        let completion: Value = serde_json::from_slice(&whole.body).unwrap();
        check(&answer, &completion);
        let forms = forms.iter().cycle();
        let stream: String = events_of(&answer, size).iter().zip(forms).map(|(event, form)| framed(event, *form)).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        let (mut reader, mut out, mut from) = (answers.stream(Vec::new()), Vec::new(), 0);
        for cut in cuts.into_iter().chain([stream.len()]) {
            reader.push(Bytes::copy_from_slice(&stream.as_bytes()[from..cut]), &mut out);
            from = cut;
        }
        reader.end(&mut out);
        prop_assert_eq!(plain(read_stream(&out.concat())), plain(with_object(completion)));
        prop_assert_eq!(reader.state().usage, whole.usage);
    }
}

fn with_object(mut completion: Value) -> Value {
    completion["object"] = json!("chat.completion");
    completion
}

/// Asserts that a completion matches the answer from which it was translated.
fn check(answer: &Value, completion: &Value) {
    let blocks = answer["content"].as_array().unwrap();
    let of_kind = |kind: &'static str| blocks.iter().filter(move |block| block["type"] == kind);
    let joined = |kind: &'static str, member: &str| -> String {
        of_kind(kind).map(|block| block[member].as_str().unwrap()).collect()
    };
    let message = &completion["choices"][0]["message"];
    assert_eq!(message["content"].as_str().unwrap_or(""), joined("text", "text"));
    assert_eq!(message["reasoning_content"].as_str().unwrap_or(""), joined("thinking", "thinking"));
    let calls: Vec<Value> = message["tool_calls"].as_array().into_iter().flatten().map(|call| {
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        json!({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments})
    }).collect();
    assert_eq!(calls, of_kind("tool_use").cloned().collect::<Vec<_>>());
    let thoughts = blocks.iter().filter(|block| block["type"].as_str().unwrap().ends_with("thinking"));
    let kept = message["thinking_blocks"].as_array().cloned().unwrap_or_default();
    assert_eq!(kept, thoughts.cloned().collect::<Vec<_>>());
    let usage = &answer["usage"];
    let sum = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"]
        .map(|name| usage[name].as_u64().unwrap())
        .iter()
        .sum::<u64>();
    assert_eq!(completion["usage"]["prompt_tokens"], sum);
    assert_eq!(completion["usage"]["completion_tokens"], usage["output_tokens"]);
}
