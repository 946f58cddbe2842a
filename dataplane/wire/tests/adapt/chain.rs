//! Adaptations that chain two others: the output equals that of the two in sequence, however the input is cut, and a
//! rejection names a path of the client's request.

use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::adapt::{ADAPTATIONS, Adaptation, Answers, Rejection, Traits, find};

use crate::chat_over_bedrock::frame;
use crate::known_rules::known;
use crate::normal::decode;
use crate::pair::{answers, answers_of, cuttings, fixture, fixture_json, prepare, relay};

fn chains() -> Vec<(&'static Adaptation, &'static Adaptation, &'static Adaptation)> {
    let chains = ADAPTATIONS.iter().filter_map(|pair| {
        let via = pair.via?;
        Some((pair, find(pair.client, via).unwrap(), find(via, pair.target).unwrap()))
    });
    chains.collect()
}

/// Returns the streams of the test vectors that are in a target's dialect.
fn streams(target: Dialect) -> Vec<Vec<u8>> {
    let index = fixture_json("conv/index.json");
    let wanted = format!("{}->chat stream", target.name());
    let cases = index["cases"].as_array().unwrap().iter().filter(|case| case["conv"] == *wanted);
    cases.map(|case| fixture(case["input"].as_str().unwrap())).collect()
}

#[test]
fn streams_go_through_both_steps() {
    let args = json!({"model": "m", "include_usage": true, "thinking": true});
    let mut seen = 0;
    for (chain, first, second) in chains() {
        let between = Traits { extended_chat: true, ..Traits::of("target-model") };
        let far = answers_of(first, &args, true, &between);
        let (both, near) = (answers(chain, &args, true), answers(second, &args, true));
        for input in streams(chain.target) {
            seen += 1;
            let (between, near_state) = relay(&*near, &[&input]);
            let (want, far_state) = relay(&*far, &[&between]);
            let (whole, state) = relay(&*both, &[&input]);
            assert_eq!(state.error.is_some(), near_state.error.is_some());
            assert_eq!((state.content, state.done), (far_state.content, far_state.done));
            assert_eq!(state.usage, near_state.usage);
            if state.done {
                assert_eq!(String::from_utf8_lossy(&whole), String::from_utf8_lossy(&want));
            }
            for pieces in cuttings(&input) {
                assert!(relay(&*both, &pieces) == (whole.clone(), state.clone()));
            }
        }
    }
    assert!(seen >= 4, "{seen}");
}

#[test]
fn requests_and_whole_answers_go_through_both_steps() {
    for (chain, first, second) in chains() {
        let target = Traits::of("target-model");
        let request = match chain.client {
            Dialect::Responses => fixture("conv/e_stateless.in.json"),
            Dialect::Gemini => fixture("conv/gem_in_tools_ids.in.json"),
            _ => fixture("conv/a_agent.in.json"),
        };
        let between = Traits {
            output_limit_field: "max_completion_tokens",
            word_tool_names: false,
            extended_chat: true,
            ..target
        };
        let prepared = prepare(first, &request, &between).unwrap();
        let want = prepare(second, &prepared.body, &target).unwrap();
        let got = prepare(chain, &request, &target).unwrap();
        assert_eq!(String::from_utf8_lossy(&got.body), String::from_utf8_lossy(&want.body));
    }
    let answer = fixture("conv/d_full.in.json");
    let chain = find(Dialect::Responses, Dialect::Messages).unwrap();
    let whole = answers(chain, &json!({"model": "m"}), false).whole(&answer).unwrap();
    let body: Value = serde_json::from_slice(&whole.body).unwrap();
    assert_eq!((&body["object"], &body["model"]), (&json!("response"), &json!("m")));
    assert_eq!(whole.usage.map(|usage| usage.input), Some(20));
}

fn rejection(client: Dialect, target: Dialect, request: &Value) -> Option<Rejection> {
    let chain = find(client, target)?;
    prepare(chain, request.to_string().as_bytes(), &Traits::of("m")).err()
}

#[test]
fn a_rejection_of_the_second_step_names_the_clients_member() {
    let rows = [
        (json!({"text": {"format": {"type": "json_object"}}}), "text.format"),
        (json!({"temperature": 1.5}), "temperature"),
        (
            json!({"input": [{"role": "user", "content": "x"}, {"role": "user", "content": [
                {"type": "input_text", "text": "x"},
                {"type": "input_image", "image_url": "data:image/bmp;base64,aGk="}]}]}),
            "input.1.content.1",
        ),
        (
            json!({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"},
                {"type": "function_call_output", "call_id": "c", "output": "r"}]}),
            "input.0",
        ),
    ];
    let image = json!({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}});
    let request = json!({"max_tokens": 9, "system": "s", "messages": [{"role": "user", "content": [
        {"type": "text", "text": "x"}, image]}]});
    let refused = rejection(Dialect::Messages, Dialect::Gemini, &request).unwrap();
    assert_eq!(refused.param, "messages.0.content.1.source");
    for (more, param) in rows {
        let mut request = json!({"model": "m", "input": "x"});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let rejection = rejection(Dialect::Responses, Dialect::Messages, &request).unwrap();
        assert_eq!(rejection.param, param, "{more}");
        assert!(rejection.message.starts_with(&format!("'{param}' ")), "{}", rejection.message);
    }
}

const CLAUDE: &str = "anthropic.claude-sonnet-4-5";
const SIGNED: &str = "c2lnbmF0dXJlLW9mLXRob3VnaHRzCg==";

/// Returns a tool loop of a Messages client with signed thinking blocks and cache marks.
fn marked_loop() -> Value {
    let mark = json!({"type": "ephemeral"});
    json!({"max_tokens": 9000, "top_k": 40, "thinking": {"type": "enabled", "budget_tokens": 2048},
        "system": [{"type": "text", "text": "S"}, {"type": "text", "text": "T", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}, "cache_control": mark}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": mark}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": SIGNED},
                {"type": "redacted_thinking", "data": "cmVk"},
                {"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "y", "cache_control": mark}]}]})
}

fn prepared(
    client: Dialect,
    target: Dialect,
    traits: &Traits<'_>,
    request: &Value,
) -> (Value, Box<dyn Answers>) {
    let prepared = prepare(find(client, target).unwrap(), request.to_string().as_bytes(), traits).unwrap();
    (serde_json::from_slice(&prepared.body).unwrap(), prepared.answers)
}

#[test]
fn claude_on_bedrock_gets_cache_marks_thinking_and_top_k_of_messages() {
    let traits = Traits { reasoning: true, ..known(CLAUDE) };
    let (sent, _) = prepared(Dialect::Messages, Dialect::Bedrock, &traits, &marked_loop());
    let point = json!({"cachePoint": {"type": "default"}});
    let long = json!({"cachePoint": {"type": "default", "ttl": "1h"}});
    assert_eq!(sent["system"], json!([{"text": "S"}, {"text": "T"}, long]));
    assert_eq!(sent["messages"][0]["content"], json!([{"text": "x"}, point]));
    assert_eq!(
        sent["messages"][1]["content"],
        json!([
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": SIGNED}}},
            {"reasoningContent": {"redactedContent": "cmVk"}},
            {"toolUse": {"toolUseId": "c1", "name": "f", "input": {}}},
        ])
    );
    assert_eq!(sent["messages"][2]["content"][1], point);
    assert_eq!(sent["toolConfig"]["tools"][1], point);
    let fields = &sent["additionalModelRequestFields"];
    assert_eq!(fields["thinking"], json!({"type": "enabled", "budget_tokens": 2048}));
    assert!(fields.get("top_k").is_none(), "Claude takes none while it thinks");
    let mut calm = marked_loop();
    calm.as_object_mut().unwrap().remove("thinking");
    let (sent, _) = prepared(Dialect::Messages, Dialect::Bedrock, &traits, &calm);
    assert_eq!(sent["additionalModelRequestFields"], json!({"top_k": 40}));
}

#[test]
fn messages_clients_get_the_signed_thinking_of_claude_on_bedrock() {
    let traits = Traits { reasoning: true, ..known(CLAUDE) };
    let (_, answers) = prepared(Dialect::Messages, Dialect::Bedrock, &traits, &marked_loop());
    let want = json!([
        {"type": "thinking", "thinking": "so", "signature": SIGNED},
        {"type": "redacted_thinking", "data": "cmVk"},
        {"type": "text", "text": "yes"},
    ]);
    let content = json!([
        {"reasoningContent": {"reasoningText": {"text": "so", "signature": SIGNED}}},
        {"reasoningContent": {"redactedContent": "cmVk"}},
        {"text": "yes"},
    ]);
    let whole = json!({"output": {"message": {"content": content}}, "stopReason": "end_turn"});
    let whole = answers.whole(whole.to_string().as_bytes()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&whole.body).unwrap()["content"], want);
    let event = |kind: &str, payload: Value| {
        frame(&[(":message-type", "event"), (":event-type", kind)], &payload.to_string())
    };
    let delta = |block: u64, delta: Value| {
        event("contentBlockDelta", json!({"contentBlockIndex": block, "delta": delta}))
    };
    let stream = [
        event("messageStart", json!({"role": "assistant"})),
        delta(0, json!({"reasoningContent": {"text": "s"}})),
        delta(0, json!({"reasoningContent": {"text": "o"}})),
        delta(0, json!({"reasoningContent": {"signature": SIGNED}})),
        event("contentBlockStop", json!({"contentBlockIndex": 0})),
        delta(1, json!({"reasoningContent": {"redactedContent": "cmVk"}})),
        event("contentBlockStop", json!({"contentBlockIndex": 1})),
        delta(2, json!({"text": "yes"})),
        event("contentBlockStop", json!({"contentBlockIndex": 2})),
        event("messageStop", json!({"stopReason": "end_turn"})),
        event("metadata", json!({"usage": {"inputTokens": 1, "outputTokens": 1}})),
    ]
    .concat();
    for pieces in cuttings(&stream) {
        let (out, state) = relay(&*answers, &pieces);
        assert!(state.done && state.error.is_none());
        assert_eq!(json!(blocks(&out)), want);
    }
}

#[test]
fn messages_clients_get_the_cache_lifetimes_of_claude_on_bedrock() {
    let usage = json!({"inputTokens": 5, "outputTokens": 2, "cacheWriteInputTokens": 9,
        "cacheDetails": [{"ttl": "5m", "inputTokens": 2}, {"ttl": "1h", "inputTokens": 7}]});
    let answers = answers(find(Dialect::Messages, Dialect::Bedrock).unwrap(), &json!({"model": "m"}), true);
    let want = json!({"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 7});
    let content = json!([{"text": "x"}]);
    let whole =
        json!({"output": {"message": {"content": content}}, "stopReason": "end_turn", "usage": usage});
    let whole = answers.whole(whole.to_string().as_bytes()).unwrap();
    let body: Value = serde_json::from_slice(&whole.body).unwrap();
    assert_eq!(body["usage"]["cache_creation"], want);
    let event = |kind: &str, payload: Value| {
        frame(&[(":message-type", "event"), (":event-type", kind)], &payload.to_string())
    };
    let stream = [
        event("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"text": "x"}})),
        event("messageStop", json!({"stopReason": "end_turn"})),
        event("metadata", json!({"usage": usage})),
    ];
    let (out, _) = relay(&*answers, &[&stream.concat()]);
    let events: Vec<Value> =
        decode(&out).iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect();
    let last = events.iter().find(|event| event["type"] == "message_delta").unwrap();
    assert_eq!(last["usage"]["cache_creation"], want);
}

/// Assembles the blocks of a Messages stream, as SDKs do.
fn blocks(stream: &[u8]) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    for event in decode(stream) {
        let event: Value = serde_json::from_str(&event.data).unwrap();
        if event["type"] == "content_block_start" {
            blocks.push(event["content_block"].clone());
        }
        for member in ["text", "thinking", "signature"] {
            if let Some(more) = event["delta"][member].as_str() {
                let block = blocks.last_mut().unwrap();
                block[member] = json!(block[member].as_str().unwrap().to_owned() + more);
            }
        }
    }
    blocks
}

/// Returns the ids that a client receives for a signed Gemini call: in a whole answer and in a stream.
fn signed_calls(client: Dialect, answers: &dyn Answers) -> [String; 2] {
    let parts = json!([{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": SIGNED}]);
    let answer = json!({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}).to_string();
    let whole: Value = serde_json::from_slice(&answers.whole(answer.as_bytes()).unwrap().body).unwrap();
    let (streamed, _) = relay(answers, &[format!("data: {answer}\n\n").as_bytes()]);
    let events: Vec<Value> =
        decode(&streamed).iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect();
    let (whole, begun, id) = match client {
        Dialect::Messages => (&whole["content"][0]["id"], "/content_block/id", "content_block_start"),
        _ => (&whole["output"][0]["call_id"], "/item/call_id", "response.output_item.added"),
    };
    let event = events.iter().find(|event| event["type"] == id).unwrap();
    [whole, event.pointer(begun).unwrap()].map(|id| id.as_str().unwrap().to_owned())
}

#[test]
fn gemini_signatures_round_trip_through_messages_and_responses_clients() {
    for client in [Dialect::Messages, Dialect::Responses] {
        let turn = |id: &str| match client {
            Dialect::Messages => {
                json!({"max_tokens": 9, "tools": [{"name": "f", "input_schema": {}}], "messages": [
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "y"}]}]})
            }
            _ => json!({"tools": [{"type": "function", "name": "f"}], "input": [
                {"role": "user", "content": "x"},
                {"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": id, "output": "y"}]}),
        };
        let gemini = known("gemini-3-pro-preview");
        let (_, answers) = prepared(client, Dialect::Gemini, &gemini, &turn("c0"));
        for id in signed_calls(client, &*answers) {
            assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)), "{id}");
            let (sent, _) = prepared(client, Dialect::Gemini, &gemini, &turn(&id));
            let call = &sent["contents"][1]["parts"][0];
            assert_eq!(call["thoughtSignature"], SIGNED, "{client:?}");
            let answered = &sent["contents"][2]["parts"][0]["functionResponse"]["id"];
            assert_eq!(
                (&call["functionCall"]["id"], answered),
                (answered, &json!(id.split("__").next().unwrap()))
            );
            // Other targets get the id without the signature.
            let (sent, _) = prepared(client, Dialect::Chat, &Traits::of("gpt-5"), &turn(&id));
            let call = &sent["messages"][1]["tool_calls"][0];
            assert_eq!((&call["id"], call.get("extra_content")), (answered, None));
            assert_eq!(sent["messages"][2]["tool_call_id"], *answered);
        }
    }
}
