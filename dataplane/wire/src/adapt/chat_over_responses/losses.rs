//! The fate of each field of a chat request at a Responses target (CHAT-5).

use crate::adapt::loss::{self, Fate, Loss, exact, hint, mapped, rejected};
use crate::adapt::{Rejection, read};
use crate::json::Tree;

/// The table of fields. A rejected member whose value asks for nothing (false, 0, "", [] or {}) is accepted.
pub(super) static LOSSES: &[Loss] = &[
    mapped("model", "the target's model, which the answer also names"),
    mapped("messages", "`input`, an item for each message, call and result"),
    mapped("messages.*.content.*[text]", "`input_text`; of the assistant one `output_text`"),
    mapped("messages.*.content.*[image_url]", "`input_image`"),
    mapped("messages.*.content.*[file]", "`input_file`"),
    mapped("messages.*.content.*[refusal]", "a refusal of the assistant"),
    rejected(
        "messages.*.content.*.type",
        "is a kind of content that a Responses target does not support here.",
    ),
    mapped("messages.*.refusal", "a refusal of the assistant"),
    mapped("messages.*.tool_calls.*[function]", "`function_call`"),
    mapped("messages.*.tool_calls.*[custom]", "`custom_tool_call`"),
    rejected("messages.*.tool_calls.*.type", "is a kind of call that a Responses target does not support."),
    mapped(
        "messages.*.tool_call_id",
        "the call's ID; one that the target would reject is replaced, in the call as well",
    ),
    hint("messages.*.name", "a Responses target does not support names of participants"),
    hint(
        "messages.*.images",
        "dropped, and named in `X-LLMGW-Dropped`: an assistant message of the target contains no images",
    ),
    hint("messages.*.reasoning_content", "dropped: messages and calls stay"),
    rejected("messages.*.audio", "refers to audio stored by a provider. Send its transcript as text."),
    mapped("messages.*.function_call", "a `function_call` with an ID that the gateway generates"),
    mapped(
        "messages.*.role=function",
        "`function_call_output`, of the oldest unanswered call of its function",
    ),
    mapped("max_completion_tokens", "`max_output_tokens`, at least 16"),
    mapped("max_tokens", "`max_output_tokens`, at least 16"),
    exact("temperature", "unchanged"),
    exact("top_p", "unchanged"),
    exact("metadata", "unchanged"),
    exact("service_tier", "unchanged"),
    exact("safety_identifier", "unchanged"),
    exact("user", "unchanged"),
    exact("prompt_cache_key", "unchanged"),
    exact("prompt_cache_retention", "unchanged"),
    mapped("stream", "`stream`; the answer's chunks are built from the events"),
    hint("stream_options.include_usage", "the answer's last chunk; the target always reports usage"),
    hint("stream_options.include_obfuscation", "padding against side-channel attacks is not added"),
    mapped(
        "tools.*[function]",
        "flat; `strict` is false by default, as in chat; a name that the target would reject is replaced by \
         a short one, the same in every turn, and calls in the answer have the client's name",
    ),
    mapped("tools.*[custom]", "flat"),
    rejected("tools.*.type", "is a kind of tool that chat does not support."),
    mapped("tool_choice", "flat"),
    mapped("tool_choice[allowed_tools]", "flat"),
    rejected("tool_choice.type", "is a kind of choice that chat does not support."),
    exact("parallel_tool_calls", "unchanged"),
    mapped("response_format[json_schema]", "`text.format`, flat"),
    mapped("response_format[json_object]", "`text.format`"),
    mapped("verbosity", "`text.verbosity`"),
    mapped("reasoning_effort", "`reasoning.effort`"),
    hint("seed", "dropped: answers are not reproducible"),
    rejected("store", "requests storage of the answer; here `store` is always false."),
    rejected("n", "requests several answers, and a Responses target returns one."),
    rejected("stop", "has no counterpart in the Responses API."),
    rejected("logprobs", "has no counterpart here in the Responses API."),
    rejected("top_logprobs", "has no counterpart here in the Responses API."),
    rejected("logit_bias", "has no counterpart in the Responses API."),
    rejected("presence_penalty", "has no counterpart in the Responses API."),
    rejected("frequency_penalty", "has no counterpart in the Responses API."),
    rejected("modalities", "requests output other than text, which this target does not support."),
    rejected("audio", "requests audio, which this target does not support."),
    rejected("prediction", "has no counterpart in the Responses API."),
    rejected("web_search_options", "requests a search by the provider, which is not passed on."),
    rejected("moderation", "is not passed on."),
    mapped("functions", "as `tools`; the answer then has `function_call`, with the first of several calls"),
    mapped("function_call", "as `tool_choice`"),
    hint("*", "any other member is dropped"),
];

/// Returns the rejection of `param` for the reason in the row of `field`.
pub(super) fn refuse(field: &str, param: impl Into<String>) -> Rejection {
    loss::refuse(LOSSES, field, param)
}

/// Rejects a top-level member if its row has the fate "rejected" and its value asks for something.
pub(super) fn check(name: &str, value: Tree<'_, '_>) -> Result<(), Rejection> {
    let row = LOSSES.iter().find(|row| row.field == name && row.fate == Fate::Rejected);
    match row {
        Some(row) if !asks_for_nothing(name, value) => Err(Rejection::new(name, row.note)),
        Some(_) | None => Ok(()),
    }
}

fn asks_for_nothing(name: &str, value: Tree<'_, '_>) -> bool {
    let text_alone = |value: Tree<'_, '_>| {
        value.as_array().is_some_and(|kinds| kinds.iter().all(|kind| read::as_text(kind) == Some("text")))
    };
    match name {
        "n" => read::as_count(value) == Some(1),
        "modalities" => text_alone(value),
        _ => read::asks_for_nothing(name, value),
    }
}
