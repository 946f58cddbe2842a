//! The fate of each field of a chat request at a Bedrock Converse target.

use crate::adapt::Loss;
use crate::adapt::loss::{hint, mapped, rejected};

/// The table of fields.
pub(super) static LOSSES: &[Loss] = &[
    mapped("model", "stands in the path of the request to the target"),
    mapped("messages", "`messages`; neighbours of one role become one message, and blank text is left out"),
    // Messages.
    mapped("messages.*.role=system", "`system`, wherever it stands; alone it is sent as the user's"),
    mapped("messages.*.role=developer", "as `system`"),
    mapped("messages.*.role=user", "a message of the role `user`"),
    mapped(
        "messages.*.role=assistant",
        "a message of the role `assistant`; one that says nothing is left out",
    ),
    mapped("messages.*.role=tool", "a `toolResult`; text, where the request offers no tools"),
    mapped(
        "messages.*.role=function",
        "as `tool`, with the id of the oldest unanswered call of its function",
    ),
    mapped(
        "messages.*.tool_call_id",
        "`toolUseId`; an id that the target would refuse is replaced by a hash",
    ),
    hint("messages.*.name", "dropped"),
    hint("messages.*.cache_control", "a `cachePoint` after the message, at Claude and Nova"),
    mapped("messages.*.refusal", "a text"),
    mapped(
        "messages.*.thinking_blocks",
        "`reasoningContent` before the rest, at Claude; unsigned ones are dropped",
    ),
    hint("messages.*.reasoning_content", "dropped: a target believes only reasoning that it has signed"),
    hint("messages.*.reasoning", "dropped, as `reasoning_content`"),
    hint("messages.*.reasoning_details", "dropped, as `reasoning_content`"),
    hint("messages.*.annotations", "dropped"),
    hint("messages.*.extra_content", "dropped: it means something to another vendor"),
    rejected("messages.*.audio", "names audio that another provider keeps."),
    mapped(
        "messages.*.tool_calls.*[function]",
        "a `toolUse`; text, where the request offers no tools; one from before the user spoke is left out, and its result becomes text",
    ),
    mapped(
        "messages.*.tool_calls.*[function].function.arguments",
        "`input`; refused unless they are a JSON object",
    ),
    hint("messages.*.tool_calls.*.extra_content", "dropped: it means something to another vendor"),
    rejected(
        "messages.*.tool_calls.*[custom]",
        "is a call of a tool that takes free text, which the target has not.",
    ),
    mapped("messages.*.function_call", "a `toolUse` with an id of the gateway's own"),
    // Parts of messages.
    mapped("messages.*.content.*[text]", "a text"),
    mapped("messages.*.content.*[refusal]", "a text"),
    mapped(
        "messages.*.content.*[image_url]",
        "an `image`: PNG, JPEG, GIF or WebP as a data URI in base64; else refused, as nothing is fetched",
    ),
    hint("messages.*.content.*[image_url].image_url.detail", "dropped"),
    mapped("messages.*.content.*[input_audio]", "an `audio`"),
    mapped(
        "messages.*.content.*[file].file.file_data",
        "a `document`: PDF, CSV, Word, Excel, HTML, Markdown or plain text as a data URI in base64; else refused",
    ),
    mapped("messages.*.content.*[file].file.filename", "`name`, in the characters that the target takes"),
    rejected("messages.*.content.*[file].file.file_id", "names a file that another provider keeps."),
    mapped("messages.*.content.*[video_url]", "a `video`, of a data URI in base64; else refused"),
    hint("messages.*.content.*.cache_control", "a `cachePoint` after the part, at Claude and Nova"),
    hint("messages.*.content.*.prompt_cache_breakpoint", "dropped: use `cache_control`"),
    // Tools.
    mapped(
        "tools.*[function]",
        "a `toolSpec`, with `parameters` as `inputSchema.json`, which get `type` where it is missing; a name that the target refuses is replaced by a short one, the same in every turn, and the answer's calls bear the client's",
    ),
    hint("tools.*.function.strict", "dropped: most models refuse it"),
    hint("tools.*.cache_control", "a `cachePoint` after the tool, at Claude and Nova"),
    rejected("tools.*[custom]", "is a tool that takes free text, which the target has not."),
    mapped("functions", "as `tools`; the answer then calls by `function_call`, of several calls the first"),
    mapped("function_call", "as `tool_choice`"),
    mapped(
        "tool_choice",
        "`toolChoice`: `auto`, `any` or the one that is named; for `none` the tools are left out",
    ),
    mapped("tool_choice[allowed_tools]", "`auto` or `any` over these tools alone"),
    rejected("tool_choice[custom]", "chooses a tool that takes free text, which the target has not."),
    hint("parallel_tool_calls", "dropped"),
    // Options of the answer.
    mapped("max_completion_tokens", "`inferenceConfig.maxTokens`"),
    mapped("max_tokens", "`inferenceConfig.maxTokens`, unless `max_completion_tokens` is named too"),
    mapped(
        "temperature",
        "`inferenceConfig.temperature` up to 1, above is refused; not sent while Claude thinks",
    ),
    mapped("top_p", "`inferenceConfig.topP`; not sent while Claude thinks"),
    hint("top_k", "among `additionalModelRequestFields`, where it is known; not sent while Claude thinks"),
    mapped("stop", "`inferenceConfig.stopSequences`; refused where they are more than the target takes"),
    rejected("response_format[json_object]", "cannot be asked of the target: use 'json_schema'."),
    mapped("response_format[json_schema]", "`outputConfig.textFormat`; refused where the target cannot"),
    hint(
        "reasoning_effort",
        "`thinking` or `output_config.effort` of Claude, `reasoning_effort` of gpt-oss, where the model reasons",
    ),
    hint(
        "thinking",
        "the same among `additionalModelRequestFields`, at a Claude that reasons; the answer then carries `thinking_blocks`",
    ),
    mapped("stream", "stands in the path of the request to the target"),
    mapped("stream_options", "the gateway itself sends usage, if it is asked to"),
    rejected("n", "asks for several answers, and the target gives one."),
    rejected("logprobs", "cannot be told by the target."),
    rejected("top_logprobs", "cannot be told by the target."),
    rejected("logit_bias", "cannot be set at the target."),
    rejected("presence_penalty", "cannot be set at the target."),
    rejected("frequency_penalty", "cannot be set at the target."),
    rejected("modalities", "asks for more than text, which is not adapted."),
    rejected("audio", "asks for speech, which is not adapted."),
    rejected("web_search_options", "asks for a search, which is not adapted."),
    rejected("moderation", "asks for a check that the target does not make."),
    rejected("store", "asks the provider to keep the answer, which the target does not."),
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
