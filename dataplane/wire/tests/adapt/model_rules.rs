//! Requests for models with rules: what is sent, and what the client learns of it. Each row names the public report of
//! the fault.

use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::adapt::{Prepared, Rejection, Traits, find};

use crate::known_rules::known;
use crate::pair::{prepare, rules};

/// One request and what is sent of it.
pub(crate) struct Row {
    /// The report.
    pub(crate) seen: &'static str,
    pub(crate) from: Dialect,
    pub(crate) to: Dialect,
    pub(crate) rules: Value,
    pub(crate) request: Value,
    /// JSON pointers into the sent body, with their values; null for an absent member.
    pub(crate) sent: Value,
    pub(crate) dropped: &'static [&'static str],
    pub(crate) changed: &'static [&'static str],
}

fn prepared(row: &Row) -> Result<Prepared, Rejection> {
    let of_family = known("anthropic.claude-x");
    let rules = rules(&row.rules).clone().or(of_family.rules);
    let root_unions = rules.root_unions.unwrap_or(of_family.root_unions);
    let target = Traits { rules: &rules, root_unions, reasoning: true, ..of_family };
    let mut request = json!({"model": "x"});
    if row.from == Dialect::Responses {
        request["input"] = json!("hi");
    } else {
        request["messages"] = json!([{"role": "user", "content": "hi"}]);
    }
    if row.from == Dialect::Messages {
        request["max_tokens"] = json!(30_000);
    }
    for (name, value) in row.request.as_object().unwrap() {
        request[name] = value.clone();
    }
    prepare(find(row.from, row.to).unwrap(), request.to_string().as_bytes(), &target)
}

pub(crate) fn check(rows: &[Row]) {
    for row in rows {
        let name = format!("{} {:?} over {:?}: {}", row.seen, row.from, row.to, row.request);
        let prepared = prepared(row).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let sent: Value = serde_json::from_slice(&prepared.body).unwrap();
        for (pointer, want) in row.sent.as_object().unwrap() {
            let got = sent.pointer(pointer).unwrap_or(&Value::Null);
            assert_eq!(got, want, "{name}\n{pointer} of {sent}");
        }
        assert_eq!(prepared.dropped, row.dropped, "{name}\n{sent}");
        assert_eq!(prepared.changed, row.changed, "{name}\n{sent}");
    }
}

/// The rules of Claude Opus 4.7.
fn adaptive() -> Value {
    json!({"thinking": "adaptive", "thinks_by_default": false, "thinking_off": "thinking", "hides_thinking": true,
        "efforts": ["low", "medium", "high", "xhigh", "max"], "sampling": "none",
        "forced_tool_with_thinking": false})
}

/// The rules of Claude Opus 4.6.
fn either() -> Value {
    json!({"thinking": "either", "efforts": ["low", "medium", "high", "max"], "sampling": "one",
        "forced_tool_with_thinking": false})
}

/// The rules of Claude Sonnet 4.5.
fn budget() -> Value {
    json!({"thinking": "budget", "efforts": [], "sampling": "one", "forced_tool_with_thinking": false})
}

/// The rules of Claude Opus 5.5.
fn always() -> Value {
    json!({"thinking": "always", "thinks_by_default": true, "thinking_off": "unavailable",
        "forced_tool_with_thinking": false, "sampling": "none"})
}

fn tools() -> Value {
    json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn sampling_members_that_a_model_refuses_are_left_out_and_named() {
    use Dialect::{Bedrock, Chat, Messages, Responses};
    let all = json!({"temperature": 0.2, "top_p": 0.9, "top_k": 5});
    let both = json!({"temperature": 0.2, "top_p": 0.9});
    let none = json!({"/temperature": null, "/top_p": null, "/top_k": null});
    let row = |seen, from, to, rules, request, sent, dropped| Row {
        seen,
        from,
        to,
        rules,
        request,
        sent,
        dropped,
        changed: &[],
    };
    check(&[
        row(
            "RooCodeInc/Roo-Code#12162",
            Chat,
            Messages,
            adaptive(),
            all.clone(),
            none,
            &["temperature", "top_p", "top_k"],
        ),
        row(
            "anomalyco/models.dev PR 1468",
            Responses,
            Messages,
            adaptive(),
            both.clone(),
            json!({"/temperature": null, "/top_p": null}),
            &["temperature", "top_p"],
        ),
        row(
            "aws-samples/bedrock-chat PR 1102",
            Messages,
            Bedrock,
            adaptive(),
            all,
            json!({"/inferenceConfig/temperature": null, "/inferenceConfig/topP": null,
                "/additionalModelRequestFields/top_k": null}),
            &["temperature", "top_p", "top_k"],
        ),
        row(
            "iOfficeAI/AionUi#912",
            Chat,
            Messages,
            budget(),
            both.clone(),
            json!({"/temperature": 0.2, "/top_p": null}),
            &["top_p"],
        ),
        row(
            "langfuse/langfuse#9882",
            Chat,
            Messages,
            budget(),
            json!({"top_p": 0.9}),
            json!({"/top_p": 0.9}),
            &[],
        ),
        row(
            "aws-samples/bedrock-access-gateway PR 238",
            Chat,
            Bedrock,
            budget(),
            both.clone(),
            json!({"/inferenceConfig/temperature": 0.2, "/inferenceConfig/topP": null}),
            &["top_p"],
        ),
        row(
            "ItzCrazyKns/Vane#1173",
            Messages,
            Chat,
            json!({"sampling": "none"}),
            both.clone(),
            json!({"/temperature": null, "/top_p": null}),
            &["temperature", "top_p"],
        ),
        row(
            "mnfst/modelparams.dev#214",
            Messages,
            Chat,
            json!({"sampling": "without_thinking"}),
            json!({"temperature": 0.2, "output_config": {"effort": "low"}}),
            json!({"/temperature": null, "/reasoning_effort": "low"}),
            &["temperature"],
        ),
        row(
            "a model of which nothing is known",
            Chat,
            Messages,
            json!({}),
            both,
            json!({"/temperature": 0.2, "/top_p": 0.9}),
            &[],
        ),
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn thinking_is_asked_for_in_the_way_that_the_model_accepts() {
    use Dialect::{Bedrock, Chat, Messages};
    let row = |seen, from, to, rules, request, sent, changed| Row {
        seen,
        from,
        to,
        rules,
        request,
        sent,
        dropped: &[],
        changed,
    };
    let summarized = json!({"type": "adaptive", "display": "summarized"});
    check(&[
        row(
            "NousResearch/hermes-agent#11137",
            Chat,
            Messages,
            adaptive(),
            json!({"reasoning": {"max_tokens": 8_000}, "max_tokens": 30_000}),
            json!({"/thinking": summarized, "/output_config/effort": "medium"}),
            &["thinking.type=adaptive", "output_config.effort=medium"],
        ),
        row(
            "omnigent PR 17",
            Messages,
            Bedrock,
            adaptive(),
            json!({"thinking": {"type": "enabled", "budget_tokens": 20_000}}),
            json!({"/additionalModelRequestFields/thinking": summarized,
                "/additionalModelRequestFields/output_config/effort": "high"}),
            &["thinking.type=adaptive"],
        ),
        row(
            "theopenco/llmgateway PR 2753",
            Chat,
            Messages,
            either(),
            json!({"reasoning_effort": "high"}),
            json!({"/thinking": {"type": "adaptive"}, "/output_config/effort": "high"}),
            &[],
        ),
        row(
            "ENTERPILOT/GoModel PR 360",
            Chat,
            Bedrock,
            either(),
            json!({"reasoning_effort": "minimal"}),
            json!({"/additionalModelRequestFields/thinking": {"type": "adaptive"},
                "/additionalModelRequestFields/output_config/effort": "low"}),
            &[],
        ),
        row(
            "xhigh for Claude Opus 4.6",
            Chat,
            Messages,
            either(),
            json!({"reasoning_effort": "xhigh"}),
            json!({"/output_config/effort": "high"}),
            &["output_config.effort=high"],
        ),
        row(
            "a budget is kept where it is known",
            Chat,
            Messages,
            either(),
            json!({"thinking": {"type": "enabled", "budget_tokens": 2_000}}),
            json!({"/thinking": {"type": "enabled", "budget_tokens": 2_000}, "/output_config": null}),
            &[],
        ),
        row(
            "adaptive thinking for Claude Sonnet 4.5",
            Messages,
            Bedrock,
            budget(),
            json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
            json!({"/additionalModelRequestFields/thinking": {"type": "enabled", "budget_tokens": 1_024},
                "/additionalModelRequestFields/output_config": null}),
            &["thinking.type=enabled"],
        ),
        row(
            "effort none",
            Chat,
            Messages,
            adaptive(),
            json!({"reasoning_effort": "none"}),
            json!({"/thinking": null, "/output_config": null}),
            &[],
        ),
        row(
            "a model of which nothing is known",
            Chat,
            Messages,
            json!({}),
            json!({"reasoning_effort": "high"}),
            json!({"/thinking": null, "/output_config/effort": "high"}),
            &[],
        ),
    ]);
}

#[test]
fn thinking_that_a_model_cannot_do_or_cannot_stop_is_left_out_and_named() {
    use Dialect::{Chat, Messages};
    let row = |seen, rules, request, sent, dropped, changed| Row {
        seen,
        from: Chat,
        to: Messages,
        rules,
        request,
        sent,
        dropped,
        changed,
    };
    let forced = json!({"tools": tools(), "tool_choice": "required", "reasoning_effort": "high"});
    check(&[
        row(
            "codersera.com: thinking cannot be disabled in Claude Opus 5.5",
            always(),
            json!({"reasoning_effort": "none"}),
            json!({"/thinking": null, "/output_config": null}),
            &["reasoning_effort"],
            &[],
        ),
        row(
            "a model that never thinks",
            json!({"thinking": "never", "efforts": []}),
            json!({"reasoning_effort": "high"}),
            json!({"/thinking": null, "/output_config": null}),
            &["reasoning_effort"],
            &[],
        ),
        row(
            "a forced tool and thinking",
            either(),
            forced.clone(),
            json!({"/thinking": null, "/tool_choice/type": "any", "/output_config/effort": "high"}),
            &["reasoning_effort"],
            &[],
        ),
        row(
            "a forced tool for a model that thinks by default",
            json!({"thinking": "adaptive", "thinks_by_default": true, "thinking_off": "thinking",
                "forced_tool_with_thinking": false}),
            json!({"tools": tools(), "tool_choice": "required"}),
            json!({"/thinking": {"type": "disabled"}, "/tool_choice/type": "any"}),
            &[],
            &["thinking.type=disabled"],
        ),
    ]);
    let rejected = |rules, request: &Value| {
        let row = Row { request: request.clone(), ..row("", rules, Value::Null, Value::Null, &[], &[]) };
        prepared(&row).map(|prepared| prepared.body).unwrap_err().param
    };
    assert_eq!(rejected(always(), &forced), "tool_choice");
}

/// A Messages conversation with an ended tool turn and a new question.
fn ended_turn(thinking: &str) -> Value {
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}});
    let thought = json!({"type": "thinking", "thinking": thinking, "signature": ""});
    let blocks = if thinking.is_empty() { json!([call]) } else { json!([thought, call]) };
    json!([
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}]},
        {"role": "assistant", "content": "sunny"},
        {"role": "user", "content": "and tomorrow?"},
    ])
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn reasoning_goes_back_in_the_messages_in_which_the_model_requires_it() {
    use Dialect::{Chat, Messages, Responses};
    let row = |seen, from, rules, request, sent| Row {
        seen,
        from,
        to: Chat,
        rules,
        request,
        sent,
        dropped: &[],
        changed: &[],
    };
    let back = |messages: &str| json!({"reasoning_back": messages});
    let talk = |thinking: &str| json!({"messages": ended_turn(thinking)});
    let items = json!({"input": [
        {"type": "message", "role": "user", "content": "weather?"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "sunny"},
    ]});
    check(&[
        row(
            "QuantumNous/new-api#3121",
            Messages,
            back("tool_calls"),
            talk("hm"),
            json!({"/messages/1/reasoning_content": "hm", "/messages/3/reasoning_content": null}),
        ),
        row(
            "anomalyco/opencode#24722",
            Messages,
            json!({"reasoning_back": "all", "reasoning_absent": ""}),
            talk("hm"),
            json!({"/messages/1/reasoning_content": "hm", "/messages/3/reasoning_content": ""}),
        ),
        row(
            "NousResearch/hermes-agent#16021",
            Messages,
            json!({"reasoning_back": "all", "reasoning_absent": ""}),
            talk(""),
            json!({"/messages/1/reasoning_content": "", "/messages/3/reasoning_content": ""}),
        ),
        row(
            "spacedriveapp/spacebot PR 364",
            Messages,
            json!({"reasoning_back": "tool_calls", "reasoning_absent": "."}),
            talk(""),
            json!({"/messages/1/reasoning_content": ".", "/messages/3/reasoning_content": null}),
        ),
        row(
            "bytedance/deer-flow#1790",
            Responses,
            back("tool_calls"),
            items.clone(),
            json!({"/messages/1/reasoning_content": "hm"}),
        ),
        row(
            "docs of OpenRouter",
            Messages,
            json!({"reasoning_back": "all", "reasoning_member": "reasoning"}),
            talk("hm"),
            json!({"/messages/1/reasoning": "hm", "/messages/1/reasoning_content": null}),
        ),
        row(
            "an ended turn does not count for a tool loop",
            Messages,
            back("tool_loop"),
            talk("hm"),
            json!({"/messages/1/reasoning_content": null}),
        ),
        row(
            "farion1231/cc-switch#2365: an unknown model gets none",
            Messages,
            json!({}),
            talk("hm"),
            json!({"/messages/1/reasoning_content": null}),
        ),
        row(
            "a Responses client of an unknown model",
            Responses,
            json!({}),
            items,
            json!({"/messages/1/reasoning_content": null}),
        ),
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn tools_turn_thinking_off_where_a_chat_target_cannot_do_both() {
    use Dialect::{Chat, Messages, Responses};
    let row = |seen, from, rules, request, sent, dropped, changed| Row {
        seen,
        from,
        to: Chat,
        rules,
        request,
        sent,
        dropped,
        changed,
    };
    let tool = json!([{"name": "f", "input_schema": {"type": "object"}}]);
    let flat = json!([{"type": "function", "name": "f", "parameters": {"type": "object"}}]);
    let deepseek = json!({"thinking": "adaptive", "thinks_by_default": true, "thinking_off": "thinking",
        "forced_tool_with_thinking": false});
    let terra = json!({"thinking": "adaptive", "thinks_by_default": true, "thinking_off": "reasoning_effort",
        "efforts": ["none", "low", "medium", "high", "xhigh"], "tools_with_effort": false});
    let older = json!({"thinking": "adaptive", "thinks_by_default": false, "tools_with_effort": false});
    check(&[
        row(
            "deepseek-ai/DeepSeek-V3#1376",
            Messages,
            deepseek.clone(),
            json!({"tools": tool, "tool_choice": {"type": "any"}}),
            json!({"/thinking": {"type": "disabled"}, "/tool_choice": "required"}),
            &[],
            &["thinking.type=disabled"],
        ),
        row(
            "tickernelz/opencode-mem#253",
            Responses,
            deepseek.clone(),
            json!({"tools": flat, "tool_choice": "required", "reasoning": {"effort": "high"}}),
            json!({"/thinking": {"type": "disabled"}, "/reasoning_effort": null}),
            &[],
            &["thinking.type=disabled"],
        ),
        row(
            "a tool of its own choice leaves thinking on",
            Messages,
            deepseek,
            json!({"tools": tool, "tool_choice": {"type": "auto"}}),
            json!({"/thinking": null, "/tool_choice": "auto"}),
            &[],
            &[],
        ),
        row(
            "BerriAI/litellm PR 34569",
            Messages,
            terra.clone(),
            json!({"tools": tool, "output_config": {"effort": "high"}}),
            json!({"/reasoning_effort": "none"}),
            &[],
            &["reasoning_effort=none"],
        ),
        row(
            "danny-avila/LibreChat#14355: without an effort",
            Messages,
            terra.clone(),
            json!({"tools": tool}),
            json!({"/reasoning_effort": "none"}),
            &[],
            &["reasoning_effort=none"],
        ),
        row(
            "livekit/agents PR 7169: an unknown word",
            Messages,
            terra,
            json!({"output_config": {"effort": "max"}}),
            json!({"/reasoning_effort": "xhigh"}),
            &[],
            &["reasoning_effort=xhigh"],
        ),
        row(
            "pipecat-ai/pipecat#4043",
            Messages,
            older.clone(),
            json!({"tools": tool, "output_config": {"effort": "low"}}),
            json!({"/reasoning_effort": null}),
            &["output_config.effort"],
            &[],
        ),
        row(
            "openai/openai-openapi#541: no tools, no loss",
            Messages,
            older,
            json!({"output_config": {"effort": "low"}}),
            json!({"/reasoning_effort": "low"}),
            &[],
            &[],
        ),
    ]);
}

#[test]
fn an_output_limit_is_lowered_to_what_the_model_writes() {
    // ogx-ai/ogx PR 5696: servers refuse a higher limit, and agents ask for 32,000 to 64,000 by themselves.
    for (from, to, asked, pointer, name) in [
        (Dialect::Messages, Dialect::Chat, "max_tokens", "/max_tokens", "max_tokens"),
        (Dialect::Responses, Dialect::Chat, "max_output_tokens", "/max_tokens", "max_tokens"),
        (Dialect::Chat, Dialect::Messages, "max_tokens", "/max_tokens", "max_tokens"),
        (
            Dialect::Chat,
            Dialect::Bedrock,
            "max_completion_tokens",
            "/inferenceConfig/maxTokens",
            "max_tokens",
        ),
        (Dialect::Messages, Dialect::Gemini, "max_tokens", "/generationConfig/maxOutputTokens", "max_tokens"),
        (Dialect::Messages, Dialect::Responses, "max_tokens", "/max_output_tokens", "max_tokens"),
    ] {
        for (most, sent, changed) in
            [(Some(8_192), 8_192, true), (Some(64_000), 64_000, false), (None, 64_000, false)]
        {
            let target = Traits { output_tokens_max: most, ..Traits::of("m") };
            let mut request = json!({"model": "x"});
            let (conversation, hi) = match from {
                Dialect::Responses => ("input", json!("hi")),
                _ => ("messages", json!([{"role": "user", "content": "hi"}])),
            };
            request[conversation] = hi;
            request[asked] = json!(64_000);
            let prepared = prepare(find(from, to).unwrap(), request.to_string().as_bytes(), &target).unwrap();
            let body: Value = serde_json::from_slice(&prepared.body).unwrap();
            assert_eq!(body.pointer(pointer), Some(&json!(sent)), "{from:?} over {to:?}: {body}");
            let want: &[String] = if changed { &[format!("{name}=8192")] } else { &[] };
            assert_eq!(prepared.changed, want, "{from:?} over {to:?}");
        }
    }
}
