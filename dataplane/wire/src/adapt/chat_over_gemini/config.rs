//! Writes the response options: `generationConfig`.

use shared::model_rules::{Effort, ModelRules, Thinking, ThinkingOff};

use crate::adapt::adjusted::Adjusted;
use crate::adapt::chat_client::{AnswerFormat, copy_stop, effort, format, output_limit};
use crate::adapt::{Rejection, Traits, read};
use crate::chat::request::{ChatRequest, OptionValue};
use crate::json::JsonWriter;

/// Request members and the target members to which their values are copied unchanged. If two rows have the same target
/// member, the first one present takes precedence.
const COPIED: [(&str, &str); 11] = [
    ("temperature", "temperature"),
    ("top_p", "topP"),
    ("top_k", "topK"),
    ("seed", "seed"),
    ("presence_penalty", "presencePenalty"),
    ("frequency_penalty", "frequencyPenalty"),
    ("n", "candidateCount"),
    ("logprobs", "responseLogprobs"),
    ("top_logprobs", "logprobs"),
    ("max_completion_tokens", "maxOutputTokens"),
    ("max_tokens", "maxOutputTokens"),
];

/// Writes `generationConfig`, unless it would be empty.
pub(super) fn write_config(
    request: &ChatRequest<'_, '_>,
    target: &Traits<'_>,
    adjusted: &mut Adjusted,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    let mut config = JsonWriter::default();
    let limit = output_limit(request, target, adjusted);
    let limited = request.option("max_completion_tokens").is_some();
    for (name, theirs) in COPIED {
        let value = request.option(name).filter(|_| !(limited && name == "max_tokens"));
        if let Some(value) = value.filter(|value| !asks_for_none(name, *value)) {
            match limit.filter(|_| theirs == "maxOutputTokens") {
                Some(limit) => drop(config.name(theirs).number(limit)),
                None => value.write(config.name(theirs)),
            }
        }
    }
    copy_stop(request, "stopSequences", target, &mut config)?;
    write_format(request, target, &mut config)?;
    if let Some(effort) = effort(request, target) {
        write_thinking(effort, target.rules, adjusted, &mut config);
    }
    let config = config.finish();
    if !config.is_empty() {
        json.name("generationConfig").object().bytes(&config).end_object();
    }
    Ok(())
}

/// True if the value asks for no log probabilities, as their absence does. The target may reject a number of 0.
fn asks_for_none(name: &str, value: OptionValue<'_, '_>) -> bool {
    let is_logprobs = matches!(name, "logprobs" | "top_logprobs");
    is_logprobs && value.tree().is_some_and(|value| read::asks_for_nothing(name, value))
}

fn write_format(
    request: &ChatRequest<'_, '_>,
    target: &Traits<'_>,
    config: &mut JsonWriter,
) -> Result<(), Rejection> {
    match format(request, target)? {
        AnswerFormat::Text => {}
        AnswerFormat::AnyJson => drop(config.name("responseMimeType").text("application/json")),
        AnswerFormat::Schema(schema) => {
            config.name("responseMimeType").text("application/json");
            if let Some(schema) = schema.and_then(|inner| inner.schema) {
                config.name("responseJsonSchema").tree(schema);
            }
        }
    }
    Ok(())
}

/// Writes `thinkingConfig`: a budget of tokens for models that think by it, otherwise a level. Both get `includeThoughts`
/// unless the effort is `none`, because a client that requests thinking expects to read the thoughts.
fn write_thinking(effort: &str, rules: &ModelRules, adjusted: &mut Adjusted, config: &mut JsonWriter) {
    let asked = Effort::of(effort).unwrap_or(Effort::High);
    let is_off = asked == Effort::None;
    let by_budget = match rules.thinking {
        Some(Thinking::Never) => {
            if !is_off {
                adjusted.drop("reasoning_effort");
            }
            return;
        }
        Some(Thinking::Budget) => true,
        Some(Thinking::Adaptive | Thinking::Always) => false,
        // Every generation before levels took a budget of none.
        Some(Thinking::Either) | None => is_off,
    };
    config.name("thinkingConfig").object();
    if by_budget {
        let wanted = budget(asked);
        // A budget of none turns thinking off.
        let least = rules
            .thinking_budget_min
            .filter(|_| !is_off || rules.thinking_off == Some(ThinkingOff::Unavailable));
        let tokens = wanted.max(least.unwrap_or_default());
        if tokens != wanted {
            adjusted.set("thinkingConfig.thinkingBudget", tokens);
        }
        config.name("thinkingBudget").number(tokens);
    } else {
        let sent = rules.least_effort(asked).unwrap_or(asked);
        if sent != asked {
            adjusted.set("reasoning_effort", sent.name());
        }
        config.name("thinkingLevel").text(level(sent));
    }
    if !is_off {
        config.name("includeThoughts").raw(b"true");
    }
    config.end_object();
}

fn budget(effort: Effort) -> u64 {
    match effort {
        Effort::None => 0,
        Effort::Minimal | Effort::Low => 1024,
        Effort::Medium => 8192,
        Effort::High | Effort::Xhigh | Effort::Max => 24_576,
    }
}

fn level(effort: Effort) -> &'static str {
    match effort {
        Effort::None | Effort::Minimal => "MINIMAL",
        Effort::Low => "LOW",
        Effort::Medium => "MEDIUM",
        Effort::High | Effort::Xhigh | Effort::Max => "HIGH",
    }
}
