//! The fate of each field of a Messages request that a chat target serves (MSG-2).

use crate::adapt::Fate::{Exact, Hint, Mapped, Rejected};
use crate::adapt::{Fate, Loss};

const fn row(field: &'static str, fate: Fate, note: &'static str) -> Loss {
    Loss { field, fate, note }
}

/// The table of losses. Top-level members are rejected because of their rows here.
#[rustfmt::skip]
pub(super) static LOSSES: &[Loss] = &[
    row("model", Mapped, "the target's model"),
    row("max_tokens", Mapped, "`max_completion_tokens` if the target supports only that, otherwise \
                               `max_tokens`"),
    row("temperature", Exact, "unchanged"),
    row("top_p", Exact, "unchanged"),
    row("top_k", Exact, "unchanged if the target supports it (and for Claude on Bedrock), otherwise \
                         rejected"),
    row("stop_sequences", Mapped, "`stop`; rejected if there are more than the target accepts (OpenAI: 4)"),
    row("stream", Mapped, "`stream`, with usage requested"),
    row("system", Mapped, "one leading system message; blocks are joined by an empty line"),
    row("system.*[text].text", Mapped, "Claude Code's attribution header (`x-anthropic-billing-header:`) is \
         dropped: it would defeat prompt caches"),
    row("messages.*.content", Mapped, "a string stays a string"),
    row("messages.*.role=system", Mapped, "a system message at its position; for local model servers, whose \
         templates accept it only at the beginning, part of the adjacent user message"),
    row("messages.*.content.*[tool_addition]", Mapped, "the tool that it names or defines is part of `tools`; only \
         the state after the last message counts"),
    row("messages.*.content.*[tool_removal]", Mapped, "the tool that it names is not part of `tools`"),
    row("messages.*.content.*[tool_addition].tool[mcp_*]", Rejected, "a tool of an MCP server, which Anthropic calls"),
    row("messages.*.content.*[text]", Mapped, "a text part; a single one is a string; those of an assistant \
         are joined"),
    row("messages.*.content.*[image]", Mapped, "an `image_url` part, bytes as a data URL"),
    row("messages.*.content.*[image].source[file]", Rejected, "a file stored by another provider"),
    row("messages.*.content.*[document].source[text]", Mapped, "a text part"),
    row("messages.*.content.*[document].source[base64]", Mapped, "a `file` part if the target reads files, \
         otherwise rejected"),
    row("messages.*.content.*[document].source[content]", Rejected, "a document that is neither text nor \
         inline bytes"),
    row("messages.*.content.*[document].source[url]", Rejected, "a document that is neither text nor inline \
         bytes"),
    row("messages.*.content.*[document].source[file]", Rejected, "a document that is neither text nor \
         inline bytes"),
    row("messages.*.content.*[document].title", Hint, "the name of the `file` part, if there is one"),
    row("messages.*.content.*[document].context", Hint, "dropped"),
    row("messages.*.content.*[document].citations.enabled=true", Rejected, "chat answers do not support \
         citations of documents"),
    row("messages.*.content.*[text].citations", Hint, "dropped"),
    row("messages.*.content.*[tool_result]", Mapped, "a `tool` message before the rest of its turn; text blocks are joined by a line end"),
    row("messages.*.content.*[tool_result].content.*[image]", Mapped, "`[image]` in the result, and an \
         `image_url` part in the following user message, if the model accepts images; otherwise rejected; in \
         the result itself at targets whose results may contain images"),
    row("messages.*.content.*[tool_result].content.*[document]", Mapped, "as `document`; bytes are `[file]` in the \
         result and follow it as images do"),
    row("messages.*.content.*[tool_result].content.*[search_result]", Rejected, "the result of a tool can only be \
         text, images and documents"),
    row("messages.*.content.*[tool_result].content.*[tool_reference]", Mapped, "the tool's name: all tools \
         are available from the start"),
    row("messages.*.content.*[tool_result].is_error", Hint, "dropped: the text of the result describes the \
         error"),
    row("messages.*.content.*[tool_use]", Mapped, "a tool call; the arguments are its input as compact \
         JSON. An ID that some targets reject is replaced consistently; an ID with Gemini's thought \
         signature, as in the answer, returns the signature to Gemini"),
    row("messages.*.content.*[thinking]", Hint, "dropped, because other vendors cannot verify the \
         signature; Claude on Bedrock gets it back; `reasoning_content` in those messages in which the rules \
         of the model require it"),
    row("messages.*.content.*[redacted_thinking]", Hint, "dropped"),
    row("messages.*.content.*[search_result]", Rejected, "chat answers do not support citations of search \
         results"),
    row("messages.*.content.*[tool_search_tool_result]", Hint, "dropped, with its call: all tools are \
         available from the start"),
    row("messages.*.content.*[server_tool_use]", Rejected, "a tool that Anthropic runs"),
    row("messages.*.content.*[web_search_tool_result]", Rejected, "the result of a tool that Anthropic runs"),
    row("messages.*.content.*[mcp_tool_use]", Rejected, "a tool that Anthropic runs"),
    row("messages.*.content.*[container_upload]", Rejected, "a file stored by another provider"),
    row("messages.*.content.*[*]", Rejected, "a kind of block that chat does not support; likewise a \
         prefill of the answer as the last message"),
    row("messages.*.content.*.cache_control", Hint, "dropped; a `cachePoint` for Claude and Nova on Bedrock"),
    row("system.*.cache_control", Hint, "dropped; a `cachePoint` for Claude and Nova on Bedrock"),
    row("tools.*", Mapped, "a function with `parameters`, with `type` added if it is missing; a name that \
                            the target would reject is replaced by a short one, the same in every turn, \
                            and calls in the answer have the client's name"),
    row("tools.*.strict", Hint, "`strict` if the target supports it and the schema has no optional members, \
                                 which OpenAI rejects"),
    row("tools.*[*]", Mapped, "`custom` is a function; a versioned type is rejected: Anthropic runs it, or \
                               only its models support it"),
    row("tools.*.allowed_callers", Rejected, "only the model itself can call tools (`direct` alone is dropped)"),
    row("tools.*[tool_search_tool*]", Hint, "dropped: all tools are available from the start"),
    row("tools.*.cache_control", Hint, "dropped; a `cachePoint` for Claude and Nova on Bedrock"),
    row("tools.*.defer_loading", Hint, "dropped: the tool is available from the start"),
    row("tools.*.eager_input_streaming", Hint, "dropped"),
    row("tools.*.input_examples", Hint, "dropped"),
    row("tool_choice", Mapped, "`auto`, `required`, `none` or a function; dropped without tools"),
    row("tool_choice.disable_parallel_tool_use", Mapped, "`parallel_tool_calls`"),
    row("thinking", Hint, "`reasoning_effort` if the model reasons and no effort is present: below 4096 \
                           tokens `low`, below 16384 `medium`, otherwise `high`; `disabled` is `none`"),
    row("output_config.effort", Hint, "`reasoning_effort` if the model reasons"),
    row("output_config.format", Mapped, "`response_format`, strict if the schema has no optional members; \
         rejected if the target does not support schemas"),
    row("output_format", Mapped, "as `output_config.format`"),
    row("context_management.edits.*[clear_thinking*]", Hint, "dropped: thoughts are not returned"),
    row("context_management.edits.*[*]", Rejected, "it cannot edit the context"),
    row("cache_control", Hint, "dropped"),
    row("metadata", Hint, "dropped: it identifies devices"),
    row("service_tier", Hint, "dropped"),
    row("speed=fast", Rejected, "it has no fast mode"),
    row("speed", Hint, "dropped"),
    row("diagnostics", Hint, "dropped"),
    row("user_profile_id", Hint, "dropped"),
    row("workspace_id", Hint, "dropped"),
    row("container", Rejected, "it has no containers"),
    row("mcp_servers", Rejected, "it does not call MCP servers"),
    row("fallbacks", Rejected, "it has no fallback models"),
    row("compaction", Rejected, "it does not compact the context"),
    row("thread", Rejected, "it does not store threads"),
    row("billing_policy", Rejected, "it has no billing policies"),
    row("inference_geo", Rejected, "its location cannot be chosen"),
    row("*", Hint, "any other top-level member is dropped"),
];
