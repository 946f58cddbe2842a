//! Translates the options of the answer: length, sampling, reasoning and format.

use simd_json::prelude::{ValueAsScalar as _, ValueIntoString as _};

use super::request::{ChatRequestWriter, elements, member, refused, text_member};
use crate::adapt::path::MemberPath;
use crate::adapt::{Rejection, schema};
use crate::json::Tree;

/// Writes `,"max_tokens":..` and the other options.
pub(super) fn options(writer: &mut ChatRequestWriter<'_>, body: Tree<'_, '_>) -> Result<(), Rejection> {
    output_limit(writer, body)?;
    for name in ["temperature", "top_p", "top_k"] {
        let Some(value) = member(body, name) else { continue };
        if name == "top_k" && !writer.target.top_k {
            return Err(refused(&MemberPath::top(name), "it does not support this field"));
        }
        writer.member(name, value);
    }
    if let Some(stop) = member(body, "stop_sequences") {
        let sequences = elements(stop);
        let sequences =
            sequences.ok_or_else(|| MemberPath::top("stop_sequences").reject("must be an array"))?;
        if let Some(most) = writer.target.stops_max.filter(|most| sequences.len() > *most) {
            let why = format!("it supports at most {most} sequences");
            return Err(refused(&MemberPath::top("stop_sequences"), &why));
        }
        if !sequences.is_empty() {
            writer.member("stop", stop);
        }
    }
    context(body)?;
    format(writer, body)?;
    reasoning(writer, body)?;
    if member(body, "stream").and_then(|stream| stream.as_bool()) == Some(true) {
        writer.raw(",\"stream\":true");
        if writer.target.stream_options {
            writer.raw(",\"stream_options\":{\"include_usage\":true}");
        }
    }
    Ok(())
}

/// Returns the client's stop sequences.
pub(super) fn stops(body: Tree<'_, '_>) -> Vec<String> {
    let sequences = member(body, "stop_sequences").and_then(elements).unwrap_or_default();
    sequences.into_iter().filter_map(|sequence| sequence.into_string()).map(str::to_owned).collect()
}

fn output_limit(writer: &mut ChatRequestWriter<'_>, body: Tree<'_, '_>) -> Result<(), Rejection> {
    let path = MemberPath::top("max_tokens");
    let limit = member(body, "max_tokens").filter(|limit| limit.as_u64().is_some());
    let limit = limit.ok_or_else(|| path.reject("must be a number of tokens"))?;
    let name = writer.target.output_limit_field;
    writer.member(name, limit);
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

/// Writes the schema of the answer. `output_format` is an older name of it.
fn format(writer: &mut ChatRequestWriter<'_>, body: Tree<'_, '_>) -> Result<(), Rejection> {
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
    if !writer.target.json_schema {
        return Err(refused(&path, "it does not support schemas"));
    }
    let held_to = member(format, "schema").filter(|schema| schema.as_object().is_some());
    let held_to = held_to.ok_or_else(|| path.member("schema").reject("must be a JSON schema"))?;
    writer.raw(
        ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"output\",\"schema\":",
    );
    writer.value(held_to);
    writer.raw(if schema::is_strict(held_to) { ",\"strict\":true}}" } else { "}}" });
    Ok(())
}

/// Writes the reasoning effort, if the target reasons.
fn reasoning(writer: &mut ChatRequestWriter<'_>, body: Tree<'_, '_>) -> Result<(), Rejection> {
    if !writer.target.reasoning {
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
        writer.raw(",\"reasoning_effort\":");
        writer.text(effort);
    }
    if let Some(thinking) = thinking.filter(|_| writer.target.extended_chat) {
        writer.member("thinking", thinking);
    }
    Ok(())
}

impl ChatRequestWriter<'_> {
    /// Writes `,"name":value`.
    fn member(&mut self, name: &str, value: Tree<'_, '_>) {
        self.raw(",");
        self.text(name);
        self.raw(":");
        self.value(value);
    }
}
