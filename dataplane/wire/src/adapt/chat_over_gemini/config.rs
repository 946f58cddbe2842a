//! Writes the response options: `generationConfig`.

use crate::adapt::adjusted::Adjusted;
use crate::adapt::chat_client::{AnswerFormat, copy_stop, effort, format, output_limit};
use crate::adapt::{Rejection, Traits};
use crate::chat::request::ChatRequest;
use crate::json::JsonWriter;

/// Request members and the target members to which their values are copied unchanged. If two rows have the same target
/// member, the first one present takes precedence.
const COPIED: [(&str, &str); 9] = [
    ("temperature", "temperature"),
    ("top_p", "topP"),
    ("top_k", "topK"),
    ("seed", "seed"),
    ("presence_penalty", "presencePenalty"),
    ("frequency_penalty", "frequencyPenalty"),
    ("n", "candidateCount"),
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
        if let Some(value) = request.option(name).filter(|_| !(limited && name == "max_tokens")) {
            match limit.filter(|_| theirs == "maxOutputTokens") {
                Some(limit) => drop(config.name(theirs).number(limit)),
                None => value.write(config.name(theirs)),
            }
        }
    }
    copy_stop(request, "stopSequences", target, &mut config)?;
    write_format(request, target, &mut config)?;
    if let Some(effort) = effort(request, target) {
        write_thinking(effort, target.model, &mut config);
    }
    let config = config.finish();
    if !config.is_empty() {
        json.name("generationConfig").object().bytes(&config).end_object();
    }
    Ok(())
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

/// Writes `thinkingConfig`. Models up to 2.5 take a token budget, later models a level. Both get `includeThoughts`
/// unless the effort is `none`, because a client that requests thinking expects to read the thoughts.
fn write_thinking(effort: &str, model: &str, config: &mut JsonWriter) {
    config.name("thinkingConfig").object();
    let by_budget = model.contains("gemini-2");
    match effort {
        "none" if model.contains("2.5-pro") => config.name("thinkingBudget").number(LEAST_OF_PRO),
        "none" if !model.contains("gemini-3") => config.name("thinkingBudget").number(0),
        _ if by_budget => config.name("thinkingBudget").number(budget(effort)),
        _ => config.name("thinkingLevel").text(level(effort, model)),
    };
    if effort != "none" {
        config.name("includeThoughts").raw(b"true");
    }
    config.end_object();
}

/// Minimum thinking budget of the Pro models, in tokens. They cannot turn thinking off.
const LEAST_OF_PRO: u64 = 128;

fn budget(effort: &str) -> u64 {
    match effort {
        "minimal" | "low" => 1024,
        "medium" => 8192,
        _ => 24_576,
    }
}

fn level(effort: &str, model: &str) -> &'static str {
    match effort {
        "none" | "minimal" if model.contains("pro") => "LOW",
        "none" | "minimal" => "MINIMAL",
        "low" => "LOW",
        "medium" => "MEDIUM",
        _ => "HIGH",
    }
}
