//! Translates the configuration of the answer: length, sampling, reasoning and format.

use simd_json::prelude::ValueAsScalar as _;

use super::losses::{check, refuse};
use super::request::{ChatBuilder, list, word};
use crate::adapt::Rejection;
use crate::adapt::path::MemberPath;
use crate::adapt::read::{self, Object, member, member_text};
use crate::adapt::schema;
use crate::chat::request::{AnswerSchema, ChatResponseFormat, OptionValue};
use crate::json::Tree;

const CONFIG: &str = "generationConfig";

/// Adds the options of the answer.
pub(super) fn options<'t, 'i>(
    builder: &mut ChatBuilder<'t, 'i>,
    request: &Object<'t, 'i>,
) -> Result<(), Rejection> {
    if let Some(config) = member(request, CONFIG) {
        let config = read::object(config, || CONFIG.to_owned())?;
        for (name, value) in read::members(&config) {
            check(&format!("{CONFIG}.{name}"), value)?;
        }
        sampling(builder, &config)?;
        format(builder, &config)?;
        reasoning(builder, &config);
    }
    if let Some(tier @ ("flex" | "priority")) = member_text(request, "serviceTier") {
        builder.request.options.push(("service_tier", OptionValue::Text(tier)));
    }
    if member(request, "stream").and_then(|stream| stream.as_bool()) == Some(true) {
        builder.request.options.push(("stream", OptionValue::Bool(true)));
        builder.request.include_usage = builder.target.stream_options;
    }
    Ok(())
}

/// Returns true if the client wants the model's thoughts.
pub(super) fn wants_thoughts(request: &Object<'_, '_>) -> bool {
    let config = member(request, CONFIG).and_then(|config| config.as_object());
    let thinking = config.and_then(|config| member(&config, "thinkingConfig")?.as_object());
    let wanted = thinking.and_then(|thinking| member(&thinking, "includeThoughts")?.as_bool());
    wanted == Some(true)
}

fn sampling<'t, 'i>(builder: &mut ChatBuilder<'t, 'i>, config: &Object<'t, 'i>) -> Result<(), Rejection> {
    let config_path = MemberPath::top(CONFIG);
    let target = builder.target;
    let wants_logprobs = member(config, "responseLogprobs").filter(|wanted| wanted.as_bool() == Some(true));
    if let Some(wanted) = wants_logprobs {
        builder.request.options.push(("logprobs", OptionValue::Tree(wanted)));
    }
    for (theirs, name) in [
        ("temperature", "temperature"),
        ("topP", "top_p"),
        ("seed", "seed"),
        ("presencePenalty", "presence_penalty"),
        ("frequencyPenalty", "frequency_penalty"),
        ("maxOutputTokens", target.output_limit_field),
        ("topK", "top_k"),
        ("candidateCount", "n"),
        ("logprobs", "top_logprobs"),
    ] {
        let Some(value) = member(config, theirs) else { continue };
        if theirs == "candidateCount" && matches!(read::as_whole(value), Some(0 | 1)) {
            continue;
        }
        let path = config_path.member(theirs);
        if theirs == "logprobs" && wants_logprobs.is_none() {
            return Err(path.reject("requires 'responseLogprobs'."));
        }
        if theirs == "topK" && !target.top_k {
            if read::as_whole(value).is_some_and(|most| most >= TOP_K_USUAL) {
                continue;
            }
            return Err(path.refuse("is not supported by this target."));
        }
        let is_number = value.as_f64().is_some() || value.as_i64().is_some() || value.as_u64().is_some();
        if !is_number {
            return Err(path.reject("must be a number."));
        }
        builder.request.options.push((name, OptionValue::Tree(value)));
    }
    let path = config_path.member("stopSequences");
    let stops = list(config, "stopSequences", &path)?;
    if let Some(most) = target.stops_max.filter(|most| stops.len() > *most) {
        return Err(path.refuse(&format!("has more sequences than this target supports: {most}.")));
    }
    if let Some(stops) = member(config, "stopSequences").filter(|stops| !read::is_empty(*stops)) {
        builder.request.options.push(("stop", OptionValue::Tree(stops)));
    }
    Ok(())
}

/// The value that Google's models have by default, and that Gemini CLI sends with each request.
const TOP_K_USUAL: u64 = 64;

/// Adds the format of the answer.
fn format<'t, 'i>(builder: &mut ChatBuilder<'t, 'i>, config: &Object<'t, 'i>) -> Result<(), Rejection> {
    let path = MemberPath::top(CONFIG);
    let at = path.member("responseModalities");
    for (position, modality) in list(config, "responseModalities", &at)?.into_iter().enumerate() {
        if !read::as_text(modality).is_some_and(|word| word.eq_ignore_ascii_case("TEXT")) {
            return Err(refuse("generationConfig.responseModalities.*", at.at(position).to_string()));
        }
    }
    let mut kind = member_text(config, "responseMimeType").unwrap_or_default();
    let mut wanted = member(config, "responseJsonSchema").or_else(|| member(config, "responseSchema"));
    let at = path.member("responseFormat");
    for (position, format) in list(config, "responseFormat", &at)?.into_iter().enumerate() {
        let at = at.at(position);
        let format = read::object(format, || at.to_string())?;
        let text = member(&format, "text").filter(|_| format.len() == 1).and_then(|text| text.as_object());
        let text = text.ok_or_else(|| refuse("generationConfig.responseFormat.*", at.to_string()))?;
        kind = member_text(&text, "mimeType").unwrap_or(kind);
        if let Some(schema) = member(&text, "schema") {
            (kind, wanted) = (JSON, Some(schema));
        }
    }
    let path = path.member("responseMimeType");
    builder.request.format = match (kind, wanted) {
        ("" | "text/plain", _) => None,
        (JSON, None) => Some(ChatResponseFormat { kind: "json_object", schema: None }),
        (JSON, Some(_)) if !builder.target.json_schema => {
            return Err(path.refuse("asks for a schema, which this target does not support."));
        }
        (JSON, Some(wanted)) => Some(schema_format(wanted)),
        _ => return Err(path.refuse("is not supported by this target. Use text/plain or application/json.")),
    };
    Ok(())
}

fn schema_format<'t, 'i>(wanted: Tree<'t, 'i>) -> ChatResponseFormat<'t, 'i> {
    let schema = AnswerSchema {
        name: Some(OptionValue::Text("output")),
        description: None,
        schema: Some(wanted),
        strict: schema::is_strict(wanted).then_some(OptionValue::Bool(true)),
    };
    ChatResponseFormat { kind: "json_schema", schema: Some(schema) }
}

const JSON: &str = "application/json";

/// Adds the reasoning effort, if the target reasons.
fn reasoning(builder: &mut ChatBuilder<'_, '_>, config: &Object<'_, '_>) {
    let thinking = member(config, "thinkingConfig").and_then(|thinking| thinking.as_object());
    let Some(thinking) = thinking.filter(|_| builder.target.reasoning) else { return };
    let budget = member(&thinking, "thinkingBudget").and_then(|budget| budget.as_i64());
    let effort = match word(&thinking, "thinkingLevel").as_str() {
        "MINIMAL" => "minimal",
        "LOW" => "low",
        "MEDIUM" => "medium",
        "HIGH" => "high",
        "XHIGH" => "xhigh",
        _ => match budget {
            Some(0) => "none",
            Some(1..4_096) => "low",
            Some(4_096..16_384) => "medium",
            Some(16_384..) => "high",
            // A negative budget leaves the choice to the model.
            Some(_) | None => return,
        },
    };
    builder.request.options.push(("reasoning_effort", OptionValue::Text(effort)));
}
