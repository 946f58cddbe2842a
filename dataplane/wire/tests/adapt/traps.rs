//! Vendor behaviour that breaks naive stream readers, one test for each trap, in the order of the protocols' references.
//! Each stream is cut at every byte and read by the clients of every other dialect. The tests of each dialect cover
//! native clients.
#![expect(clippy::needless_pass_by_value, reason = "documents are given away where they are written")]

use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::adapt::ADAPTATIONS;

use crate::pair::{fixture_json, prepare, traits};
use crate::recorded::{ClientReading, read_by};

/// Returns a chat stream of these chunks as Messages and Responses clients read it. Panics if the two differ.
fn of_chat(chunks: &[Value], end: &str) -> ClientReading {
    let events: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    let stream = events + end;
    let [messages, responses] = [Dialect::Messages, Dialect::Responses]
        .map(|client| read_by(client, Dialect::Chat, &json!("trap"), stream.as_bytes()));
    // Zeros mean that the usage is unknown.
    let unknown = Some([0; 4]);
    let same = |read: ClientReading| ClientReading {
        usage: read.usage.filter(|usage| Some(*usage) != unknown),
        ..read
    };
    let (messages, responses) = (same(messages), same(responses));
    assert_eq!(messages, responses, "{stream}");
    messages
}

const DONE: &str = "data: [DONE]\n\n";

fn delta(delta: Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn call(call: Value) -> Value {
    delta(json!({"tool_calls": [call]}))
}

fn calls(read: &ClientReading) -> Vec<[&str; 3]> {
    read.calls.iter().map(|call| call.each_ref().map(String::as_str)).collect()
}

const TWO: [[&str; 3]; 2] = [["a", "f", "{\"x\":1}"], ["b", "g", "{\"y\":2}"]];

#[test]
fn openai_chat_trap_1_calls_may_interleave() {
    let chunks = [
        call(json!({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}})),
        call(
            json!({"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{\"y\""}}),
        ),
        call(json!({"index": 0, "function": {"arguments": "{\"x\""}})),
        call(json!({"index": 1, "function": {"arguments": ":2}"}})),
        call(json!({"index": 0, "function": {"arguments": ":1}"}})),
        finish("tool_calls"),
    ];
    assert_eq!(calls(&of_chat(&chunks, DONE)), TWO);
    let both = [
        delta(json!({"tool_calls": [
            {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}},
            {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{\"y\":2}"}}]})),
        finish("tool_calls"),
    ];
    assert_eq!(calls(&of_chat(&both, DONE)), TWO);
}

#[test]
fn openai_chat_trap_2_another_id_at_the_same_index_is_another_call() {
    let chunks = [
        call(
            json!({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\""}}),
        ),
        call(json!({"index": 0, "id": "a", "function": {"arguments": ":1}"}})),
        call(
            json!({"index": 0, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{\"y\":2}"}}),
        ),
        finish("tool_calls"),
    ];
    assert_eq!(calls(&of_chat(&chunks, DONE)), TWO);
}

#[test]
fn openai_chat_trap_3_unusual_index_role_and_arguments_are_accepted() {
    let chunks = [
        delta(json!({"role": "assistant", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]})),
        delta(json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{\"y\":2}"}}]})),
        delta(json!({"role": "assistant", "content": ""})),
        finish("stop"),
    ];
    let answer = of_chat(&chunks, DONE);
    assert_eq!((calls(&answer), answer.reason.as_deref()), (TWO.to_vec(), Some("tool_calls")));
}

#[test]
fn openai_chat_trap_4_deltas_may_be_full_empty_or_absent() {
    let mut last = finish("tool_calls");
    last["choices"][0]["delta"] = Value::Null;
    let mut none = finish("tool_calls");
    none["choices"][0].as_object_mut().unwrap().remove("delta");
    for end in [last, none] {
        let chunks = [
            delta(json!({"role": "assistant", "content": "", "tool_calls": null})),
            delta(json!({"content": "Look.", "tool_calls": [
                {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]})),
            delta(json!({"content": null})),
            end,
        ];
        let answer = of_chat(&chunks, DONE);
        assert_eq!((&*answer.text, calls(&answer)), ("Look.", TWO[..1].to_vec()));
    }
}

#[test]
fn openai_chat_trap_5_usage_is_read_anywhere_and_never_summed() {
    let usage =
        |prompt: u64, completion: u64| json!({"prompt_tokens": prompt, "completion_tokens": completion});
    let with = |mut chunk: Value, usage: Value| {
        chunk["usage"] = usage;
        chunk
    };
    let alone = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [],
        "usage": usage(7, 3)});
    let text = || delta(json!({"content": "Hi"}));
    let rows = [
        vec![text(), finish("stop"), alone.clone()],
        vec![text(), with(finish("stop"), usage(7, 3))],
        vec![with(text(), usage(7, 1)), with(text(), usage(7, 2)), with(finish("stop"), usage(7, 3))],
        vec![with(text(), Value::Null), alone, finish("stop")],
    ];
    for chunks in rows {
        assert_eq!(of_chat(&chunks, DONE).usage, Some([7, 0, 0, 3]), "{chunks:?}");
    }
}

#[test]
fn openai_chat_trap_6_unrequested_choices_are_ignored() {
    let other = |mut chunk: Value| {
        chunk["choices"][0]["index"] = json!(1);
        chunk
    };
    let chunks = [
        delta(json!({"content": "A"})),
        other(delta(json!({"content": "B"}))),
        other(finish("length")),
        delta(json!({"content": "a"})),
        finish("stop"),
    ];
    let answer = of_chat(&chunks, DONE);
    assert_eq!((&*answer.text, answer.reason.as_deref()), ("Aa", Some("stop")));
}

#[test]
fn openai_chat_trap_7_padding_is_ignored() {
    let mut padded = delta(json!({"content": "Hi"}));
    padded["obfuscation"] = json!("aB3dE\"}");
    assert_eq!(of_chat(&[padded, finish("stop")], DONE).text, "Hi");
}

#[test]
fn openai_chat_trap_8_azure_begins_without_a_choice() {
    let first = json!({"id": "", "object": "", "created": 0, "model": "", "choices": [],
        "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": false}}}]});
    let mut text = delta(json!({"content": "Hi"}));
    text["choices"][0]["content_filter_results"] = json!({"hate": {"filtered": false, "severity": "safe"}});
    assert_eq!(of_chat(&[first, text, finish("stop")], DONE).text, "Hi");
}

#[test]
fn openai_chat_trap_9_a_stream_without_done_needs_a_finish_reason() {
    let chunks = [delta(json!({"content": "Hi"})), finish("stop")];
    assert!(!of_chat(&chunks, "").failed);
    assert!(of_chat(&chunks[..1], "").failed);
    let garbage = format!("data: [DONE] x\n\ndata: {}\n\n", delta(json!({"content": "late"})));
    assert_eq!(of_chat(&chunks, &garbage).text, "Hi", "what begins with [DONE] is the end");
}

#[test]
fn openai_chat_an_error_in_the_stream_ends_it() {
    let openrouter = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "error": {"code": 502, "message": "Provider disconnected"},
        "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]});
    for error in [json!({"error": {"message": "busy", "type": "server_error"}}), openrouter] {
        let answer =
            of_chat(&[delta(json!({"content": "Hi"})), error, delta(json!({"content": "late"}))], DONE);
        assert_eq!((&*answer.text, answer.failed), ("Hi", true));
    }
}

#[test]
fn openai_chat_reasoning_has_many_names() {
    let rows = [
        delta(json!({"reasoning_content": "hm"})),
        delta(json!({"reasoning": "hm"})),
        delta(json!({"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]})),
        delta(json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]})),
    ];
    for chunk in rows {
        let answer = of_chat(&[chunk.clone(), delta(json!({"content": "42"})), finish("stop")], DONE);
        assert_eq!((&*answer.reasoning, &*answer.text), ("hm", "42"), "{chunk}");
    }
}

/// Returns a Messages stream of these events as a chat client reads it.
fn of_messages(events: &[Value]) -> ClientReading {
    let stream: String = events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect();
    read_by(Dialect::Chat, Dialect::Messages, &json!("trap"), stream.as_bytes())
}

fn begin() -> Value {
    json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "m",
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 1}}})
}

fn text_block(index: u64, text: &str) -> [Value; 3] {
    [
        json!({"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}}),
        json!({"type": "content_block_stop", "index": index}),
    ]
}

fn end(usage: &Value) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": usage}),
        json!({"type": "message_stop"}),
    ]
}

#[test]
fn anthropic_messages_trap_1_usage_is_cumulative_and_may_come_twice() {
    let mut events = vec![begin()];
    events.extend(text_block(0, "Hi"));
    events.push(json!({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 3}}));
    events.extend(end(&json!({"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 9})));
    assert_eq!(of_messages(&events).usage, Some([6, 4, 0, 9]));
}

#[test]
fn anthropic_messages_trap_2_missing_input_fragments_give_an_empty_object() {
    for fragments in [&[][..], &[""], &["", "{\"x\"", ":1}"]] {
        let mut events = vec![begin()];
        events.push(json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "tool_use", "id": "a", "name": "f", "input": {}}}));
        events.extend(fragments.iter().map(|fragment| {
            json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": fragment}})
        }));
        events.push(json!({"type": "content_block_stop", "index": 0}));
        events.extend(end(&json!({"output_tokens": 9})));
        let want = if fragments.len() > 1 { "{\"x\":1}" } else { "{}" };
        assert_eq!(calls(&of_messages(&events)), [["a", "f", want]]);
    }
}

#[test]
fn anthropic_messages_trap_3_a_thinking_block_may_be_only_a_signature() {
    let mut events = vec![begin()];
    events.push(json!({"type": "content_block_start", "index": 0,
        "content_block": {"type": "thinking", "thinking": "", "signature": ""}}));
    events.push(json!({"type": "content_block_delta", "index": 0,
        "delta": {"type": "signature_delta", "signature": "c2ln"}}));
    events.push(json!({"type": "content_block_stop", "index": 0}));
    events.extend(text_block(1, "42"));
    events.extend(end(&json!({"output_tokens": 9})));
    let answer = of_messages(&events);
    assert_eq!((&*answer.text, &*answer.reasoning, answer.reason.as_deref()), ("42", "", Some("stop")));
}

#[test]
fn anthropic_messages_trap_4_unknown_blocks_and_pings_are_skipped() {
    let ping = json!({"type": "ping"});
    let mut events = vec![ping.clone(), begin(), ping.clone()];
    events.push(
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "hologram", "x": 1}}),
    );
    events.push(
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "hologram_delta", "x": 2}}),
    );
    events.push(json!({"type": "content_block_stop", "index": 0}));
    events.push(json!({"type": "weather", "index": 0}));
    for event in text_block(1, "Hi") {
        events.extend([event, ping.clone()]);
    }
    events.extend(end(&json!({"output_tokens": 9})));
    let answer = of_messages(&events);
    assert_eq!((&*answer.text, answer.reason.as_deref(), answer.failed), ("Hi", Some("stop"), false));
}

#[test]
fn anthropic_messages_trap_5_an_error_or_a_cut_fails_the_stream() {
    let mut events = vec![begin()];
    events.extend(text_block(0, "Hi"));
    assert!(of_messages(&events).failed, "it broke off");
    events.push(json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}));
    events.extend(end(&json!({"output_tokens": 9})));
    let answer = of_messages(&events);
    assert_eq!((&*answer.text, answer.failed, answer.reason), ("Hi", true, None));
}

/// Reference "conversions", common rules: a null member counts as absent. Tested in every pair, for every top-level member
/// of its table.
#[test]
fn a_null_member_counts_as_absent_in_every_pair() {
    let mut members = 0;
    for pair in ADAPTATIONS.iter().filter(|pair| pair.client.is_conversation()) {
        let first = pair.via.unwrap_or(pair.target);
        let table = ADAPTATIONS.iter().find(|row| row.client == pair.client && row.target == first).unwrap();
        let name = format!("{}_over_{}", pair.client.name(), first.name());
        let base = fixture_json(&format!("loss/{name}.json"))["base"].clone();
        let translated = |request: &Value| {
            let prepared = prepare(pair, request.to_string().as_bytes(), &traits(&Value::Null));
            let prepared = prepared.unwrap_or_else(|why| panic!("{name}: {why:?}: {request}"));
            serde_json::from_slice::<Value>(&prepared.body).unwrap()
        };
        let plain = translated(&base);
        for loss in table.losses {
            let member = loss.field.split(['.', '=', '[']).next().unwrap();
            if base.get(member).is_some() || member == "*" {
                continue;
            }
            let mut request = base.clone();
            request[member] = Value::Null;
            assert_eq!(translated(&request), plain, "{name} on to {}: {member}", pair.target.name());
            members += 1;
        }
    }
    assert!(members > 250, "{members}");
}
