//! A chat answer as typed values. A reader of a target's answers produces them, and a writer for clients consumes them,
//! so that any of the readers works with any of the writers.

use std::borrow::Cow;
use std::fmt::Debug;

use bytes::Bytes;
use shared::usage::TokenCounts;

use super::{ChosenToken, OutputMedia};
use crate::envelope::StreamError;
use crate::json::{quote, unescape_mended};
use crate::stream::{StreamState, Trouble};

/// A text of an answer, in the form in which its source contains it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AnswerText<'a> {
    /// The text itself.
    Plain(&'a str),
    /// Escaped as in JSON, without quotes.
    Escaped(&'a str),
}

/// A piece of an answer.
#[derive(Clone, Debug)]
pub(crate) enum ChatDelta<'a> {
    Text(ChatTextKind, AnswerText<'a>),
    Call(ChatCallDelta<'a>),
    Thinking(ThinkingDelta<'a>),
    Media(OutputMedia<'a>),
    /// Gemini's signature of the thoughts that precede a text.
    Signature(AnswerText<'a>),
    /// The log probabilities of the tokens of the text that follows.
    Logprobs(&'a [ChosenToken]),
}

/// The member of a message to which a text is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChatTextKind {
    Content,
    Reasoning,
    Refusal,
}

/// A fragment of a tool call. Missing texts are empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChatCallDelta<'a> {
    /// True if the fragment begins a call. Chat targets mark it by an id or a name.
    pub(crate) begins: bool,
    /// The index of the call that it belongs to, if the upstream sends one.
    pub(crate) index: Option<u64>,
    /// Its position among the fragments of one event, and their number.
    pub(crate) position: usize,
    pub(crate) siblings: usize,
    pub(crate) id: AnswerText<'a>,
    pub(crate) name: AnswerText<'a>,
    /// A part of the arguments, or of the free text.
    pub(crate) input: AnswerText<'a>,
    /// True if the tool takes free text.
    pub(crate) custom: bool,
    /// Gemini's signature of the thoughts before the call.
    pub(crate) signature: Option<Cow<'a, str>>,
}

/// A piece of Anthropic's signed thoughts. Their text also arrives as reasoning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThinkingDelta<'a> {
    /// The index of the block, counted over the whole answer.
    pub(crate) index: u64,
    pub(crate) part: ThinkingPart,
    pub(crate) text: AnswerText<'a>,
}

/// The part of a thinking block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThinkingPart {
    Text,
    Signature,
    /// The content of a redacted block.
    Redacted,
}

/// Usage for the client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientUsage {
    pub(crate) counts: TokenCounts,
    /// True if the target reports cache writes, so that a count of zero is known.
    pub(crate) has_cache_writes: bool,
    /// True if the target reports reasoning, so that a count of zero is known.
    pub(crate) has_reasoning: bool,
}

/// Writes a streamed chat answer in a client's dialect.
///
/// Chat's choices are numbered; a dialect with one answer ignores all choices but 0.
pub(crate) trait ChatSink: Debug {
    /// Begins a choice. The upstream has sent its first event.
    fn begin(&mut self, choice: u64);
    /// Writes a piece of a choice.
    fn delta(&mut self, choice: u64, delta: ChatDelta<'_>);
    /// Ends a choice. `reason` is chat's `finish_reason`; `stop` is the stop sequence that was reached, if it is known.
    fn finish(&mut self, choice: u64, reason: &str, stop: Option<&str>);
    /// Takes the usage that the client is to see. A later one replaces an earlier one.
    fn usage(&mut self, usage: ClientUsage);
    /// Ends a complete answer.
    fn done(&mut self);
    /// Ends the answer with the upstream's error, whose text is not sanitized yet.
    fn fail(&mut self, error: &StreamError);
    /// Returns the failure that the gateway detected, as an event. No other event follows it.
    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes;
    /// True if the last event has been written. Anything that the upstream sends after it is ignored.
    fn has_ended(&self) -> bool;
    /// Returns the facts known so far.
    fn state(&self) -> &StreamState;
    /// Returns the facts for the reader, which records those about the upstream: usage, extras, input and `finished`.
    fn facts(&mut self) -> &mut StreamState;
    /// Prepares for the output of a read of `bytes` bytes.
    fn reserve(&mut self, _bytes: usize) {}
    /// Appends what has been written to `out`.
    fn flush(&mut self, out: &mut Vec<Bytes>);
}

impl ClientUsage {
    /// Returns the usage of a target that reports reasoning but cache writes only if there are any.
    pub(crate) fn with_reasoning(counts: TokenCounts) -> Self {
        Self { counts, has_reasoning: true, ..Self::default() }
    }
}

impl<'a> AnswerText<'a> {
    pub(crate) fn is_empty(self) -> bool {
        let (Self::Plain(text) | Self::Escaped(text)) = self;
        text.is_empty()
    }

    /// Returns the text as it stands between quotes in JSON.
    pub(crate) fn escaped(self) -> Cow<'a, str> {
        match self {
            Self::Escaped(text) => Cow::Borrowed(text),
            Self::Plain(text) => escape(Cow::Borrowed(text)),
        }
    }

    /// Returns the text itself: empty if its escapes are invalid, with U+FFFD for unpaired surrogates.
    pub(crate) fn plain(self) -> Cow<'a, str> {
        match self {
            Self::Escaped(text) if text.contains('\\') => {
                Cow::Owned(unescape_mended(text).unwrap_or_default())
            }
            Self::Plain(text) | Self::Escaped(text) => Cow::Borrowed(text),
        }
    }
}

impl Default for AnswerText<'_> {
    fn default() -> Self {
        Self::Escaped("")
    }
}

impl ThinkingPart {
    /// Returns the type of the block, and its member, in the form that LiteLLM's clients keep.
    pub(crate) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Text => ("thinking", "thinking"),
            Self::Signature => ("thinking", "signature"),
            Self::Redacted => ("redacted_thinking", "data"),
        }
    }
}

/// Escapes `text` as in JSON, without quotes.
pub(crate) fn escape(text: Cow<'_, str>) -> Cow<'_, str> {
    let is_odd = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    // A loop over all bytes without an early exit compiles to vector instructions.
    if !text.bytes().fold(false, |odd, byte| odd | is_odd(byte)) {
        return text;
    }
    let mut quoted = quote(&text);
    quoted.pop();
    Cow::Owned(quoted.split_off(1.min(quoted.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_and_escaped_text_convert_to_each_other() {
        for (plain, escaped) in [("", ""), ("ü \u{1f680}", "ü \u{1f680}"), ("\"\n\\", "\\\"\\n\\\\")] {
            for text in [AnswerText::Plain(plain), AnswerText::Escaped(escaped)] {
                assert_eq!((&*text.plain(), &*text.escaped()), (plain, escaped));
                assert_eq!(text.is_empty(), plain.is_empty());
            }
        }
        assert_eq!(AnswerText::Escaped(r"a\ud83d").plain(), "a\u{fffd}", "half of a pair");
        assert_eq!(AnswerText::Escaped(r"\x").plain(), "", "an invalid escape");
    }
}
