//! Adaptations of every client to every target: what one path knows, all of them know. Images of tool results, unions at
//! the root of a tool's schema, halves of surrogate pairs, and images of answers.

use serde_json::{Value, json};
use shared::model_rules::ModelRules;
use shared::operation::Dialect;
use wire::adapt::{ADAPTATIONS, Adaptation, Flaw, Rejection, Traits};

use crate::chat_over_bedrock::frame;
use crate::known_rules::known;
use crate::pair::{prepare, relay};

const PNG: &str = "iVBORw0KGgo=";

fn conversations() -> impl Iterator<Item = &'static Adaptation> {
    ADAPTATIONS.iter().filter(|pair| pair.client.is_conversation())
}

fn target(pair: &Adaptation) -> Traits<'static> {
    let model = if pair.target == Dialect::Bedrock { "anthropic.claude-sonnet-4-5" } else { "m" };
    Traits { images: true, files: true, ..known(model) }
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
        Dialect::Gemini => json!({"contents": [
            {"role": "user", "parts": [{"text": "look"}]},
            {"role": "model", "parts": [
                {"functionCall": {"id": "c1", "name": "f", "args": {}}},
                {"functionCall": {"id": "c2", "name": "f", "args": {}}}]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "c1", "name": "f", "response": {"output": "screen"},
                    "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}]}},
                {"functionResponse": {"id": "c2", "name": "f", "response": {"output": "nothing"}}}]}],
            "tools": [{"functionDeclarations": [{"name": "f"}]}]}),
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
        let want = match pair.client {
            Dialect::Responses => "input.3.output.1",
            Dialect::Gemini => "contents.2.parts.0.functionResponse.parts.0",
            _ => "messages.2.content.0.content.1",
        };
        assert_eq!((rejection.param.as_str(), rejection.flaw), (want, Flaw::Unsupported));
    }
}

#[test]
fn models_whose_results_hold_only_text_get_the_image_after_the_result() {
    for pair in conversations().filter(|pair| pair.target == Dialect::Bedrock) {
        let llama = Traits { rules: &ModelRules::UNKNOWN, ..target(pair) };
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
        Dialect::Gemini => {
            json!({"contents": [{"parts": [{"text": "x"}]}], "tools": [{"functionDeclarations": [
            {"name": "a", "parametersJsonSchema": plain}, {"name": "f", "parametersJsonSchema": schema}]}]})
        }
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
            Dialect::Gemini => "tools.0.functionDeclarations.1.parametersJsonSchema",
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
    for pair in conversations().filter(|pair| matches!(pair.client, Dialect::Chat | Dialect::Responses)) {
        let request = screenshot(pair.client).to_string();
        let request = request.replacen(r#""arguments":"{}""#, r#""arguments":"{\"q\":\"\\ud83d\"}""#, 1);
        let prepared = prepare(pair, request.as_bytes(), &target(pair)).unwrap();
        let body = String::from_utf8(prepared.body.to_vec()).unwrap();
        let is_text = matches!(pair.target, Dialect::Chat | Dialect::Responses);
        let want = if is_text { r#"{\"q\":\"\\ud83d\"}"# } else { r#"{"q":"\ufffd"}"# };
        assert!(body.contains(want), "{:?} over {:?}: {body}", pair.client, pair.target);
    }
}

/// Returns a Gemini answer with these parts, and the same answer as a stream of one event a part.
fn gemini(parts: &[Value]) -> (String, Vec<u8>) {
    let answer = |parts: &[Value], reason: Value| {
        json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": reason}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}})
    };
    let mut events: Vec<Value> =
        parts.iter().map(|part| answer(std::slice::from_ref(part), Value::Null)).collect();
    events.push(answer(&[], json!("STOP")));
    let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    (answer(parts, json!("STOP")).to_string(), stream.into_bytes())
}

/// Returns the answer to a client, whole and as the data of its events, and what is named as dropped.
fn answered(client: Dialect, parts: &[Value]) -> (Value, Vec<Value>, Vec<&'static str>) {
    let pair = conversations().find(|pair| (pair.client, pair.target) == (client, Dialect::Gemini)).unwrap();
    let answers = |stream: bool| {
        let mut request = screenshot(client);
        request["stream"] = json!(stream);
        prepare(pair, request.to_string().as_bytes(), &target(pair)).unwrap().answers
    };
    let (whole, stream) = gemini(parts);
    let translated = answers(false).whole(whole.as_bytes()).unwrap();
    let (events, state) = relay(&*answers(true), &[&stream]);
    assert!(state.done && state.content, "{state:?}");
    let events = String::from_utf8(events).unwrap();
    let data = events.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok());
    (serde_json::from_slice(&translated.body).unwrap(), data.collect(), translated.dropped)
}

/// Reports: inference-gateway/inference-gateway #274, mozilla-ai/any-llm #1333 (an answer of images alone),
/// agentgateway/agentgateway #3438, maximhq/bifrost #7032 (whole and streamed), Wei-Shaw/sub2api #4803.
#[test]
fn an_image_of_an_answer_reaches_chat_clients_as_openrouter_sends_it() {
    let part = json!({"inlineData": {"mimeType": "image/png", "data": PNG}});
    let url = format!("data:image/png;base64,{PNG}");
    let (whole, events, dropped) = answered(Dialect::Chat, &[part]);
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["images"], json!([{"type": "image_url", "image_url": {"url": url}}]), "{whole}");
    assert_eq!((&message["content"], dropped), (&json!(""), vec![]));
    let images: Vec<&Value> =
        events.iter().filter_map(|event| event["choices"][0]["delta"].get("images")).collect();
    assert_eq!(
        images,
        [&json!([{"index": 0, "type": "image_url", "image_url": {"url": url}}])],
        "{events:?}"
    );
}

#[test]
fn an_image_of_an_answer_is_an_item_for_responses_clients() {
    let parts = [json!({"text": "here"}), json!({"inlineData": {"mimeType": "image/webp", "data": PNG}})];
    let (whole, events, _) = answered(Dialect::Responses, &parts);
    let item = &whole["output"][1];
    assert_eq!((&item["type"], &item["result"]), (&json!("image_generation_call"), &json!(PNG)), "{whole}");
    assert_eq!((&item["output_format"], &item["status"]), (&json!("webp"), &json!("completed")));
    let kinds: Vec<&str> = events
        .iter()
        .filter(|event| event["output_index"] == 1)
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    let step = |name: &str| format!("response.image_generation_call.{name}");
    let want = [
        "response.output_item.added".to_owned(),
        step("in_progress"),
        step("generating"),
        step("completed"),
        "response.output_item.done".to_owned(),
    ];
    assert_eq!(kinds, want);
    let last = events.last().unwrap();
    assert_eq!(last["response"]["output"][1]["result"], PNG, "{last}");
}

#[test]
fn media_that_a_client_cannot_hold_are_marked_and_named() {
    let image = json!({"inlineData": {"mimeType": "image/png", "data": PNG}});
    let (whole, events, dropped) = answered(Dialect::Messages, &[json!({"text": "here"}), image.clone()]);
    assert_eq!(whole["content"][1], json!({"type": "text", "text": "[image]"}), "{whole}");
    assert_eq!(dropped, ["image"]);
    assert!(events.iter().any(|event| event["delta"]["text"] == "\n\n[image]"), "{events:?}");
    // Speech of an audio model, which bifrost #7032 lost as well.
    let audio = json!({"inlineData": {"mimeType": "audio/pcm", "data": PNG}});
    let (whole, events, dropped) = answered(Dialect::Chat, &[audio]);
    assert_eq!(whole["choices"][0]["message"]["content"], "[audio]");
    assert_eq!(dropped, ["audio"]);
    assert!(events.iter().any(|event| event["choices"][0]["delta"]["content"] == "[audio]"), "{events:?}");
    // A draft among the thoughts is no image of the answer.
    let mut draft = image;
    draft["thought"] = json!(true);
    let (whole, _, _) = answered(Dialect::Chat, &[draft, json!({"text": "done"})]);
    let message = &whole["choices"][0]["message"];
    assert_eq!((&message["reasoning_content"], message.get("images")), (&json!("[image]"), None), "{whole}");
}

#[test]
fn half_of_an_emoji_in_an_answer_is_no_reason_to_fail() {
    let cut = |text: String| text.replace("CUT", r"cut \ud83d");
    for pair in conversations().filter(|pair| matches!(pair.target, Dialect::Gemini | Dialect::Bedrock)) {
        let (whole, stream) = if pair.target == Dialect::Gemini {
            let (whole, stream) = gemini(&[json!({"text": "CUT"})]);
            (cut(whole), cut(String::from_utf8(stream).unwrap()).into_bytes())
        } else {
            let usage = json!({"inputTokens": 1, "outputTokens": 1, "totalTokens": 2});
            let whole = json!({"output": {"message": {"role": "assistant", "content": [{"text": "CUT"}]}},
                "stopReason": "end_turn", "usage": usage});
            let events = [
                ("messageStart", json!({"role": "assistant"})),
                ("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"text": "CUT"}})),
                ("messageStop", json!({"stopReason": "end_turn"})),
                ("metadata", json!({"usage": usage})),
            ];
            let framed = events.iter().flat_map(|(kind, payload)| {
                frame(&[(":message-type", "event"), (":event-type", kind)], &cut(payload.to_string()))
            });
            (cut(whole.to_string()), framed.collect())
        };
        let answers = |stream: bool| {
            let mut request = screenshot(pair.client);
            request["stream"] = json!(stream);
            prepare(pair, request.to_string().as_bytes(), &target(pair)).unwrap().answers
        };
        let translated = answers(false).whole(whole.as_bytes()).unwrap();
        let (streamed, state) = relay(&*answers(true), &[&stream]);
        assert!(state.error.is_none() && state.done, "{state:?}");
        for text in [translated.body.to_vec(), streamed] {
            assert!(
                String::from_utf8(text).unwrap().contains("cut \u{fffd}"),
                "{:?} over {:?}",
                pair.client,
                pair.target
            );
        }
    }
}
