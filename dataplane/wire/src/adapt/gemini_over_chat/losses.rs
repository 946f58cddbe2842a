//! The fate of each field of a Gemini request that a chat target serves. Names are those of the normal form.

use crate::adapt::loss::{self, Fate, Loss, hint, mapped, rejected};
use crate::adapt::path::MemberPath;
use crate::adapt::{Rejection, read};
use crate::json::Tree;

/// The table of losses. A rejected top-level member passes if its value requests nothing (false, 0, "", [] or {}).
pub(super) static LOSSES: &[Loss] = &[
    mapped("model", "the path contains it; it becomes the target's model"),
    mapped("stream", "the path contains it, as the method: `stream`, with usage requested"),
    mapped("systemInstruction", "one leading system message; texts are joined by an empty line"),
    mapped("contents.*.role", "`user` (also if it is absent), `assistant`, or `tool` for results"),
    rejected(
        "contents.*.role=model",
        "is the last content, so it would be a prefill of the answer, which this target does not continue.",
    ),
    mapped("contents.*.parts.*.text", "a text part; a single one is a string; those of the model are joined"),
    hint(
        "contents.*.parts.*.thought",
        "dropped, because other vendors do not read them; those of Claude go back to Claude with their signature; \
         `reasoning_content` in those messages in which the rules of the model require it",
    ),
    hint(
        "contents.*.parts.*.thoughtSignature",
        "dropped, except at Gemini's models behind chat; the signature of a thought of Claude goes back to Claude, and \
         the encrypted reasoning of a Responses target, on the call after it, to that target",
    ),
    mapped(
        "contents.*.parts.*.inlineData",
        "images `image_url`, audio `input_audio`, PDF `file` if the target reads files, video `video_url`, text and \
         JSON a text part; an image of an earlier answer is dropped, and named in `X-LLMGW-Dropped`",
    ),
    rejected(
        "contents.*.parts.*.inlineData.mimeType",
        "is a type of data that this target does not read. Send images, text, WAV or MP3.",
    ),
    rejected(
        "contents.*.parts.*.fileData",
        "is not an image at a public https address. Send the data of other files as 'inlineData'.",
    ),
    mapped(
        "contents.*.parts.*.functionCall",
        "a tool call; one without an ID gets one, the same for the same request",
    ),
    mapped(
        "contents.*.parts.*.functionResponse",
        "a `tool` message before the rest of its content; `output` or `result` alone is its text, anything else is \
         JSON; without an ID, it belongs to the oldest open call of its name",
    ),
    mapped(
        "contents.*.parts.*.functionResponse.parts.*",
        "images: `[image]` in the result, and an `image_url` part in the user message that follows, if the model \
         accepts images; in the result itself at targets whose results may contain images",
    ),
    rejected(
        "contents.*.parts.*.functionResponse.parts",
        "is not an image, or this target's model reads no images.",
    ),
    rejected("contents.*.parts.*.executableCode", "belongs to a tool that Google runs."),
    rejected("contents.*.parts.*.codeExecutionResult", "belongs to a tool that Google runs."),
    rejected("contents.*.parts.*.toolCall", "belongs to a tool that Google runs."),
    rejected("contents.*.parts.*.toolResponse", "belongs to a tool that Google runs."),
    rejected("contents.*.parts.*", "is a kind of part that this target does not support here."),
    hint("contents.*.parts.*.videoMetadata", "dropped"),
    hint("contents.*.parts.*.mediaResolution", "dropped"),
    hint("contents.*.parts.*.partMetadata", "dropped"),
    mapped(
        "tools.*.functionDeclarations.*",
        "a function; `parametersJsonSchema` with types in lower case, or `parameters` as a JSON schema; a name that \
         the target would reject is replaced by a short one, the same in every turn",
    ),
    hint("tools.*.functionDeclarations.*.response", "the target does not check results"),
    rejected(
        "tools.*.functionDeclarations.*.behavior",
        "lets the model go on without the result, which this target does not support.",
    ),
    rejected("tools.*", "is a tool that Google runs. Use a Gemini target, or offer functions of your own."),
    mapped(
        "toolConfig.functionCallingConfig",
        "`tool_choice`: `AUTO` and `VALIDATED` `auto`, `ANY` `required` or the one allowed function, `NONE` `none`; \
         several allowed functions `allowed_tools`; dropped without functions",
    ),
    hint("toolConfig.retrievalConfig", "dropped"),
    mapped("generationConfig.temperature", "`temperature`"),
    mapped("generationConfig.topP", "`top_p`"),
    mapped(
        "generationConfig.topK",
        "`top_k` if the target supports it; otherwise dropped from 64 on, the default of Google's models, and rejected below",
    ),
    mapped("generationConfig.seed", "`seed`"),
    mapped("generationConfig.presencePenalty", "`presence_penalty`"),
    mapped("generationConfig.frequencyPenalty", "`frequency_penalty`"),
    mapped(
        "generationConfig.maxOutputTokens",
        "`max_tokens` or `max_completion_tokens`, whichever the target uses",
    ),
    mapped(
        "generationConfig.stopSequences",
        "`stop`; rejected if there are more than the target accepts (OpenAI: 4)",
    ),
    mapped("generationConfig.candidateCount", "`n`; each choice of the answer is a candidate"),
    mapped(
        "generationConfig.responseLogprobs",
        "`logprobs`; the answer has `logprobsResult` and `avgLogprobs`, without the IDs of tokens",
    ),
    mapped("generationConfig.logprobs", "`top_logprobs`; rejected without `responseLogprobs`"),
    mapped("generationConfig.responseMimeType", "`response_format` for JSON; `text/x.enum` is rejected"),
    mapped(
        "generationConfig.responseSchema",
        "the schema of `response_format`, as a JSON schema; strict if no member is optional; rejected if the target \
         does not support schemas",
    ),
    mapped("generationConfig.responseJsonSchema", "as `responseSchema`"),
    mapped("generationConfig.responseFormat.*.text", "as `responseMimeType` and `responseJsonSchema`"),
    rejected("generationConfig.responseFormat.*", "asks for output that is not text."),
    rejected("generationConfig.responseModalities.*", "asks for output that is not text."),
    rejected("generationConfig.speechConfig", "asks for speech. Use /v1/audio/speech."),
    rejected("generationConfig.imageConfig", "asks for images. Use /v1/images/generations."),
    rejected("generationConfig.audioTranscriptionConfig", "requires a Gemini target."),
    rejected("generationConfig.translationConfig", "requires a Gemini target."),
    rejected(
        "generationConfig.routingConfig",
        "chooses among Google's models and requires a Vertex AI target.",
    ),
    rejected(
        "generationConfig.modelSelectionConfig",
        "chooses among Google's models and requires a Vertex AI target.",
    ),
    hint(
        "generationConfig.thinkingConfig",
        "`reasoning_effort` if the model reasons: the level, or for a budget of 0 `none`, below 4096 tokens `low`, \
         below 16384 `medium`, otherwise `high`",
    ),
    hint("generationConfig.thinkingConfig.includeThoughts", "thoughts are part of the answer, or left out"),
    hint("generationConfig.mediaResolution", "dropped"),
    hint("generationConfig.audioTimestamp", "dropped"),
    hint("generationConfig.enableEnhancedCivicAnswers", "dropped"),
    hint("safetySettings", "dropped: other vendors have no such thresholds"),
    hint("labels", "dropped"),
    mapped("serviceTier", "`service_tier` if it is `flex` or `priority`, otherwise dropped"),
    rejected("cachedContent", "refers to contents that Google stores. Send them in `contents`."),
    rejected("store", "asks Google to store the answer, which requires a Gemini target."),
    rejected("continuationToken", "continues an answer that Google stores, which requires a Gemini target."),
    rejected("modelArmorConfig", "requires a Vertex AI target."),
    hint("*", "any other top-level member is dropped"),
];

/// Returns true if the table has the top-level member `name`.
pub(super) fn is_known(name: &str) -> bool {
    LOSSES.iter().any(|row| row.field.split('.').next() == Some(name))
}

/// Returns the rejection of the value at `param`, with the reason from the row of `field`.
pub(super) fn refuse(field: &str, param: impl Into<String>) -> Rejection {
    loss::refuse(LOSSES, field, param)
}

/// Returns the rejection of the member `name` of the part at `path`.
pub(super) fn refuse_part(name: &str, path: &MemberPath<'_>) -> Rejection {
    let field = ["contents.*.parts.*.", name].concat();
    let has_row = LOSSES.iter().any(|row| row.field == field && row.fate == Fate::Rejected);
    refuse(if has_row { &field } else { "contents.*.parts.*" }, path.member(name).to_string())
}

/// Rejects the member at `path` if its row requires that.
pub(super) fn check(path: &str, value: Tree<'_, '_>) -> Result<(), Rejection> {
    match LOSSES.iter().find(|row| row.field == path) {
        Some(row) if row.fate == Fate::Rejected && !read::is_empty(value) => {
            Err(Rejection::new(path, row.note))
        }
        Some(_) | None => Ok(()),
    }
}
