//! Translates the request: checks its fields and writes the target's members in order.

use simd_json::prelude::ValueAsScalar as _;

use super::answer::BedrockTarget;
use super::contents::{BedrockModel, ConverseContents};
use super::losses::LOSSES;
use super::thinking::ConverseThinking;
use crate::adapt::chat_client::{
    AnswerFormat, CallIdentity, ChatToolChoice, ChatTools, copy_stop, dropped, form, format, refuse_listed,
    tools,
};
use crate::adapt::through_chat::AskedOfTarget;
use crate::adapt::tool_names::{Rule, ToolNames, WORD_MAX};
use crate::adapt::{Asking, Rejection, Traits, loss, read};
use crate::chat::request::{ChatRequest, OptionValue, messages_path};
use crate::json::{self, JsonWriter};

/// Translates a chat request into a Converse request.
pub(super) fn ask(request: &ChatRequest<'_, '_>, asking: &Asking<'_>) -> Result<AskedOfTarget, Rejection> {
    refuse_listed(request.trees(), LOSSES)?;
    let target = asking.target;
    let family = BedrockModel::of(target);
    let mut tools = tools(&request.tools, LOSSES)?;
    if tools.mode == ChatToolChoice::None {
        // Converse cannot express `none`, so no tools are sent.
        tools.functions.clear();
    }
    let thinking = ConverseThinking::of(request, target, tools.mode, tokens_max(request));
    let mut names = ToolNames::new(Rule::Word(WORD_MAX));
    let mut contents = ConverseContents::new(family, !tools.functions.is_empty(), &mut names);
    let path = messages_path();
    for (position, message) in request.messages.iter().enumerate() {
        contents.message(message, &path.at(position))?;
    }
    let mut json = JsonWriter::default();
    json.object();
    contents.write(&mut json)?;
    write_inference(request, target, &thinking, &mut json)?;
    write_tools(&tools, family, &mut names, &mut json);
    write_format(request, target, &mut json)?;
    write_fields(request, target.top_k || family.is_claude, &thinking, &mut json);
    json.end_object();
    let calls = CallIdentity::new(asking, names);
    Ok(AskedOfTarget {
        body: json.finish(),
        target: Box::new(BedrockTarget { calls, thinking_blocks: thinking.wanted }),
        form: form(asking, request),
        dropped: dropped(request, LOSSES),
    })
}

fn tokens_max(request: &ChatRequest<'_, '_>) -> Option<u64> {
    ["max_completion_tokens", "max_tokens"].iter().find_map(|name| read::as_whole(request.tree(name)?))
}

fn write_inference(
    request: &ChatRequest<'_, '_>,
    target: &Traits<'_>,
    thinking: &ConverseThinking<'_, '_>,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    let mut config = JsonWriter::default();
    // Thinking tokens count towards the answer's limit.
    let room = thinking.tokens().map(|tokens| tokens.saturating_add(target.output_tokens_default));
    if let Some(tokens) = tokens_max(request).or(room) {
        config.name("maxTokens").number(tokens);
    }
    let temperature = request.tree("temperature");
    if temperature.and_then(|value| value.cast_f64()).is_some_and(|value| value > 1.0) {
        return Err(Rejection::new("temperature", "is above 1, the maximum of the target."));
    }
    for (name, theirs) in [("temperature", "temperature"), ("top_p", "topP")] {
        if let Some(value) = request.tree(name).filter(|_| !thinking.is_on()) {
            config.name(theirs).tree(value);
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
    family: BedrockModel,
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
            json.name("description").text(description);
        }
        function.write_parameters(json.name("inputSchema").object().name("json"));
        json.end_object().end_object().end_object();
        family.write_cache_point(function.cache, json);
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
    request: &ChatRequest<'_, '_>,
    takes_top_k: bool,
    thinking: &ConverseThinking<'_, '_>,
    json: &mut JsonWriter,
) {
    let mut fields = JsonWriter::default();
    thinking.write(&mut fields);
    let top_k = request.tree("top_k").filter(|_| takes_top_k && !thinking.is_on());
    if let Some(top_k) = top_k {
        fields.name("top_k").tree(top_k);
    }
    let fields = fields.finish();
    if !fields.is_empty() {
        json.name("additionalModelRequestFields").object().bytes(&fields).end_object();
    }
}
