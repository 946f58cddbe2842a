//! A complete chat answer as a typed value, between the reader of a target's answers and the writer for a client. All
//! texts are still escaped as in JSON, unless stated otherwise.

use std::borrow::Cow;

use shared::usage::TokenCounts;

use super::{ChosenToken, ClientUsage, OutputMedia, ThinkingPart};
use crate::extras::Extras;
use crate::json::meant_bytes;

/// A complete answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChatCompletion<'a> {
    pub(crate) choices: Vec<ChatChoice<'a>>,
    /// The creation time in seconds since the Unix epoch, if the target reports it.
    pub(crate) created_s: Option<u64>,
    /// The usage that the target reports.
    pub(crate) counts: Option<TokenCounts>,
    /// The usage that the client is to see.
    pub(crate) usage: Option<ClientUsage>,
    /// The reported quantities other than tokens.
    pub(crate) extras: Extras,
}

/// One of the answers in a completion.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChatChoice<'a> {
    pub(crate) index: u64,
    pub(crate) content: String,
    pub(crate) reasoning: String,
    pub(crate) refusal: String,
    pub(crate) calls: Vec<ChatCall<'a>>,
    pub(crate) media: Vec<OutputMedia<'a>>,
    /// Gemini's signature of the thoughts that precede the text; not escaped.
    pub(crate) signature: Option<Cow<'a, str>>,
    /// Anthropic's signed thoughts, if the client handles them.
    pub(crate) thinking_blocks: Vec<ThinkingBlock<'a>>,
    pub(crate) finish_reason: Cow<'a, str>,
    /// The log probabilities of its tokens, if the client asked for them.
    pub(crate) logprobs: Vec<ChosenToken>,
    /// The stop sequence that was reached, if it is known; not escaped.
    pub(crate) stop: Option<String>,
}

/// A tool call.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChatCall<'a> {
    pub(crate) id: Cow<'a, str>,
    pub(crate) name: Cow<'a, str>,
    /// The arguments, or the free text.
    pub(crate) input: Cow<'a, str>,
    /// True if the tool takes free text.
    pub(crate) custom: bool,
    /// Gemini's signature of the thoughts before the call; not escaped.
    pub(crate) signature: Option<Cow<'a, str>>,
}

/// A block of Anthropic's signed thoughts.
#[derive(Clone, Debug)]
pub(crate) enum ThinkingBlock<'a> {
    Thinking { text: Cow<'a, str>, signature: Cow<'a, str> },
    Redacted(Cow<'a, str>),
}

impl ThinkingBlock<'_> {
    /// Returns the parts of the block, as a stream would contain them.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (ThinkingPart, &str)> {
        let parts = match self {
            Self::Thinking { text, signature } => {
                [Some((ThinkingPart::Text, &**text)), Some((ThinkingPart::Signature, &**signature))]
            }
            Self::Redacted(data) => [Some((ThinkingPart::Redacted, &**data)), None],
        };
        parts.into_iter().flatten().filter(|(_, text)| !text.is_empty())
    }
}

impl ChatChoice<'_> {
    /// Returns the kinds of the media that the client's protocol cannot express: those that `is_lost` selects.
    pub(crate) fn lost_media(&self, is_lost: impl Fn(&OutputMedia<'_>) -> bool) -> Vec<&'static str> {
        let mut kinds: Vec<_> =
            self.media.iter().filter(|media| is_lost(media)).map(OutputMedia::kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// Returns the length of the output in bytes.
    pub(crate) fn output_bytes(&self) -> u64 {
        let texts = [&self.content, &self.reasoning, &self.refusal];
        let calls = self.calls.iter().flat_map(|call| [&*call.name, &*call.input]);
        let texts = texts.into_iter().map(String::as_str).chain(calls);
        texts.map(|text| meant_bytes(text.as_bytes())).sum::<usize>().try_into().unwrap_or(u64::MAX)
    }
}
