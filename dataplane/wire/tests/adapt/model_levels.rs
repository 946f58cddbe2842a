//! Requests whose form depends on the model: levels and budgets of thinking at Google and Amazon, and unions in the schemas of
//! tools. Each row names the public report of the fault.

use serde_json::json;
use shared::operation::Dialect;

use crate::model_rules::{Row, check};

/// The facts of a model that decide the form of a request at Google and at Amazon.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn levels_budgets_and_schemas_are_those_of_the_model() {
    use Dialect::{Bedrock, Chat, Gemini, Messages};
    let level = "/generationConfig/thinkingConfig/thinkingLevel";
    let tokens = "/generationConfig/thinkingConfig/thinkingBudget";
    let no_minimal = json!({"thinking": "always", "efforts": ["low", "medium", "high"]});
    let pro = json!({"thinking": "budget", "thinking_off": "unavailable", "thinking_budget_min": 128});
    let union = json!({"tools": [{"name": "f", "input_schema": {"type": "object",
        "properties": {"route": {"type": "string"}, "file": {"type": "string"}},
        "anyOf": [{"required": ["route"]}, {"required": ["file"]}]}}]});
    check(&[
        Row {
            seen: "agentjido/req_llm#971, ENTERPILOT/GoModel PR 862",
            from: Chat,
            to: Gemini,
            rules: no_minimal.clone(),
            request: json!({"reasoning_effort": "minimal"}),
            sent: json!({level: "LOW", tokens: null}),
            dropped: &[],
            changed: &["reasoning_effort=low"],
        },
        Row {
            seen: "bolna-ai/bolna PR 956",
            from: Chat,
            to: Gemini,
            rules: no_minimal,
            request: json!({"reasoning_effort": "none"}),
            sent: json!({level: "LOW"}),
            dropped: &[],
            changed: &["reasoning_effort=low"],
        },
        Row {
            seen: "mozilla-ai/any-llm PR 1345, yym68686/uni-api PR 174",
            from: Chat,
            to: Gemini,
            rules: pro.clone(),
            request: json!({"reasoning_effort": "none"}),
            sent: json!({tokens: 128, level: null}),
            dropped: &[],
            changed: &["thinkingConfig.thinkingBudget=128"],
        },
        Row {
            seen: "QwenLM/qwen-code PR 9094",
            from: Chat,
            to: Gemini,
            rules: pro,
            request: json!({"reasoning_effort": "low"}),
            sent: json!({tokens: 1024, level: null}),
            dropped: &[],
            changed: &[],
        },
        Row {
            seen: "a model that does not think",
            from: Chat,
            to: Gemini,
            rules: json!({"thinking": "never"}),
            request: json!({"reasoning_effort": "high"}),
            sent: json!({"/generationConfig": null}),
            dropped: &["reasoning_effort"],
            changed: &[],
        },
        Row {
            seen: "Anthropic: budget_tokens must be at least 1024",
            from: Messages,
            to: Bedrock,
            rules: json!({"thinking": "budget", "thinking_budget_min": 1024}),
            request: json!({"thinking": {"type": "enabled", "budget_tokens": 512}}),
            sent: json!({"/additionalModelRequestFields/thinking/budget_tokens": 1024}),
            dropped: &[],
            changed: &["thinking.budget_tokens=1024"],
        },
        Row {
            seen: "anomalyco/opencode#35516: Claude behind a server that takes other schemas",
            from: Messages,
            to: Chat,
            rules: json!({"root_unions": false}),
            request: union,
            sent: json!({"/tools/0/function/parameters/anyOf": null,
                "/tools/0/function/parameters/properties/route/type": "string"}),
            dropped: &[],
            changed: &[],
        },
    ]);
}
