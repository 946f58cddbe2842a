//! What the adaptations for clients that speak chat share: reading pieces of their requests, and writing answers
//! as they expect them.

mod chunks;
mod completion;
mod message;
mod part;
mod question;
mod tools;

pub(super) use chunks::ChatChunkWriter;
pub(super) use completion::{CompletionCall, CompletionChoice, completion};
pub(super) use message::{AssistantCall, ChatMessage, messages};
pub(super) use part::{CacheMark, ChatPart};
pub(super) use question::{ChatResponseFormat, copy_stop, effort, format, refuse_listed, wants_usage};
pub(super) use tools::{ChatToolChoice, ChatTools, tools};

use std::borrow::Cow;

use shared::usage::TokenCounts;
use simd_json::tape::Object;

use crate::adapt::tool_names::ToolNames;
use crate::adapt::{Asking, read};
use crate::json::JsonWriter;

/// What every answer to one request carries.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// `chatcmpl-` and the seed.
    pub(super) id: String,
    /// For ids of calls that the target did not name.
    pub(super) seed: String,
    /// Seconds since the Unix epoch.
    pub(super) created: u64,
    /// The selector that the client sent.
    pub(super) model: String,
    /// The client knows calls in the old form alone, by `function_call`.
    pub(super) functions: bool,
    /// The client's names of tools that the target knows by others.
    pub(super) names: ToolNames,
}

impl Identity {
    /// Of the answers to `request`, whose tools the target knows by `names`.
    pub(super) fn of(asking: &Asking<'_>, request: &Object<'_, '_>, names: ToolNames) -> Self {
        Self {
            id: format!("chatcmpl-{}", asking.seed),
            seed: asking.seed.to_owned(),
            created: asking.now_s,
            model: asking.selector.to_owned(),
            functions: calls_functions(request),
            names,
        }
    }

    /// The id of the call at `position`, counted over all of the answer.
    pub(super) fn call_id(&self, position: u64) -> String {
        format!("call_{}_{position}", self.seed)
    }

    /// The client's name of the tool that the target calls `name`.
    pub(super) fn tool_name<'a>(&self, name: Cow<'a, str>) -> Cow<'a, str> {
        match self.names.restore(&name) {
            restored if restored == name => name,
            restored => Cow::Owned(restored.to_owned()),
        }
    }

    fn write(&self, object: &str, json: &mut JsonWriter) {
        json.name("id").text(&self.id).name("object").text(object);
        json.name("created").number(self.created).name("model").text(&self.model);
    }
}

/// Returns true if the client of `request` offers its tools in the old form, and so reads calls in that form alone.
pub(super) fn calls_functions(request: &Object<'_, '_>) -> bool {
    read::member(request, "tools").is_none() && read::member(request, "functions").is_some()
}

/// The `finish_reason` that a client of the old form knows.
fn in_old_words(reason: &str) -> &str {
    if reason == "tool_calls" { "function_call" } else { reason }
}

/// Usage as a chat client expects it: cached and audio input within the prompt, reasoning, audio and images within the
/// completion (CHAT-3).
fn write_usage(usage: &TokenCounts, json: &mut JsonWriter) {
    let (prompt, completion) = (usage.input_total(), usage.output_total());
    json.object().name("prompt_tokens").number(prompt).name("completion_tokens").number(completion);
    json.name("total_tokens").number(prompt.saturating_add(completion));
    json.name("prompt_tokens_details").object().name("cached_tokens").number(usage.cache_read);
    let written = usage.cache_write.saturating_add(usage.cache_write_1h);
    write_some(&[("cache_write_tokens", written), ("audio_tokens", usage.audio_input)], json);
    json.end_object().name("completion_tokens_details").object();
    json.name("reasoning_tokens").number(usage.reasoning);
    write_some(&[("audio_tokens", usage.audio_output), ("image_tokens", usage.image_output)], json);
    json.end_object().end_object();
}

/// Writes the counts that are not zero.
fn write_some(counts: &[(&str, u64)], json: &mut JsonWriter) {
    for (name, count) in counts.iter().filter(|(_, count)| *count > 0) {
        json.name(name).number(*count);
    }
}

/// What Gemini's own chat endpoint hands out with a call or a message, and wants back with it.
fn write_signature(signature: &str, json: &mut JsonWriter) {
    json.name("extra_content").object().name("google").object();
    json.name("thought_signature").text(signature).end_object().end_object();
}
