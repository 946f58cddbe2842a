//! Translates streams: unnamed events, each with a piece of the answer and the total usage so far. There is no final
//! event.
//!
//! The finish reason is sent when the upstream's stream ends, because some models include a reason in every event, and
//! later events may update the usage. Memory is bounded by the size of one event and by the number of choices.

use std::borrow::Cow;

use bytes::Bytes;
use shared::usage::TokenCounts;

use super::answer::{GeminiAnswer, GeminiCandidate, finish_reason};
use super::usage::GeminiUsage;
use crate::adapt::chat_client::{ChatChunkWriter, Identity};
use crate::envelope::{self, StreamError};
use crate::passthrough::{Alike, Varying};
use crate::sse::EventFinder;
use crate::stream::{AnswerStream, StreamState, Trouble};

/// Maximum number of choices in a stream: as many as a chat client may request.
const CHOICES_MAX: usize = 128;

/// Translates one streamGenerateContent answer.
#[derive(Debug)]
pub(super) struct GeminiStream {
    identity: Identity,
    events: EventFinder,
    told: GeminiEmitted,
}

/// The output for the client, and the state needed to continue it.
#[derive(Debug)]
struct GeminiEmitted {
    chunks: ChatChunkWriter,
    choices: Vec<GeminiChoice>,
    /// The number of calls in all choices.
    calls: u64,
    /// Recognises events that hold only text.
    alike: Alike<GeminiTextDelta>,
}

/// A piece of text: its choice and member, and the usage reported with it.
#[derive(Clone, Copy, Debug)]
struct GeminiTextDelta {
    choice: u64,
    member: &'static str,
    usage: Option<TokenCounts>,
}

#[derive(Debug)]
struct GeminiChoice {
    index: u64,
    calls: u64,
    finish_reason: Option<&'static str>,
}

impl GeminiStream {
    pub(super) fn new(identity: &Identity, include_usage: bool, secrets: Vec<String>) -> Self {
        let chunks = ChatChunkWriter::new(identity, include_usage, secrets);
        let alike = Alike::new(Varying::RunningUsage);
        Self {
            identity: identity.clone(),
            events: EventFinder::default(),
            told: GeminiEmitted { chunks, choices: Vec::new(), calls: 0, alike },
        }
    }
}

impl AnswerStream for GeminiStream {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) {
        let (told, identity) = (&mut self.told, &self.identity);
        if told.chunks.has_ended() {
            return;
        }
        if self.events.push(&chunk, |data| told.event(data, identity)).is_err() {
            told.chunks.fail(&StreamError::unreadable_stream("an event is larger than the gateway keeps"));
        }
        told.chunks.flush(out);
    }

    fn end(&mut self, out: &mut Vec<Bytes>) {
        let (told, identity) = (&mut self.told, &self.identity);
        if told.chunks.has_ended() {
            return;
        }
        self.events.end(|data| {
            // An event that was cut off is ignored.
            serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok() && told.event(data, identity)
        });
        told.end();
        told.chunks.flush(out);
    }

    fn state(&self) -> &StreamState {
        self.told.chunks.state()
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        envelope::chat_stream_error(trouble.row, trouble.message, trouble.request_id)
    }
}

impl GeminiEmitted {
    /// Handles an event. Returns false if the stream has ended.
    fn event(&mut self, data: &[u8], identity: &Identity) -> bool {
        if let Some(like) = self.alike.read(data) {
            let GeminiTextDelta { choice, member, usage } = like.meaning;
            if let Some(usage) = usage {
                let others = usage.audio_output.saturating_add(usage.image_output);
                let output = like.number.map_or(usage.output, |candidates| candidates.saturating_sub(others));
                self.chunks.note_usage(TokenCounts { output, ..usage });
            }
            self.chunks.escaped(choice, member, like.text);
            return true;
        }
        if data.is_empty() || data.starts_with(b"[DONE]") {
            return true;
        }
        match serde_json::from_slice::<GeminiAnswer<'_>>(data) {
            Ok(answer) if answer.error.is_none() => {
                if let Some((text, piece)) = piece_of(&answer) {
                    self.alike.learn(data, text.as_bytes(), piece);
                }
                self.answer(answer, identity);
            }
            Ok(answer) => {
                answer.usage_metadata.iter().for_each(|usage| self.chunks.note_usage(usage.counts()));
                self.odd(data);
            }
            Err(_) => self.odd(data),
        }
        !self.chunks.has_ended()
    }

    fn answer(&mut self, answer: GeminiAnswer<'_>, identity: &Identity) {
        if let Some(usage) = &answer.usage_metadata {
            self.chunks.note_usage(usage.counts());
        }
        self.chunks.note_extras(answer.extras());
        let blocked = answer.is_blocked();
        for candidate in answer.candidates.into_iter().flatten() {
            self.candidate(candidate, identity);
        }
        if blocked {
            let choice = self.choice(0);
            if let Some(choice) = choice.and_then(|at| self.choices.get_mut(at)) {
                choice.finish_reason = Some("content_filter");
                self.chunks.note_finished();
            }
        }
    }

    fn candidate(&mut self, candidate: GeminiCandidate<'_>, identity: &Identity) {
        let index = candidate.index.unwrap_or(0);
        let Some(at) = self.choice(index) else {
            self.chunks
                .fail(&StreamError::unreadable_stream("there are more candidates than were asked for"));
            return;
        };
        for part in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
            if let Some(call) = part.function_call {
                let call = call.into_call(self.calls, part.thought_signature, identity);
                self.calls = self.calls.saturating_add(1);
                if let Some(choice) = self.choices.get_mut(at) {
                    self.chunks.call(index, choice.calls, &call);
                    choice.calls = choice.calls.saturating_add(1);
                }
                continue;
            }
            let (is_thought, member) = (part.is_thought(), part.member());
            if let Some(text) = part.text {
                self.chunks.text(index, member, &text.0);
            }
            if let Some(signature) = part.thought_signature.filter(|_| !is_thought) {
                self.chunks.signature(index, &signature.0);
            }
        }
        if let Some(reason) = candidate.finish_reason
            && let Some(choice) = self.choices.get_mut(at)
        {
            choice.finish_reason = Some(finish_reason(&reason.0));
            self.chunks.note_finished();
        }
    }

    /// Returns the position of the choice in `choices`. A new choice starts with its role. `None` if there are too
    /// many.
    fn choice(&mut self, index: u64) -> Option<usize> {
        if let Some(at) = self.choices.iter().position(|choice| choice.index == index) {
            return Some(at);
        }
        let at = Some(self.choices.len()).filter(|count| *count < CHOICES_MAX)?;
        self.chunks.role(index);
        self.choices.push(GeminiChoice { index, calls: 0, finish_reason: None });
        Some(at)
    }

    /// Handles the end of the upstream's stream. Without a finish reason the answer is incomplete, and nothing is
    /// written.
    fn end(&mut self) {
        if self.chunks.has_ended() || !self.chunks.state().finished {
            return;
        }
        for choice in &self.choices {
            let reason = choice.finish_reason.unwrap_or("stop");
            self.chunks.finish(choice.index, if choice.calls > 0 { "tool_calls" } else { reason });
        }
        self.chunks.done();
    }

    /// Fails with the error in an unexpected event, which may be inside a list, or with a generic one.
    fn odd(&mut self, data: &[u8]) {
        let error = StreamError::of_odd(data);
        self.chunks.fail(
            &error.unwrap_or_else(|| {
                StreamError::unreadable_stream("an event is not a generateContent response")
            }),
        );
    }
}

/// Returns the text of an event that holds nothing else besides usage. `None` if the text contains escapes, because
/// its escaped form is not available.
fn piece_of<'a>(answer: &GeminiAnswer<'a>) -> Option<(&'a str, GeminiTextDelta)> {
    let candidate = answer.only_candidate()?;
    let part = candidate.only_part()?;
    let Cow::Borrowed(text) = part.text.as_ref()?.0 else { return None };
    let usage = answer.usage_metadata.as_ref().map(GeminiUsage::counts);
    Some((text, GeminiTextDelta { choice: candidate.index.unwrap_or(0), member: part.member(), usage }))
}
