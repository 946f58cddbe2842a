//! The chat dialect: OpenAI's chat completions, and the variants of other vendors.

mod chunk;
mod chunk_source;
mod chunk_writer;
mod collect;
mod completion;
mod delta;
mod document;
mod failed;
mod findings;
mod form;
mod logprobs;
mod media;
mod prefilter;
pub(crate) mod request;
mod response;
mod source;
mod synthesize;
mod usage;

pub(crate) use chunk_source::ChunkReader;
pub(crate) use chunk_writer::ChunkWriter;
pub(crate) use collect::collect;
pub(crate) use completion::{ChatCall, ChatChoice, ChatCompletion, ThinkingBlock};
pub(crate) use delta::{
    AnswerText, ChatCallDelta, ChatDelta, ChatSink, ChatTextKind, ClientUsage, ThinkingDelta, ThinkingPart,
    escape,
};
pub(crate) use document::read_completion;
pub(crate) use failed::{ChoiceEnd, end_answer, end_choice, end_with_usage};
pub(crate) use form::ChatForm;
pub(crate) use logprobs::{ChosenToken, TokenLogprob};
pub(crate) use media::OutputMedia;
pub(crate) use response::{ChatAnswerScan, has_choice, whole_answer, with_names};
pub(crate) use source::{ChatEvents, ChatSource, ChatStream, SseSource};
pub use synthesize::synthesize_stream;
pub use usage::token_counts;
pub(crate) use usage::{UsageReader, named, scaled};

pub use crate::envelope::StreamError;

use crate::passthrough::PassingStream;
use crate::stream::{AnswerStream, StreamOptions};

/// Returns the relay of a native chat stream to the client.
pub fn stream(options: StreamOptions) -> impl AnswerStream + use<> {
    PassingStream::new(chunk::ChatJudge::default(), options)
}

#[cfg(test)]
mod tests;
