//! The Messages dialect, Anthropic's protocol.

mod collect;
mod count;
pub(crate) mod document;
mod event;
mod judge;
mod synthesize;
mod usage;
mod whole;

use crate::passthrough::PassingStream;
use crate::stream::{AnswerStream, StreamOptions};

pub(crate) use collect::collect;
pub use count::{count, count_answer, is_count};
pub use synthesize::synthesize_stream;
pub(crate) use usage::MessagesUsage;
pub use usage::token_counts;
pub(crate) use whole::MessagesAnswerScan;

/// Returns the relay of a native Messages stream to the client.
pub fn stream(options: StreamOptions) -> impl AnswerStream + use<> {
    PassingStream::new(judge::MessagesJudge::default(), options)
}

#[cfg(test)]
mod tests;
