//! The Responses dialect, OpenAI's protocol.

mod collect;
pub(crate) mod document;
mod envelope;
mod event;
mod failed;
pub mod id;
mod judge;
mod synthesize;
mod tool_use;
mod whole;

use bytes::Bytes;

use crate::envelope::{EnvelopeFamily, StreamError};
use crate::passthrough::PassingStream;
use crate::stream::{AnswerStream, StreamOptions};

pub(crate) use collect::collect;
pub use synthesize::synthesize_stream;
pub(crate) use tool_use::ResponseToolUse;
pub(crate) use whole::ResponsesAnswerScan;

/// Returns the event for a response that failed before it began.
pub(crate) fn failed_event(error: &StreamError, request_id: &str) -> Bytes {
    let error = error.in_words_of(EnvelopeFamily::OpenAi, error.status.unwrap_or(500));
    let code = error.code.as_deref().unwrap_or("server_error");
    let id = request_id.trim_start_matches("req_");
    failed::event(&envelope::ResponseNames::default(), id, 0, code, &error.message)
}

/// Returns the relay of a native Responses stream to the client.
pub fn stream(options: StreamOptions) -> impl AnswerStream + use<> {
    PassingStream::new(judge::ResponsesJudge::default(), options)
}

#[cfg(test)]
mod tests;
