//! The fate of each field of a chat request at a Messages target.

use crate::adapt::loss::{self, exact, hint, mapped, rejected};
use crate::adapt::{Fate, Loss, Rejection};

/// The table of fields.
pub(super) static LOSSES: &[Loss] = &[
    mapped("model", "the target's name of the model"),
    mapped("messages", "`messages`; adjacent messages of one role are merged, tool results first"),
    // Messages.
    mapped(
        "messages.*.role=system",
        "`system`, at any position; at its own position if the target supports that (Claude 5); the user's \
         if there are no other messages",
    ),
    mapped("messages.*.role=developer", "as `system`"),
    mapped("messages.*.role=user", "a `user` message; text that is empty or blank is omitted"),
    mapped("messages.*.role=assistant", "an `assistant` message; an empty one is omitted"),
    mapped("messages.*.role=tool", "a `tool_result` block of a `user` message"),
    mapped(
        "messages.*.role=function",
        "as `tool`, with the id of the oldest unanswered call of its function",
    ),
    hint("messages.*.name", "dropped"),
    mapped("messages.*.cache_control", "on the last block of the translated message"),
    mapped(
        "messages.*.tool_call_id",
        "`tool_use_id`; an ID that the target would reject is replaced by a hash",
    ),
    mapped("messages.*.tool_calls.*[function]", "a `tool_use` block"),
    mapped(ARGUMENTS, "`input`, which must be an object: other arguments are rejected"),
    rejected(CUSTOM_CALL, "calls a tool with free text input, which the target does not support"),
    hint("messages.*.tool_calls.*.extra_content", "dropped: only another vendor uses it"),
    mapped("messages.*.function_call", "a `tool_use` block with an ID that the gateway generates"),
    mapped("messages.*.refusal", "a `text` block"),
    rejected(AUDIO, "refers to audio stored by another provider"),
    mapped(
        "messages.*.thinking_blocks",
        "`thinking` and `redacted_thinking` blocks, before the rest; unsigned ones are dropped",
    ),
    hint("messages.*.reasoning_content", "dropped: a target accepts only reasoning that it has signed"),
    hint("messages.*.reasoning", "dropped, as `reasoning_content`"),
    hint(
        "messages.*.images",
        "dropped, and named in `X-LLMGW-Dropped`: an assistant message of the target contains no images",
    ),
    hint("messages.*.reasoning_details", "dropped, as `reasoning_content`"),
    hint("messages.*.annotations", "dropped"),
    // Parts of messages.
    exact("messages.*.content.*[text].text", "a `text` block"),
    exact("messages.*.content.*.cache_control", "on the block that the part becomes"),
    hint("messages.*.content.*.prompt_cache_breakpoint", "dropped: use `cache_control`"),
    mapped("messages.*.content.*[refusal]", "a `text` block"),
    mapped("messages.*.content.*[thinking]", "a `thinking` block, if it is signed"),
    mapped("messages.*.content.*[redacted_thinking]", "the same block"),
    mapped(
        IMAGE,
        "an `image` block: JPEG, PNG, GIF or WebP as a data URI in base64, or an http(s) URL; anything else \
         is rejected",
    ),
    hint("messages.*.content.*[image_url].image_url.detail", "dropped"),
    mapped(
        "messages.*.content.*[file].file.file_data",
        "a `document` block: a PDF as a data URI, or an http(s) URL; anything else is rejected",
    ),
    rejected(FILE_ID, "refers to a file stored by another provider"),
    rejected(INPUT_AUDIO, "is audio, which the target does not support"),
    rejected(VIDEO, "is a video, which the target does not support"),
    // Tools.
    mapped(
        "tools.*[function]",
        "`tools`, with `parameters` as `input_schema`; a name that the target would reject is replaced by a \
         short one, the same in every turn, and calls in the answer have the client's name",
    ),
    hint("tools.*.function.strict", "`strict` if the target supports it"),
    mapped("tools.*.cache_control", "the same on the tool"),
    rejected(CUSTOM_TOOL, "is a tool with free text input, which the target does not support"),
    mapped("functions", "as `tools`; the answer then has `function_call`, one call at a time"),
    mapped("function_call", "as `tool_choice`"),
    mapped("tool_choice", "`auto`, `any`, `none`, or the named tool"),
    mapped("tool_choice[allowed_tools]", "`auto` or `any` over these tools alone"),
    rejected(CUSTOM_CHOICE, "chooses a tool with free text input, which the target does not support"),
    mapped("parallel_tool_calls", "`tool_choice.disable_parallel_tool_use`"),
    // Options of the answer.
    mapped("max_completion_tokens", "`max_tokens`; if neither is present, the model's own limit or 4096"),
    exact("max_tokens", "unless `max_completion_tokens` is present too"),
    exact(TEMPERATURE, "up to 1; a higher value is rejected; omitted if the target's thinking is on"),
    exact("top_p", "omitted if the target's thinking is on"),
    exact("top_k", "omitted if the target's thinking is on"),
    mapped(STOP, "`stop_sequences`; blank ones are rejected"),
    mapped(
        "response_format[json_schema]",
        "`output_config.format`; rejected if the target does not support it",
    ),
    rejected(JSON_OBJECT, "is not supported by the target: use `json_schema`"),
    hint(
        "reasoning_effort",
        "`output_config.effort`, or `thinking` with a number of tokens, if the model reasons",
    ),
    hint("reasoning", "its `effort`, `max_tokens` or `enabled` as `reasoning_effort`"),
    hint("thinking", "the same if the model reasons; the answer then has `thinking_blocks`"),
    exact("stream", "the target is asked for a stream as well"),
    mapped("stream_options", "the gateway itself sends usage if the client requests it"),
    exact("cache_control", "the target caches by itself"),
    hint("user", "`metadata.user_id`, up to 256 characters"),
    hint("safety_identifier", "as `user`, over which it takes precedence"),
    rejected("n", "requests several answers, and the target returns one"),
    rejected("logprobs", "is not reported by the target"),
    rejected("top_logprobs", "is not reported by the target"),
    rejected("logit_bias", "is not supported by the target"),
    rejected("presence_penalty", "is not supported by the target"),
    rejected("frequency_penalty", "is not supported by the target"),
    rejected("modalities", "requests output other than text, which the target does not support"),
    rejected("audio", "requests speech, which the target does not support"),
    rejected("web_search_options", "requests a search, which is not adapted"),
    rejected("moderation", "requests a check that the target does not support"),
    rejected("store", "requests that the provider store the answer, which the target does not support"),
    hint("seed", "dropped"),
    hint("verbosity", "dropped"),
    hint("prediction", "dropped"),
    hint("metadata", "dropped"),
    hint("service_tier", "dropped"),
    hint("prompt_cache_key", "dropped"),
    hint("prompt_cache_options", "dropped"),
    hint("prompt_cache_retention", "dropped"),
    hint("*", "any other top-level member is dropped"),
];

pub(super) const ARGUMENTS: &str = "messages.*.tool_calls.*[function].function.arguments";
pub(super) const CUSTOM_CALL: &str = "messages.*.tool_calls.*[custom]";
pub(super) const AUDIO: &str = "messages.*.audio";
pub(super) const IMAGE: &str = "messages.*.content.*[image_url]";
pub(super) const FILE_ID: &str = "messages.*.content.*[file].file.file_id";
pub(super) const INPUT_AUDIO: &str = "messages.*.content.*[input_audio]";
pub(super) const VIDEO: &str = "messages.*.content.*[video_url]";
pub(super) const CUSTOM_TOOL: &str = "tools.*[custom]";
pub(super) const CUSTOM_CHOICE: &str = "tool_choice[custom]";
pub(super) const TEMPERATURE: &str = "temperature";
pub(super) const STOP: &str = "stop";
pub(super) const JSON_OBJECT: &str = "response_format[json_object]";

/// Returns the row that rejects a top-level member by its name alone.
pub(super) fn refused(name: &str) -> Option<&'static Loss> {
    LOSSES.iter().find(|loss| loss.field == name && loss.fate == Fate::Rejected)
}

/// Returns the rejection of `path` for the reason in the row of `field`.
pub(super) fn refuse(field: &'static str, path: impl Into<String>) -> Rejection {
    let why = loss::row(LOSSES, field).map_or("is not supported by this target", |row| row.note);
    Rejection::new(path, &format!("{why}."))
}
