//! Responses clients over targets that serve agents (`responses_fallback: agents`): a session of Codex on each protocol.

use bytes::Bytes;
use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::adapt::{Adaptation, Prepared, Traits, find};

use crate::pair::{cuttings, prepare, seal_of};
use crate::responses_reader::{Read, read};

const PATCH: &str = "*** Begin Patch\n*** Update File: a.txt\n+ü \"b\"\n*** End Patch\n";

/// A request as Codex sends it, with these items after the first message.
fn request(items: &[Value]) -> Value {
    let mut input = vec![
        json!({"type": "additional_tools", "role": "developer", "tools": [
            {"type": "namespace", "name": "multi_agent_v1", "tools": [function("spawn_agent")]}]}),
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Edit a.txt."}]}),
    ];
    input.extend_from_slice(items);
    json!({
        "model": "m", "stream": true, "store": false, "input": input, "parallel_tool_calls": true,
        "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "medium", "summary": "auto"},
        "text": {"verbosity": "low"}, "prompt_cache_key": "k", "client_metadata": {"a": "b"}, "tool_choice": "auto",
        "tools": [function("exec_command"), {"type": "web_search"}, {"type": "custom", "name": "apply_patch",
            "description": "Edit.", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}}],
    })
}

fn function(name: &str) -> Value {
    json!({"type": "function", "name": name, "strict": false, "parameters": {"type": "object", "properties": {}}})
}

fn pair(target: Dialect) -> &'static Adaptation {
    find(Dialect::Responses, target).unwrap()
}

fn asked(target: Dialect, owner: &str, request: &Value) -> Prepared {
    let seal = seal_of(owner);
    let traits = Traits { agents: Some(&seal), reasoning: true, ..Traits::of("target-model") };
    prepare(pair(target), request.to_string().as_bytes(), &traits).unwrap_or_else(|why| panic!("{why:?}"))
}

/// Returns what the client reads of a stream, which is the same however it is cut.
fn answered(prepared: &Prepared, stream: &[u8]) -> Read {
    let relay = |pieces: &[&[u8]]| {
        let (mut stream, mut out) = (prepared.answers.stream(Vec::new()), Vec::new());
        pieces.iter().for_each(|piece| stream.push(Bytes::copy_from_slice(piece), &mut out));
        stream.end(&mut out);
        assert!(stream.state().done, "{:?}", stream.state());
        out.concat()
    };
    let whole = relay(&[stream]);
    for pieces in cuttings(stream).iter().step_by(5) {
        assert_eq!(relay(pieces), whole);
    }
    read(&whole)
}

fn sse(events: &[Value]) -> Vec<u8> {
    let event = |data: &Value| match data["type"].as_str() {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    };
    events.iter().map(event).collect::<String>().into_bytes()
}

fn chat_stream(deltas: &[Value]) -> Vec<u8> {
    let mut chunks: Vec<Value> =
        deltas.iter().map(|delta| json!({"choices": [{"index": 0, "delta": delta}]})).collect();
    chunks.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}));
    let mut stream = sse(&chunks);
    stream.extend_from_slice(b"data: [DONE]\n\n");
    stream
}

fn messages_stream(blocks: &[(Value, Vec<Value>)]) -> Vec<u8> {
    let mut events =
        vec![json!({"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}})];
    for (index, (block, deltas)) in blocks.iter().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        for delta in deltas {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}}),
    );
    events.push(json!({"type": "message_stop"}));
    sse(&events)
}

fn sent(prepared: &Prepared) -> Value {
    serde_json::from_slice(&prepared.body).unwrap()
}

/// Asserts that the answer has reasoning with this summary, and a call of each kind of tool. Returns its items and the
/// results of the calls, as the client sends them next.
fn history(read: &Read, summary: &str) -> Vec<Value> {
    let [reasoning, patch, spawn] = read.items.as_slice() else { panic!("{:?}", read.items) };
    assert_eq!(
        (&reasoning["type"], &reasoning["summary"][0]["text"]),
        (&json!("reasoning"), &json!(summary))
    );
    let sealed = reasoning["encrypted_content"].as_str().unwrap();
    assert!(sealed.starts_with("llmgw-reasoning-1.") && !sealed.contains(summary));
    assert_eq!(
        (&patch["type"], &patch["name"], &patch["input"]),
        (&json!("custom_tool_call"), &json!("apply_patch"), &json!(PATCH))
    );
    assert_eq!(
        (&spawn["type"], &spawn["namespace"], &spawn["name"]),
        (&json!("function_call"), &json!("multi_agent_v1"), &json!("spawn_agent"))
    );
    let result = |call: &Value| {
        let kind = call["type"].as_str().unwrap();
        json!({"type": format!("{kind}_output"), "call_id": call["call_id"], "output": "done"})
    };
    let mut items = read.items.clone();
    items.extend([result(patch), result(spawn)]);
    items
}

fn patch_arguments() -> String {
    json!({"input": PATCH}).to_string()
}

#[test]
fn reasoning_and_custom_tools_go_through_chat_and_come_back() {
    let first = asked(Dialect::Chat, "a", &request(&[]));
    assert_eq!(first.dropped, ["tools.web_search"]);
    let body = sent(&first);
    let names: Vec<_> =
        body["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].clone()).collect();
    assert_eq!(json!(names), json!(["exec_command", "apply_patch", "multi_agent_v1__spawn_agent"]));
    for absent in ["include", "store", "prompt_cache_key", "client_metadata", "verbosity"] {
        assert!(body.get(absent).is_none(), "{absent}");
    }
    let arguments = patch_arguments();
    let call = |index: u8, id: &str, name: &str, input: &str| json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": input}}]});
    let more = |part: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": part}}]});
    let read = answered(
        &first,
        &chat_stream(&[
            json!({"reasoning_content": "I th"}),
            json!({"reasoning_content": "ink."}),
            call(0, "c1", "apply_patch", ""),
            more(&arguments[..20]),
            more(&arguments[20..21]),
            more(&arguments[21..]),
            call(1, "c2", "multi_agent_v1__spawn_agent", "{}"),
        ]),
    );
    let items = history(&read, "I think.");
    let rules = crate::pair::rules(&json!({"reasoning_back": "tool_calls"}));
    let seal = seal_of("a");
    let traits = Traits { agents: Some(&seal), rules, ..Traits::of("target-model") };
    let second = prepare(pair(Dialect::Chat), request(&items).to_string().as_bytes(), &traits).unwrap();
    let messages = sent(&second)["messages"].clone();
    assert_eq!(messages[1]["reasoning_content"], "I think.");
    assert_eq!(messages[1]["tool_calls"][0]["function"]["arguments"], arguments);
    assert_eq!(messages[1]["tool_calls"][1]["function"]["name"], "multi_agent_v1__spawn_agent");
    assert_eq!((&messages[2]["tool_call_id"], &messages[2]["content"]), (&json!("c1"), &json!("done")));
}

#[test]
fn signed_thoughts_return_to_claude_and_to_nobody_else() {
    let first = asked(Dialect::Messages, "a", &request(&[]));
    let signature = "EqQBCgIYAhIM1gbcDa9GJwZA2b3h/+8=";
    let arguments = patch_arguments();
    let read = answered(
        &first,
        &messages_stream(&[
            (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                vec![
                    json!({"type": "thinking_delta", "thinking": "I think."}),
                    json!({"type": "signature_delta", "signature": signature}),
                ],
            ),
            (
                json!({"type": "tool_use", "id": "t1", "name": "apply_patch", "input": {}}),
                vec![
                    json!({"type": "input_json_delta", "partial_json": &arguments[..33]}),
                    json!({"type": "input_json_delta", "partial_json": &arguments[33..]}),
                ],
            ),
            (
                json!({"type": "tool_use", "id": "t2", "name": "multi_agent_v1__spawn_agent", "input": {}}),
                vec![],
            ),
        ]),
    );
    let items = history(&read, "I think.");
    assert!(!read.response.to_string().contains(signature), "no client sees the signature");
    let second = request(&items);
    for dialect in [Dialect::Messages, Dialect::Bedrock, Dialect::Gemini, Dialect::Chat] {
        let prepared = asked(dialect, "a", &second);
        let text = sent(&prepared).to_string();
        let returns = dialect == Dialect::Messages;
        assert_eq!(text.contains(signature), returns, "{dialect:?}: {text}");
        let names = prepared.dropped.contains(&"input.reasoning.encrypted_content".to_owned());
        assert_eq!(names, matches!(dialect, Dialect::Gemini | Dialect::Chat), "{dialect:?}");
    }
    let body = sent(&asked(Dialect::Messages, "a", &second));
    assert_eq!(
        body["messages"][1]["content"][0],
        json!({"type": "thinking", "thinking": "I think.", "signature": signature})
    );
    assert_eq!(body["messages"][1]["content"][1]["input"], json!({"input": PATCH}));
}

#[test]
fn redacted_thoughts_without_any_text_come_back() {
    let first = asked(Dialect::Messages, "a", &request(&[]));
    let read = answered(
        &first,
        &messages_stream(&[
            (json!({"type": "redacted_thinking", "data": "cmVk"}), vec![]),
            (json!({"type": "text", "text": ""}), vec![json!({"type": "text_delta", "text": "Done."})]),
        ]),
    );
    assert_eq!((&read.items[0]["type"], &read.items[0]["summary"]), (&json!("reasoning"), &json!([])));
    let body = sent(&asked(Dialect::Messages, "a", &request(&read.items)));
    assert_eq!(body["messages"][1]["content"][0], json!({"type": "redacted_thinking", "data": "cmVk"}));
}

#[test]
fn geminis_signatures_return_to_gemini() {
    let first = asked(Dialect::Gemini, "a", &request(&[]));
    let part = |part: &Value| json!({"candidates": [{"content": {"role": "model", "parts": [part]}}]});
    let end = json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 1}});
    let calls = [
        part(&json!({"text": "I think.", "thought": true})),
        part(
            &json!({"functionCall": {"name": "apply_patch", "args": {"input": PATCH}}, "thoughtSignature": "c2ln"}),
        ),
        part(&json!({"functionCall": {"name": "multi_agent_v1__spawn_agent", "args": {}}})),
        end.clone(),
    ];
    let items = history(&answered(&first, &sse(&calls)), "I think.");
    let body = sent(&asked(Dialect::Gemini, "a", &request(&items)));
    assert_eq!(body["contents"][1]["parts"][0]["thoughtSignature"], "c2ln");
    assert_eq!(body["contents"][1]["parts"][0]["functionCall"]["args"], json!({"input": PATCH}));
    let text = [part(&json!({"text": "Done.", "thoughtSignature": "dGV4dA=="})), end];
    let read = answered(&first, &sse(&text));
    assert_eq!(read.items.iter().map(|item| &item["type"]).collect::<Vec<_>>(), ["message", "reasoning"]);
    let body = sent(&asked(Dialect::Gemini, "a", &request(&read.items)));
    assert_eq!(body["contents"][1]["parts"], json!([{"text": "Done.", "thoughtSignature": "dGV4dA=="}]));
}

#[test]
fn sealed_reasoning_of_another_owner_is_refused_with_its_path() {
    let first = asked(Dialect::Chat, "a", &request(&[]));
    let read = answered(&first, &chat_stream(&[json!({"reasoning_content": "x"}), json!({"content": "y"})]));
    let seal = seal_of("b");
    let traits = Traits { agents: Some(&seal), ..Traits::of("target-model") };
    let why = prepare(pair(Dialect::Chat), request(&read.items).to_string().as_bytes(), &traits).unwrap_err();
    assert_eq!(why.param, "input.2.encrypted_content");
    assert!(why.message.contains("Remove the item"), "{}", why.message);
}

#[test]
fn a_whole_answer_for_an_agent_equals_the_last_event_of_its_stream() {
    let message = json!({"role": "assistant", "reasoning": "hm", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "apply_patch", "arguments": patch_arguments()}},
        {"id": "c2", "type": "function", "function": {"name": "multi_agent_v1__spawn_agent", "arguments": "{}"}}]});
    let body = json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
    let prepared = asked(Dialect::Chat, "a", &request(&[]));
    let whole: Value =
        serde_json::from_slice(&prepared.answers.whole(body.to_string().as_bytes()).unwrap().body).unwrap();
    assert_eq!(whole, answered(&prepared, &chat_stream(&[message])).response);
    assert_eq!(whole["reasoning"], json!({"effort": "medium", "summary": "auto"}));
}

#[test]
fn without_include_reasoning_is_not_sealed_and_without_summary_it_is_content() {
    let mut plain = request(&[]);
    for name in ["include", "reasoning"] {
        plain.as_object_mut().unwrap().remove(name);
    }
    let stream = chat_stream(&[json!({"reasoning_content": "hm"}), json!({"content": "y"})]);
    let read = answered(&asked(Dialect::Chat, "a", &plain), &stream);
    assert_eq!(read.items[0]["content"], json!([{"type": "reasoning_text", "text": "hm"}]));
    assert!(read.items[0].get("encrypted_content").is_none());
}

#[test]
fn a_flattened_name_never_equals_that_of_another_tool() {
    let mut same = request(&[]);
    same["tools"] = json!([function("multi_agent_v1__spawn_agent")]);
    let prepared = asked(Dialect::Chat, "a", &same);
    let body = sent(&prepared);
    let name = |at: usize| body["tools"][at]["function"]["name"].as_str().unwrap();
    assert_ne!(name(0), name(1));
    let call = |name: &str| json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": name, "arguments": "{}"}}]});
    let item = |name: &str| answered(&prepared, &chat_stream(&[call(name)])).items[0].clone();
    assert_eq!(
        (item(name(0))["name"].clone(), item(name(0)).get("namespace").cloned()),
        (json!("multi_agent_v1__spawn_agent"), None)
    );
    assert_eq!(
        (&item(name(1))["name"], &item(name(1))["namespace"]),
        (&json!("spawn_agent"), &json!("multi_agent_v1"))
    );
}

#[test]
fn a_tool_that_the_target_rejects_is_named_by_its_place_in_the_request() {
    let mut odd = request(&[]);
    let union = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
    odd["input"][0]["tools"][0]["tools"][0]["parameters"] = union;
    let seal = seal_of("a");
    let traits = Traits { agents: Some(&seal), root_unions: false, ..Traits::of("target-model") };
    let why = prepare(pair(Dialect::Chat), odd.to_string().as_bytes(), &traits).unwrap_err();
    assert_eq!(why.param, "input.0.tools.0.tools.0.parameters");
}
