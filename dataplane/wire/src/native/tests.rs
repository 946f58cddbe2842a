//! Compares all native dialects with a full decoder and a JSON parser, for any stream and any cuts.

use proptest::prelude::*;
use serde_json::Value;
use shared::operation::Dialect;
use shared::usage::TokenCounts;

use super::{WholeScan, stream, synthesize_stream, whole_answer};
use crate::cutting::{cut, cuts, relay};
use crate::sse::SseDecoder;
use crate::stream::{AnswerStream, StreamOptions, StreamState};

/// The facts that a full decoder and a JSON parser find in a stream.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    content: bool,
    finished: bool,
    done: bool,
    error: bool,
    usage: Option<TokenCounts>,
    content_events: u64,
}

/// The total length of the texts in a value, without the given members.
fn texts(value: &Value, but: &[&str]) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| texts(item, &[])).sum(),
        Value::Object(members) => members
            .iter()
            .filter(|(name, _)| !but.contains(&name.as_str()))
            .map(|(_, value)| texts(value, &[]))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

impl Seen {
    fn output(&mut self, is: bool) {
        self.content |= is;
        self.content_events += u64::from(is);
    }

    fn messages(&mut self, event: &Value, usage: &mut Value) {
        let merge = |usage: &mut Value, later: &Value| {
            for (name, value) in later.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null())
            {
                usage[name] = value.clone();
            }
        };
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => merge(usage, &event["message"]["usage"]),
            "content_block_start" => {
                let block = &event["content_block"];
                let plain = matches!(block["type"].as_str(), Some("text" | "thinking"));
                self.output(!plain || texts(&block["text"], &[]) + texts(&block["thinking"], &[]) > 0);
            }
            "content_block_delta" => self.output(texts(&event["delta"], &["type"]) > 0),
            "message_delta" => {
                merge(usage, &event["usage"]);
                self.usage = crate::messages::token_counts(usage);
                self.finished |= event["delta"]["stop_reason"].is_string();
            }
            "message_stop" => self.done = true,
            "error" => self.error = true,
            _ => {}
        }
    }

    fn responses(&mut self, event: &Value) {
        let kind = event["type"].as_str().unwrap_or_default();
        match kind {
            "response.completed" | "response.incomplete" => {
                self.usage = crate::chat::token_counts(&event["response"]["usage"]).or(self.usage);
                (self.done, self.finished) = (true, true);
            }
            "error" | "response.failed" => self.error = true,
            "response.output_item.added" => {
                self.content |= !matches!(event["item"]["type"].as_str(), Some("message" | "reasoning"));
            }
            "response.output_text.done" => self.content |= texts(&event["text"], &[]) > 0,
            _ if kind.ends_with(".delta") => self.output(texts(&event["delta"], &[]) > 0),
            _ => {}
        }
    }
}

fn reference(dialect: Dialect, stream: &[u8]) -> Seen {
    let (mut decoder, mut seen, mut usage) = (SseDecoder::default(), Seen::default(), serde_json::json!({}));
    decoder.push(stream).unwrap();
    while let Some(event) = decoder.next_event() {
        let Ok(mut data) = serde_json::from_str::<Value>(&event.data) else { continue };
        if data["type"].is_null() && data.is_object() {
            data["type"] = event.event.into();
        }
        if seen.done || seen.error {
            break;
        }
        if dialect == Dialect::Messages {
            seen.messages(&data, &mut usage);
        } else {
            seen.responses(&data);
        }
    }
    seen
}

fn state_seen(state: &StreamState) -> Seen {
    Seen {
        content: state.content,
        finished: state.finished,
        done: state.done,
        error: state.error.is_some(),
        usage: state.usage,
        content_events: state.content_events,
    }
}

/// A JSON string of any kind.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z ,.{}\u{e9}\u{1f680}]{1,8}",
        1 => Just(String::new()),
        1 => Just(r#"\",\"type\":\"error\",\"error\":{"#.to_owned()),
        1 => Just(r"\\\\\u00e9\ud83d\ude80\n".to_owned()),
        1 => prop::sample::select(vec!["error", "usage", "message_stop", "response.failed", "[DONE]"]).prop_map(str::to_owned),
    ]
}

fn count() -> impl Strategy<Value = String> {
    prop_oneof![4 => (0_u32..500).prop_map(|count| count.to_string()), 1 => Just("null".to_owned())]
}

/// The data of one event of a Messages stream. Every error contains `E`.
fn messages_data() -> impl Strategy<Value = String> {
    let delta = prop_oneof![
        5 => text().prop_map(|text| format!(r#"{{"type":"text_delta","text":"{text}"}}"#)),
        2 => text().prop_map(|text| format!(r#"{{"type":"thinking_delta","thinking":"{text}","estimated_tokens":3}}"#)),
        2 => text().prop_map(|text| format!(r#"{{"partial_json":"{text}","type":"input_json_delta"}}"#)),
        1 => text().prop_map(|text| format!(r#"{{"type":"signature_delta","signature":"{text}"}}"#)),
        1 => text().prop_map(|text| format!(r#"{{"type":"citations_delta","citation":{{"cited_text":"{text}","n":[1]}}}}"#)),
        1 => Just(r#"{"type":"other_delta"}"#.to_owned()),
    ];
    let block = prop_oneof![
        Just(r#"{"type":"text","text":""}"#.to_owned()),
        text().prop_map(|text| format!(r#"{{"text":"{text}","type":"text"}}"#)),
        Just(r#"{"type":"tool_use","id":"t","name":"f","input":{}}"#.to_owned()),
    ];
    let usage = || {
        (count(), count()).prop_map(|(a, b)| {
            format!(r#"{{"input_tokens":{a}, "output_tokens" : {b},"cache_creation":{{"input_tokens":9}}}}"#)
        })
    };
    let stop = prop_oneof![Just("null"), Just("\"end_turn\"")];
    prop_oneof![
        14 => (delta, 0_usize..3).prop_map(|(delta, blanks)| {
            format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}{}}}"#, " ".repeat(blanks))
        }),
        2 => block.prop_map(|block| format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#)),
        1 => usage().prop_map(|usage| {
            format!(r#"{{"type":"message_start","message":{{"id":"m","content":[],"usage":{usage}}}}}"#)
        }),
        1 => (stop, usage()).prop_map(|(stop, usage)| {
            format!(r#"{{"delta":{{"stop_reason":{stop},"stop_sequence":null}},"usage":{usage},"type":"message_delta"}}"#)
        }),
        1 => Just(r#"{"type":"content_block_stop","index":0}"#.to_owned()),
        1 => Just(r#"{"type":"ping"}"#.to_owned()),
        1 => Just(r#"{ "type" : "message_stop" }"#.to_owned()),
        1 => Just(r#"{"type":"from_the_future","x":{"type":"error"}}"#.to_owned()),
        1 => Just("not json".to_owned()),
        1 => Just(r#"{"type":"error","error":{"type":"api_error","message":"E"}}"#.to_owned()),
    ]
}

/// The data of one event of a Responses stream.
fn responses_data() -> impl Strategy<Value = String> {
    let kinds = vec!["output_text", "refusal", "function_call_arguments", "reasoning_summary_text"];
    let delta = (prop::sample::select(kinds), text(), 0_u32..2000, any::<bool>());
    let usage = prop_oneof![
        1 => Just("null".to_owned()),
        3 => (0_u32..500, 0_u32..500).prop_map(|(a, b)| format!(r#"{{"input_tokens":{a},"output_tokens":{b},"total_tokens":{}}}"#, a + b)),
    ];
    let item = prop::sample::select(vec!["message", "reasoning", "function_call", "web_search_call"]);
    prop_oneof![
        14 => delta.prop_map(|(kind, text, number, first)| if first {
            format!(r#"{{"type":"response.{kind}.delta","sequence_number":{number},"item_id":"m","delta":"{text}","obfuscation":"abc"}}"#)
        } else {
            format!(r#"{{"type":"response.{kind}.delta","item_id":"m","delta":"{text}","logprobs":[],"sequence_number":{number}}}"#)
        }),
        1 => Just(r#"{"type":"response.created","response":{"id":"r","error":null,"output":[],"usage":null}}"#.to_owned()),
        2 => item.prop_map(|kind| format!(r#"{{"type":"response.output_item.added","item":{{"type":"{kind}","content":[]}}}}"#)),
        1 => text().prop_map(|text| format!(r#"{{"type":"response.output_text.done","text":"{text}"}}"#)),
        1 => usage.prop_map(|usage| {
            format!(r#"{{"response":{{"tools":[{{"usage":1}}],"usage" : {usage},"error":null}},"type":"response.completed"}}"#)
        }),
        1 => Just(r#"{"type":"from.the.future","x":{"type":"error"}}"#.to_owned()),
        1 => Just("[DONE]".to_owned()),
        1 => Just(r#"{"type":"error","code":null,"message":"E"}"#.to_owned()),
        1 => Just(r#"{"type":"response.failed","response":{"id":"r","error":{"code":"server_error","message":"E"}}}"#.to_owned()),
    ]
}

/// Data as an event, with or without a name, with any line end and any text before it.
fn event(data: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let before = prop_oneof![
        8 => Just(""), 1 => Just(": c\n"), 1 => Just("id: 1\r"), 1 => Just(": c\n\n"), 1 => Just("retry: 5\r\n\r\n"),
    ];
    let end = prop_oneof![3 => Just("\n"), 1 => Just("\r\n"), 1 => Just("\r")];
    let name = prop_oneof![4 => Just("data: "), 1 => Just("data:")];
    (before, any::<prop::sample::Index>(), name, data, end).prop_map(|(before, named, name, data, end)| {
        let kind = serde_json::from_str::<Value>(&data)
            .ok()
            .and_then(|data| data["type"].as_str().map(str::to_owned));
        let is_error = data.contains("\"E\"");
        let event = match kind {
            Some(kind) if is_error || named.index(4) > 0 => format!("event: {kind}{end}"),
            Some(_) | None => String::new(),
        };
        format!("{before}{event}{name}{data}{end}{end}")
    })
}

fn streams() -> impl Strategy<Value = (Dialect, String)> {
    let bom = || prop_oneof![9 => Just(""), 1 => Just("\u{feff}")];
    let messages = (bom(), proptest::collection::vec(event(messages_data()), 1..14));
    let responses = (bom(), proptest::collection::vec(event(responses_data()), 1..14));
    prop_oneof![
        messages.prop_map(|(bom, events)| (Dialect::Messages, format!("{bom}{}", events.concat()))),
        responses.prop_map(|(bom, events)| (Dialect::Responses, format!("{bom}{}", events.concat()))),
    ]
}

fn pass(dialect: Dialect, pieces: &[bytes::Bytes]) -> (Vec<u8>, StreamState) {
    relay(Boxed(stream(dialect, StreamOptions::default())), pieces)
}

#[derive(Debug)]
struct Boxed(Box<dyn AnswerStream>);

impl AnswerStream for Boxed {
    fn push(&mut self, chunk: bytes::Bytes, out: &mut Vec<bytes::Bytes>) {
        self.0.push(chunk, out);
    }
    fn end(&mut self, out: &mut Vec<bytes::Bytes>) {
        self.0.end(out);
    }
    fn state(&self) -> &StreamState {
        self.0.state()
    }
    fn trouble(&mut self, trouble: crate::stream::Trouble<'_>) -> bytes::Bytes {
        self.0.trouble(trouble)
    }
}

/// Any JSON, with irregular white space.
fn json(depth: u32) -> BoxedStrategy<String> {
    let names =
        vec!["type", "usage", "error", "response", "delta", "output", "content", "text", "status", "x"];
    let name = prop::sample::select(names);
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("0".to_owned()),
        Just("-1.5e3".to_owned()),
        Just("true".to_owned()),
        text().prop_map(|text| format!("\"{text}\"")),
        prop::sample::select(vec!["message", "failed", "response.completed", "message_delta"])
            .prop_map(|text| format!("\"{text}\"")),
    ];
    if depth == 0 {
        return leaf.boxed();
    }
    let inner = json(depth - 1);
    let array =
        proptest::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[ {} ]", items.join(" ,")));
    let member = (name, inner).prop_map(|(name, value)| format!("\"{name}\" :\t{value}"));
    let object =
        proptest::collection::vec(member, 0..5).prop_map(|members| format!("{{{} }}", members.join(", ")));
    prop_oneof![1 => leaf, 1 => array, 4 => object].boxed()
}

fn dialects() -> impl Strategy<Value = Dialect> {
    prop_oneof![Just(Dialect::Chat), Just(Dialect::Messages), Just(Dialect::Responses)]
}

proptest! {
    #[test]
    fn the_stream_state_matches_a_full_decoder((dialect, stream) in streams(), cuts in cuts()) {
        let (_, state) = pass(dialect, &cut(stream.as_bytes(), &cuts));
        prop_assert_eq!(state_seen(&state), reference(dialect, stream.as_bytes()), "{}", stream);
    }

    #[test]
    fn passes_every_byte_up_to_an_error((dialect, stream) in streams(), cuts in cuts()) {
        let (out, state) = pass(dialect, &cut(stream.as_bytes(), &cuts));
        prop_assert!(stream.as_bytes().starts_with(&out), "{}", String::from_utf8_lossy(&out));
        if !stream.contains("\"E\"") {
            prop_assert_eq!(out.len(), stream.len());
        } else if state.error.is_some() {
            prop_assert!(String::from_utf8_lossy(&out).contains("\"E\""));
        }
    }

    #[test]
    fn the_stream_state_is_the_same_at_any_split((dialect, stream) in streams(), cuts in cuts()) {
        let whole = pass(dialect, &cut(stream.as_bytes(), &[]));
        prop_assert_eq!(pass(dialect, &cut(stream.as_bytes(), &cuts)), whole.clone());
        let bytes: Vec<_> = stream.as_bytes().chunks(1).map(bytes::Bytes::copy_from_slice).collect();
        prop_assert_eq!(pass(dialect, &bytes), whole);
    }

    #[test]
    fn any_json_event_passes_unchanged(dialect in dialects(), events in proptest::collection::vec(json(4), 1..5), cuts in cuts()) {
        let stream: String = events.iter().map(|data| format!("data: {}\n\n", data.replace('\n', " "))).collect();
        let (out, state) = pass(dialect, &cut(stream.as_bytes(), &cuts));
        if state.error.is_none() && !state.done {
            prop_assert_eq!(String::from_utf8(out).unwrap(), stream);
        }
    }

    #[test]
    fn whole_answers_read_the_same_in_pieces(dialect in dialects(), body in json(4), cuts in cuts()) {
        let mut scan = WholeScan::new(dialect);
        cut(body.as_bytes(), &cuts).iter().for_each(|piece| scan.push(piece));
        let (pieces, whole) = (scan.finish(), whole_answer(dialect, body.as_bytes()));
        prop_assert_eq!((pieces.is_json, pieces.error), (whole.is_json, whole.error));
        prop_assert_eq!(pieces.usage, whole.usage);
        prop_assert_eq!(whole.is_json, body.starts_with('{'));
    }

    #[test]
    fn never_panics(dialect in dialects(), pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..24), 0..8)) {
        let pieces: Vec<bytes::Bytes> = pieces.into_iter().map(bytes::Bytes::from).collect();
        let _ = pass(dialect, &pieces);
        let _ = synthesize_stream(dialect, &pieces.concat(), true);
    }
}

#[test]
fn output_bytes_are_counted_after_unescaping() {
    let chat = |text: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
    let messages = |text: &str| {
        let delta = format!("{{\"type\":\"text_delta\",\"text\":\"{text}\"}}");
        format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{delta}}}\n\n"
        )
    };
    let responses = |text: &str| {
        format!(
            "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"delta\":\"{text}\"}}\n\n"
        )
    };
    for dialect in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        let event = |text: &str| {
            if dialect == Dialect::Messages {
                messages(text)
            } else if dialect == Dialect::Responses {
                responses(text)
            } else {
                chat(text)
            }
        };
        for text in ["你好", r"\u4f60\u597d", r"你\u597d"] {
            let mut stream = stream(dialect, StreamOptions::default());
            let mut out = Vec::new();
            for _ in 0..3 {
                stream.push(event(text).into(), &mut out);
            }
            stream.push([event(text), event(text)].concat().into(), &mut out);
            assert_eq!(stream.state().output_bytes, 5 * 6, "{dialect:?} {text}");
        }
    }
}
