//! The fate of each field of a Responses request that a chat target serves (RESP-2).

use simd_json::prelude::ValueAsScalar as _;

use crate::adapt::loss::{self, Fate, Loss, exact, hint, mapped, rejected};
use crate::adapt::{Rejection, read};
use crate::json::Tree;

/// The table of losses. A member of a rejected field passes if its value requests nothing (false, 0, "", [] or {}).
pub(super) static LOSSES: &[Loss] = &[
    mapped("model", "the target's model, which the answer also names"),
    mapped("input", "`messages`; a string is one user message"),
    mapped("instructions", "the first message, with role `system`, or `developer` if the target uses that"),
    mapped("max_output_tokens", "`max_tokens` or `max_completion_tokens`, whichever the target uses"),
    exact("temperature", "unchanged"),
    exact("top_p", "unchanged"),
    mapped("stream", "with `stream_options.include_usage`; the answer's events are built from the chunks"),
    hint("stream_options", "padding against side-channel attacks is not added"),
    // Input.
    hint("input.*.id", "chat has no item IDs"),
    hint("input.*.status", "chat messages are always complete"),
    mapped("input.*.role=developer", "role `system` if the target does not support `developer`"),
    hint("input.*.phase", "chat has one kind of assistant message"),
    mapped(
        "input.*.content.*[input_text]",
        "text; in a message of texts alone, they are joined by blank lines into one",
    ),
    mapped("input.*.content.*[input_image]", "`image_url`"),
    mapped("input.*.content.*[input_image].detail=original", "`high`"),
    rejected(
        "input.*.content.*[input_image].file_id",
        "is a file stored by a provider. Send the image as a URL or data URI.",
    ),
    mapped(
        "input.*.content.*[input_file].file_data",
        "`file` if the target accepts files; otherwise rejected",
    ),
    rejected(
        "input.*.content.*[input_file].file_id",
        "is a file stored by a provider. Send its bytes as `file_data`.",
    ),
    rejected(
        "input.*.content.*[input_file].file_url",
        "would have to be fetched by the provider. Send the file as `file_data`.",
    ),
    mapped("input.*.content.*[output_text]", "the text of an assistant message"),
    hint("input.*.content.*[output_text].annotations", "chat text has none"),
    hint("input.*.content.*[output_text].logprobs", "the target does not use it"),
    mapped("input.*.content.*[refusal]", "`refusal`; text if the target has no such member (Mistral)"),
    rejected("input.*.content.*.type", "is a kind of content that this target does not support here."),
    mapped("input.*[function_call]", "a tool call of the assistant message before it, or of one of its own"),
    rejected(
        "input.*[function_call].namespace",
        "belongs to tools that require a target with a native Responses API.",
    ),
    mapped("input.*[function_call_output]", "a `tool` message; several texts are joined by line ends"),
    mapped(
        "input.*[function_call_output].output.*[input_image]",
        "`[image]` in the `tool` message, and an `image_url` part in the user message that follows, if the model \
         accepts images; in the result itself at targets whose results may contain images",
    ),
    mapped(
        "input.*[function_call_output].output.*[input_file]",
        "as `input_image`, as `[file]`, if the target accepts files; otherwise rejected",
    ),
    rejected(
        "input.*[function_call_output].output.*.type",
        "is a kind of tool output that this target does not support. Send `input_text` or `input_image`.",
    ),
    mapped(
        "input.*[custom_tool_call]",
        "a tool call, if the target supports custom tools; otherwise rejected",
    ),
    mapped(
        "input.*[custom_tool_call_output]",
        "a `tool` message, if the target supports custom tools; otherwise rejected",
    ),
    hint(
        "input.*[image_generation_call]",
        "an image of an earlier answer: `inlineData` at Gemini; elsewhere dropped, and named in `X-LLMGW-Dropped`",
    ),
    hint(
        "input.*[reasoning]",
        "dropped, unless the rules of the model require it: then its text is the `reasoning_content` of the \
         message that it led to",
    ),
    rejected(
        "input.*[reasoning].encrypted_content",
        "is reasoning that only its own provider can read. It requires that provider's native Responses API.",
    ),
    rejected("input.*[item_reference]", "refers to an item stored by a provider. Send the item itself."),
    rejected("input.*.type", "is an item that requires a target with a native Responses API."),
    // Tools.
    mapped(
        "tools.*[function]",
        "nested under `function`; `strict` if it is true and the target supports it; a name that the target \
         would reject is replaced by a short one, the same in every turn, and calls in the answer have the \
         client's name",
    ),
    hint("tools.*[function].defer_loading", "the tool is available from the start"),
    hint("tools.*[function].output_schema", "the target does not check outputs"),
    rejected(
        "tools.*[function].allowed_callers",
        "restricts the callers of the tool, which this target does not support.",
    ),
    rejected("tools.*[function].async", "allows a late tool result, which this target does not support."),
    mapped(
        "tools.*[custom]",
        "nested under `custom`, if the target supports custom tools; otherwise rejected",
    ),
    rejected("tools.*.type", "is a tool that requires a target with a native Responses API."),
    mapped("tool_choice", "nested; dropped if the request defines no tools"),
    mapped("tool_choice[allowed_tools]", "only these tools are sent, and `mode` is the choice"),
    rejected("tool_choice.type", "chooses a tool that requires a target with a native Responses API."),
    exact("parallel_tool_calls", "unchanged; dropped if the request defines no tools"),
    rejected(
        "max_tool_calls",
        "limits calls of built-in tools and requires a target with a native Responses API.",
    ),
    // Format of the answer.
    mapped(
        "text.format[json_schema]",
        "`response_format`, nested; rejected if the target does not support schemas",
    ),
    mapped("text.format[json_object]", "`response_format`"),
    rejected("text.format.type", "is a format that this target does not support."),
    hint("text.verbosity", "few chat targets support it"),
    hint("reasoning.effort", "`reasoning_effort` if the target reasons"),
    hint("reasoning.summary", "the target chooses how it reports reasoning"),
    hint("reasoning.generate_summary", "as `reasoning.summary`"),
    hint("reasoning.context=auto", "the default"),
    rejected(
        "reasoning.context",
        "requires stored reasoning, and thus a target with a native Responses API.",
    ),
    hint("reasoning.mode=standard", "the default"),
    rejected("reasoning.mode", "requires a target with a native Responses API."),
    rejected("top_logprobs", "requires a target with a native Responses API."),
    // State kept, and work done, by the provider.
    rejected("background", "is not supported: responses cannot run in the background."),
    rejected(
        "previous_response_id",
        "refers to a response stored by a provider and requires a target with a native Responses API. Send \
         the whole conversation in `input`.",
    ),
    rejected(
        "conversation",
        "refers to a conversation stored by a provider and requires a target with a native Responses API. \
         Send the whole conversation in `input`.",
    ),
    rejected(
        "store",
        "requests storage of the response, which requires a target with a native Responses API. Send false, \
         or omit it.",
    ),
    rejected(
        "include",
        "requests more than this target reports and requires a target with a native Responses API.",
    ),
    rejected(
        "prompt",
        "refers to a prompt stored by a provider and requires a target with a native Responses API.",
    ),
    rejected("context_management", "requires a target with a native Responses API."),
    rejected("moderation", "requires a target with a native Responses API."),
    hint("truncation=disabled", "the default"),
    rejected(
        "truncation",
        "truncates input that is too long, which requires a target with a native Responses API.",
    ),
    rejected("access_programs", "requires a target with a native Responses API."),
    rejected("image", "requires a target with a native Responses API."),
    // Information about the request for the provider.
    mapped("metadata", "copied into the answer; not sent to the target"),
    mapped("user", "copied into the answer; not sent to the target"),
    hint("client_metadata", "not sent to the target"),
    hint("prompt_cache_key", "not sent to the target"),
    hint("prompt_cache_retention", "not sent to the target"),
    hint("prompt_cache_options", "not sent to the target"),
    rejected("prompt_cache_options.prewarm", "requires a target with a native Responses API."),
    rejected(
        "prompt_cache_options.comparison_response_id",
        "refers to a response stored by a provider and requires a target with a native Responses API.",
    ),
    hint("safety_identifier", "not sent to the target"),
    hint("service_tier", "the target chooses its service tier"),
    rejected("*", "is an unknown member, and the target may not be able to ignore it."),
];

/// Returns the rejection of the value at `param`, with the reason from the row of `field`.
pub(super) fn refuse(field: &str, param: impl Into<String>) -> Rejection {
    loss::refuse(LOSSES, field, param)
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
