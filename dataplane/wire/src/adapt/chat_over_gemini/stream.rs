//! Reads streams: unnamed events, each with a piece of the answer and the total usage so far. There is no final event.
//!
//! The finish reason is passed on when the upstream's stream ends, because some models include a reason in every event,
//! and later events may update the usage. Memory is bounded by the size of one event and by the number of choices.

use std::borrow::Cow;

use shared::usage::TokenCounts;

use super::answer::{chat_call, end_of, kind_of};
use crate::adapt::chat_client::CallIdentity;
use crate::chat::{
    AnswerText, ChatCall, ChatCallDelta, ChatDelta, ChatEvents, ChatSink, ChatTextKind, end_choice,
    end_with_usage,
};
use crate::envelope::StreamError;
use crate::finish_word::{failed_end, in_chat_words};
use crate::gemini::{GeminiAnswer, GeminiBlob, GeminiCandidate, GeminiUsage, read_logprobs};
use crate::json::mend_surrogates;
use crate::passthrough::{Alike, Varying};

/// Maximum number of choices in a stream: as many as a chat client may request.
const CHOICES_MAX: usize = 128;

/// Reads the events of one streamGenerateContent answer.
#[derive(Debug)]
pub(super) struct GeminiReader {
    identity: CallIdentity,
    choices: Vec<GeminiChoice>,
    /// The number of calls in all choices.
    calls: u64,
    /// Recognises events that hold only text.
    alike: Alike<GeminiTextDelta>,
}

/// A piece of text: its choice and kind, and the usage reported with it.
#[derive(Clone, Copy, Debug)]
struct GeminiTextDelta {
    choice: u64,
    kind: ChatTextKind,
    usage: Option<TokenCounts>,
}

#[derive(Debug)]
struct GeminiChoice {
    index: u64,
    calls: u64,
    finish_reason: Option<String>,
}

impl ChatEvents for GeminiReader {
    fn event(&mut self, data: &[u8], sink: &mut dyn ChatSink) {
        if let Some(like) = self.alike.read(data) {
            let GeminiTextDelta { choice, kind, usage } = like.meaning;
            if let Some(usage) = usage {
                let others = usage.audio_output.saturating_add(usage.image_output);
                let output = like.number.map_or(usage.output, |candidates| candidates.saturating_sub(others));
                sink.facts().usage = Some(TokenCounts { output, ..usage });
            }
            return sink.delta(choice, ChatDelta::Text(kind, AnswerText::Escaped(like.text)));
        }
        if data.is_empty() || data.starts_with(b"[DONE]") {
            return;
        }
        match serde_json::from_slice::<GeminiAnswer<'_>>(data) {
            Ok(answer) if answer.error.is_none() => {
                if let Some((text, piece)) = piece_of(&answer) {
                    self.alike.learn(data, text.as_bytes(), piece);
                }
                self.answer(answer, sink);
            }
            Ok(answer) => {
                note_usage(&answer, sink);
                fail_odd(data, sink);
            }
            Err(_) => self.odd(data, sink),
        }
    }

    fn last_event(&mut self, data: &[u8], sink: &mut dyn ChatSink) {
        // An event that was cut off is ignored.
        if serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok() {
            self.event(data, sink);
        }
    }

    /// Without a finish reason the answer is incomplete, and nothing is written.
    fn end(&mut self, sink: &mut dyn ChatSink) {
        if !sink.state().finished {
            return;
        }
        // A failed answer ends with its error alone.
        let choices = if sink.state().failure.is_none() { self.choices.as_slice() } else { &[] };
        for choice in choices {
            let reason = choice.finish_reason.as_deref().unwrap_or("stop");
            sink.finish(choice.index, if choice.calls > 0 { "tool_calls" } else { reason }, None);
        }
        end_with_usage(sink);
    }

    fn too_large() -> StreamError {
        StreamError::unreadable_stream("an event is larger than the gateway's limit")
    }
}

impl GeminiReader {
    pub(super) fn new(identity: CallIdentity) -> Self {
        Self { identity, choices: Vec::new(), calls: 0, alike: Alike::new(Varying::RunningUsage) }
    }

    /// Handles an event that cannot be parsed: it contains half of a surrogate pair, or is an error.
    #[cold]
    fn odd(&mut self, data: &[u8], sink: &mut dyn ChatSink) {
        let mut mended = data.to_vec();
        if mend_surrogates(&mut mended)
            && let Ok(answer) = serde_json::from_slice::<GeminiAnswer<'_>>(&mended)
            && answer.error.is_none()
        {
            return self.answer(answer, sink);
        }
        fail_odd(data, sink);
    }

    fn answer(&mut self, answer: GeminiAnswer<'_>, sink: &mut dyn ChatSink) {
        note_usage(&answer, sink);
        let blocked = answer.is_blocked();
        for candidate in answer.candidates.into_iter().flatten() {
            self.candidate(candidate, sink);
        }
        if blocked {
            let choice = self.choice(0, sink);
            if let Some(choice) = choice.and_then(|at| self.choices.get_mut(at)) {
                choice.finish_reason = Some("content_filter".to_owned());
                sink.facts().finished = true;
            }
        }
    }

    fn candidate(&mut self, candidate: GeminiCandidate<'_>, sink: &mut dyn ChatSink) {
        let index = candidate.index.unwrap_or(0);
        let end = end_of(&candidate);
        if failed_end(end.reason.as_bytes()).is_some() {
            return end_choice(sink, index, &end, None);
        }
        let Some(at) = self.choice(index, sink) else {
            sink.fail(&StreamError::unreadable_stream("it has more candidates than requested"));
            return;
        };
        let tokens = read_logprobs(candidate.logprobs_result);
        if !tokens.is_empty() {
            sink.delta(index, ChatDelta::Logprobs(&tokens));
        }
        for part in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
            if let Some(call) = part.function_call {
                let call = chat_call(call, self.calls, part.thought_signature, &self.identity);
                self.calls = self.calls.saturating_add(1);
                if let Some(choice) = self.choices.get_mut(at) {
                    sink.delta(index, ChatDelta::Call(begun(&call, choice.calls)));
                    choice.calls = choice.calls.saturating_add(1);
                }
                continue;
            }
            let (is_thought, kind) = (part.is_thought(), kind_of(&part));
            if let Some(text) = part.text {
                sink.delta(index, ChatDelta::Text(kind, AnswerText::Plain(&text.0)));
            }
            if let Some(media) = part.inline_data.and_then(GeminiBlob::media) {
                // A draft among the thoughts is no part of the answer.
                let mark = media.mark();
                sink.delta(
                    index,
                    match is_thought {
                        true => ChatDelta::Text(kind, AnswerText::Plain(&mark)),
                        false => ChatDelta::Media(media),
                    },
                );
            }
            if let Some(signature) = part.thought_signature.filter(|_| !is_thought) {
                sink.delta(index, ChatDelta::Signature(AnswerText::Plain(&signature.0)));
            }
        }
        if let Some(reason) = candidate.finish_reason
            && let Some(choice) = self.choices.get_mut(at)
        {
            choice.finish_reason = Some(in_chat_words(&reason.0, false).to_owned());
            sink.facts().finished = true;
        }
    }

    /// Returns the position of the choice in `choices`. A new choice is begun. `None` if there are too many.
    fn choice(&mut self, index: u64, sink: &mut dyn ChatSink) -> Option<usize> {
        if let Some(at) = self.choices.iter().position(|choice| choice.index == index) {
            return Some(at);
        }
        let at = Some(self.choices.len()).filter(|count| *count < CHOICES_MAX)?;
        sink.begin(index);
        self.choices.push(GeminiChoice { index, calls: 0, finish_reason: None });
        Some(at)
    }
}

/// Returns a whole call as the fragment that begins it.
fn begun<'a>(call: &'a ChatCall<'a>, index: u64) -> ChatCallDelta<'a> {
    ChatCallDelta {
        begins: true,
        index: Some(index),
        id: AnswerText::Escaped(&call.id),
        name: AnswerText::Escaped(&call.name),
        input: AnswerText::Escaped(&call.input),
        signature: call.signature.clone(),
        ..ChatCallDelta::default()
    }
}

fn note_usage(answer: &GeminiAnswer<'_>, sink: &mut dyn ChatSink) {
    let (usage, facts) = (answer.usage(), sink.facts());
    facts.usage = usage.as_ref().map(GeminiUsage::counts).or(facts.usage);
    facts.extras.replace_by(answer.extras(usage.as_ref()));
}

/// Fails with the error in an unexpected event, which may be inside a list, or with a generic one.
fn fail_odd(data: &[u8], sink: &mut dyn ChatSink) {
    let unknown = || StreamError::unreadable_stream("an event is not a generateContent response");
    sink.fail(&StreamError::of_odd(data).unwrap_or_else(unknown));
}

/// Returns the text of an event that holds nothing else besides usage. `None` if the text contains escapes, because
/// its escaped form is not available.
fn piece_of<'a>(answer: &GeminiAnswer<'a>) -> Option<(&'a str, GeminiTextDelta)> {
    let candidate = answer.only_candidate()?;
    let part = candidate.only_part()?;
    let Cow::Borrowed(text) = part.text.as_ref()?.0 else { return None };
    let usage = answer.usage().as_ref().map(GeminiUsage::counts);
    Some((text, GeminiTextDelta { choice: candidate.index.unwrap_or(0), kind: kind_of(part), usage }))
}
