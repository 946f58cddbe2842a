//! The fate of each field of a chat request at a Messages target.

use crate::adapt::loss::{exact, hint, mapped, rejected};
use crate::adapt::{Fate, Loss, Rejection, read};

/// The table of fields.
pub(super) static LOSSES: &[Loss] = &[
    mapped("model", "the target's name of the model"),
    mapped("messages", "`messages`; neighbours of one role become one message, results of tools first"),
    // Messages.
    mapped(
        "messages.*.role=system",
        "`system`, wherever it stands; in its place where the target takes that (Claude 5); the user's if nobody else speaks",
    ),
    mapped("messages.*.role=developer", "as `system`"),
    mapped("messages.*.role=user", "a `user` message; text that is empty or blank is left out"),
    mapped("messages.*.role=assistant", "an `assistant` message; one that says nothing is left out"),
    mapped("messages.*.role=tool", "a `tool_result` block of a `user` message"),
    mapped(
        "messages.*.role=function",
        "as `tool`, with the id of the oldest unanswered call of its function",
    ),
    hint("messages.*.name", "dropped"),
    mapped("messages.*.cache_control", "onto the last block that the message becomes"),
    mapped(
        "messages.*.tool_call_id",
        "`tool_use_id`; an id that the target would refuse is replaced by a hash",
    ),
    mapped("messages.*.tool_calls.*[function]", "a `tool_use` block"),
    mapped(ARGUMENTS, "`input`, which must be an object: other arguments are refused"),
    rejected(CUSTOM_CALL, "is a call of a tool that takes free text, which the target has not"),
    hint("messages.*.tool_calls.*.extra_content", "dropped: it means something to another vendor"),
    mapped("messages.*.function_call", "a `tool_use` block with an id of the gateway's own"),
    mapped("messages.*.refusal", "a `text` block"),
    rejected(AUDIO, "names audio that another provider keeps"),
    mapped(
        "messages.*.thinking_blocks",
        "`thinking` and `redacted_thinking` blocks, before the rest; unsigned ones are dropped",
    ),
    hint("messages.*.reasoning_content", "dropped: a target believes only reasoning that it has signed"),
    hint("messages.*.reasoning", "dropped, as `reasoning_content`"),
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
        "an `image` block: JPEG, PNG, GIF or WebP as a data URI in base64, or an http(s) URL; else refused",
    ),
    hint("messages.*.content.*[image_url].image_url.detail", "dropped"),
    mapped(
        "messages.*.content.*[file].file.file_data",
        "a `document` block: a PDF as a data URI, or an http(s) URL; else refused",
    ),
    rejected(FILE_ID, "names a file that another provider keeps"),
    rejected(INPUT_AUDIO, "is audio, which the target cannot hear"),
    rejected(VIDEO, "is a video, which the target cannot see"),
    // Tools.
    mapped(
        "tools.*[function]",
        "`tools`, with `parameters` as `input_schema`; a name that the target refuses is replaced by a short one, the same in every turn, and the answer's calls bear the client's",
    ),
    hint("tools.*.function.strict", "`strict` where the target can be"),
    mapped("tools.*.cache_control", "the same on the tool"),
    rejected(CUSTOM_TOOL, "is a tool that takes free text, which the target has not"),
    mapped("functions", "as `tools`; the answer then calls by `function_call`, one at a time"),
    mapped("function_call", "as `tool_choice`"),
    mapped("tool_choice", "`auto`, `any`, `none`, or the named tool"),
    mapped("tool_choice[allowed_tools]", "`auto` or `any` over these tools alone"),
    rejected(CUSTOM_CHOICE, "chooses a tool that takes free text, which the target has not"),
    mapped("parallel_tool_calls", "`tool_choice.disable_parallel_tool_use`"),
    // Options of the answer.
    mapped("max_completion_tokens", "`max_tokens`; where neither is named, the model's own limit or 4096"),
    exact("max_tokens", "unless `max_completion_tokens` is named too"),
    exact(TEMPERATURE, "up to 1, above is refused; not sent while the target thinks"),
    exact("top_p", "not sent while the target thinks"),
    exact("top_k", "not sent while the target thinks"),
    mapped(STOP, "`stop_sequences`; blanks alone are refused"),
    mapped("response_format[json_schema]", "`output_config.format`; refused where the target cannot"),
    rejected(JSON_OBJECT, "cannot be asked of the target: use `json_schema`"),
    hint(
        "reasoning_effort",
        "`output_config.effort`, or `thinking` with a number of tokens, where the model reasons",
    ),
    hint("reasoning", "its `effort`, `max_tokens` or `enabled` as `reasoning_effort`"),
    hint("thinking", "the same where the model reasons; the answer then carries `thinking_blocks`"),
    exact("stream", "the target is asked for a stream too"),
    mapped("stream_options", "the gateway itself sends usage, if it is asked to"),
    exact("cache_control", "the target caches what it can"),
    hint("user", "`metadata.user_id`, up to 256 characters"),
    hint("safety_identifier", "as `user`, before it"),
    rejected("n", "asks for several answers, and the target gives one"),
    rejected("logprobs", "cannot be told by the target"),
    rejected("top_logprobs", "cannot be told by the target"),
    rejected("logit_bias", "cannot be set at the target"),
    rejected("presence_penalty", "cannot be set at the target"),
    rejected("frequency_penalty", "cannot be set at the target"),
    rejected("modalities", "asks for more than text, which is all that the target answers with"),
    rejected("audio", "asks for speech, which the target cannot give"),
    rejected("web_search_options", "asks for a search, which is not adapted"),
    rejected("moderation", "asks for a check that the target does not make"),
    rejected("store", "asks the provider to keep the answer, which the target does not"),
    hint("seed", "dropped"),
    hint("verbosity", "dropped"),
    hint("prediction", "dropped"),
    hint("metadata", "dropped"),
    hint("service_tier", "dropped"),
    hint("prompt_cache_key", "dropped"),
    hint("prompt_cache_options", "dropped"),
    hint("prompt_cache_retention", "dropped"),
    hint("*", "any other member at the top is dropped"),
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
    let why = read::row(LOSSES, field).map_or("cannot be said to this target", |row| row.note);
    Rejection::new(path, &format!("{why}."))
}
