//! An event similar to the previous one is read without being parsed. These tests check that the result is the same as
//! with parsing.

use proptest::prelude::*;
use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::adapt::find;
use wire::stream::StreamState;

use crate::chat_over_bedrock::frame;
use crate::normal::decode;
use crate::pair::{answers, relay};

/// A piece of an answer: its kind, its text in JSON-escaped form, and a number (a count, or the length of a padding).
type Piece = (u8, String, u32);

fn gemini(&(kind, ref text, number): &Piece) -> String {
    let part = match kind {
        0 => format!(r#"{{"text":"{text}"}}"#),
        1 => format!(r#"{{"text":"{text}","thought":true}}"#),
        2 => format!(r#"{{"text":"{text}","thoughtSignature":"cw=="}}"#),
        _ => r#"{"functionCall":{"name":"f","args":{}}}"#.to_owned(),
    };
    format!(
        r#"{{"candidates":[{{"content":{{"parts":[{part}],"role":"model"}},"index":0}}],"usageMetadata":{{"promptTokenCount": {},"candidatesTokenCount": {number},"totalTokenCount": {number}}}}}"#,
        number / 8
    )
}

fn messages(&(kind, ref text, number): &Piece) -> String {
    let (block, delta) = match kind {
        0 => (0, format!(r#"{{"type":"text_delta","text":"{text}"}}"#)),
        1 => (0, format!(r#"{{"type":"thinking_delta","thinking":"{text}"}}"#)),
        2 => (1, format!(r#"{{"type":"input_json_delta","partial_json":"{text}"}}"#)),
        _ => return r#"{"type":"ping"}"#.to_owned(),
    };
    let blanks = " ".repeat(number as usize % 3);
    format!(r#"{{"type":"content_block_delta","index":{block},"delta":{delta}{blanks}}}"#)
}

fn chat(&(kind, ref text, number): &Piece) -> String {
    let delta = match kind {
        0 => format!(r#"{{"content":"{text}"}}"#),
        1 => format!(r#"{{"reasoning_content":"{text}"}}"#),
        2 => format!(
            r#"{{"tool_calls":[{{"index":0,"id":"call_1","function":{{"name":"f","arguments":"{text}"}}}}]}}"#
        ),
        _ => format!(r#"{{"content":"{text}","refusal":"no"}}"#),
    };
    let padding = "x".repeat(number as usize);
    format!(
        r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}],"usage":null,"obfuscation":"{padding}"}}"#
    )
}

fn responses(&(kind, ref text, number): &Piece) -> String {
    let (name, place) = match kind {
        0 => ("output_text", r#""output_index":0,"content_index":0"#),
        1 => ("reasoning_summary_text", r#""output_index":2,"summary_index":0"#),
        2 => ("function_call_arguments", r#""output_index":1"#),
        _ => ("refusal", r#""output_index":0,"content_index":1"#),
    };
    format!(
        r#"{{"type":"response.{name}.delta","sequence_number":{number},{place},"delta":"{text}","obfuscation":"x"}}"#
    )
}

fn bedrock(&(kind, ref text, number): &Piece) -> String {
    let (block, delta) = match kind {
        0 => (0, format!(r#"{{"text":"{text}"}}"#)),
        1 => (0, format!(r#"{{"reasoningContent":{{"text":"{text}"}}}}"#)),
        2 => (1, format!(r#"{{"toolUse":{{"input":"{text}"}}}}"#)),
        _ => (0, format!(r#"{{"text":"{text}","toolUse":{{}}}}"#)),
    };
    let padding = "x".repeat(number as usize);
    format!(r#"{{"contentBlockIndex":{block},"delta":{delta},"p":"{padding}"}}"#)
}

/// Returns the event type and data of a stream's first event. It opens a tool call if the dialect requires one for
/// argument deltas.
fn beginning(target: Dialect) -> (&'static str, &'static str) {
    match target {
        Dialect::Messages => (
            "",
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c","name":"f","input":{}}}"#,
        ),
        Dialect::Responses => (
            "",
            r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"c","name":"f"}}"#,
        ),
        Dialect::Bedrock => (
            "contentBlockStart",
            r#"{"contentBlockIndex":1,"start":{"toolUse":{"toolUseId":"c","name":"f"}}}"#,
        ),
        _ => ("", "{\"choices\":[],\"usage\":{\"prompt_tokens\":1}}"),
    }
}

/// Relays these events and returns the client's events and the stream's state. `output_bytes` is zeroed because it
/// depends on how the text is escaped.
fn relayed(client: Dialect, target: Dialect, events: &[String]) -> (Vec<Value>, StreamState) {
    let framed = |(name, data): (&str, &str)| match target {
        Dialect::Bedrock => frame(&[(":event-type", name), (":message-type", "event")], data),
        _ => format!("data: {data}\n\n").into_bytes(),
    };
    let begins = Some(beginning(target)).filter(|_| target != Dialect::Gemini).map(framed);
    let deltas = events.iter().map(|event| framed(("contentBlockDelta", event)));
    let stream: Vec<u8> = begins.into_iter().chain(deltas).flatten().collect();
    let answers = answers(find(client, target).unwrap(), &json!({"thinking": true}), true);
    let (out, state) = relay(&*answers, &[&stream]);
    let out = decode(&out).iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect();
    (out, StreamState { output_bytes: 0, ..state })
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let text = prop::sample::select(vec![
        "a",
        " bc",
        "\u{fc}\u{1f680}",
        r"\n",
        r#"\""#,
        r"\\",
        r"\u003c",
        r"\ud83d\ude80",
        "error",
        "",
    ]);
    let text = prop::collection::vec(text, 0..3).prop_map(|texts| texts.concat());
    prop::collection::vec((prop_oneof![4 => Just(0_u8), 3 => 1..4_u8], text, 0..20_u32), 1..12)
}

proptest! {
    #[test]
    fn similar_events_are_translated_like_dissimilar_ones(pieces in pieces()) {
        type Row = (Dialect, Dialect, fn(&Piece) -> String);
        let rows: [Row; 6] = [
            (Dialect::Messages, Dialect::Chat, chat),
            (Dialect::Responses, Dialect::Chat, chat),
            (Dialect::Chat, Dialect::Messages, messages),
            (Dialect::Chat, Dialect::Gemini, gemini),
            (Dialect::Chat, Dialect::Bedrock, bedrock),
            (Dialect::Chat, Dialect::Responses, responses),
        ];
        for (client, target, write) in rows {
            let alike: Vec<String> = pieces.iter().map(write).collect();
            // Each event has more white space than the previous one, so that no two are similar.
            let others: Vec<String> = (1..)
                .zip(&alike)
                .map(|(blanks, event)| event.replacen('{', &format!("{{{}", " ".repeat(blanks)), 1))
                .collect();
            prop_assert_eq!(relayed(client, target, &alike), relayed(client, target, &others), "{:?}", target);
        }
    }
}
