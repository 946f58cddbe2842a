//! Translates a chat request into a Responses request.

use shared::model_rules::{Effort, ModelRules, Thinking};

use super::answer::ResponsesTarget;
use super::losses::{LOSSES, check};
use super::stops::StopCut;
use super::{messages, tools};
use crate::adapt::adjusted::Adjusted;
use crate::adapt::chat_client::{dropped, form, output_limit};
use crate::adapt::chat_rules::{OUTPUT_LIMITS, refused_sampling};
use crate::adapt::through_chat::AskedOfTarget;
use crate::adapt::tool_names::{Rule, ToolNames, WORD_MAX};
use crate::adapt::{Asking, Rejection, Traits};
use crate::chat::request::{ChatRequest, OptionValue};
use crate::json::JsonWriter;

/// Smallest output limit that a Responses target accepts, in tokens.
const OUTPUT_TOKENS_MIN: u64 = 16;

/// Translates the request into the dialect of the Responses API.
pub(super) fn ask(request: &ChatRequest<'_, '_>, asking: &Asking<'_>) -> Result<AskedOfTarget, Rejection> {
    // A chat client is refused what the API lacks; agents of other protocols depend on it.
    let cuts = asking.target.extended_chat;
    for (name, value) in request.trees().filter(|(name, _)| !cuts || *name != "stop") {
        check(name, value)?;
    }
    let mut names = ToolNames::new(Rule::Word(WORD_MAX));
    let mut json = JsonWriter::default();
    let mut adjusted = Adjusted::default();
    write(request, asking.target, (&mut names, &mut adjusted), &mut json)?;
    Ok(AskedOfTarget {
        body: json.finish(),
        target: Box::new(ResponsesTarget {
            names,
            origin: wants_encrypted(request, asking.target).then(|| origin(asking.target)),
            stops: if cuts { StopCut::of(request)? } else { StopCut::default() },
        }),
        form: form(asking, request),
        dropped: dropped(request, LOSSES),
        adjusted,
    })
}

fn write(
    request: &ChatRequest<'_, '_>,
    target: &Traits<'_>,
    (names, adjusted): (&mut ToolNames, &mut Adjusted),
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    json.object().name("model").text(target.model);
    messages::write(request, &origin(target), names, json.name("input"))?;
    json.name("store").raw(b"false");
    if wants_encrypted(request, target) {
        json.name("include").list().text("reasoning.encrypted_content").end_list();
    }
    let given = OUTPUT_LIMITS.into_iter().find_map(|name| request.tree(name));
    match (output_limit(request, target, adjusted), given) {
        (Some(limit), _) => drop(json.name("max_output_tokens").number(limit.max(OUTPUT_TOKENS_MIN))),
        (None, Some(given)) => drop(json.name("max_output_tokens").tree(given)),
        (None, None) => {}
    }
    let effort = known_effort(request, target.rules, adjusted);
    let thinks = match effort.and_then(OptionValue::as_text) {
        Some(word) => word != Effort::None.name(),
        None => target.rules.thinks_by_default == Some(true),
    };
    let both = ["temperature", "top_p"].iter().all(|name| request.option(name).is_some());
    let refused = refused_sampling(target.rules, thinks, both);
    for name in UNCHANGED {
        match request.option(name) {
            Some(_) if refused.contains(&name) => adjusted.drop(name),
            Some(value) => value.write(json.name(name)),
            None => {}
        }
    }
    tools::write(&request.tools, names, json)?;
    text(request, json);
    if let Some(effort) = effort {
        effort.write(json.name("reasoning").object().name("effort"));
        json.end_object();
    }
    if request.is_stream() {
        json.name("stream").raw(b"true");
    }
    json.end_object();
    Ok(())
}

/// True if the answer is to contain its encrypted reasoning, which the client sends back. Models that do not reason refuse
/// to encrypt it.
fn wants_encrypted(request: &ChatRequest<'_, '_>, target: &Traits<'_>) -> bool {
    request.carries_reasoning && target.reasoning && request.tools.offers_any()
}

/// Returns the name of the target in carried reasoning.
fn origin(target: &Traits<'_>) -> String {
    [target.provider, "/", target.model].concat()
}

/// Returns the effort as a word that the model knows.
fn known_effort<'t, 'i>(
    request: &ChatRequest<'t, 'i>,
    rules: &ModelRules,
    adjusted: &mut Adjusted,
) -> Option<OptionValue<'t, 'i>> {
    let value = request.option(EFFORT)?;
    let Some(asked) = value.as_text().and_then(Effort::of) else { return Some(value) };
    match rules.nearest_effort(asked).filter(|_| rules.thinking != Some(Thinking::Never)) {
        Some(known) if known == asked => Some(value),
        Some(known) => {
            adjusted.set("reasoning.effort", known.name());
            Some(OptionValue::Text(known.name()))
        }
        None => {
            adjusted.drop(EFFORT);
            None
        }
    }
}

const EFFORT: &str = "reasoning_effort";

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
