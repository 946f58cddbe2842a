//! Table of losses: the fate of each field of a chat request for a Gemini generateContent target.

use crate::adapt::loss::{hint, mapped, rejected};
use crate::adapt::{Loss, Rejection, read};

/// The rows of the table: field, fate and note.
pub(super) static LOSSES: &[Loss] = &[
    mapped("model", "stands in the path of the request to the target"),
    mapped("messages", "`contents`; neighbours of one role become one content, and empty text is left out"),
    // Messages.
    mapped(
        "messages.*.role=system",
        "`systemInstruction`, wherever it stands; alone it is sent as the user's",
    ),
    mapped("messages.*.role=developer", "as `system`"),
    mapped("messages.*.role=user", "a content of the role `user`"),
    mapped("messages.*.role=assistant", "a content of the role `model`; one that says nothing is left out"),
    mapped("messages.*.role=tool", "a `functionResponse`; JSON objects stay, other text becomes `result`"),
    mapped("messages.*.role=function", "as `tool`, without an id"),
    mapped("messages.*.tool_call_id", "`id`, and the `name` of the call that has it; refused if none has"),
    hint("messages.*.name", "dropped; it names the function of a result whose call is not there"),
    hint("messages.*.cache_control", "dropped: the target caches by itself"),
    mapped("messages.*.refusal", "a text"),
    hint("messages.*.reasoning_content", "dropped: thoughts come back by their signatures"),
    hint("messages.*.reasoning", "dropped, as `reasoning_content`"),
    hint("messages.*.reasoning_details", "dropped, as `reasoning_content`"),
    hint("messages.*.thinking_blocks", "dropped: another vendor has signed them"),
    hint("messages.*.annotations", "dropped"),
    rejected(AUDIO_REFERENCE, "names audio that another provider keeps."),
    mapped("messages.*.extra_content", "`google.thought_signature` as `thoughtSignature` of the last text"),
    mapped(
        "messages.*.tool_calls.*[function]",
        "a `functionCall`; one from before the user spoke is left out, and its result becomes text",
    ),
    mapped(
        "messages.*.tool_calls.*[function].function.arguments",
        "`args`; refused unless they are a JSON object",
    ),
    mapped(
        "messages.*.tool_calls.*.extra_content",
        "`google.thought_signature` as `thoughtSignature`; where Gemini 3 needs one that is not there, its check is waived",
    ),
    rejected(
        "messages.*.tool_calls.*[custom]",
        "is a call of a tool that takes free text, which the target has not.",
    ),
    mapped("messages.*.function_call", "a `functionCall` without an id"),
    // Parts of messages.
    mapped("messages.*.content.*[text]", "a text"),
    mapped("messages.*.content.*[refusal]", "a text"),
    mapped(
        "messages.*.content.*[image_url]",
        "`inlineData`, of a data URI in base64; other URLs are refused, as nothing is fetched",
    ),
    hint("messages.*.content.*[image_url].image_url.detail", "dropped"),
    mapped("messages.*.content.*[input_audio]", "`inlineData`"),
    mapped(
        "messages.*.content.*[file].file.file_data",
        "`inlineData`, of a data URI in base64; else refused",
    ),
    hint("messages.*.content.*[file].file.filename", "dropped"),
    rejected("messages.*.content.*[file].file.file_id", "names a file that another provider keeps."),
    mapped("messages.*.content.*[video_url]", "`inlineData`, of a data URI in base64; else refused"),
    hint("messages.*.content.*.cache_control", "dropped: the target caches by itself"),
    hint("messages.*.content.*.prompt_cache_breakpoint", "dropped: the target caches by itself"),
    // Tools.
    mapped(
        "tools.*[function]",
        "`functionDeclarations`, with `parameters` as `parametersJsonSchema`, which get `type` where it is missing; a name that the target refuses is replaced by a short one, the same in every turn, and the answer's calls bear the client's",
    ),
    hint("tools.*.function.strict", "dropped"),
    hint("tools.*.cache_control", "dropped"),
    rejected("tools.*[custom]", "is a tool that takes free text, which the target has not."),
    mapped("functions", "as `tools`; the answer then calls by `function_call`, of several calls the first"),
    mapped("function_call", "as `tool_choice`"),
    mapped(
        "tool_choice",
        "`toolConfig.functionCallingConfig`: AUTO, NONE, ANY, or ANY of the one that is named",
    ),
    mapped("tool_choice[allowed_tools]", "AUTO or ANY over these tools alone"),
    rejected("tool_choice[custom]", "chooses a tool that takes free text, which the target has not."),
    hint("parallel_tool_calls", "dropped"),
    // Response options.
    mapped("max_completion_tokens", "`generationConfig.maxOutputTokens`"),
    mapped("max_tokens", "`generationConfig.maxOutputTokens`, unless `max_completion_tokens` is named too"),
    mapped("temperature", "`generationConfig.temperature`"),
    mapped("top_p", "`generationConfig.topP`"),
    mapped("top_k", "`generationConfig.topK`"),
    mapped("seed", "`generationConfig.seed`"),
    mapped("presence_penalty", "`generationConfig.presencePenalty`"),
    mapped("frequency_penalty", "`generationConfig.frequencyPenalty`"),
    mapped("n", "`generationConfig.candidateCount`"),
    mapped("stop", "`generationConfig.stopSequences`; refused where they are more than the target takes"),
    mapped("response_format[json_object]", "`generationConfig.responseMimeType`"),
    mapped(
        "response_format[json_schema]",
        "`responseMimeType` and `responseJsonSchema`; refused where the target cannot",
    ),
    hint(
        "reasoning_effort",
        "`thinkingConfig` where the model reasons: a budget up to Gemini 2.5, else a level",
    ),
    mapped("stream", "stands in the path of the request to the target"),
    mapped("stream_options", "the gateway itself sends usage, if it is asked to"),
    rejected("logprobs", "cannot be told by the target."),
    rejected("top_logprobs", "cannot be told by the target."),
    rejected("logit_bias", "cannot be set at the target."),
    rejected("modalities", "asks for more than text, which is not adapted."),
    rejected("audio", "asks for speech, which is not adapted."),
    rejected("web_search_options", "asks for a search, which is not adapted."),
    rejected("moderation", "asks for a check that the target does not make."),
    rejected("store", "asks the provider to keep the answer, which the target does not."),
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
    read::refuse(LOSSES, field, path)
}
