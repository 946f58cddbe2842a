//! Translates a chat request into a Responses request.

use simd_json::prelude::ValueAsScalar as _;

use super::answer::ResponsesTarget;
use super::losses::{LOSSES, check};
use super::{messages, tools};
use crate::adapt::chat_client::{dropped, form};
use crate::adapt::through_chat::AskedOfTarget;
use crate::adapt::tool_names::{Rule, ToolNames, WORD_MAX};
use crate::adapt::{Asking, Rejection};
use crate::chat::request::{ChatRequest, OptionValue};
use crate::json::JsonWriter;

/// Smallest output limit that a Responses target accepts, in tokens.
const OUTPUT_TOKENS_MIN: u64 = 16;

/// Translates the request into the dialect of the Responses API.
pub(super) fn ask(request: &ChatRequest<'_, '_>, asking: &Asking<'_>) -> Result<AskedOfTarget, Rejection> {
    for (name, value) in request.trees() {
        check(name, value)?;
    }
    let mut names = ToolNames::new(Rule::Word(WORD_MAX));
    let mut json = JsonWriter::default();
    write(request, asking.target.model, &mut names, &mut json)?;
    Ok(AskedOfTarget {
        body: json.finish(),
        target: Box::new(ResponsesTarget { names }),
        form: form(asking, request),
        dropped: dropped(request, LOSSES),
    })
}

fn write(
    request: &ChatRequest<'_, '_>,
    model: &str,
    names: &mut ToolNames,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    json.object().name("model").text(model);
    messages::write(request, names, json.name("input"))?;
    json.name("store").raw(b"false");
    let limit = ["max_completion_tokens", "max_tokens"].into_iter().find_map(|name| request.tree(name));
    match limit {
        Some(limit) if limit.as_u64().is_some_and(|limit| limit < OUTPUT_TOKENS_MIN) => {
            json.name("max_output_tokens").number(OUTPUT_TOKENS_MIN);
        }
        Some(limit) => drop(json.name("max_output_tokens").tree(limit)),
        None => {}
    }
    for name in UNCHANGED {
        if let Some(value) = request.option(name) {
            value.write(json.name(name));
        }
    }
    tools::write(&request.tools, names, json)?;
    text(request, json);
    if let Some(effort) = request.option("reasoning_effort") {
        effort.write(json.name("reasoning").object().name("effort"));
        json.end_object();
    }
    if request.is_stream() {
        json.name("stream").raw(b"true");
    }
    json.end_object();
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
fn text(request: &ChatRequest<'_, '_>, json: &mut JsonWriter) {
    let verbosity = request.option("verbosity");
    if request.format.is_none() && verbosity.is_none() {
        return;
    }
    json.name("text").object();
    if let Some(format) = &request.format {
        json.name("format").object().name("type").text(format.kind);
        if let Some(inner) = format.schema {
            let schema = inner.schema.map(OptionValue::Tree);
            for (name, value) in [
                ("name", inner.name),
                ("description", inner.description),
                ("schema", schema),
                ("strict", inner.strict),
            ] {
                if let Some(value) = value {
                    value.write(json.name(name));
                }
            }
        }
        json.end_object();
    }
    if let Some(verbosity) = verbosity {
        verbosity.write(json.name("verbosity"));
    }
    json.end_object();
}
