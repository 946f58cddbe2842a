//! The parts of answers, which whole answers and the frames of streams share.

use shared::usage::{Finish, TokenCounts};

use super::answer::GeminiForm;
use crate::chat::{AnswerText, ChatCall, ChosenToken, OutputMedia};
use crate::gemini::write_logprobs;
use crate::json::{self, JsonWriter};

/// The reason and the message of an answer whose call cannot be written. Gemini CLI then asks again.
const MALFORMED: &str = "MALFORMED_FUNCTION_CALL";
const MALFORMED_WORDS: &str = "the arguments of a function call are not a JSON object";

/// The end of a candidate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CandidateEnd {
    /// The meaning of chat's `finish_reason`.
    pub(super) finish: Option<Finish>,
    pub(super) has_refusal: bool,
    /// True if the arguments of a call are not a JSON object.
    pub(super) is_malformed: bool,
}

impl CandidateEnd {
    fn word(self) -> &'static str {
        match self.finish {
            _ if self.is_malformed => MALFORMED,
            _ if self.has_refusal => "SAFETY",
            Some(Finish::Length | Finish::ContextFull) => "MAX_TOKENS",
            Some(Finish::ContentFilter | Finish::Refusal) => "SAFETY",
            // A call ends an answer like any other part.
            Some(
                Finish::Stop
                | Finish::StopSequence
                | Finish::ToolCalls
                | Finish::Pause
                | Finish::Error
                | Finish::Other,
            )
            | None => "STOP",
        }
    }
}

/// Begins a candidate, up to its parts.
pub(super) fn begin_candidate(json: &mut JsonWriter) {
    json.object().name("content").object().name("parts").list();
}

/// The sum of the log probabilities of a candidate's tokens so far, and their number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Average {
    sum: f64,
    tokens: u32,
}

impl Average {
    pub(super) fn of(tokens: &[ChosenToken]) -> Self {
        let mut average = Self::default();
        average.add(tokens);
        average
    }

    pub(super) fn add(&mut self, tokens: &[ChosenToken]) {
        self.sum += tokens.iter().map(|chosen| chosen.token.logprob).sum::<f64>();
        self.tokens = self.tokens.saturating_add(tokens.len().try_into().unwrap_or(u32::MAX));
    }

    /// Returns the average, `None` if there are no tokens.
    pub(super) fn value(self) -> Option<f64> {
        (self.tokens > 0).then(|| self.sum / f64::from(self.tokens))
    }
}

/// Ends a candidate, after its parts. `average` is that of its log probabilities; `tokens` are those of its parts.
pub(super) fn end_candidate(
    index: u64,
    end: Option<CandidateEnd>,
    average: Option<f64>,
    tokens: &[ChosenToken],
    json: &mut JsonWriter,
) {
    json.end_list().name("role").text("model").end_object();
    if let Some(end) = end {
        json.name("finishReason").text(end.word());
    }
    json.name("index").number(index);
    if end.is_some_and(|end| end.is_malformed) {
        json.name("finishMessage").text(MALFORMED_WORDS);
    }
    if let Some(average) = average {
        json.name("avgLogprobs").float(average);
    }
    if !tokens.is_empty() {
        write_logprobs(tokens, json);
    }
    json.end_object();
}

/// Writes a text that is still escaped. A thought is marked as one.
pub(super) fn text_part(text: &str, is_thought: bool, signature: Option<&str>, json: &mut JsonWriter) {
    json.object().name("text").escaped(text);
    if is_thought {
        json.name("thought").raw(b"true");
    }
    if let Some(signature) = signature {
        json.name("thoughtSignature").text(signature);
    }
    json.end_object();
}

/// Writes media. Those at an address are a mark in the text.
pub(super) fn media_part(media: &OutputMedia<'_>, json: &mut JsonWriter) {
    match media {
        OutputMedia::Inline { media_type, base64 } => {
            json.object().name("inlineData").object();
            json.name("mimeType").text(media_type).name("data").text(base64);
            json.end_object().end_object();
        }
        OutputMedia::Url(_) => drop(json.object().name("text").text(&media.mark()).end_object()),
    }
}

/// Returns the arguments of a call as an object.
pub(super) fn arguments(call: &ChatCall<'_>) -> Option<String> {
    let input = json::unescape_mended(&call.input)?;
    if input.trim().is_empty() {
        return Some("{}".to_owned());
    }
    let input = json::without_surrogates(&input).into_owned();
    let is_object = !call.custom && json::parse(&mut input.as_bytes().to_vec()).is_ok();
    is_object.then(|| json::compact(&input))
}

/// Writes the call at `position` with these arguments.
pub(super) fn call_part(
    call: &ChatCall<'_>,
    arguments: &str,
    position: usize,
    form: &GeminiForm,
    json: &mut JsonWriter,
) {
    let id = AnswerText::Escaped(&call.id).plain();
    let name = AnswerText::Escaped(&call.name).plain();
    json.object().name("functionCall").object().name("id");
    match &*id {
        "" => json.text(&format!("call_{}_{position}", form.id)),
        id => json.text(id),
    };
    json.name("name").text(form.names.restore(&name)).name("args").raw(arguments.as_bytes()).end_object();
    if let Some(signature) = &call.signature {
        json.name("thoughtSignature").text(signature);
    }
    json.end_object();
}

/// Ends an answer or a frame, after its candidates.
pub(super) fn end(form: &GeminiForm, usage: Option<TokenCounts>, json: &mut JsonWriter) {
    if let Some(counts) = usage {
        write_usage(counts, json);
    }
    json.name("modelVersion").raw(form.model.as_bytes()).name("responseId").text(&form.id).end_object();
}

fn write_usage(counts: TokenCounts, json: &mut JsonWriter) {
    let (prompt, output) = (counts.input_total(), counts.output_total());
    json.name("usageMetadata").object();
    for (name, count, is_written) in [
        ("promptTokenCount", prompt, true),
        ("candidatesTokenCount", output.saturating_sub(counts.reasoning), true),
        ("totalTokenCount", prompt.saturating_add(output), true),
        ("cachedContentTokenCount", counts.cache_read, counts.cache_read > 0),
        ("thoughtsTokenCount", counts.reasoning, counts.reasoning > 0),
    ] {
        if is_written {
            json.name(name).number(count);
        }
    }
    if counts.audio_input > 0 {
        json.name("promptTokensDetails").list();
        for (modality, count) in
            [("TEXT", prompt.saturating_sub(counts.audio_input)), ("AUDIO", counts.audio_input)]
        {
            json.object().name("modality").text(modality).name("tokenCount").number(count).end_object();
        }
        json.end_list();
    }
    json.end_object();
}
