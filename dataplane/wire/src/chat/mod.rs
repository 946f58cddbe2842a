//! The chat dialect: OpenAI's chat completions, and the variants of other vendors.

mod answer;
mod chunk;
mod finish;
mod prefilter;
mod response;
mod signature;
mod synthesize;
mod usage;

pub(crate) use finish::FinishReason;
pub(crate) use response::{ChatAnswerScan, read_whole, whole_answer, with_names};
pub(crate) use signature::thought_signature;
pub use synthesize::synthesize_stream;
pub use usage::token_counts;
pub(crate) use usage::{UsageReader, named, scaled};

pub use crate::envelope::StreamError;

use crate::passthrough::PassingStream;
use crate::stream::{AnswerStream, StreamOptions};

/// Returns the relay of a native chat stream to the client.
pub fn stream(options: StreamOptions) -> impl AnswerStream + use<> {
    PassingStream::new(chunk::ChatJudge::new(options))
}

#[cfg(test)]
mod tests;
