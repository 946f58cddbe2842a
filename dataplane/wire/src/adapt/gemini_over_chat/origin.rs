//! Maps members of the chat request back to the client's request.

use super::{normal, request};
use crate::adapt::Asking;
use crate::adapt::origin_trail::{OriginTrail, below};
use crate::json;

/// Returns the member of the client's request from which `param` of the chat request was made.
pub(super) fn origin(asking: &Asking<'_>, param: &str) -> Option<String> {
    if param.starts_with("tools.") || param.starts_with("messages.") {
        let mut document = normal::document(asking.body).ok()?;
        let whole: serde_json::Value = serde_json::from_slice(&document).ok()?;
        let tape = json::parse(&mut document).ok()?;
        let body = tape.as_value().as_object()?;
        let translated = request::translate(&body, asking.target, OriginTrail::noting()).ok()?;
        let (rest, origin) = translated.trail.find(param)?;
        let named = MEMBERS.iter().filter(|(chat, _)| below(rest, chat).is_some());
        let mut named = named.map(|(_, member)| format!("{origin}.{member}"));
        let exists = |path: &String| whole.pointer(&format!("/{}", path.replace('.', "/"))).is_some();
        return Some(named.find(exists).unwrap_or(origin));
    }
    if param == asking.target.output_limit_field {
        return Some("generationConfig.maxOutputTokens".to_owned());
    }
    let name = param.split('.').next()?;
    TOP.iter().find(|(chat, _)| *chat == name).map(|(_, name)| (*name).to_owned())
}

const TOP: &[(&str, &str)] = &[
    ("model", "model"),
    ("messages", "contents"),
    ("tools", "tools"),
    ("tool_choice", "toolConfig.functionCallingConfig"),
    ("temperature", "generationConfig.temperature"),
    ("top_p", "generationConfig.topP"),
    ("top_k", "generationConfig.topK"),
    ("seed", "generationConfig.seed"),
    ("n", "generationConfig.candidateCount"),
    ("logprobs", "generationConfig.responseLogprobs"),
    ("top_logprobs", "generationConfig.logprobs"),
    ("stop", "generationConfig.stopSequences"),
    ("presence_penalty", "generationConfig.presencePenalty"),
    ("frequency_penalty", "generationConfig.frequencyPenalty"),
    ("response_format", "generationConfig.responseMimeType"),
    ("reasoning_effort", "generationConfig.thinkingConfig"),
    ("service_tier", "serviceTier"),
    ("stream", "stream"),
    ("stream_options", "stream"),
];

/// Members of messages and tools, with the client's names of each.
const MEMBERS: &[(&str, &str)] = &[
    ("role", "role"),
    ("tool_call_id", "id"),
    ("id", "id"),
    ("function.name", "name"),
    ("function.description", "description"),
    ("function.parameters", "parametersJsonSchema"),
    ("function.parameters", "parameters"),
    ("function.arguments", "args"),
    ("image_url", "inlineData"),
    ("image_url", "fileData"),
    ("video_url", "inlineData"),
    ("input_audio", "inlineData"),
    ("file", "inlineData"),
    ("text", "text"),
];
