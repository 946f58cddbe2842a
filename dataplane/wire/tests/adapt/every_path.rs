//! Adaptations of every client to every target: what one path knows, all of them know. Images of tool results, unions at
//! the root of a tool's schema, and halves of surrogate pairs.

use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::adapt::{ADAPTATIONS, Adaptation, Flaw, Rejection, Traits};

use crate::pair::prepare;

const PNG: &str = "iVBORw0KGgo=";

fn conversations() -> impl Iterator<Item = &'static Adaptation> {
    ADAPTATIONS.iter().filter(|pair| pair.client.is_conversation())
}

fn target(pair: &Adaptation) -> Traits<'static> {
    let model = if pair.target == Dialect::Bedrock { "anthropic.claude-sonnet-4-5" } else { "m" };
    Traits { images: true, files: true, ..Traits::of(model) }
}

fn sent(pair: &Adaptation, request: &Value, target: &Traits<'_>) -> Result<Value, Rejection> {
    let prepared = prepare(pair, request.to_string().as_bytes(), target)?;
    Ok(serde_json::from_slice(&prepared.body).unwrap())
}

/// Returns a conversation in which two tools have been called; the result of the first one has a text and an image.
fn screenshot(client: Dialect) -> Value {
    let url = format!("data:image/png;base64,{PNG}");
    match client {
        Dialect::Chat => json!({"model": "m", "messages": [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": [
                {"type": "text", "text": "screen"}, {"type": "image_url", "image_url": {"url": url}}]},
            {"role": "tool", "tool_call_id": "c2", "content": "nothing"}],
            "tools": [{"type": "function", "function": {"name": "f"}}]}),
        Dialect::Responses => json!({"model": "m", "input": [
            {"role": "user", "content": "look"},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": [
                {"type": "input_text", "text": "screen"}, {"type": "input_image", "image_url": url}]},
            {"type": "function_call_output", "call_id": "c2", "output": "nothing"}],
            "tools": [{"type": "function", "name": "f"}]}),
        _ => json!({"model": "m", "max_tokens": 9, "messages": [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
                {"type": "tool_use", "id": "c2", "name": "f", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "screen"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}]},
                {"type": "tool_result", "tool_use_id": "c2", "content": "nothing"}]}],
            "tools": [{"name": "f", "input_schema": {"type": "object"}}]}),
    }
}

/// Returns the place of the image in the request for a target.
fn place_of_image(target: Dialect) -> &'static str {
    match target {
        Dialect::Chat => "/messages/4/content/0/image_url/url",
        Dialect::Responses => "/input/3/output/1/image_url",
        Dialect::Messages => "/messages/2/content/0/content/1/source/data",
        Dialect::Gemini => "/contents/2/parts/1/inlineData/data",
        _ => "/messages/2/content/0/toolResult/content/1/image/source/bytes",
    }
}

/// Reports: earendil-works/pi #9518, CommandCodeAI/command-code #902, vellum-ai/vellum-assistant #1864,
/// griffinwork40/agent-afk #127.
#[test]
fn an_image_of_a_tool_result_reaches_every_target() {
    for pair in conversations() {
        let body = sent(pair, &screenshot(pair.client), &target(pair)).unwrap();
        let found = body.pointer(place_of_image(pair.target)).and_then(Value::as_str).unwrap_or_default();
        assert!(found.ends_with(PNG), "{:?} over {:?}: {body}", pair.client, pair.target);
        let whole = body.to_string();
        assert!(whole.contains("screen") && whole.contains("nothing"), "{whole}");
    }
}

#[test]
fn an_image_of_a_tool_result_is_rejected_by_path_if_the_model_takes_none() {
    for pair in conversations().filter(|pair| pair.client != Dialect::Chat) {
        let blind = Traits { images: false, ..target(pair) };
        let rejection = sent(pair, &screenshot(pair.client), &blind).unwrap_err();
        let want = if pair.client == Dialect::Responses {
            "input.3.output.1"
        } else {
            "messages.2.content.0.content.1"
        };
        assert_eq!((rejection.param.as_str(), rejection.flaw), (want, Flaw::Unsupported));
    }
}

#[test]
fn models_whose_results_hold_only_text_get_the_image_after_the_result() {
    for pair in conversations().filter(|pair| pair.target == Dialect::Bedrock) {
        let llama = Traits { model: "meta.llama4", ..target(pair) };
        let body = sent(pair, &screenshot(pair.client), &llama).unwrap();
        let content = &body["messages"][2]["content"];
        assert_eq!(content[0]["toolResult"]["content"], json!([{"text": "screen"}]), "{body}");
        assert_eq!(content[1]["image"]["source"]["bytes"], PNG, "{body}");
    }
}

fn with_tool(client: Dialect, schema: &Value) -> Value {
    let ask = json!([{"role": "user", "content": "x"}]);
    let plain = json!({"type": "object", "properties": {"z": {"type": "string"}}});
    match client {
        Dialect::Chat => json!({"model": "m", "messages": ask, "tools": [
            {"type": "function", "function": {"name": "a", "parameters": plain}},
            {"type": "function", "function": {"name": "f", "strict": true, "parameters": schema}}]}),
        Dialect::Responses => json!({"model": "m", "input": ask, "tools": [
            {"type": "function", "name": "a", "parameters": plain},
            {"type": "function", "name": "f", "strict": true, "parameters": schema}]}),
        _ => json!({"model": "m", "max_tokens": 9, "messages": ask, "tools": [
            {"name": "a", "input_schema": plain}, {"name": "f", "strict": true, "input_schema": schema}]}),
    }
}

fn place_of_schema(target: Dialect) -> &'static str {
    match target {
        Dialect::Chat => "/tools/1/function/parameters",
        Dialect::Responses => "/tools/1/parameters",
        Dialect::Messages => "/tools/1/input_schema",
        Dialect::Gemini => "/tools/0/functionDeclarations/1/parametersJsonSchema",
        _ => "/toolConfig/tools/1/toolSpec/inputSchema/json",
    }
}

/// Reports: code-yeongyu/senpi #1947, NousResearch/hermes-agent #19739, anthropics/claude-code #5319 and #5878,
/// zereight/gitlab-mcp #551, nspady/google-calendar-mcp #39 (OpenAI), langchain-ai/langchainjs #9804.
#[test]
fn a_union_at_the_root_of_a_schema_becomes_an_object_for_targets_that_reject_it() {
    let branch =
        |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
    for union in ["anyOf", "oneOf", "allOf"] {
        let schema = json!({"description": "d", union: [branch("a"), branch("b")]});
        let mut want = json!({"type": "object", "description": "d",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
        if union == "allOf" {
            want["required"] = json!(["a", "b"]);
        }
        for pair in conversations() {
            let request = with_tool(pair.client, &schema);
            let strict = Traits { root_unions: false, ..target(pair) };
            let body = sent(pair, &request, &strict).unwrap();
            assert_eq!(body.pointer(place_of_schema(pair.target)), Some(&want), "{body}");
            assert!(!body.to_string().contains(r#""strict":true"#), "its members are optional: {body}");
            let body = sent(pair, &request, &target(pair)).unwrap();
            assert!(body.pointer(place_of_schema(pair.target)).unwrap().get(union).is_some(), "{body}");
        }
    }
}

#[test]
fn a_union_that_is_no_object_is_rejected_with_the_path_of_its_tool() {
    let schema = json!({"anyOf": [{"type": "string"}, {"type": "array"}]});
    for pair in conversations() {
        let strict = Traits { root_unions: false, ..target(pair) };
        let rejection = sent(pair, &with_tool(pair.client, &schema), &strict).unwrap_err();
        let want = match pair.client {
            Dialect::Chat => "tools.1.function.parameters",
            Dialect::Responses => "tools.1.parameters",
            _ => "tools.1.input_schema",
        };
        assert_eq!((rejection.param.as_str(), rejection.flaw), (want, Flaw::Unsupported), "{rejection:?}");
        assert!(rejection.message.starts_with(&format!("'{want}' is a union")), "{}", rejection.message);
    }
}

/// Reports: anthropics/claude-code #1939, #4944 and #60394, link-assistant/hive-mind #1324.
#[test]
fn half_of_an_emoji_becomes_a_replacement_character_in_every_adapted_request() {
    for pair in conversations() {
        let request = screenshot(pair.client).to_string();
        let request =
            request.replace("\"look\"", r#""cut \ud83d""#).replace("\"nothing\"", r#""\ude80 end""#);
        let prepared = prepare(pair, request.as_bytes(), &target(pair)).unwrap();
        let body: Value = serde_json::from_slice(&prepared.body).unwrap();
        let body = body.to_string();
        assert!(body.contains("cut \u{fffd}") && body.contains("\u{fffd} end"), "{body}");
    }
}

#[test]
fn half_of_an_emoji_in_the_arguments_of_a_call_is_replaced() {
    for pair in conversations().filter(|pair| pair.client != Dialect::Messages) {
        let request = screenshot(pair.client).to_string();
        let request = request.replacen(r#""arguments":"{}""#, r#""arguments":"{\"q\":\"\\ud83d\"}""#, 1);
        let prepared = prepare(pair, request.as_bytes(), &target(pair)).unwrap();
        let body = String::from_utf8(prepared.body.to_vec()).unwrap();
        let is_text = matches!(pair.target, Dialect::Chat | Dialect::Responses);
        let want = if is_text { r#"{\"q\":\"\\ud83d\"}"# } else { r#"{"q":"\ufffd"}"# };
        assert!(body.contains(want), "{:?} over {:?}: {body}", pair.client, pair.target);
    }
}
