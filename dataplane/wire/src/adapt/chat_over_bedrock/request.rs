//! Translates the request: checks its fields and writes the target's members in order.

use simd_json::prelude::ValueAsScalar as _;

use super::answer::BedrockTarget;
use super::contents::{BedrockModel, ConverseContents};
use super::losses::LOSSES;
use super::takes_messages_fields;
use super::thinking::ConverseThinking;
use crate::adapt::adjusted::Adjusted;
use crate::adapt::chat_client::{
    AnswerFormat, CallIdentity, ChatToolChoice, ChatTools, copy_stop, dropped, form, format, output_limit,
    refuse_listed, sampling, tools,
};
use crate::adapt::through_chat::AskedOfTarget;
use crate::adapt::tool_names::{Rule, ToolNames, WORD_MAX};
use crate::adapt::{Asking, Rejection, Traits, loss};
use crate::chat::request::{ChatRequest, OptionValue, messages_path};
use crate::json::{self, JsonWriter, Tree};

/// Translates a chat request into a Converse request.
pub(super) fn ask(request: &ChatRequest<'_, '_>, asking: &Asking<'_>) -> Result<AskedOfTarget, Rejection> {
    refuse_listed(request.trees(), LOSSES)?;
    let target = asking.target;
    let model = BedrockModel::of(target.rules);
    let mut tools = tools(&request.tools, LOSSES)?;
    if tools.mode == ChatToolChoice::None {
        // Converse cannot express `none`, so no tools are sent.
        tools.functions.clear();
    }
    let mut adjusted = Adjusted::default();
    let tokens_max = output_limit(request, target, &mut adjusted);
    let thinking = ConverseThinking::of(request, target, tools.mode, tokens_max, &mut adjusted)?;
    let sampling = sampling(request, target, thinking.is_on(), &mut adjusted);
    let mut names = ToolNames::new(Rule::Word(WORD_MAX));
    let mut contents = ConverseContents::new(model, !tools.functions.is_empty(), &mut names);
    let path = messages_path();
    for (position, message) in request.messages.iter().enumerate() {
        contents.message(message, &path.at(position))?;
    }
    let mut json = JsonWriter::default();
    json.object();
    contents.write(&mut json)?;
    // Thinking tokens count towards the answer's limit.
    let room = thinking.tokens().map(|tokens| tokens.saturating_add(target.output_tokens_default));
    write_inference(request, target, (tokens_max.or(room), &sampling), &mut json)?;
    write_tools(&tools, model, &mut names, &mut json);
    write_format(request, target, &mut json)?;
    let sampling = if target.top_k || takes_messages_fields(target.rules) { sampling } else { Vec::new() };
    write_fields(&thinking, &sampling, &mut json);
    json.end_object();
    let calls = CallIdentity::new(asking, names);
    Ok(AskedOfTarget {
        body: json.finish(),
        target: Box::new(BedrockTarget { calls, thinking_blocks: thinking.wanted }),
        form: form(asking, request),
        dropped: dropped(request, LOSSES),
        adjusted,
    })
}

fn write_inference(
    request: &ChatRequest<'_, '_>,
    target: &Traits<'_>,
    (tokens_max, sampling): (Option<u64>, &[(&str, Tree<'_, '_>)]),
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    let mut config = JsonWriter::default();
    if let Some(tokens) = tokens_max {
        config.name("maxTokens").number(tokens);
    }
    for (name, value) in sampling {
        match *name {
            "temperature" if value.cast_f64().is_some_and(|value| value > 1.0) => {
                return Err(Rejection::new("temperature", "is above 1, the maximum of the target."));
            }
            "temperature" => drop(config.name("temperature").tree(*value)),
            "top_p" => drop(config.name("topP").tree(*value)),
            _ => {}
        }
    }
    copy_stop(request, "stopSequences", target, &mut config)?;
    let config = config.finish();
    if !config.is_empty() {
        json.name("inferenceConfig").object().bytes(&config).end_object();
    }
    Ok(())
}

/// Writes `toolConfig`, if there are tools.
fn write_tools(
    tools: &ChatTools<'_, '_, '_>,
    model: BedrockModel,
    names: &mut ToolNames,
    json: &mut JsonWriter,
) {
    if tools.functions.is_empty() {
        return;
    }
    json.name("toolConfig").object().name("tools").list();
    for function in &tools.functions {
        json.object().name("toolSpec").object().name("name").text(&names.fit(&function.name));
        if let Some(description) = function.description() {
            json.name("description").text(&description);
        }
        function.write_parameters(json.name("inputSchema").object().name("json"));
        json.end_object().end_object().end_object();
        model.write_cache_point(function.cache, json);
    }
    json.end_list();
    match tools.mode {
        ChatToolChoice::Unset | ChatToolChoice::None => {}
        ChatToolChoice::Auto => drop(json.name("toolChoice").raw(br#"{"auto":{}}"#)),
        ChatToolChoice::Required => drop(json.name("toolChoice").raw(br#"{"any":{}}"#)),
        ChatToolChoice::Named(name) => {
            json.name("toolChoice").object().name("tool").object().name("name").text(&names.fit(name));
            json.end_object().end_object();
        }
    }
    json.end_object();
}

fn write_format(
    request: &ChatRequest<'_, '_>,
    target: &Traits<'_>,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    let inner = match format(request, target)? {
        AnswerFormat::Text => return Ok(()),
        AnswerFormat::AnyJson => {
            return Err(loss::refuse(LOSSES, "response_format[json_object]", "response_format"));
        }
        AnswerFormat::Schema(inner) => inner,
    };
    let Some((inner, wanted)) = inner.and_then(|inner| Some((inner, inner.schema?))) else {
        return Err(Rejection::malformed("response_format.json_schema.schema", "is missing."));
    };
    let mut text = Vec::new();
    json::write(wanted, &mut text);
    json.name("outputConfig").object().name("textFormat").object().name("type").text("json_schema");
    json.name("structure").object().name("jsonSchema").object().name("schema");
    // The target takes the schema as a string. The JSON writer produces valid UTF-8.
    json.text(std::str::from_utf8(&text).unwrap_or_default());
    for (name, value) in [("name", inner.name), ("description", inner.description)] {
        if let Some(value) = value.and_then(OptionValue::as_text) {
            json.name(name).text(value);
        }
    }
    json.end_object().end_object().end_object().end_object();
    Ok(())
}

/// Writes `additionalModelRequestFields`, which the target passes to the model unchanged.
fn write_fields(
    thinking: &ConverseThinking<'_, '_>,
    sampling: &[(&str, Tree<'_, '_>)],
    json: &mut JsonWriter,
) {
    let mut fields = JsonWriter::default();
    thinking.write(&mut fields);
    if let Some((_, top_k)) = sampling.iter().find(|(name, _)| *name == "top_k") {
        fields.name("top_k").tree(*top_k);
    }
    let fields = fields.finish();
    if !fields.is_empty() {
        json.name("additionalModelRequestFields").object().bytes(&fields).end_object();
    }
}
