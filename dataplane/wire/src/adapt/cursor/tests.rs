//! Bodies as Cursor sends them, and the chat requests that they become.

use serde_json::{Value, json};

use super::chat_of_cursor;

fn chat(body: &str) -> Value {
    let chat = chat_of_cursor(body.as_bytes(), "smart").unwrap();
    serde_json::from_slice(&chat)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&chat)))
}

#[test]
fn a_responses_request_becomes_a_chat_request() {
    let body = json!({
        "model": "smart", "stream": true, "instructions": "Be brief.", "store": false,
        "include": ["reasoning.encrypted_content"], "stream_options": {"include_usage": true}, "user": "u-1",
        "max_output_tokens": 50, "reasoning": {"effort": "low"},
        "tools": [{"type": "function", "name": "ls", "description": "Lists.", "parameters": {"type": "object"}}],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "What is here?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
            {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "a.rs"},
        ],
    });
    let got = chat(&body.to_string());
    assert_eq!((&got["model"], &got["stream"]), (&json!("smart"), &json!(true)), "{got}");
    assert_eq!(got["stream_options"], json!({"include_usage": true}));
    assert_eq!((&got["user"], &got["max_completion_tokens"]), (&json!("u-1"), &json!(50)));
    assert_eq!(got["reasoning_effort"], "low");
    for name in ["store", "include", "input", "instructions"] {
        assert_eq!(got.get(name), None, "{name}");
    }
    assert_eq!(got["tools"][0]["function"]["name"], "ls");
    let messages = got["messages"].as_array().unwrap();
    assert_eq!(messages[0], json!({"role": "system", "content": "Be brief."}));
    assert_eq!(messages[1]["role"], "user");
    assert_eq!(messages[2]["tool_calls"][0]["id"], "c1");
    assert_eq!(messages[3], json!({"role": "tool", "tool_call_id": "c1", "content": "a.rs"}));
}

#[test]
fn the_forms_of_chat_and_of_messages_are_unified() {
    let schema = json!({"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "string"}}});
    let body = json!({
        "model": "smart",
        "tools": [
            {"name": "read", "description": "Reads.", "input_schema": schema},
            {"type": "function", "function": {"name": "ls", "parameters": schema}},
        ],
        "tool_choice": {"type": "any"},
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Look."},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBP"}}]},
            {"role": "assistant", "content": [{"type": "text", "text": "I read."},
                {"type": "tool_use", "id": "t1", "name": "read", "input": {"a": "2", "z": "1"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1",
                "content": [{"type": "text", "text": "one"}, {"type": "text", "text": " two"}]},
                {"type": "text", "text": "And now?"}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "t2", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "t2", "content": "b.rs"},
        ],
    });
    // `json!` sorts members.
    let got = chat(&body.to_string().replace(r#"{"a":"2","z":"1"}"#, r#"{"z":"1","a":"2"}"#));
    let tools = got["tools"].as_array().unwrap();
    let named: Vec<_> = tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!((named, &tools[0]["function"]["parameters"]), (vec!["read", "ls"], &schema));
    assert_eq!(got["tool_choice"], "required");
    let messages = got["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "user", "assistant", "tool"], "{got}");
    let seen = messages[1].to_string();
    assert!(
        seen.contains("data:image/png;base64,iVBO") && seen.contains("data:image/png;base64,iVBP"),
        "{seen}"
    );
    let call = &messages[2]["tool_calls"][0];
    assert_eq!((&call["id"], &call["function"]["arguments"]), (&json!("t1"), &json!(r#"{"z":"1","a":"2"}"#)));
    assert_eq!(messages[3], json!({"role": "tool", "tool_call_id": "t1", "content": "one two"}));
    assert_eq!(messages[6]["content"], "b.rs");
}

#[test]
fn what_a_chat_answer_cannot_contain_is_refused_by_its_name() {
    for (member, value) in [
        ("previous_response_id", json!("resp_1")),
        ("background", json!(true)),
        ("prompt", json!({"id": "p"})),
    ] {
        let body = json!({"model": "smart", "input": "hi", member: value});
        let refused = chat_of_cursor(body.to_string().as_bytes(), "smart").unwrap_err();
        assert_eq!(refused.param, member);
    }
    let body = json!({"model": "smart", "input": "hi", "tools": [{"type": "web_search"}]});
    let refused = chat_of_cursor(body.to_string().as_bytes(), "smart").unwrap_err();
    assert_eq!(refused.param, "tools.0.type");
}
