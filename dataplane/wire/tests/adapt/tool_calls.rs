//! Tool calls in every adaptation. A tool name that the target would reject is replaced by a short name in every turn and
//! restored in the answers, and clients that send `functions` get calls as `function_call`.

use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::adapt::{ADAPTATIONS, Adaptation, Flaw, Traits};

use crate::chat_over_bedrock::frame;
use crate::normal::decode;
use crate::pair::{prepare, relay};

/// A tool name as long as those of MCP servers. `TWIN` differs from it only at the end.
const LONG: &str = "mcp__a_server_with_a_rather_long_name_of_its_own__read_the_file_at_this_path_of_it_and_say_what_stands_in_it_in_the_end_of_all_this";
const TWIN: &str = "mcp__a_server_with_a_rather_long_name_of_its_own__read_the_file_at_this_path_of_it_and_say_what_stands_in_it_in_the_end_of_all_that";

fn conversations() -> impl Iterator<Item = &'static Adaptation> {
    ADAPTATIONS.iter().filter(|pair| pair.client.is_conversation())
}

/// Returns the request of a second turn: `LONG` was called, both tools are offered, and the tool choice is `TWIN`.
fn second_turn(client: Dialect) -> Value {
    let schema = json!({"type": "object", "properties": {}});
    let tools = [LONG, TWIN];
    match client {
        Dialect::Chat => json!({"model": "m", "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": LONG, "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "y"}],
            "tools": tools.map(|name| json!({"type": "function", "function": {"name": name, "parameters": schema}})),
            "tool_choice": {"type": "function", "function": {"name": TWIN}}}),
        Dialect::Responses => json!({"model": "m", "input": [
            {"role": "user", "content": "x"},
            {"type": "function_call", "call_id": "c1", "name": LONG, "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "y"}],
            "tools": tools.map(|name| json!({"type": "function", "name": name, "parameters": schema})),
            "tool_choice": {"type": "function", "name": TWIN}}),
        Dialect::Gemini => json!({"contents": [
            {"role": "user", "parts": [{"text": "x"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": LONG, "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": LONG, "response": {"output": "y"}}}]}],
            "tools": [{"functionDeclarations":
                tools.map(|name| json!({"name": name, "parametersJsonSchema": schema}))}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [TWIN]}}}),
        _ => json!({"model": "m", "max_tokens": 9, "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": LONG, "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "y"}]}],
            "tools": tools.map(|name| json!({"name": name, "input_schema": schema})),
            "tool_choice": {"type": "tool", "name": TWIN}}),
    }
}

/// Returns a target's whole answer with a call of `name`, and the same answer as a stream.
fn answers(target: Dialect, name: &str) -> (Value, Vec<u8>) {
    let event = |value: &Value| {
        let kind = value["type"].as_str().map(|kind| format!("event: {kind}\n")).unwrap_or_default();
        format!("{kind}data: {value}\n\n")
    };
    let events = |values: &[Value]| values.iter().map(event).collect::<String>().into_bytes();
    match target {
        Dialect::Chat => {
            let call = json!({"index": 0, "id": "c2", "type": "function", "function": {"name": name, "arguments": "{}"}});
            let choice = |member: &str, end: Value| json!({"choices": [{"index": 0, member: {"tool_calls": [call]}, "finish_reason": end}]});
            let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
            (choice("message", json!("tool_calls")), events(&[choice("delta", Value::Null), end]))
        }
        Dialect::Responses => {
            let item = json!({"type": "function_call", "id": "fc", "call_id": "c2", "name": name, "arguments": "{}"});
            let response = json!({"id": "r", "status": "completed", "output": [item]});
            let added = json!({"type": "response.output_item.added", "output_index": 0, "item": item});
            let done = json!({"type": "response.completed", "response": response});
            let item = json!({"type": "response.output_item.done", "output_index": 0, "item": item});
            (response, events(&[added, item, done]))
        }
        Dialect::Messages => {
            let block = json!({"type": "tool_use", "id": "c2", "name": name, "input": {}});
            let message =
                json!({"type": "message", "content": [block], "stop_reason": "tool_use", "usage": {}});
            let stream = [
                json!({"type": "message_start", "message": {"usage": {}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": block}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}),
                json!({"type": "message_stop"}),
            ];
            (message, events(&stream))
        }
        Dialect::Gemini => {
            let parts = json!([{"functionCall": {"name": name, "args": {}}}]);
            let answer = json!({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]});
            (answer.clone(), events(&[answer]))
        }
        Dialect::Bedrock => {
            let used = json!({"toolUseId": "c2", "name": name, "input": {}});
            let answer =
                json!({"output": {"message": {"content": [{"toolUse": used}]}}, "stopReason": "tool_use"});
            let message = |kind: &str, payload: Value| {
                frame(&[(":message-type", "event"), (":event-type", kind)], &payload.to_string())
            };
            let stream = [
                message("messageStart", json!({"role": "assistant"})),
                message(
                    "contentBlockStart",
                    json!({"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "c2", "name": name}}}),
                ),
                message("contentBlockStop", json!({"contentBlockIndex": 0})),
                message("messageStop", json!({"stopReason": "tool_use"})),
                message("metadata", json!({"usage": {"inputTokens": 1, "outputTokens": 1}})),
            ];
            (answer, stream.concat())
        }
        other => panic!("no conversation is held in {other:?}"),
    }
}

/// Returns the names of the tools that a request offers, in order.
fn offered(target: Dialect, sent: &Value) -> Vec<String> {
    let (list, name) = match target {
        Dialect::Chat => ("/tools", "/function/name"),
        Dialect::Gemini => ("/tools/0/functionDeclarations", "/name"),
        Dialect::Bedrock => ("/toolConfig/tools", "/toolSpec/name"),
        _ => ("/tools", "/name"),
    };
    let tools = sent.pointer(list).unwrap().as_array().unwrap();
    tools.iter().map(|tool| tool.pointer(name).unwrap().as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_long_tool_name_is_shortened_upstream_and_restored_for_the_client() {
    for pair in conversations() {
        let name = format!("{:?} over {:?}", pair.client, pair.target);
        let body = second_turn(pair.client).to_string();
        let prepared = prepare(pair, body.as_bytes(), &Traits::of("target-model")).unwrap();
        let sent = String::from_utf8(prepared.body.to_vec()).unwrap();
        assert!(!sent.contains(LONG) && !sent.contains(TWIN), "{name}: {sent}");
        let short = offered(pair.target, &serde_json::from_str(&sent).unwrap());
        assert_ne!(short[0], short[1], "{name}");
        assert!(short.iter().all(|name| (1..=64).contains(&name.len())), "{name}: {short:?}");
        assert_eq!(
            sent.matches(&format!("\"{}\"", short[0])).count(),
            if pair.target == Dialect::Gemini { 3 } else { 2 },
            "{name}: the tool, its call{sent}"
        );
        assert_eq!(sent.matches(&format!("\"{}\"", short[1])).count(), 2, "{name}: the tool and the choice");
        let (whole, stream) = answers(pair.target, &short[1]);
        let whole = prepared.answers.whole(whole.to_string().as_bytes()).unwrap();
        let whole = String::from_utf8(whole.body.to_vec()).unwrap();
        let (streamed, state) = relay(&*prepared.answers, &[&stream]);
        let streamed = String::from_utf8(streamed).unwrap();
        for answer in [whole, streamed] {
            assert!(answer.contains(&format!("\"name\":\"{TWIN}\"")), "{name}: {answer}");
            assert!(!answer.contains(&short[1]), "{name}: {answer}");
        }
        assert!(state.done && state.error.is_none(), "{name}");
    }
}

#[test]
fn targets_without_name_rules_get_tool_names_unchanged() {
    let traits = Traits { word_tool_names: false, ..Traits::of("qwen3") };
    for pair in conversations().filter(|pair| pair.target == Dialect::Chat) {
        let prepared = prepare(pair, second_turn(pair.client).to_string().as_bytes(), &traits).unwrap();
        assert_eq!(offered(Dialect::Chat, &serde_json::from_slice(&prepared.body).unwrap()), [LONG, TWIN]);
    }
}

#[test]
fn clients_that_send_functions_get_a_function_call() {
    let request =
        json!({"model": "m", "messages": [{"role": "user", "content": "x"}], "functions": [{"name": "f"}]});
    for pair in conversations().filter(|pair| pair.client == Dialect::Chat) {
        let name = format!("over {:?}", pair.target);
        let prepared = prepare(pair, request.to_string().as_bytes(), &Traits::of("target-model")).unwrap();
        let (whole, stream) = answers(pair.target, "f");
        let whole = prepared.answers.whole(whole.to_string().as_bytes()).unwrap();
        let whole: Value = serde_json::from_slice(&whole.body).unwrap();
        let choice = &whole["choices"][0];
        assert_eq!(choice["message"]["function_call"], json!({"name": "f", "arguments": "{}"}), "{name}");
        assert_eq!(choice["finish_reason"], "function_call", "{name}");
        assert!(choice["message"].get("tool_calls").is_none(), "{name}");
        let (streamed, _) = relay(&*prepared.answers, &[&stream]);
        let (mut call, mut end) = ((String::new(), String::new()), Value::Null);
        for event in decode(&streamed).iter().filter(|event| event.data != "[DONE]") {
            let chunk: Value = serde_json::from_str(&event.data).unwrap();
            let choice = &chunk["choices"][0];
            assert!(choice["delta"].get("tool_calls").is_none(), "{name}");
            call.0 += choice["delta"]["function_call"]["name"].as_str().unwrap_or_default();
            call.1 += choice["delta"]["function_call"]["arguments"].as_str().unwrap_or_default();
            end = if choice["finish_reason"].is_null() { end } else { choice["finish_reason"].clone() };
        }
        assert_eq!((call, end), (("f".to_owned(), "{}".to_owned()), json!("function_call")), "{name}");
    }
}

/// Returns the ids and names of calls, and the ids or names of results, in their order.
fn calls_and_results(target: Dialect, sent: &Value) -> (Vec<[String; 2]>, Vec<String>) {
    let (list, content) = match target {
        Dialect::Gemini => ("contents", "parts"),
        Dialect::Responses => ("input", ""),
        _ => ("messages", "content"),
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for message in sent[list].as_array().unwrap() {
        let parts = message[content].as_array().cloned().unwrap_or_else(|| vec![message.clone()]);
        for part in parts {
            if part["type"] == "function_call" {
                calls.push([text(&part["call_id"]), text(&part["name"])]);
            } else if part["type"] == "function_call_output" {
                results.push(text(&part["call_id"]));
            } else if part["type"] == "tool_use" {
                calls.push([text(&part["id"]), text(&part["name"])]);
            } else if part["type"] == "tool_result" {
                results.push(text(&part["tool_use_id"]));
            } else if let Some(call) = part.get("toolUse") {
                calls.push([text(&call["toolUseId"]), text(&call["name"])]);
            } else if let Some(result) = part.get("toolResult") {
                results.push(text(&result["toolUseId"]));
            } else if let Some(call) = part.get("functionCall") {
                calls.push([text(&call["name"]), text(&call["name"])]);
            } else if let Some(result) = part.get("functionResponse") {
                results.push(text(&result["name"]));
            }
        }
    }
    (calls, results)
}

#[test]
fn a_function_result_is_matched_to_the_call_of_its_function() {
    let call = |name| json!({"role": "assistant", "content": null, "function_call": {"name": name, "arguments": "{}"}});
    let result = |name| json!({"role": "function", "name": name, "content": "1"});
    let messages = json!([{"role": "user", "content": "x"}, call("f"), call("g"), result("f"), result("g")]);
    let request = json!({"model": "m", "messages": messages, "functions": [{"name": "f"}, {"name": "g"}]});
    for pair in conversations().filter(|pair| pair.client == Dialect::Chat) {
        let prepared = prepare(pair, request.to_string().as_bytes(), &Traits::of("target-model")).unwrap();
        let (calls, results) =
            calls_and_results(pair.target, &serde_json::from_slice(&prepared.body).unwrap());
        assert_eq!(calls.iter().map(|[_, name]| name).collect::<Vec<_>>(), ["f", "g"], "{:?}", pair.target);
        assert_eq!(results, [calls[0][0].as_str(), &calls[1][0]], "{:?}", pair.target);
    }
}

#[test]
fn a_function_result_without_a_call_is_rejected() {
    let call =
        json!({"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}});
    for pair in conversations().filter(|pair| pair.client == Dialect::Chat) {
        for (before, name, param) in
            [(json!({"role": "user", "content": "y"}), "f", "role"), (call.clone(), "g", "name")]
        {
            let result = json!({"role": "function", "name": name, "content": "1"});
            let messages = json!([{"role": "user", "content": "x"}, before, result]);
            let request = json!({"model": "m", "messages": messages, "functions": [{"name": "f"}]});
            let refused =
                prepare(pair, request.to_string().as_bytes(), &Traits::of("target-model")).unwrap_err();
            assert_eq!(
                refused.param,
                format!("messages.2.{param}"),
                "{:?}: {}",
                pair.target,
                refused.message
            );
            assert_eq!(refused.flaw, Flaw::Malformed, "{:?}", pair.target);
        }
    }
}
