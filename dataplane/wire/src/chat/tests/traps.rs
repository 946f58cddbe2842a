//! Pitfalls in vendors' streams, one test each.

use bytes::Bytes;
use shared::usage::TokenCounts;

use super::{relay, relay_text};
use crate::chat::{self, ChatAnswerScan, synthesize_stream};
use crate::stream::{AnswerStream, StreamOptions, StreamState};

/// Returns a stream with each of these chunks as an event.
fn events(chunks: &[&str]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

fn delta(members: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{{members}}},"finish_reason":null}}]}}"#)
}

fn state_of(chunks: &[&str]) -> StreamState {
    let text = events(chunks);
    let (out, state) = relay_text(&text);
    if state.error.is_none() {
        assert_eq!(out, text);
    }
    state
}

const TEXT: &str = r#"{"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}"#;
const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#;

fn five_and_two() -> Option<TokenCounts> {
    Some(TokenCounts { input: 5, output: 2, ..TokenCounts::default() })
}

#[test]
fn chunks_without_output_do_not_count_as_content() {
    let rows = [
        ("role chunk", delta(r#""role":"assistant","content":"","refusal":null"#)),
        ("role chunk before tools", delta(r#""role":"assistant","content":null"#)),
        ("empty delta", delta("")),
        ("empty reasoning", delta(r#""reasoning_content":"","reasoning":null"#)),
        ("no tool calls", delta(r#""tool_calls":[]"#)),
        ("empty audio", delta(r#""audio":{}"#)),
        ("null delta", r#"{"choices":[{"index":0,"delta":null,"finish_reason":null}]}"#.to_owned()),
        ("no delta", r#"{"choices":[{"index":0,"finish_reason":null}]}"#.to_owned()),
        ("Azure's filter results", r#"{"choices":[],"prompt_filter_results":[{"a":"x"}]}"#.to_owned()),
        (
            "padding",
            format!(r#"{},"obfuscation":"aB3"}}"#, delta("").trim_end_matches('}').to_owned() + "}]"),
        ),
        ("logprobs alone", r#"{"choices":[{"delta":{},"logprobs":{"content":[{"token":"x"}]}}]}"#.to_owned()),
        ("null choices", r#"{"choices":null}"#.to_owned()),
    ];
    for (name, chunk) in rows {
        assert!(!state_of(&[&chunk]).content, "{name}: {chunk}");
    }
}

#[test]
fn every_kind_of_output_counts_as_content() {
    let rows = [
        ("content", delta(r#""content":"x""#)),
        ("a blank", delta(r#""content":" ""#)),
        ("refusal", delta(r#""refusal":"No""#)),
        ("DeepSeek's reasoning", delta(r#""content":null,"reasoning_content":"hm""#)),
        ("OpenRouter's reasoning", delta(r#""content":"","reasoning":"hm""#)),
        ("reasoning details", delta(r#""reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]"#)),
        ("Mistral's content parts", delta(r#""content":[{"type":"thinking","thinking":[{"text":"hm"}]}]"#)),
        (
            "tool start",
            delta(r#""tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]"#),
        ),
        ("tool arguments", delta(r#""tool_calls":[{"index":0,"function":{"arguments":"{"}}]"#)),
        ("arguments as an object", delta(r#""tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]"#)),
        ("function call", delta(r#""function_call":{"name":"f"}"#)),
        ("audio", delta(r#""audio":{"id":"a"}"#)),
        ("images", delta(r#""images":[{"image_url":{"url":"x"}}]"#)),
        ("second choice", r#"{"choices":[{"delta":{}},{"delta":{"content":"x"}}]}"#.to_owned()),
        ("content written with escapes", delta(r#""\u0063ontent":"x""#)),
    ];
    for (name, chunk) in rows {
        let state = state_of(&[&chunk]);
        assert!(state.content, "{name}: {chunk}");
        assert_eq!(state.content_events, 1, "{name}");
    }
}

#[test]
fn comments_pass_and_are_no_content() {
    let text = ": OPENROUTER PROCESSING\n\n: ping\n\n";
    let (out, state) = relay_text(text);
    assert_eq!(state, StreamState::default());
    assert_eq!(out, text);
}

#[test]
fn every_finish_reason_finishes_even_unknown_ones() {
    for reason in ["stop", "length", "tool_calls", "eos_token", "insufficient_system_resource", "abort"] {
        let chunk = STOP.replace("stop", reason);
        assert!(state_of(&[TEXT, &chunk]).finished, "{reason}");
    }
    assert!(!state_of(&[TEXT]).finished);
}

#[test]
fn a_finish_reason_on_a_chunk_with_content_is_read() {
    let state = state_of(&[TEXT, r#"{"choices":[{"delta":{"content":"x"}, "finish_reason" : "stop"}]}"#]);
    assert!(state.finished);
    assert_eq!((state.content_events, state.output_bytes), (2, 3));
}

#[test]
fn done_is_matched_as_a_prefix_and_ends_the_stream() {
    for done in ["[DONE]", "[DONE] ", "[DONE]garbage"] {
        let state = state_of(&[TEXT, STOP, done, USAGE]);
        assert!(state.done);
        assert_eq!(state.usage, None);
    }
    assert!(!state_of(&[TEXT, " [DONE]"]).done, "the SDKs do not trim");
}

#[test]
fn an_error_after_done_is_dropped() {
    let text = events(&[TEXT, STOP, "[DONE]"]);
    let (out, state) = relay_text(&format!("{text}{}", events(&[r#"{"error":{"message":"late"}}"#])));
    assert_eq!(out, text);
    assert_eq!(state.error, None);
}

#[test]
fn a_missing_done_after_a_finish_reason_is_no_error() {
    let state = state_of(&[TEXT, STOP]);
    assert!(state.finished && !state.done && state.error.is_none());
}

#[test]
fn usage_is_read_from_every_chunk_position() {
    let on_finish = STOP.replacen('{', r#"{"usage":{"prompt_tokens":5,"completion_tokens":2},"#, 1);
    let groq =
        STOP.replacen('{', r#"{"x_groq":{"id":"r","usage":{"prompt_tokens":5,"completion_tokens":2}},"#, 1);
    let spaced = USAGE.replace(':', " : ");
    let rows: [(&str, &[&str]); 5] = [
        ("own chunk", &[TEXT, STOP, USAGE]),
        ("on the finish chunk", &[TEXT, &on_finish]),
        ("before the finish chunk", &[TEXT, USAGE, STOP]),
        ("in x_groq", &[TEXT, &groq]),
        ("with blanks", &[TEXT, STOP, &spaced]),
    ];
    for (name, chunks) in rows {
        assert_eq!(state_of(chunks).usage, five_and_two(), "{name}");
    }
}

#[test]
fn running_usage_is_replaced_and_never_summed() {
    let running = |completion: u32| {
        TEXT.replacen(
            '{',
            &format!(r#"{{"usage":{{"prompt_tokens":5,"completion_tokens":{completion}}},"#),
            1,
        )
    };
    let state =
        state_of(&[&running(0), &running(1), &running(2), &TEXT.replacen('{', r#"{"usage":null,"#, 1)]);
    assert_eq!(state.usage, five_and_two());
    assert_eq!(state.content_events, 4);
}

#[test]
fn a_usage_only_chunk_is_sent_only_if_requested() {
    let without_choices = r#"{"usage":{"prompt_tokens":5,"completion_tokens":2}}"#;
    for usage in [USAGE, without_choices] {
        let text = events(&[TEXT, STOP, usage, "[DONE]"]);
        let options = StreamOptions { drop_usage_only: true, secrets: Vec::new() };
        let (out, state) = relay(&[Bytes::from(text)], options);
        assert_eq!(String::from_utf8(out.concat()).unwrap(), events(&[TEXT, STOP, "[DONE]"]));
        assert_eq!(state.usage, five_and_two());
    }
}

#[test]
fn the_first_azure_chunk_without_choices_is_no_usage_chunk() {
    let first = r#"{"id":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#;
    let text = events(&[first, TEXT]);
    let options = StreamOptions { drop_usage_only: true, secrets: Vec::new() };
    let (out, _) = relay(&[Bytes::from(text.clone())], options);
    assert_eq!(out.concat(), text.as_bytes());
}

#[test]
fn an_error_ends_the_stream_even_if_the_connection_stays_open() {
    let error = r#"{"error":{"message":"Upstream overloaded","type":"server_error","code":"overloaded"}}"#;
    let (out, state) = relay_text(&events(&[TEXT, error, TEXT, "[DONE]"]));
    assert_eq!(out, events(&[TEXT, error]));
    let seen = state.error.unwrap();
    assert_eq!((seen.message.as_str(), seen.status), ("Upstream overloaded", Some(503)));
    assert!(!state.done);
}

#[test]
fn errors_of_every_shape_are_recognized_in_a_stream() {
    let rows = [
        ("named event", "event: error\ndata: {\"error\":{\"message\":\"E\"}}\n\n".to_owned()),
        ("text", events(&[r#"{"error":"E"}"#])),
        (
            "openrouter",
            events(&[
                r#"{"choices":[{"delta":{"content":""},"finish_reason":"error"}],"error":{"code":502,"message":"E"}}"#,
            ]),
        ),
        ("numeric code", events(&[r#"{"error":{"message":"E","code":429}}"#])),
        ("array", events(&[r#"[{"error":{"code":429,"message":"E","status":"RESOURCE_EXHAUSTED"}}]"#])),
        ("detail", events(&[r#"{"detail":"E"}"#])),
        ("older vLLM", events(&[r#"{"object":"error","message":"E","type":"BadRequestError","code":400}"#])),
        ("over several lines", "data: {\"error\":\ndata: {\"message\":\"E\"}}\n\n".to_owned()),
        ("with blanks", events(&[r#"{ "error" : { "message" : "E" } }"#])),
        ("name with escapes", events(&[r#"{"\u0065rror":{"message":"E"}}"#])),
    ];
    for (name, text) in rows {
        let (out, state) = relay_text(&text);
        assert_eq!(state.error.map(|error| error.message).as_deref(), Some("E"), "{name}");
        assert!(out.contains("\"error\"") || out.contains("\\u0065rror"), "{name}: {out}");
        assert!(!state.content && !state.finished || name == "openrouter", "{name}");
    }
}

#[test]
fn null_and_empty_errors_are_ignored() {
    for error in ["null", "\"\"", "{}", "false", "0", "[]"] {
        let chunk = TEXT.replacen('{', &format!(r#"{{"error":{error},"#), 1);
        let state = state_of(&[TEXT, &chunk, &chunk]);
        assert_eq!((state.error, state.content_events), (None, 3), "{error}");
    }
}

#[test]
fn text_that_quotes_errors_and_usage_is_plain_content() {
    let chunk = delta(
        r#""content":"\"error\":{\"message\":\"x\"},\"usage\":{\"prompt_tokens\":1},\"finish_reason\":\"stop\"""#,
    );
    let quoted = delta(r#""content":"error""#);
    let state = state_of(&[
        TEXT,
        &chunk,
        &quoted,
        &delta(r#""content":"finish_reason""#),
        &delta(r#""content":"usage""#),
    ]);
    assert_eq!((state.error, state.usage, state.finished, state.content_events), (None, None, false, 5));
}

#[test]
fn an_error_is_rewritten_only_if_it_holds_a_credential() {
    let text = events(&[
        r#"{ "error" : {"message":"Incorrect API key: sk-abcd1234efgh5678 or canary-1","param":null} }"#,
    ]);
    let options = StreamOptions { drop_usage_only: false, secrets: vec!["canary-1".to_owned()] };
    for at in 0..text.len() {
        let bytes = Bytes::from(text.clone());
        let (out, state) = relay(&[bytes.slice(..at), bytes.slice(at..)], options.clone());
        let out = String::from_utf8(out.concat()).unwrap();
        assert!(!out.contains("abcd1234") && !out.contains("canary-1"), "{out}");
        assert_eq!(state.error.unwrap().message, "Incorrect API key: [redacted] or [redacted]");
        assert!(out.starts_with("data: {\"error\"") && out.ends_with("}\n\n"), "{out}");
    }
    let clean = events(&[r#"{ "error" : {"message":"Too busy"} }"#]);
    assert_eq!(relay_text(&clean).0, clean);
}

#[test]
fn model_output_is_never_redacted() {
    let chunk = delta(r#""content":"set api_key=sk-abcd1234efgh5678""#);
    let failing = chunk.replacen('{', r#"{"error":{"message":"E"},"#, 1);
    let text = events(&[&chunk, &chunk, &failing]);
    assert_eq!(relay_text(&text).0, text);
}

#[test]
fn non_json_data_passes_with_credentials_redacted() {
    let (out, state) =
        relay_text("data: Internal Server Error\n\ndata: bad key canary-secret sk-abcd1234efgh5678\n\n");
    assert_eq!(out, "data: Internal Server Error\n\ndata: bad key canary-secret [redacted]\n\n");
    assert_eq!(state, StreamState::default());
}

#[test]
fn event_ids_are_detected() {
    assert!(relay_text("id: 1\ndata: {}\n\n").1.ids_seen);
    assert!(!relay_text("data: {\"id\":1}\n\n: id: 1\n\n").1.ids_seen);
}

#[test]
fn a_byte_order_mark_passes_and_hides_no_event() {
    let text = format!("\u{feff}{}", events(&[TEXT, STOP, "[DONE]"]));
    let (out, state) = relay_text(&text);
    assert_eq!(out, text);
    assert_eq!(state.content_events, 1);
}

#[test]
fn an_unterminated_last_event_counts_only_after_a_finish_reason() {
    let finished = events(&[TEXT, STOP]) + "data: [DONE]\n";
    let (out, state) = relay_text(&finished);
    assert_eq!(out, finished);
    assert!(state.finished && !state.done);
    let cut = events(&[TEXT]) + events(&[STOP]).trim_end();
    let (out, state) = relay_text(&cut);
    assert_eq!(out, events(&[TEXT]), "a client would not see it, and an error event must be able to follow");
    assert!(!state.finished);
    let usage = events(&[TEXT, STOP]) + events(&[USAGE]).trim_end();
    assert_eq!(relay_text(&usage).1.usage, five_and_two());
}

#[test]
fn an_unterminated_error_event_is_terminated() {
    let error = r#"data: {"error":{"message":"E"}}"#;
    let (out, state) = relay_text(&format!("{}{error}", events(&[TEXT])));
    assert_eq!(out, format!("{}{error}\n\n", events(&[TEXT])));
    assert_eq!(state.error.unwrap().message, "E");
}

#[test]
fn events_of_one_read_are_forwarded_as_one_slice() {
    let read = Bytes::from(events(&[TEXT]).repeat(300));
    let (out, _) = relay(std::slice::from_ref(&read), StreamOptions::default());
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].as_ptr(), read.as_ptr());
}

#[test]
fn a_huge_event_is_forwarded_before_it_is_complete() {
    let mut stream = chat::stream(StreamOptions::default());
    let (mut out, mut passed, mut sent, mut held_most) = (Vec::new(), 0, 0, 0);
    let mut push = |stream: &mut dyn AnswerStream, bytes: Bytes| {
        sent += bytes.len();
        stream.push(bytes, &mut out);
        passed += out.drain(..).map(|part: Bytes| part.len()).sum::<usize>();
        held_most = held_most.max(sent - passed);
    };
    push(&mut stream, Bytes::from_static(b"data: {\"choices\":[{\"delta\":{\"audio\":{\"data\":\""));
    let piece = Bytes::from(vec![b'A'; 1024]);
    for _ in 0..64 * 1024 {
        push(&mut stream, piece.clone());
    }
    assert!(stream.state().content && stream.state().event_open);
    push(
        &mut stream,
        Bytes::from_static(b"\"}},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":5,"),
    );
    push(&mut stream, Bytes::from_static(b"\"completion_tokens\":2}}\n\n"));
    assert!(held_most <= 65 * 1024, "{held_most}");
    assert_eq!(passed, sent);
    assert!(stream.state().finished && !stream.state().event_open);
    assert_eq!(stream.state().usage, five_and_two());
}

#[test]
fn a_huge_error_does_not_pass() {
    let secret = "sk-abcd1234efgh5678";
    let text = format!("data: {{\"error\":{{\"message\":\"{} {secret}\"}}}}\n\n", "x".repeat(100_000));
    for size in [text.len(), 70_000, 1_000] {
        let pieces: Vec<Bytes> = text.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
        let (out, state) = relay(&pieces, StreamOptions::default());
        assert!(!String::from_utf8(out.concat()).unwrap().contains(secret), "{size}");
        assert!(state.error.is_some(), "{size}");
    }
}

#[test]
fn an_event_in_single_bytes_takes_linear_time() {
    // Rescanning from the start for every byte would take hours.
    let text = delta(&format!(r#""content":"{}""#, "x".repeat(60_000)));
    let text = events(&[&text, &"x".repeat(2_000_000)]);
    let pieces: Vec<Bytes> = text.bytes().map(|byte| Bytes::copy_from_slice(&[byte])).collect();
    let (out, state) = relay(&pieces, StreamOptions::default());
    assert_eq!(out.concat(), text.as_bytes());
    assert_eq!(state.output_bytes, 60_000);
}

#[test]
fn a_deeply_nested_chunk_is_no_error() {
    let deep = format!(r#"{{"choices":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let state = state_of(&[&deep, TEXT]);
    assert_eq!((state.error, state.content_events), (None, 1));
}

#[test]
fn blank_lines_before_a_whole_response_are_skipped() {
    let mut scan = ChatAnswerScan::default();
    scan.push(b"\n\n\n");
    scan.push(
        br#" {"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#,
    );
    let answer = scan.finish();
    assert!(answer.is_json);
    assert_eq!(answer.usage, five_and_two());
}

#[test]
fn a_unary_answer_to_a_stream_request_becomes_a_stream() {
    let whole = br#"{"id":"c","object":"chat.completion","created":5,"model":"m","choices":[
        {"index":0,"message":{"role":"assistant","content":"hi","reasoning_content":"hm"},"finish_reason":"stop"},
        {"index":1,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"t"},{"id":"u"}]}}],
        "usage":{"prompt_tokens":5,"completion_tokens":2}}"#;
    let stream = String::from_utf8(synthesize_stream(whole, true).unwrap()).unwrap();
    let (out, state) = relay_text(&stream);
    assert_eq!(out, stream);
    assert!(state.content && state.finished && state.done);
    assert_eq!(state.usage, five_and_two());
    assert!(stream.contains(r#""index":1}]"#) || stream.contains(r#"{"id":"u","index":1}"#), "{stream}");
    assert!(!String::from_utf8(synthesize_stream(whole, false).unwrap()).unwrap().contains("usage"));
}

/// The words of OleksandrChekhovskyi/hax#15, genkit-ai/genkit#6259, vllm-project/vllm#57082 and
/// NousResearch/hermes-agent#92161, and OpenRouter's error within a choice (UKGovernmentBEIS/inspect_ai#1536).
#[test]
fn a_failed_end_is_the_error_of_the_stream() {
    for end in [
        r#""finish_reason":"error""#,
        r#""finish_reason":"insufficient_system_resource""#,
        r#""finish_reason":"abort""#,
        r#""finish_reason":"network_error""#,
        r#""finish_reason":"stop","native_finish_reason":"MALFORMED_FUNCTION_CALL""#,
        r#""finish_reason":"error","error":{"code":502,"message":"gone"}"#,
    ] {
        let end = format!(r#"{{"choices":[{{"index":0,"delta":{{"content":""}},{end}}}]}}"#);
        for chunks in [&[TEXT, &end, USAGE, "[DONE]"][..], &[TEXT, &end, USAGE]] {
            let (out, state) = relay_text(&events(chunks));
            assert!(state.error.as_ref().is_some_and(|error| error.status.is_some()), "{end}: {state:?}");
            assert_eq!((state.usage, state.done, state.failure), (five_and_two(), false, None), "{end}");
            assert!(out.starts_with(&events(&[TEXT, USAGE])) && out.contains(r#"data: {"error":{"#), "{out}");
            assert!(!out.contains("[DONE]") && !out.contains("finish_reason\":\"e"), "{out}");
        }
    }
}

#[test]
fn a_whole_answer_that_ended_as_a_failure_is_an_error() {
    let usage = r#""usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}"#;
    for (choice, want) in [
        (r#""message":{"content":""},"finish_reason":"insufficient_system_resource""#, Some(503)),
        (r#""finish_reason":"error","message":{"content":"a"}"#, Some(502)),
        (
            r#""finish_reason":"stop","native_finish_reason":"MALFORMED_FUNCTION_CALL","message":{}"#,
            Some(502),
        ),
        (
            r#""message":{"content":""},"finish_reason":"error","error":{"code":429,"message":"slow"}"#,
            Some(429),
        ),
        (r#""message":{"content":"\"finish_reason\":\"error\""},"finish_reason":"stop""#, None),
        (r#""message":{"content":"the \"error\""},"error":null,"finish_reason":"stop""#, None),
    ] {
        for body in
            [format!(r#"{{"choices":[{{{choice}}}],{usage}}}"#), format!(r#"{{"choices":[{{{choice}}}]}}"#)]
        {
            let answer = chat::whole_answer(body.as_bytes());
            assert_eq!(answer.error.and_then(|error| error.status), want, "{body}");
        }
    }
}
