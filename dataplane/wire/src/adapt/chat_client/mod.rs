//! Parts shared by the adaptations for chat clients: reading requests and writing answers.

mod chunks;
mod completion;
mod message;
mod options;
mod part;
mod tools;

pub(super) use chunks::ChatChunkWriter;
pub(super) use completion::{CompletionCall, CompletionChoice, completion};
pub(super) use message::{AssistantCall, ChatMessage, messages};
pub(super) use options::{ChatResponseFormat, copy_stop, effort, format, refuse_listed, wants_usage};
pub(super) use part::{CacheMark, ChatPart};
pub(super) use tools::{ChatToolChoice, ChatTools, tools};

use std::borrow::Cow;

use shared::usage::TokenCounts;
use simd_json::tape::Object;

use crate::adapt::tool_names::ToolNames;
use crate::adapt::{Asking, read};
use crate::json::JsonWriter;

/// The values shared by all answers to one request.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// `chatcmpl-` followed by the seed.
    pub(super) id: String,
    /// The seed for ids of calls to which the target assigned none.
    pub(super) seed: String,
    /// Seconds since the Unix epoch.
    pub(super) created: u64,
    /// The `model` of the answers, from `Asking::selector`.
    pub(super) model: String,
    /// The client reads calls only in the legacy form (`function_call`).
    pub(super) functions: bool,
    /// Maps the target's tool names back to the client's.
    pub(super) names: ToolNames,
}

impl Identity {
    /// Creates the identity of the answers to `request`; `names` holds the tool names sent to the target.
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

    /// Returns an id for the call at `position`, counted over the whole answer.
    pub(super) fn call_id(&self, position: u64) -> String {
        format!("call_{}_{position}", self.seed)
    }

    /// Returns the client's name for the tool that the target calls `name`.
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

/// Returns true if the client of `request` offers its tools in the legacy form, and therefore reads calls only in that
/// form.
pub(super) fn calls_functions(request: &Object<'_, '_>) -> bool {
    read::member(request, "tools").is_none() && read::member(request, "functions").is_some()
}

/// Returns the `finish_reason` for a client of the legacy form.
fn in_old_words(reason: &str) -> &str {
    if reason == "tool_calls" { "function_call" } else { reason }
}

/// Writes usage in chat's form: the prompt includes cached and audio input; the completion includes reasoning, audio
/// and images (CHAT-3).
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

/// Writes `extra_content` with a signature. Gemini's own chat endpoint returns it with a call or a message and expects
/// it back.
fn write_signature(signature: &str, json: &mut JsonWriter) {
    json.name("extra_content").object().name("google").object();
    json.name("thought_signature").text(signature).end_object().end_object();
}
