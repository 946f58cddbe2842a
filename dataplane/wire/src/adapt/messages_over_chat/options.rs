//! Translates the options of the answer: length, sampling, reasoning and format.

use simd_json::prelude::{ValueAsScalar as _, ValueIntoString as _};

use super::request::{ChatRequestBuilder, elements, member, refused, text_member};
use crate::adapt::path::MemberPath;
use crate::adapt::{Rejection, schema};
use crate::chat::request::{AnswerSchema, ChatResponseFormat, OptionValue};
use crate::json::Tree;

/// Adds the output limit and the other options.
pub(super) fn options<'t, 'i>(
    builder: &mut ChatRequestBuilder<'t, 'i>,
    body: Tree<'t, 'i>,
) -> Result<(), Rejection> {
    output_limit(builder, body)?;
    for name in ["temperature", "top_p", "top_k"] {
        let Some(value) = member(body, name) else { continue };
        if name == "top_k" && !builder.target.top_k {
            return Err(refused(&MemberPath::top(name), "it does not support this field"));
        }
        builder.tree(name, value);
    }
    if let Some(stop) = member(body, "stop_sequences") {
        let sequences = elements(stop);
        let sequences =
            sequences.ok_or_else(|| MemberPath::top("stop_sequences").reject("must be an array"))?;
        if let Some(most) = builder.target.stops_max.filter(|most| sequences.len() > *most) {
            let why = format!("it supports at most {most} sequences");
            return Err(refused(&MemberPath::top("stop_sequences"), &why));
        }
        if !sequences.is_empty() {
            builder.tree("stop", stop);
        }
    }
    context(body)?;
    format(builder, body)?;
    reasoning(builder, body)?;
    if member(body, "stream").and_then(|stream| stream.as_bool()) == Some(true) {
        builder.request.options.push(("stream", OptionValue::Bool(true)));
        builder.request.include_usage = builder.target.stream_options;
    }
    Ok(())
}

/// Returns the client's stop sequences.
pub(super) fn stops(body: Tree<'_, '_>) -> Vec<String> {
    let sequences = member(body, "stop_sequences").and_then(elements).unwrap_or_default();
    sequences.into_iter().filter_map(|sequence| sequence.into_string()).map(str::to_owned).collect()
}

fn output_limit<'t, 'i>(
    builder: &mut ChatRequestBuilder<'t, 'i>,
    body: Tree<'t, 'i>,
) -> Result<(), Rejection> {
    let path = MemberPath::top("max_tokens");
    let limit = member(body, "max_tokens").filter(|limit| limit.as_u64().is_some());
    let limit = limit.ok_or_else(|| path.reject("must be a number of tokens"))?;
    let name = builder.target.output_limit_field;
    builder.tree(name, limit);
    Ok(())
}

/// Checks context edits. Clearing old thoughts has no effect on a chat target and passes; all other edits change the
/// model's input and are rejected.
fn context(body: Tree<'_, '_>) -> Result<(), Rejection> {
    let path = MemberPath::top("context_management");
    let path = path.member("edits");
    let edits = member(body, "context_management").and_then(|context| member(context, "edits"));
    for (position, edit) in edits.and_then(elements).unwrap_or_default().iter().enumerate() {
        if !text_member(*edit, "type").is_some_and(|kind| kind.starts_with("clear_thinking")) {
            return Err(refused(&path.at(position), "it cannot edit the context"));
        }
    }
    Ok(())
}

/// Adds the schema of the answer. `output_format` is an older name of it.
fn format<'t, 'i>(builder: &mut ChatRequestBuilder<'t, 'i>, body: Tree<'t, 'i>) -> Result<(), Rejection> {
    let config = MemberPath::top("output_config");
    let now = member(body, "output_config").and_then(|config| member(config, "format"));
    let (format, path) = match (now, member(body, "output_format")) {
        (Some(format), _) => (format, config.member("format")),
        (None, Some(format)) => (format, MemberPath::top("output_format")),
        (None, None) => return Ok(()),
    };
    if text_member(format, "type") != Some("json_schema") {
        return Err(refused(&path, "the only known format is json_schema"));
    }
    if !builder.target.json_schema {
        return Err(refused(&path, "it does not support schemas"));
    }
    let held_to = member(format, "schema").filter(|schema| schema.as_object().is_some());
    let held_to = held_to.ok_or_else(|| path.member("schema").reject("must be a JSON schema"))?;
    let answer = AnswerSchema {
        name: Some(OptionValue::Text("output")),
        description: None,
        schema: Some(held_to),
        strict: schema::is_strict(held_to).then_some(OptionValue::Bool(true)),
    };
    builder.request.format = Some(ChatResponseFormat { kind: "json_schema", schema: Some(answer) });
    Ok(())
}

/// Adds the reasoning effort, if the target reasons.
fn reasoning<'t, 'i>(builder: &mut ChatRequestBuilder<'t, 'i>, body: Tree<'t, 'i>) -> Result<(), Rejection> {
    if !builder.target.reasoning {
        return Ok(());
    }
    let effort = member(body, "output_config").and_then(|config| text_member(config, "effort"));
    let thinking = member(body, "thinking");
    let effort = effort.or_else(|| match thinking.and_then(|thinking| text_member(thinking, "type"))? {
        "enabled" => {
            let budget = thinking.and_then(|thinking| member(thinking, "budget_tokens")?.as_u64())?;
            Some(match budget {
                ..4_096 => "low",
                4_096..16_384 => "medium",
                16_384.. => "high",
            })
        }
        "disabled" => Some("none"),
        _ => None,
    });
    if let Some(effort) = effort {
        builder.request.options.push(("reasoning_effort", OptionValue::Text(effort)));
    }
    if let Some(thinking) = thinking.filter(|_| builder.target.extended_chat) {
        builder.tree("thinking", thinking);
    }
    Ok(())
}

impl<'t, 'i> ChatRequestBuilder<'t, 'i> {
    /// Adds an option with a value of the client's document.
    fn tree(&mut self, name: &'i str, value: Tree<'t, 'i>) {
        self.request.options.push((name, OptionValue::Tree(value)));
    }
}
