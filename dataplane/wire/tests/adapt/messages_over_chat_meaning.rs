//! Property tests: random conversations keep their meaning when they are translated for a chat target and from there for
//! a Messages target; random answers keep theirs on the way back, with interleaved tool calls and any framing of events.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::adapt::{Answers, Traits, find};

use crate::chat_over_messages_meaning::{escaped, input, text};
use crate::chat_reader::read_stream;
use crate::normal::decode;
use crate::pair;

/// Generates a Messages request, including members that are only hints or that only unusual clients send.
fn conversation() -> impl Strategy<Value = Value> {
    let turn = (vec(user_block(), 1..4), assistant());
    (system(), vec(turn, 1..5), text(), any::<bool>()).prop_map(|(system, turns, last, as_string)| {
        let mut messages = Vec::new();
        let mut results: Vec<Value> = Vec::new();
        for (blocks, (texts, calls)) in turns {
            results.extend(blocks);
            messages.push(json!({"role": "user", "content": std::mem::take(&mut results)}));
            let calls = calls.into_iter().enumerate().map(|(n, (id, name, input, result))| {
                let id = format!("{n}{id}{}", messages.len());
                results.push(json!({"type": "tool_result", "tool_use_id": id, "content": result, "is_error": true}));
                json!({"type": "tool_use", "id": id, "name": name, "input": input})
            });
            let content: Vec<Value> = texts.into_iter().chain(calls.collect::<Vec<_>>()).collect();
            messages.push(json!({"role": "assistant", "content": content}));
        }
        let content = if results.is_empty() && as_string { json!(last) } else {
            results.push(json!({"type": "text", "text": last, "cache_control": {"type": "ephemeral"}}));
            json!(results)
        };
        messages.push(json!({"role": "user", "content": content}));
        json!({"model": "m", "max_tokens": 9, "system": system, "messages": messages, "tools": [
            {"name": "f", "input_schema": {"type": "object", "properties": {"\u{e9}": {}}}, "defer_loading": true}]})
    })
}

fn system() -> impl Strategy<Value = Value> {
    let blocks = vec(text(), 0..3);
    blocks.prop_map(|texts| texts.into_iter().map(|text| json!({"type": "text", "text": text})).collect())
}

fn user_block() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => text().prop_map(|text| json!({"type": "text", "text": text})),
        1 => "[A-Za-z0-9+/]{4}".prop_map(|data| {
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}})
        }),
        1 => "[a-z]{1,9}".prop_map(|name| {
            json!({"type": "image", "source": {"type": "url", "url": format!("https://example.com/{name}")}})
        }),
    ]
}

type Call = (String, String, Value, Value);

fn assistant() -> impl Strategy<Value = (Vec<Value>, Vec<Call>)> {
    let result = prop_oneof![
        text().prop_map(|text| json!(text)),
        vec(text(), 0..3).prop_map(|texts| {
            texts.into_iter().map(|text| json!({"type": "text", "text": text})).collect()
        }),
    ];
    let block = prop_oneof![
        2 => text().prop_map(|text| json!({"type": "text", "text": text})),
        1 => text().prop_map(|text| json!({"type": "thinking", "thinking": text, "signature": "c2ln"})),
    ];
    (vec(block, 1..4), vec(("[a-zA-Z0-9:._é -]{0,80}", "[a-z_]{1,8}", input(), result), 0..4))
}

/// Returns the content of a conversation, independent of its division into blocks: a list of role, kind and content.
fn meaning(body: &Value) -> Vec<(String, &'static str, Value)> {
    let mut expected: Vec<(String, &'static str, Value)> = Vec::new();
    let joined = |content: &Value, between: &str| match content {
        Value::String(text) => text.clone(),
        blocks => {
            let texts = blocks.as_array().into_iter().flatten().map(|block| block["text"].as_str().unwrap());
            texts.collect::<Vec<_>>().join(between)
        }
    };
    expected.push(("system".to_owned(), "text", json!(joined(&body["system"], "\n\n"))));
    let mut ids: Vec<String> = Vec::new();
    let mut number = |id: &Value| {
        let id = id.as_str().unwrap().to_owned();
        let known = ids.iter().position(|known| *known == id);
        known.unwrap_or_else(|| {
            ids.push(id);
            ids.len() - 1
        })
    };
    for message in body["messages"].as_array().unwrap() {
        let role = message["role"].as_str().unwrap();
        let content = match &message["content"] {
            Value::String(text) => vec![json!({"type": "text", "text": text})],
            blocks => blocks.as_array().unwrap().clone(),
        };
        for block in &content {
            let (kind, what) = match block["type"].as_str().unwrap() {
                "text" => ("text", block["text"].clone()),
                "image" => ("image", block["source"].clone()),
                "tool_use" => ("call", json!([number(&block["id"]), block["name"], block["input"]])),
                "tool_result" => {
                    ("result", json!([number(&block["tool_use_id"]), joined(&block["content"], "\n")]))
                }
                "thinking" => continue,
                other => panic!("{other}"),
            };
            match expected.last_mut() {
                // In chat, a message of the assistant has only one text.
                Some((who, "text", Value::String(before)))
                    if who == "assistant" && role == "assistant" && kind == "text" =>
                {
                    before.push_str(what.as_str().unwrap());
                }
                _ => expected.push((role.to_owned(), kind, what)),
            }
        }
    }
    expected
}

/// An answer: reasoning, texts, and calls with their arguments.
type Answer = (String, Vec<String>, Vec<(String, Value)>);

fn answer() -> impl Strategy<Value = Answer> {
    (text(), vec(text(), 0..4), vec(("[a-z_]{1,8}", input()), 0..5))
}

/// Returns the chunks of an answer. Texts and fragments of calls are interleaved as `order` selects; the order of the texts
/// and of the fragments of each call is kept.
fn chunks((thoughts, texts, calls): &Answer, size: usize, order: &[prop::sample::Index]) -> Vec<Value> {
    let delta = |delta: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    let mut chunks = vec![
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"reasoning_content": thoughts})),
    ];
    let mut queues: Vec<Vec<Value>> =
        vec![texts.iter().map(|text| delta(json!({"content": text}))).collect()];
    for (index, (name, input)) in calls.iter().enumerate() {
        let mut queue = vec![
            json!({"index": index, "id": format!("call_{index}"), "function": {"name": name, "arguments": ""}}),
        ];
        let letters: Vec<char> = input.to_string().chars().collect();
        queue.extend(
            letters.chunks(size).map(
                |part| json!({"index": index, "function": {"arguments": part.iter().collect::<String>()}}),
            ),
        );
        queues.push(queue.into_iter().map(|call| delta(json!({"tool_calls": [call]}))).rev().collect());
    }
    queues[0].reverse();
    let mut order = order.iter().cycle();
    while queues.iter().any(|queue| !queue.is_empty()) {
        queues.retain(|queue| !queue.is_empty());
        let at = order.next().unwrap().index(queues.len());
        chunks.push(queues[at].pop().unwrap());
    }
    let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
    chunks.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}));
    chunks.push(json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5}}));
    chunks
}

/// Returns the chunk as SSE text. The bits of `form` select among equivalent framings.
fn framed(chunk: &Value, form: u8) -> String {
    let end = ["\n", "\r\n", "\r"][usize::from(form % 3)];
    let data = if form & 4 == 0 { chunk.to_string() } else { escaped(&chunk.to_string()) };
    let mut lines = Vec::new();
    if form & 8 != 0 {
        lines.extend([": a comment".to_owned(), "event: message".to_owned()]);
    }
    match data.split_once(",\"delta\"").filter(|_| form & 16 != 0) {
        Some((head, tail)) => lines.extend([format!("data:{head},"), format!("data: \"delta\"{tail}")]),
        None => lines.push(format!("data: {data} ")),
    }
    let noise = if form & 32 == 0 { String::new() } else { format!(": waiting{end}{end}") };
    format!("{noise}{}{end}{end}", lines.join(end))
}

fn relay(answers: &dyn Answers, stream: &[u8], cuts: &[prop::sample::Index]) -> Vec<u8> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    cuts.sort_unstable();
    let (mut reader, mut out, mut from) = (answers.stream(Vec::new()), Vec::new(), 0);
    for cut in cuts.into_iter().chain([stream.len()]) {
        reader.push(Bytes::copy_from_slice(&stream[from..cut]), &mut out);
        from = cut;
    }
    reader.end(&mut out);
    assert!(reader.state().done && reader.state().error.is_none());
    out.concat()
}

/// Reads a Messages stream as Anthropic's SDKs do.
fn read(stream: &[u8]) -> Answer {
    let (mut thoughts, mut texts, mut calls): Answer = (String::new(), Vec::new(), Vec::new());
    let (mut arguments, mut open) = (String::new(), None);
    for event in decode(stream) {
        let event: Value = serde_json::from_str(&event.data).unwrap();
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!(open, None, "a block ends before the next begins");
                open = Some(event["index"].clone());
                if event["content_block"]["type"] == "tool_use" {
                    calls.push((event["content_block"]["name"].as_str().unwrap().to_owned(), json!({})));
                }
            }
            "content_block_delta" => {
                assert_eq!(open, Some(event["index"].clone()), "only the open block grows");
                let more = |member: &str| event["delta"][member].as_str().unwrap_or_default().to_owned();
                thoughts += &more("thinking");
                texts.push(more("text"));
                arguments += &more("partial_json");
            }
            "content_block_stop" => {
                open = None;
                if !arguments.is_empty() {
                    calls.last_mut().unwrap().1 =
                        serde_json::from_str(&std::mem::take(&mut arguments)).unwrap();
                }
            }
            _ => {}
        }
    }
    (thoughts, texts, calls)
}

fn sorted(calls: &[(String, Value)]) -> Vec<String> {
    let mut calls: Vec<String> = calls.iter().map(|(name, input)| format!("{name}{input}")).collect();
    calls.sort_unstable();
    calls
}

proptest! {
    #[test]
    fn conversations_round_trip_through_chat(conversation in conversation()) {
        let there = find(Dialect::Messages, Dialect::Chat).unwrap();
        let back = find(Dialect::Chat, Dialect::Messages).unwrap();
        let target = Traits::of("m");
        let chat = pair::prepare(there, conversation.to_string().as_bytes(), &target).unwrap();
        let again = pair::prepare(back, &chat.body, &target).unwrap();
        let again: Value = serde_json::from_slice(&again.body).unwrap();
        prop_assert_eq!(meaning(&again), meaning(&conversation));
        prop_assert_eq!(&again["tools"][0]["input_schema"], &conversation["tools"][0]["input_schema"]);
    }

    #[test]
    fn streams_keep_their_meaning_in_any_order_and_framing(
        answer in answer(),
        size in 1..6_usize,
        order in vec(any::<prop::sample::Index>(), 1..40),
        forms in vec(any::<u8>(), 1..6),
        cuts in vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let chunks = chunks(&answer, size, &order);
        let framed: String = chunks.iter().zip(forms.iter().cycle()).map(|(chunk, form)| framed(chunk, *form)).collect();
        let plain: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
        let args = json!({"model": "m", "thinking": true, "include_usage": true});
        let answers = pair::answers(find(Dialect::Messages, Dialect::Chat).unwrap(), &args, true);
        let out = relay(&*answers, (framed + "data: [DONE]\n\n").as_bytes(), &cuts);
        let (thoughts, texts, calls) = read(&out);
        let (all_thoughts, all_texts, all_calls) = &answer;
        prop_assert_eq!(&thoughts, all_thoughts);
        prop_assert_eq!(texts.concat(), all_texts.concat());
        prop_assert_eq!(sorted(&calls), sorted(all_calls));
        // The framing does not change the events, except for escapes, which are copied from the upstream.
        let unframed = read(&relay(&*answers, plain.as_bytes(), &[]));
        prop_assert_eq!(unframed.2, calls.clone());
        let back = pair::answers(find(Dialect::Chat, Dialect::Messages).unwrap(), &args, true);
        let message = &read_stream(&relay(&*back, &out, &[]))["choices"][0]["message"];
        prop_assert_eq!(message["content"].as_str().unwrap_or_default(), all_texts.concat());
        let again = message["tool_calls"].as_array().into_iter().flatten().map(|call| {
            let arguments = call["function"]["arguments"].as_str().unwrap();
            (call["function"]["name"].as_str().unwrap().to_owned(), serde_json::from_str(arguments).unwrap())
        });
        prop_assert_eq!(again.collect::<Vec<_>>(), calls);
    }
}

/// Generates the roles of a conversation: user and assistant alternate, with system text at any position.
fn roles() -> impl Strategy<Value = Vec<&'static str>> {
    vec((vec(Just("system"), 0..3), any::<bool>()), 1..6).prop_map(|turns| {
        let mut roles = Vec::new();
        for (position, (system, more)) in turns.into_iter().enumerate() {
            roles.extend(system);
            roles.push(if position % 2 == 0 { "user" } else { "assistant" });
            roles.extend(more.then_some("system"));
        }
        if roles.iter().rfind(|role| **role != "system") == Some(&"assistant") {
            roles.push("user");
        }
        roles
    })
}

proptest! {
    #[test]
    fn later_system_text_becomes_user_text_for_leading_system_targets(roles in roles()) {
        let messages: Vec<Value> =
            roles.iter().enumerate().map(|(n, role)| json!({"role": role, "content": format!("<{n}>")})).collect();
        let body = json!({"model": "m", "max_tokens": 9, "messages": messages}).to_string();
        let target = Traits { leading_system: true, ..Traits::of("m") };
        let pair = find(Dialect::Messages, Dialect::Chat).unwrap();
        let prepared = pair::prepare(pair, body.as_bytes(), &target).unwrap();
        let chat: Value = serde_json::from_slice(&prepared.body).unwrap();
        let messages = chat["messages"].as_array().unwrap();
        let count = |role: &str| messages.iter().filter(|message| message["role"] == role).count();
        let leads = roles[0] == "system";
        prop_assert_eq!(count("system"), usize::from(leads));
        prop_assert!(!leads || messages[0]["role"] == "system");
        prop_assert_eq!(count("assistant"), roles.iter().filter(|role| **role == "assistant").count());
        // No text is lost, and the order is unchanged.
        let text: Vec<String> =
            messages.iter().flat_map(|message| message["content"].as_str().unwrap().split("\n\n").map(str::to_owned)).collect();
        let want: Vec<String> = (0..roles.len()).map(|n| format!("<{n}>")).collect();
        prop_assert_eq!(text, want);
        // Roles alternate, as some chat templates require, because they alternate in the client's request.
        for pair in messages.windows(2) {
            prop_assert_ne!(&pair[0]["role"], &pair[1]["role"], "{}", chat);
        }
    }
}
