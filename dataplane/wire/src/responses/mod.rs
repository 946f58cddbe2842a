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

use crate::passthrough::PassingStream;
use crate::stream::{AnswerStream, StreamOptions};

pub(crate) use collect::collect;
pub use synthesize::synthesize_stream;
pub(crate) use tool_use::ResponseToolUse;
pub(crate) use whole::{ResponsesAnswerScan, whole_answer};

/// Returns the relay of a native Responses stream to the client.
pub fn stream(options: StreamOptions) -> impl AnswerStream + use<> {
    PassingStream::new(judge::ResponsesJudge::new(options))
}

#[cfg(test)]
mod tests;
