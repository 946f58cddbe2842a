//! The fate of each field of a chat request at a Bedrock Converse target.

use crate::adapt::Loss;
use crate::adapt::loss::{hint, mapped, rejected};

/// The table of fields.
pub(super) static LOSSES: &[Loss] = &[
    mapped("model", "in the path of the request to the target"),
    mapped("messages", "`messages`; adjacent messages of one role are merged, and blank text is omitted"),
    // Messages.
    mapped(
        "messages.*.role=system",
        "`system`, at any position; a conversation of system messages alone is sent as the user's",
    ),
    mapped("messages.*.role=developer", "as `system`"),
    mapped("messages.*.role=user", "a message of the role `user`"),
    mapped("messages.*.role=assistant", "a message of the role `assistant`; an empty one is omitted"),
    mapped("messages.*.role=tool", "a `toolResult`; text if the request defines no tools"),
    mapped(
        "messages.*.role=function",
        "as `tool`, with the id of the oldest unanswered call of its function",
    ),
    mapped(
        "messages.*.tool_call_id",
        "`toolUseId`; an ID that the target would reject is replaced by a hash",
    ),
    hint("messages.*.name", "dropped"),
    hint("messages.*.cache_control", "a `cachePoint` after the message, for Claude and Nova"),
    mapped("messages.*.refusal", "a text"),
    mapped(
        "messages.*.thinking_blocks",
        "`reasoningContent` before the rest, for Claude; unsigned ones are dropped",
    ),
    hint("messages.*.reasoning_content", "dropped: a target accepts only reasoning that it has signed"),
    hint("messages.*.reasoning", "dropped, as `reasoning_content`"),
    hint(
        "messages.*.images",
        "dropped, and named in `X-LLMGW-Dropped`: an assistant message of the target contains no images",
    ),
    hint("messages.*.reasoning_details", "dropped, as `reasoning_content`"),
    hint("messages.*.annotations", "dropped"),
    hint("messages.*.extra_content", "dropped: only another vendor uses it"),
    rejected("messages.*.audio", "refers to audio stored by another provider."),
    mapped(
        "messages.*.tool_calls.*[function]",
        "a `toolUse`; text if the request defines no tools; a call before the first user message is \
         omitted, and its result becomes text",
    ),
    mapped(
        "messages.*.tool_calls.*[function].function.arguments",
        "`input`; rejected unless they are a JSON object",
    ),
    hint("messages.*.tool_calls.*.extra_content", "dropped: only another vendor uses it"),
    rejected(
        "messages.*.tool_calls.*[custom]",
        "calls a tool with free text input, which the target does not support.",
    ),
    mapped("messages.*.function_call", "a `toolUse` with an ID that the gateway generates"),
    // Parts of messages.
    mapped("messages.*.content.*[text]", "a text"),
    mapped("messages.*.content.*[refusal]", "a text"),
    mapped(
        "messages.*.content.*[image_url]",
        "an `image`: PNG, JPEG, GIF or WebP as a data URI in base64; anything else is rejected, because \
         llmgw does not fetch URLs",
    ),
    hint("messages.*.content.*[image_url].image_url.detail", "dropped"),
    mapped("messages.*.content.*[input_audio]", "an `audio`"),
    mapped(
        "messages.*.content.*[file].file.file_data",
        "a `document`: PDF, CSV, Word, Excel, HTML, Markdown or plain text as a data URI in base64; \
         anything else is rejected",
    ),
    mapped(
        "messages.*.content.*[file].file.filename",
        "`name`, restricted to the characters that the target accepts",
    ),
    rejected("messages.*.content.*[file].file.file_id", "refers to a file stored by another provider."),
    mapped(
        "messages.*.content.*[video_url]",
        "a `video`, from a data URI in base64; anything else is rejected",
    ),
    hint("messages.*.content.*.cache_control", "a `cachePoint` after the part, for Claude and Nova"),
    hint("messages.*.content.*.prompt_cache_breakpoint", "dropped: use `cache_control`"),
    // Tools.
    mapped(
        "tools.*[function]",
        "a `toolSpec`, with `parameters` as `inputSchema.json`, with `type` added if it is missing; a name \
         that the target would reject is replaced by a short one, the same in every turn, and calls in the \
         answer have the client's name",
    ),
    hint("tools.*.function.strict", "dropped: most models reject it"),
    hint("tools.*.cache_control", "a `cachePoint` after the tool, for Claude and Nova"),
    rejected("tools.*[custom]", "is a tool with free text input, which the target does not support."),
    mapped("functions", "as `tools`; the answer then has `function_call`, with the first of several calls"),
    mapped("function_call", "as `tool_choice`"),
    mapped("tool_choice", "`toolChoice`: `auto`, `any` or the named tool; for `none` the tools are omitted"),
    mapped("tool_choice[allowed_tools]", "`auto` or `any` over these tools alone"),
    rejected(
        "tool_choice[custom]",
        "chooses a tool with free text input, which the target does not support.",
    ),
    hint("parallel_tool_calls", "dropped"),
    // Options of the answer.
    mapped("max_completion_tokens", "`inferenceConfig.maxTokens`"),
    mapped("max_tokens", "`inferenceConfig.maxTokens`, unless `max_completion_tokens` is present too"),
    mapped(
        "temperature",
        "`inferenceConfig.temperature` up to 1; a higher value is rejected; omitted if Claude's thinking is \
         on",
    ),
    mapped("top_p", "`inferenceConfig.topP`; omitted if Claude's thinking is on"),
    hint(
        "top_k",
        "in `additionalModelRequestFields`, if the model has it; omitted if Claude's thinking is on",
    ),
    mapped("stop", "`inferenceConfig.stopSequences`; rejected if there are more than the target accepts"),
    rejected("response_format[json_object]", "is not supported by the target: use 'json_schema'."),
    mapped(
        "response_format[json_schema]",
        "`outputConfig.textFormat`; rejected if the target does not support it",
    ),
    hint(
        "reasoning_effort",
        "`thinking` or `output_config.effort` of Claude, `reasoning_effort` of gpt-oss, if the model reasons",
    ),
    hint(
        "thinking",
        "the same in `additionalModelRequestFields`, for a Claude model that reasons; the answer then has \
         `thinking_blocks`",
    ),
    mapped("stream", "in the path of the request to the target"),
    mapped("stream_options", "the gateway itself sends usage if the client requests it"),
    rejected("n", "requests several answers, and the target returns one."),
    rejected("logprobs", "is not reported by the target."),
    rejected("top_logprobs", "is not reported by the target."),
    rejected("logit_bias", "is not supported by the target."),
    rejected("presence_penalty", "is not supported by the target."),
    rejected("frequency_penalty", "is not supported by the target."),
    rejected("modalities", "requests output other than text, which is not adapted."),
    rejected("audio", "requests speech, which is not adapted."),
    rejected("web_search_options", "requests a search, which is not adapted."),
    rejected("moderation", "requests a check that the target does not support."),
    rejected("store", "requests that the provider store the answer, which the target does not support."),
    hint("seed", "dropped"),
    hint("verbosity", "dropped"),
    hint("prediction", "dropped"),
    hint("metadata", "dropped"),
    hint("user", "dropped"),
    hint("safety_identifier", "dropped"),
    hint("service_tier", "dropped"),
    hint("prompt_cache_key", "dropped"),
    hint("prompt_cache_options", "dropped"),
    hint("prompt_cache_retention", "dropped"),
];
