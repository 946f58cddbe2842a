//! Compares the relay with the reference decoder and serde_json, for any stream and any split into reads.

use proptest::prelude::*;
use serde_json::Value;

use super::relay;
use crate::chat::token_counts;
use crate::cutting::{cut, cuts};
use crate::sse::SseDecoder;
use crate::stream::StreamOptions;

/// The view of a client with a full decoder and a JSON parser.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    content: bool,
    finished: bool,
    done: bool,
    error: bool,
    usage: Option<shared::usage::TokenCounts>,
}

fn is_output(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn reference(stream: &[u8]) -> Seen {
    const OUTPUT: [&str; 5] = ["content", "reasoning_content", "reasoning", "refusal", "tool_calls"];
    let (mut decoder, mut seen) = (SseDecoder::default(), Seen::default());
    decoder.push(stream).unwrap();
    while let Some(event) = decoder.next_event() {
        if event.data.starts_with("[DONE]") {
            seen.done = true;
            break;
        }
        let Ok(chunk) = serde_json::from_str::<Value>(&event.data) else { continue };
        if is_output(&chunk["error"]) {
            seen.error = true;
            break;
        }
        seen.usage = token_counts(&chunk["usage"]).or(seen.usage);
        for choice in chunk["choices"].as_array().into_iter().flatten() {
            seen.finished |= !choice["finish_reason"].is_null();
            seen.content |= OUTPUT.iter().any(|member| is_output(&choice["delta"][member]));
        }
    }
    seen
}

/// Generates one event of any kind, with any line end.
fn event() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        "[a-z \u{e9}]{0,6}",
        Just(r#"\"error\":{\"message\":1}"#.to_owned()),
        Just(r#"\\\"usage\":{"#.to_owned()),
        Just("error".to_owned()),
        Just("\\u00e9\\n".to_owned()),
    ];
    let member = prop_oneof![
        4 => Just("content"), 1 => Just("reasoning_content"), 1 => Just("reasoning"), 1 => Just("refusal"),
        1 => Just("role"), 1 => Just("obfuscation"),
    ];
    let tail = prop_oneof![
        6 => Just(String::new()),
        2 => Just(",\"usage\":null".to_owned()),
        1 => (0_u32..50, 0_u32..50).prop_map(|(a, b)| {
            format!(", \"usage\" : {{\"prompt_tokens\":{a},\"completion_tokens\":{b}}}")
        }),
        1 => Just(",\"error\":null".to_owned()),
    ];
    let finish = prop_oneof![8 => Just("null"), 1 => Just("\"stop\""), 1 => Just(" \"length\"")];
    let chunk = (member, text, finish, tail).prop_map(|(member, text, finish, tail)| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{"{member}":"{text}"}},"finish_reason":{finish}}}]{tail}}}"#
        )
    });
    let data = prop_oneof![
        12 => chunk,
        1 => Just(r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#.to_owned()),
        1 => Just(r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}"#.to_owned()),
        1 => Just(r#"{"error":{"message":"E"}}"#.to_owned()),
        1 => Just("[DONE]".to_owned()),
        1 => Just("ping".to_owned()),
        1 => Just(String::new()),
    ];
    let before = prop_oneof![
        8 => Just(""), 1 => Just(": c\n"), 1 => Just("event: x\r\n"), 1 => Just("id: 1\r"), 1 => Just(": c\n\n"),
        1 => Just("retry: 5\r\n\r\n"),
    ];
    let end = prop_oneof![Just("\n"), Just("\r\n"), Just("\r")];
    let name = prop_oneof![4 => Just("data: "), 1 => Just("data:")];
    (before, name, data, end).prop_map(|(before, name, data, end)| format!("{before}{name}{data}{end}{end}"))
}

fn streams() -> impl Strategy<Value = String> {
    let bom = prop_oneof![9 => Just(""), 1 => Just("\u{feff}")];
    (bom, proptest::collection::vec(event(), 1..12))
        .prop_map(|(bom, events)| format!("{bom}{}", events.concat()))
}

proptest! {
    #[test]
    fn the_stream_state_matches_a_full_decoder(stream in streams(), cuts in cuts()) {
        let (_, state) = relay(&cut(stream.as_bytes(), &cuts), StreamOptions::default());
        let seen = Seen {
            content: state.content,
            finished: state.finished,
            done: state.done,
            error: state.error.is_some(),
            usage: state.usage,
        };
        prop_assert_eq!(seen, reference(stream.as_bytes()));
    }

    #[test]
    fn passes_every_byte_up_to_an_error(stream in streams(), cuts in cuts()) {
        let (out, state) = relay(&cut(stream.as_bytes(), &cuts), StreamOptions::default());
        let out = out.concat();
        prop_assert!(stream.as_bytes().starts_with(&out));
        if !stream.contains("\"E\"") {
            prop_assert_eq!(out.len(), stream.len());
        } else if state.error.is_some() {
            let error = r#"{"error":{"message":"E"}}"#;
            prop_assert!(out.trim_ascii_end().ends_with(error.as_bytes()), "{stream:?}");
        }
    }

    #[test]
    fn the_stream_state_is_the_same_at_any_split(stream in streams(), a in cuts(), drop_usage_only in any::<bool>()) {
        let options = StreamOptions { drop_usage_only, secrets: Vec::new() };
        let whole = relay(&cut(stream.as_bytes(), &[]), options.clone());
        let (out, state) = relay(&cut(stream.as_bytes(), &a), options);
        prop_assert_eq!(state, whole.1);
        prop_assert_eq!(out.concat(), whole.0.concat());
    }

    #[test]
    fn never_panics(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..24), 0..8)) {
        let pieces: Vec<bytes::Bytes> = pieces.into_iter().map(bytes::Bytes::from).collect();
        let _ = relay(&pieces, StreamOptions { drop_usage_only: true, secrets: vec!["secret".to_owned()] });
    }
}

#[test]
fn usage_names_are_added_to_a_stream_at_any_split() {
    let stream = |usage: &str| {
        format!(
            ": hi\n\ndata: {{\"choices\":[{{\"delta\":{{\"content\":\"a\"}}}}]}}\n\nid: 7\ndata:  {{\"choices\":[],\r\ndata: \"usage\":{usage}}}\r\n\r\ndata: {{\"choices\":[],\"usage\":{usage}}}\n\ndata: [DONE]\n\n"
        )
    };
    let input = stream(r#"{"input_tokens":7,"output_tokens":2}"#);
    let named =
        r#"{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"input_tokens":7,"output_tokens":2}"#;
    // An event with several data lines is rewritten.
    let want = stream(named)
        .replace(
            "id: 7\ndata:  {\"choices\":[],\r\ndata: \"usage\"",
            "data:  {\"choices\":[],\ndata: \"usage\"",
        )
        .replace("}\r\n\r\n", "}\n\n");
    for cut in 0..input.len() {
        let pieces = [&input[..cut], &input[cut..]];
        let pieces = pieces.map(|piece| bytes::Bytes::copy_from_slice(piece.as_bytes()));
        let (out, _) = relay(&pieces, StreamOptions::default());
        assert_eq!(String::from_utf8(out.concat()).unwrap(), want, "cut at {cut}");
    }
}
