//! Table of losses: the fate of each field of a chat request for a Gemini generateContent target.

use crate::adapt::loss::{self, hint, mapped, rejected};
use crate::adapt::{Loss, Rejection};

/// The rows of the table: field, fate and note.
pub(super) static LOSSES: &[Loss] = &[
    mapped("model", "in the path of the request to the target"),
    mapped(
        "messages",
        "`contents`; adjacent messages of one role are merged into one content, and empty text is omitted",
    ),
    // Messages.
    mapped(
        "messages.*.role=system",
        "`systemInstruction`, at any position; a conversation of system messages alone is sent as the user's",
    ),
    mapped("messages.*.role=developer", "as `system`"),
    mapped("messages.*.role=user", "a content of the role `user`"),
    mapped("messages.*.role=assistant", "a content of the role `model`; an empty one is omitted"),
    mapped(
        "messages.*.role=tool",
        "a `functionResponse`; JSON objects stay, other text becomes `result`; images, files and audio follow it",
    ),
    mapped("messages.*.role=function", "as `tool`, without an ID"),
    mapped(
        "messages.*.tool_call_id",
        "`id`, and the `name` of the call with this ID; rejected if there is none",
    ),
    hint("messages.*.name", "dropped; it names the function of a result whose call is missing"),
    hint("messages.*.cache_control", "dropped: the target caches by itself"),
    mapped("messages.*.refusal", "a text"),
    hint("messages.*.reasoning_content", "dropped: thoughts are restored from their signatures"),
    hint("messages.*.reasoning", "dropped, as `reasoning_content`"),
    hint("messages.*.reasoning_details", "dropped, as `reasoning_content`"),
    hint("messages.*.thinking_blocks", "dropped: they are signed by another vendor"),
    mapped(
        "messages.*.images",
        "`inlineData` of the model, from data URIs in base64; anything else is rejected",
    ),
    hint("messages.*.annotations", "dropped"),
    rejected(AUDIO_REFERENCE, "refers to audio stored by another provider."),
    mapped("messages.*.extra_content", "`google.thought_signature` as `thoughtSignature` of the last text"),
    mapped(
        "messages.*.tool_calls.*[function]",
        "a `functionCall`; a call before the first user message is omitted, and its result becomes text",
    ),
    mapped(
        "messages.*.tool_calls.*[function].function.arguments",
        "`args`; rejected unless they are a JSON object",
    ),
    mapped(
        "messages.*.tool_calls.*.extra_content",
        "`google.thought_signature` as `thoughtSignature`; if Gemini 3 requires one that is missing, its \
         check is skipped",
    ),
    rejected(
        "messages.*.tool_calls.*[custom]",
        "calls a tool with free text input, which the target does not support.",
    ),
    mapped("messages.*.function_call", "a `functionCall` without an ID"),
    // Parts of messages.
    mapped("messages.*.content.*[text]", "a text"),
    mapped("messages.*.content.*[refusal]", "a text"),
    mapped(
        "messages.*.content.*[image_url]",
        "`inlineData`, from a data URI in base64; other URLs are rejected, because llmgw does not fetch URLs",
    ),
    hint("messages.*.content.*[image_url].image_url.detail", "dropped"),
    mapped("messages.*.content.*[input_audio]", "`inlineData`"),
    mapped(
        "messages.*.content.*[file].file.file_data",
        "`inlineData`, from a data URI in base64; anything else is rejected",
    ),
    hint("messages.*.content.*[file].file.filename", "dropped"),
    rejected("messages.*.content.*[file].file.file_id", "refers to a file stored by another provider."),
    mapped(
        "messages.*.content.*[video_url]",
        "`inlineData`, from a data URI in base64; anything else is rejected",
    ),
    hint("messages.*.content.*.cache_control", "dropped: the target caches by itself"),
    hint("messages.*.content.*.prompt_cache_breakpoint", "dropped: the target caches by itself"),
    // Tools.
    mapped(
        "tools.*[function]",
        "`functionDeclarations`, with `parameters` as `parametersJsonSchema`, with `type` added if it is \
         missing; a name that the target would reject is replaced by a short one, the same in every turn, \
         and calls in the answer have the client's name",
    ),
    hint("tools.*.function.strict", "dropped"),
    hint("tools.*.cache_control", "dropped"),
    rejected("tools.*[custom]", "is a tool with free text input, which the target does not support."),
    mapped("functions", "as `tools`; the answer then has `function_call`, with the first of several calls"),
    mapped("function_call", "as `tool_choice`"),
    mapped(
        "tool_choice",
        "`toolConfig.functionCallingConfig`: AUTO, NONE, ANY, or ANY with the named function",
    ),
    mapped("tool_choice[allowed_tools]", "AUTO or ANY over these tools alone"),
    rejected(
        "tool_choice[custom]",
        "chooses a tool with free text input, which the target does not support.",
    ),
    hint("parallel_tool_calls", "dropped"),
    // Response options.
    mapped("max_completion_tokens", "`generationConfig.maxOutputTokens`"),
    mapped("max_tokens", "`generationConfig.maxOutputTokens`, unless `max_completion_tokens` is present too"),
    mapped("temperature", "`generationConfig.temperature`"),
    mapped("top_p", "`generationConfig.topP`"),
    mapped("top_k", "`generationConfig.topK`"),
    mapped("seed", "`generationConfig.seed`"),
    mapped("presence_penalty", "`generationConfig.presencePenalty`"),
    mapped("frequency_penalty", "`generationConfig.frequencyPenalty`"),
    mapped("n", "`generationConfig.candidateCount`"),
    mapped("stop", "`generationConfig.stopSequences`; rejected if there are more than the target accepts"),
    mapped("response_format[json_object]", "`generationConfig.responseMimeType`"),
    mapped(
        "response_format[json_schema]",
        "`responseMimeType` and `responseJsonSchema`; rejected if the target does not support it",
    ),
    hint(
        "reasoning_effort",
        "`thinkingConfig` if the model reasons: a budget up to Gemini 2.5, otherwise a level",
    ),
    mapped("stream", "in the path of the request to the target"),
    mapped("stream_options", "the gateway itself sends usage if the client requests it"),
    mapped("logprobs", "`generationConfig.responseLogprobs`; the tokens of the answer have no `bytes`"),
    mapped("top_logprobs", "`generationConfig.logprobs`, if it is not 0"),
    rejected("logit_bias", "is not supported by the target."),
    rejected("modalities", "requests output other than text, which is not adapted."),
    rejected("audio", "requests speech, which is not adapted."),
    rejected("web_search_options", "requests a search, which is not adapted."),
    rejected("moderation", "requests a check that the target does not support."),
    rejected("store", "requests that the provider store the answer, which the target does not support."),
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

pub(super) const AUDIO_REFERENCE: &str = "messages.*.audio";

/// Returns the rejection of the value at `path`, with the reason from the row of `field`.
pub(super) fn refuse(field: &str, path: impl Into<String>) -> Rejection {
    loss::refuse(LOSSES, field, path)
}
