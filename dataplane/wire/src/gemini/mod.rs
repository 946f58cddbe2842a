//! Gemini's protocol, generateContent, and Imagen's `:predict`: the types of their answers, and the relay of native ones.

mod answer;
mod collect;
mod facts;
mod judge;
mod logprobs;
mod usage;

use crate::envelope::google_frame;
use crate::json::compact;
use crate::passthrough::PassingStream;
use crate::stream::{AnswerStream, StreamOptions};

pub(crate) use answer::{FunctionCall, GeminiAnswer, GeminiBlob, GeminiCandidate, GeminiPart, usage_in};
pub(crate) use collect::collect;
pub(crate) use facts::GeminiAnswerScan;
pub(crate) use logprobs::{read_logprobs, write_logprobs};
pub(crate) use usage::GeminiUsage;

/// Returns the relay of a native stream to the client.
pub(crate) fn stream(options: StreamOptions) -> impl AnswerStream + use<> {
    PassingStream::new(judge::GeminiJudge::default(), options)
}

/// Converts a whole answer to a stream: one event. `None` if it is not a JSON object.
pub(crate) fn synthesize_stream(whole: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(whole).ok()?.trim();
    let is_object = text.starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    is_object.then(|| google_frame(&compact(text)).into_bytes())
}

#[cfg(test)]
mod tests;
