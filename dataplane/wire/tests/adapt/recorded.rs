//! Translates the recorded streams of `fixtures/` for clients of other dialects. The client must read what the vector
//! expects (text, reasoning, refusal, calls, finish reason, usage, error), wherever the stream is cut.

use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::adapt::{Adaptation, find};

use crate::normal::decode;
use crate::pair::{answers, cuttings, fixture, fixture_json, relay};
use crate::{chat_client, responses_reader};

/// The content of a stream as read by a client of any dialect.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ClientReading {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) refusal: String,
    /// Id, name and arguments.
    pub(crate) calls: Vec<[String; 3]>,
    /// The finish reason, by its name in chat.
    pub(crate) reason: Option<String>,
    /// Tokens: input, cache read, cache write, output.
    pub(crate) usage: Option<[u64; 4]>,
    pub(crate) failed: bool,
}

fn recorded(folder: &str) -> Vec<(Value, Vec<u8>)> {
    let index = fixture_json(&format!("{folder}/index.json"));
    let streams = index["cases"].as_array().unwrap().iter().filter(|case| case["kind"] == "stream");
    streams.map(|case| (case.clone(), fixture(case["file"].as_str().unwrap()))).collect()
}

/// Returns the stream as `client` reads it from a target that speaks `target`. Panics if the output depends on how the
/// input is cut; long inputs are only read whole.
pub(crate) fn read_by(client: Dialect, target: Dialect, name: &Value, input: &[u8]) -> ClientReading {
    let pair: &Adaptation = find(client, target).unwrap();
    let args = json!({"thinking": true, "include_usage": true, "model": "m"});
    let answers = answers(pair, &args, true);
    let (whole, state) = relay(&*answers, &[input]);
    if input.len() < 20_000 {
        for pieces in cuttings(input) {
            let cut = relay(&*answers, &pieces);
            assert!(cut == (whole.clone(), state.clone()), "{name} cut at {}", pieces[0].len());
        }
    }
    match client {
        Dialect::Messages => of_messages(&whole),
        Dialect::Responses => of_responses(&whole),
        _ => of_chat(&whole),
    }
}

fn of_chat(stream: &[u8]) -> ClientReading {
    let read = chat_client::read(stream);
    let calls = read.calls.into_iter().map(|[id, _, name, input]| [id, name, input]);
    ClientReading {
        calls: calls.collect(),
        text: read.content,
        reasoning: read.reasoning,
        refusal: read.refusal,
        reason: read.finish,
        usage: read.usage.map(|usage| prompt_usage(&usage)),
        failed: read.error.is_some(),
    }
}

fn of_responses(stream: &[u8]) -> ClientReading {
    let read = responses_reader::read(stream);
    let calls = read.calls();
    let reason = match (&*read.end, read.response["incomplete_details"]["reason"].as_str()) {
        ("completed", _) if !calls.is_empty() => Some("tool_calls"),
        ("completed", _) => Some("stop"),
        ("incomplete", Some("max_output_tokens")) => Some("length"),
        _ => None,
    };
    let usage = Some(&read.response["usage"]).filter(|usage| usage.is_object());
    ClientReading {
        text: output_text(stream),
        reasoning: read.text("reasoning_text"),
        refusal: read.text("refusal"),
        calls: calls.into_iter().map(|(id, name, arguments)| [id, name, arguments]).collect(),
        reason: reason.map(str::to_owned),
        usage: usage.map(prompt_usage),
        failed: read.end == "failed",
    }
}

/// Returns the text of all deltas, including those before a failure.
fn output_text(stream: &[u8]) -> String {
    let events = decode(stream).into_iter().filter(|event| event.event == "response.output_text.delta");
    events.map(|event| text(&serde_json::from_str::<Value>(&event.data).unwrap()["delta"])).collect()
}

fn of_messages(stream: &[u8]) -> ClientReading {
    let mut read = ClientReading::default();
    let mut open = Value::Null;
    for event in decode(stream) {
        let data: Value = serde_json::from_str(&event.data).unwrap();
        match &*event.event {
            "content_block_start" => {
                open = data["content_block"].clone();
                if open["type"] == "tool_use" {
                    read.calls.push([text(&open["id"]), text(&open["name"]), String::new()]);
                }
            }
            "content_block_delta" => {
                read.text += &text(&data["delta"]["text"]);
                read.reasoning += &text(&data["delta"]["thinking"]);
                if let Some([_, _, arguments]) = read.calls.last_mut() {
                    *arguments += &text(&data["delta"]["partial_json"]);
                }
            }
            "content_block_stop" => {
                if let (true, Some([_, _, arguments])) = (open["type"] == "tool_use", read.calls.last_mut())
                    && arguments.is_empty()
                {
                    // SDKs read a call without fragments as a call without arguments.
                    *arguments = "{}".to_owned();
                }
            }
            "message_delta" => {
                read.usage = Some(messages_usage(&data["usage"]));
                read.reason = Some(chat_reason(&text(&data["delta"]["stop_reason"])));
            }
            "error" => read.failed = true,
            _ => {}
        }
    }
    if read.reason.as_deref() == Some("refusal") {
        // Messages has no separate refusal: the text of chat's refusal arrives as ordinary text.
        read.refusal = std::mem::take(&mut read.text);
    }
    read
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn chat_reason(reason: &str) -> String {
    match reason {
        "end_turn" | "stop_sequence" => "stop",
        "max_tokens" => "length",
        "tool_use" => "tool_calls",
        other => other,
    }
    .to_owned()
}

fn messages_usage(usage: &Value) -> [u64; 4] {
    ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"]
        .map(|name| usage[name].as_u64().unwrap_or(0))
}

/// Parses the usage of a dialect that counts cached tokens as part of the prompt.
fn prompt_usage(usage: &Value) -> [u64; 4] {
    let first = |names: [&str; 2]| names.iter().find_map(|name| usage.pointer(name)?.as_u64()).unwrap_or(0);
    let read = first(["/prompt_tokens_details/cached_tokens", "/input_tokens_details/cached_tokens"]);
    let write =
        first(["/prompt_tokens_details/cache_write_tokens", "/input_tokens_details/cache_write_tokens"]);
    [
        first(["/prompt_tokens", "/input_tokens"]) - read - write,
        read,
        write,
        first(["/completion_tokens", "/output_tokens"]),
    ]
}

/// Returns the content that a vector of a chat stream expects.
fn expected_of_chat(expect: &Value) -> ClientReading {
    let calls = expect["tool_calls"].as_array().into_iter().flatten();
    let calls: Vec<_> =
        calls.map(|call| ["id", "name", "arguments"].map(|member| text(&call[member]))).collect();
    let failed = !expect["error"].is_null() || expect["truncated"] == true;
    // A stream with calls ends with `tool_calls`, whatever finish reason the vendor sends.
    let reason = if calls.is_empty() { expect["finish_reason"].as_str() } else { Some("tool_calls") };
    ClientReading {
        text: text(&expect["text"]),
        reasoning: text(&expect["reasoning"]),
        refusal: text(&expect["refusal"]),
        calls,
        reason: reason.map(str::to_owned),
        usage: Some(&expect["usage"]).filter(|usage| usage.is_object()).map(prompt_usage),
        failed,
    }
}

#[test]
fn recorded_chat_streams_match_their_vectors() {
    let mut seen = 0;
    for (case, input) in recorded("chat") {
        // The other dialects have only one choice; requests for two are rejected.
        if case["id"] == "stream_n2" {
            continue;
        }
        let expect = &case["expect"];
        for client in [Dialect::Messages, Dialect::Responses] {
            let mut want = expected_of_chat(expect);
            let mut got = read_by(client, Dialect::Chat, &case["id"], &input);
            if let Some(length) = expect["text_len"].as_u64() {
                assert_eq!(got.text.len() as u64, length, "{}", case["id"]);
                want.text.clone_from(&got.text);
            }
            if want.usage.is_none() {
                // The usage is unknown; a client's dialect that requires numbers gets zeros.
                assert!(got.usage.is_none_or(|usage| usage == [0; 4]), "{}: {:?}", case["id"], got.usage);
                got.usage = None;
            }
            if !want.refusal.is_empty() && client == Dialect::Messages {
                want.reason = Some("refusal".to_owned());
            }
            assert_eq!(got, want, "{} to {}", case["id"], client.name());
            seen += 1;
        }
    }
    assert_eq!(seen, 2 * 25);
}

#[test]
fn both_choices_of_a_native_chat_stream_pass() {
    let (case, input) = recorded("chat").into_iter().find(|(case, _)| case["id"] == "stream_n2").unwrap();
    let options = wire::stream::StreamOptions::default();
    let (mut stream, mut out) = (wire::native::stream(Dialect::Chat, options), Vec::new());
    stream.push(input.into(), &mut out);
    let mut texts = std::collections::BTreeMap::<String, String>::new();
    for event in decode(&out.concat()).iter().filter(|event| event.data != "[DONE]") {
        let chunk: Value = serde_json::from_str(&event.data).unwrap();
        for choice in chunk["choices"].as_array().unwrap() {
            *texts.entry(choice["index"].to_string()).or_default() += &text(&choice["delta"]["content"]);
        }
    }
    assert_eq!(json!(texts), case["expect"]["choices"]);
}

#[test]
fn recorded_messages_streams_match_their_vectors() {
    let streams = recorded("messages");
    assert_eq!(streams.len(), 8);
    for (case, input) in streams {
        let (expect, name) = (&case["expect"], &case["id"]);
        let mut got = read_by(Dialect::Chat, Dialect::Messages, name, &input);
        for [_, _, arguments] in &mut got.calls {
            *arguments = serde_json::from_str::<Value>(arguments).unwrap().to_string();
        }
        if !expect["error"].is_null() || expect["truncated"] == true {
            assert!(got.failed && got.reason.is_none(), "{name}: {got:?}");
            continue;
        }
        if expect["sdk_yields_nothing"] == true {
            // SDKs ignore events without names; the gateway reads them.
            assert!(!got.failed && got.reason.is_some() && !got.text.is_empty(), "{name}: {got:?}");
            continue;
        }
        let mut want = ClientReading {
            reason: expect["stop_reason"].as_str().map(chat_reason),
            usage: Some(messages_usage(&expect["usage"])),
            ..ClientReading::default()
        };
        for block in expect["blocks"].as_array().unwrap() {
            match block["type"].as_str().unwrap() {
                "text" => want.text += &text(&block["text"]),
                "thinking" => want.reasoning += &text(&block["thinking"]),
                "tool_use" => {
                    let arguments = block["input"].to_string();
                    want.calls.push([text(&block["id"]), text(&block["name"]), arguments]);
                }
                other => assert_eq!(other, "redacted_thinking"),
            }
        }
        assert_eq!(got, want, "{name}");
    }
}

#[test]
fn recorded_responses_streams_match_their_vectors() {
    let streams = recorded("responses");
    assert_eq!(streams.len(), 7);
    for (case, input) in streams {
        let (expect, name) = (&case["expect"], &case["id"]);
        let got = read_by(Dialect::Chat, Dialect::Responses, name, &input);
        let fails = !expect["error"].is_null() || expect["truncated"] == true || expect["status"] == "failed";
        assert_eq!(got.failed, fails, "{name}: {got:?}");
        if fails {
            continue;
        }
        assert_eq!(got.text, text(&expect["text"]), "{name}");
        assert_eq!(got.usage, Some(prompt_usage(&expect["usage"])), "{name}");
        if let Some(calls) = expect["calls"].as_u64() {
            assert_eq!(got.calls.len() as u64, calls, "{name}");
        }
        let reason = match (expect["status"].as_str().unwrap(), got.calls.is_empty()) {
            ("incomplete", _) => "length",
            (_, true) => "stop",
            (_, false) => "tool_calls",
        };
        assert_eq!(got.reason.as_deref(), Some(reason), "{name}");
    }
}
