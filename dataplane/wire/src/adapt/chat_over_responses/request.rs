//! Translates a chat request into a Responses request.

use simd_json::prelude::ValueAsScalar as _;

use super::answer::ResponsesTarget;
use super::losses::{LOSSES, check};
use super::{messages, tools};
use crate::adapt::chat_client::form;
use crate::adapt::loss::unknown;
use crate::adapt::read::{self, Object, member, member_text, members};
use crate::adapt::through_chat::AskedOfTarget;
use crate::adapt::tool_names::{Rule, ToolNames, WORD_MAX};
use crate::adapt::write::ObjectWriter;
use crate::adapt::{Asking, Rejection};
use crate::json;

/// Smallest output limit that a Responses target accepts, in tokens.
const OUTPUT_TOKENS_MIN: u64 = 16;

/// Translates the request into the dialect of the Responses API.
pub(super) fn ask(asking: &Asking<'_>) -> Result<AskedOfTarget, Rejection> {
    let mut bytes = asking.body.to_vec();
    let tape = json::parse(&mut bytes).map_err(read::refuse_fault)?;
    let request = read::object(tape.as_value(), || "body".to_owned())?;
    for (name, value) in members(&request) {
        check(name, value)?;
    }
    let mut body = Vec::with_capacity(asking.body.len().saturating_add(256));
    let mut names = ToolNames::new(Rule::Word(WORD_MAX));
    write(&request, asking.target.model, &mut names, &mut body)?;
    Ok(AskedOfTarget {
        body,
        target: Box::new(ResponsesTarget { names }),
        form: form(asking, &request),
        dropped: unknown(&request, LOSSES),
    })
}

fn write(
    request: &Object<'_, '_>,
    model: &str,
    names: &mut ToolNames,
    body: &mut Vec<u8>,
) -> Result<(), Rejection> {
    let mut responses = ObjectWriter::open(body);
    responses.text("model", model);
    messages::write(request, names, responses.key("input"))?;
    responses.raw("store", "false");
    let limit = ["max_completion_tokens", "max_tokens"].into_iter().find_map(|name| member(request, name));
    match limit {
        Some(limit) if limit.as_u64().is_some_and(|limit| limit < OUTPUT_TOKENS_MIN) => {
            responses.raw("max_output_tokens", &OUTPUT_TOKENS_MIN.to_string());
        }
        Some(limit) => responses.tree("max_output_tokens", limit),
        None => {}
    }
    for name in UNCHANGED {
        if let Some(value) = member(request, name) {
            responses.tree(name, value);
        }
    }
    tools::write(request, names, &mut responses)?;
    text(request, &mut responses)?;
    if let Some(effort) = member(request, "reasoning_effort") {
        let mut reasoning = ObjectWriter::open(responses.key("reasoning"));
        reasoning.tree("effort", effort);
        reasoning.close();
    }
    if member(request, "stream").and_then(|stream| stream.as_bool()) == Some(true) {
        responses.raw("stream", "true");
    }
    responses.close();
    Ok(())
}

const UNCHANGED: [&str; 9] = [
    "temperature",
    "top_p",
    "metadata",
    "parallel_tool_calls",
    "service_tier",
    "safety_identifier",
    "user",
    "prompt_cache_key",
    "prompt_cache_retention",
];

/// Writes `text`: the format and the verbosity of the answer.
fn text(request: &Object<'_, '_>, responses: &mut ObjectWriter<'_>) -> Result<(), Rejection> {
    let format = member(request, "response_format");
    let format = format.map(|format| read::object(format, || "response_format".to_owned())).transpose()?;
    let verbosity = member(request, "verbosity");
    if format.is_none() && verbosity.is_none() {
        return Ok(());
    }
    let mut text = ObjectWriter::open(responses.key("text"));
    if let Some(format) = format {
        let kind = read::needed_text(&format, "type", || "response_format".to_owned())?;
        let mut flat = ObjectWriter::open(text.key("format"));
        flat.text("type", kind);
        if let Some(inner) = member(&format, "json_schema") {
            let inner = read::object(inner, || "response_format.json_schema".to_owned())?;
            for name in ["name", "description", "schema", "strict"] {
                if let Some(value) = member(&inner, name) {
                    flat.tree(name, value);
                }
            }
        }
        flat.close();
    }
    if let Some(verbosity) = verbosity {
        text.tree("verbosity", verbosity);
    }
    text.close();
    Ok(())
}

/// Returns the `type` of a tool, a call, a choice or a content part.
pub(super) fn kind<'i>(object: &Object<'_, 'i>) -> Option<&'i str> {
    member_text(object, "type")
}
