//! The fate of each field of a Responses request that a chat target serves (RESP-2).

use simd_json::prelude::ValueAsScalar as _;

use crate::adapt::loss::{Fate, Loss, exact, hint, mapped, rejected};
use crate::adapt::{Rejection, read};
use crate::json::Tree;

/// The table of losses. A member of a rejected field passes if its value requests nothing (false, 0, "", [] or {}).
pub(super) static LOSSES: &[Loss] = &[
    mapped("model", "the target's model, which the answer names too"),
    mapped("input", "`messages`; a string is one user message"),
    mapped(
        "instructions",
        "the first message, with role `system`, or `developer` where the target calls it so",
    ),
    mapped("max_output_tokens", "`max_tokens` or `max_completion_tokens`, as the target calls it"),
    exact("temperature", "unchanged"),
    exact("top_p", "unchanged"),
    mapped("stream", "with `stream_options.include_usage`; the answer's events are made of the chunks"),
    hint("stream_options", "padding against eavesdroppers is not added"),
    // Input.
    hint("input.*.id", "chat has no ids of items"),
    hint("input.*.status", "chat's messages are whole"),
    mapped("input.*.role=developer", "role `system`, where the target does not know `developer`"),
    hint("input.*.phase", "chat has one kind of assistant message"),
    mapped(
        "input.*.content.*[input_text]",
        "text; where a message holds nothing else, its texts are one, joined by blank lines",
    ),
    mapped("input.*.content.*[input_image]", "`image_url`"),
    mapped("input.*.content.*[input_image].detail=original", "`high`"),
    rejected(
        "input.*.content.*[input_image].file_id",
        "is a file kept by a provider. Send the image as a URL or data URI.",
    ),
    mapped("input.*.content.*[input_file].file_data", "`file`, where the target takes files; else rejected"),
    rejected(
        "input.*.content.*[input_file].file_id",
        "is a file kept by a provider. Send its bytes as `file_data`.",
    ),
    rejected(
        "input.*.content.*[input_file].file_url",
        "would have to be fetched by the provider. Send the file as `file_data`.",
    ),
    mapped("input.*.content.*[output_text]", "the text of an assistant message"),
    hint("input.*.content.*[output_text].annotations", "chat's text has none"),
    hint("input.*.content.*[output_text].logprobs", "of no use to the target"),
    mapped("input.*.content.*[refusal]", "`refusal`; text, where the target has no such member (Mistral)"),
    rejected("input.*.content.*.type", "is a kind of content that this target cannot take here."),
    mapped("input.*[function_call]", "a tool call of the assistant message before it, or of one of its own"),
    rejected(
        "input.*[function_call].namespace",
        "belongs to tools that need a target with a native Responses API.",
    ),
    mapped("input.*[function_call_output]", "a `tool` message; several texts are joined by line ends"),
    rejected(
        "input.*[function_call_output].output.*.type",
        "is a kind of tool output that this target cannot take. Send `input_text`.",
    ),
    mapped("input.*[custom_tool_call]", "a tool call, where the target knows custom tools; else rejected"),
    mapped(
        "input.*[custom_tool_call_output]",
        "a `tool` message, where the target knows custom tools; else rejected",
    ),
    hint("input.*[reasoning]", "dropped: what was said and called stays"),
    rejected(
        "input.*[reasoning].encrypted_content",
        "is reasoning that only the provider that made it can read. It needs that provider's native Responses API.",
    ),
    rejected("input.*[item_reference]", "names an item kept by a provider. Send the item itself."),
    rejected("input.*.type", "is an item that needs a target with a native Responses API."),
    // Tools.
    mapped(
        "tools.*[function]",
        "nested under `function`; `strict` where it is true and the target knows it; a name that the target refuses is replaced by a short one, the same in every turn, and the answer's calls bear the client's",
    ),
    hint("tools.*[function].defer_loading", "the tool is there from the first"),
    hint("tools.*[function].output_schema", "the target does not check outputs"),
    rejected(
        "tools.*[function].allowed_callers",
        "restricts who may call the tool, which this target cannot.",
    ),
    rejected("tools.*[function].async", "lets the tool answer later, which this target cannot."),
    mapped("tools.*[custom]", "nested under `custom`, where the target knows custom tools; else rejected"),
    rejected("tools.*.type", "is a tool that needs a target with a native Responses API."),
    mapped("tool_choice", "nested; dropped where no tools are offered"),
    mapped("tool_choice[allowed_tools]", "only these tools are offered, and `mode` is the choice"),
    rejected("tool_choice.type", "chooses a tool that needs a target with a native Responses API."),
    exact("parallel_tool_calls", "unchanged; dropped where no tools are offered"),
    rejected(
        "max_tool_calls",
        "bounds calls of built-in tools and needs a target with a native Responses API.",
    ),
    // Format of the answer.
    mapped(
        "text.format[json_schema]",
        "`response_format`, nested; rejected where the target cannot be held to a schema",
    ),
    mapped("text.format[json_object]", "`response_format`"),
    rejected("text.format.type", "is a format that this target cannot be held to."),
    hint("text.verbosity", "chat targets rarely know it"),
    hint("reasoning.effort", "`reasoning_effort`, where the target reasons"),
    hint("reasoning.summary", "reasoning is told as the target tells it"),
    hint("reasoning.generate_summary", "as `reasoning.summary`"),
    hint("reasoning.context=auto", "what is the usual way"),
    rejected(
        "reasoning.context",
        "needs reasoning that a provider has kept, and so a target with a native Responses API.",
    ),
    hint("reasoning.mode=standard", "what is the usual way"),
    rejected("reasoning.mode", "needs a target with a native Responses API."),
    rejected("top_logprobs", "needs a target with a native Responses API."),
    // State kept, and work done, by the provider.
    rejected("background", "is not supported: answers cannot be made in the background."),
    rejected(
        "previous_response_id",
        "names an answer kept by a provider and needs a target with a native Responses API. Send the whole conversation in `input`.",
    ),
    rejected(
        "conversation",
        "names a conversation kept by a provider and needs a target with a native Responses API. Send the whole conversation in `input`.",
    ),
    rejected(
        "store",
        "asks for the answer to be kept, which needs a target with a native Responses API. Send false, or leave it out.",
    ),
    rejected(
        "include",
        "asks for more than this target can tell and needs a target with a native Responses API.",
    ),
    rejected("prompt", "names a prompt kept by a provider and needs a target with a native Responses API."),
    rejected("context_management", "needs a target with a native Responses API."),
    rejected("moderation", "needs a target with a native Responses API."),
    hint("truncation=disabled", "what is the usual way"),
    rejected(
        "truncation",
        "leaves out input where it is too long, which needs a target with a native Responses API.",
    ),
    rejected("access_programs", "needs a target with a native Responses API."),
    rejected("image", "needs a target with a native Responses API."),
    // Information about the request for the provider.
    mapped("metadata", "stands in the answer; the target is not told"),
    mapped("user", "stands in the answer; the target is not told"),
    hint("client_metadata", "the target is not told"),
    hint("prompt_cache_key", "the target is not told"),
    hint("prompt_cache_retention", "the target is not told"),
    hint("prompt_cache_options", "the target is not told"),
    rejected("prompt_cache_options.prewarm", "needs a target with a native Responses API."),
    rejected(
        "prompt_cache_options.comparison_response_id",
        "names an answer kept by a provider and needs a target with a native Responses API.",
    ),
    hint("safety_identifier", "the target is not told"),
    hint("service_tier", "the target serves as it serves"),
    rejected("*", "is not known here, so that nobody can say whether this target may pass over it."),
];

/// Returns the rejection of the value at `param`, with the reason from the row of `field`.
pub(super) fn refuse(field: &str, param: impl Into<String>) -> Rejection {
    read::refuse(LOSSES, field, param)
}

/// Rejects the member at `path` if its row requires that. A row for its value takes precedence over one for its name.
pub(super) fn check(path: &str, value: Tree<'_, '_>) -> Result<(), Rejection> {
    let mut known = false;
    for row in LOSSES {
        let Some(rest) = row.field.strip_prefix(path) else { continue };
        let fits =
            rest.is_empty() || rest.strip_prefix('=').is_some_and(|wanted| value.as_str() == Some(wanted));
        if fits {
            let passes = row.fate != Fate::Rejected || read::is_empty(value);
            return if passes { Ok(()) } else { Err(Rejection::new(path, row.note)) };
        }
        known |= rest.starts_with(['.', '[']);
    }
    if known { Ok(()) } else { Err(refuse("*", path)) }
}
