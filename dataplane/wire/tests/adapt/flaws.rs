//! Every pair distinguishes requests that are invalid for any target from those that only this target cannot serve.

use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::adapt::{ADAPTATIONS, Flaw, Traits};

use crate::pair::prepare;

/// Returns request members that are invalid in the client's dialect, each with the path of the error.
fn malformed(client: Dialect) -> Vec<(Value, &'static str)> {
    match client {
        Dialect::Chat => vec![
            (json!({"messages": "x"}), "messages"),
            (json!({"messages": ["x"]}), "messages.0"),
            (json!({"messages": [{"content": "x"}]}), "messages.0.role"),
            (json!({"messages": [{"role": "robot", "content": "x"}]}), "messages.0.role"),
            (
                json!({"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
                "messages.0.content.0.text",
            ),
            (json!({"messages": [{"role": "tool", "content": "x"}]}), "messages.0.tool_call_id"),
            (json!({"tools": {}}), "tools"),
            (json!({"tools": [{"type": "function"}]}), "tools.0.function"),
            (json!({"tools": [{"type": 5}]}), "tools.0.type"),
            (json!({"tools": [{"type": "function", "function": {}}]}), "tools.0.function.name"),
            (json!({"response_format": "json"}), "response_format"),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": 5}}),
                "response_format.json_schema",
            ),
        ],
        Dialect::Messages => vec![
            (json!({"messages": "x"}), "messages"),
            (json!({"messages": [{"content": "x"}]}), "messages.0.role"),
            (json!({"messages": [{"role": "user"}]}), "messages.0.content"),
            (
                json!({"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
                "messages.0.content.0.text",
            ),
            (json!({"system": 5}), "system"),
            (json!({"max_tokens": null}), "max_tokens"),
            (json!({"tools": [{}]}), "tools.0.name"),
            (json!({"stop_sequences": "x"}), "stop_sequences"),
        ],
        Dialect::Gemini => vec![
            (json!({"contents": []}), "contents"),
            (json!({"contents": [5]}), "contents.0"),
            (json!({"contents": [{"role": "robot", "parts": []}]}), "contents.0.role"),
            (
                json!({"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": "?"}}]}]}),
                "contents.0.parts.0.inlineData.data",
            ),
            (
                json!({"contents": [{"parts": [{"functionResponse": {"name": "f"}}]}]}),
                "contents.0.parts.0.functionResponse.name",
            ),
            (json!({"tools": {}}), "tools"),
            (json!({"tools": [{"functionDeclarations": [{}]}]}), "tools.0.functionDeclarations.0.name"),
            (json!({"generationConfig": {"topP": 1, "top_p": 1}}), "generationConfig.topP"),
            (json!({"generationConfig": {"temperature": "hot"}}), "generationConfig.temperature"),
        ],
        _ => vec![
            (json!({"input": 5}), "input"),
            (json!({"input": [5]}), "input.0"),
            (json!({"input": [{"role": "user"}]}), "input.0.content"),
            (json!({"input": [{"role": "robot", "content": "x"}]}), "input.0.role"),
            (json!({"input": [{"type": "function_call_output", "output": ""}]}), "input.0.call_id"),
            (json!({"tools": {}}), "tools"),
            (json!({"tools": [{"type": "function"}]}), "tools.0.name"),
            (json!({"text": "json"}), "text"),
        ],
    }
}

/// Returns request members that a native target can serve but no adaptation can translate, each with its path.
fn unsupported(client: Dialect) -> Vec<(Value, &'static str)> {
    match client {
        Dialect::Chat => vec![
            (json!({"logit_bias": {"50256": -100}}), "logit_bias"),
            (json!({"web_search_options": {}}), "web_search_options"),
        ],
        Dialect::Messages => vec![
            (json!({"mcp_servers": [{"name": "x"}]}), "mcp_servers"),
            (json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}), "tools.0.type"),
        ],
        Dialect::Gemini => vec![
            (json!({"cachedContent": "cachedContents/x"}), "cachedContent"),
            (json!({"tools": [{"google_search": {}}]}), "tools.0.googleSearch"),
        ],
        _ => vec![
            (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
            (json!({"tools": [{"type": "web_search"}]}), "tools.0.type"),
        ],
    }
}

fn request(client: Dialect, more: &Value) -> String {
    let messages = json!([{"role": "user", "content": "x"}]);
    let mut request = match client {
        Dialect::Chat => json!({"model": "m", "messages": messages}),
        Dialect::Messages => json!({"model": "m", "max_tokens": 9, "messages": messages}),
        Dialect::Gemini => json!({"contents": [{"parts": [{"text": "x"}]}]}),
        _ => json!({"model": "m", "input": "x"}),
    };
    for (name, value) in more.as_object().unwrap() {
        request[name] = value.clone();
    }
    request.to_string()
}

#[test]
fn malformed_and_unsupported_requests_are_distinguished() {
    let mut pairs = 0;
    for pair in ADAPTATIONS.iter().filter(|pair| pair.client.is_conversation()) {
        let name = format!("{} over {}", pair.client.name(), pair.target.name());
        for (rows, flaw) in
            [(malformed(pair.client), Flaw::Malformed), (unsupported(pair.client), Flaw::Unsupported)]
        {
            for (more, param) in rows {
                let body = request(pair.client, &more);
                let rejection = prepare(pair, body.as_bytes(), &Traits::of("target-model")).unwrap_err();
                assert_eq!(
                    (&*rejection.param, rejection.flaw),
                    (param, flaw),
                    "{name}: {more}: {rejection:?}"
                );
            }
        }
        pairs += 1;
    }
    assert_eq!(pairs, 16);
}

#[test]
fn common_variants_of_chat_requests_are_equivalent_for_every_target() {
    let user = json!({"role": "user", "content": "x"});
    let call = |arguments: Value| {
        let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}});
        json!({"messages": [user, {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "y"}], "tools": [function()]})
    };
    let image = |url: Value| json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]});
    let url = "data:image/png;base64,iVBO";
    let untyped = json!({"tools": [{"function": function()["function"]}]});
    let rows = [
        (call(json!({"a": 1})), call(json!("{\"a\":1}"))),
        (image(json!(url)), image(json!({"url": url}))),
        (untyped, json!({"tools": [function()]})),
    ];
    for pair in ADAPTATIONS.iter().filter(|pair| pair.client == Dialect::Chat) {
        for (variant, usual) in &rows {
            let [variant, usual] = [variant, usual].map(|more| {
                let body = request(Dialect::Chat, more);
                prepare(pair, body.as_bytes(), &Traits::of("target-model"))
                    .map(|prepared| prepared.body)
                    .unwrap()
            });
            assert_eq!(variant, usual, "{}", pair.target.name());
        }
    }
}

fn function() -> Value {
    json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}})
}
