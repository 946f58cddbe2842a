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
    let row = |seen, from, to, rules, request, sent, dropped, changed| Row {
        seen,
        from,
        to,
        rules,
        request,
        sent,
        dropped,
        changed,
    };
    let level = "/generationConfig/thinkingConfig/thinkingLevel";
    let tokens = "/generationConfig/thinkingConfig/thinkingBudget";
    let no_minimal = json!({"thinking": "always", "efforts": ["low", "medium", "high"]});
    let pro = json!({"thinking": "budget", "thinking_off": "unavailable", "thinking_budget_min": 128});
    let union = json!({"tools": [{"name": "f", "input_schema": {"type": "object",
        "properties": {"route": {"type": "string"}, "file": {"type": "string"}},
        "anyOf": [{"required": ["route"]}, {"required": ["file"]}]}}]});
    check(&[
        row(
            "agentjido/req_llm#971, ENTERPILOT/GoModel PR 862",
            Chat,
            Gemini,
            no_minimal.clone(),
            json!({"reasoning_effort": "minimal"}),
            json!({level: "LOW", tokens: null}),
            &[],
            &["reasoning_effort=low"],
        ),
        row(
            "bolna-ai/bolna PR 956",
            Chat,
            Gemini,
            no_minimal,
            json!({"reasoning_effort": "none"}),
            json!({level: "LOW"}),
            &[],
            &["reasoning_effort=low"],
        ),
        row(
            "mozilla-ai/any-llm PR 1345, yym68686/uni-api PR 174",
            Chat,
            Gemini,
            pro.clone(),
            json!({"reasoning_effort": "none"}),
            json!({tokens: 128, level: null}),
            &[],
            &["thinkingConfig.thinkingBudget=128"],
        ),
        row(
            "QwenLM/qwen-code PR 9094",
            Chat,
            Gemini,
            pro,
            json!({"reasoning_effort": "low"}),
            json!({tokens: 1024, level: null}),
            &[],
            &[],
        ),
        row(
            "a model that does not think",
            Chat,
            Gemini,
            json!({"thinking": "never"}),
            json!({"reasoning_effort": "high"}),
            json!({"/generationConfig": null}),
            &["reasoning_effort"],
            &[],
        ),
        row(
            "Anthropic: budget_tokens must be at least 1024",
            Messages,
            Bedrock,
            json!({"thinking": "budget", "thinking_budget_min": 1024}),
            json!({"thinking": {"type": "enabled", "budget_tokens": 512}}),
            json!({"/additionalModelRequestFields/thinking/budget_tokens": 1024}),
            &[],
            &["thinking.budget_tokens=1024"],
        ),
        row(
            "anomalyco/opencode#35516: Claude behind a server that takes other schemas",
            Messages,
            Chat,
            json!({"root_unions": false}),
            union,
            json!({"/tools/0/function/parameters/anyOf": null,
                "/tools/0/function/parameters/properties/route/type": "string"}),
            &[],
            &[],
        ),
    ]);
}
