//! Relays a native stream: whole events of the upstream's own bytes, while the dialect's `Judge` collects what the
//! gateway needs to know.
//!
//! Bytes pass unchanged, including a byte order mark, comments, `id:` lines and blocks without data, with these
//! exceptions: a usage-only chunk that the client did not ask for is dropped; an error event is rewritten if its text
//! had to be sanitized or SDKs do not recognise its shape; everything after an error event is dropped; and a last event
//! without its blank line is dropped while the stream has not finished, because no client would read it and it would
//! swallow the error event that the gateway appends.

#![expect(
    clippy::indexing_slicing,
    reason = "positions come from searches of the same bytes; a wrong one must fail in the fuzzer"
)]

use std::fmt::Debug;
use std::ops::Range;

use bytes::Bytes;

use super::gather::{DocumentFacts, Gather};
use super::template::{Template, Varying};
use super::verdict::{EventVerdict, opaque};
use crate::envelope::StreamError;
use crate::json::meant_bytes;
use crate::sse::{Blocks, data_of};
use crate::stream::{AnswerStream, StreamOptions, StreamState, Trouble};

/// Interprets the events of one dialect.
pub(crate) trait Judge: Debug {
    /// The facts about one event.
    type Facts: EventFacts;
    /// The parts in which consecutive text events differ.
    const VARYING: Varying;

    /// Judges one complete event.
    fn judge(&mut self, name: &[u8], data: &[u8], stream: &mut JudgedStream) -> Judged;
    /// Returns the index of the member that held the text of the last text-only event. `None` if the next event must
    /// be judged.
    fn text_key(&self) -> Option<usize>;
    /// Records an event that differs from an earlier one only in its text and its number.
    fn passed_alike(&mut self, number: Option<u64>, stream: &mut JudgedStream) {
        let _ = (number, stream);
    }
    /// Records an event that passed in pieces.
    fn note(&mut self, oversized: &Self::Facts, stream: &mut JudgedStream);
    /// Returns the verdict on an event that passes in pieces and turned out to be an error.
    fn oversized_error(&mut self, oversized: &Self::Facts, stream: &mut JudgedStream) -> EventVerdict {
        let _ = oversized;
        self.unreadable_error(stream)
    }
    /// Returns the event that ends the stream with this error.
    fn error_event(&self, error: &StreamError) -> Bytes;
    /// Returns the event that ends the stream after a failure that the gateway detected.
    fn trouble(&self, trouble: Trouble<'_>) -> Bytes;

    /// Ends the stream with an error that is too large, or too deeply nested, to be parsed.
    fn unreadable_error(&self, stream: &mut JudgedStream) -> EventVerdict {
        let error = StreamError::of_words(StreamError::UNREADABLE);
        stream.fail(self.error_event(&error), error)
    }

    /// Returns the error event in place of the end of a stream whose output failed, and makes the failure its error.
    fn take_failure(&self, stream: &mut JudgedStream) -> Option<Bytes> {
        let failure = stream.state.failure.take()?;
        let event = self.error_event(&failure);
        stream.state.error = Some(*failure);
        Some(event)
    }
}

/// The options and the facts of one stream, which its judge reads and updates.
#[derive(Debug, Default)]
pub(crate) struct JudgedStream {
    pub(crate) options: StreamOptions,
    pub(crate) state: StreamState,
}

impl JudgedStream {
    /// Ends the stream with this error, for which `event` is sent.
    pub(crate) fn fail(&mut self, event: Bytes, error: StreamError) -> EventVerdict {
        self.state.error = Some(error);
        EventVerdict::Last(Some(event))
    }

    /// Judges data of an unknown shape, which may still contain secrets.
    pub(crate) fn opaque(&self, data: &[u8]) -> EventVerdict {
        if data.first() == Some(&b'{') && self.state.content {
            return EventVerdict::Pass;
        }
        opaque(data, &self.options.known())
    }
}

/// The verdict on an event and, if it holds only text, the position of the text under [`Judge::text_key`].
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) verdict: EventVerdict,
    pub(crate) text: Option<Range<usize>>,
}

impl From<EventVerdict> for Judged {
    fn from(verdict: EventVerdict) -> Self {
        Self { verdict, text: None }
    }
}

/// The facts about one event, which may be read while it passes in pieces.
pub(crate) trait EventFacts: DocumentFacts {
    /// Sets the name of the event.
    fn named(&mut self, name: &[u8]) {
        let _ = name;
    }
    /// True if the event holds output.
    fn content(&self) -> bool;
    /// True if the event is an error.
    fn error_begun(&self) -> bool;
}

/// The maximum size of an incomplete event that is held back, in bytes. A larger one passes in pieces.
pub const HELD_BYTES_MAX: usize = 64 * 1024;

/// Relays the events of one upstream answer.
#[derive(Debug)]
pub(crate) struct PassingStream<J: Judge> {
    judge: J,
    stream: JudgedStream,
    blocks: Blocks,
    held: HeldEvent,
    oversized: Option<Box<Gather<J::Facts>>>,
    template: Template,
    /// True once the first block, which may start with a byte order mark, has been judged.
    begun: bool,
    /// True if the last event was passed on unchanged.
    passed: bool,
    stopped: bool,
}

/// The start of an incomplete event.
#[derive(Debug, Default)]
enum HeldEvent {
    #[default]
    Nothing,
    /// The part came in one read.
    Slice(Bytes),
    /// The part came in several reads.
    Copy(Vec<u8>),
}

impl<J: Judge> PassingStream<J> {
    /// Creates a relay for a new stream.
    pub(crate) fn new(judge: J, options: StreamOptions) -> Self {
        Self {
            judge,
            stream: JudgedStream { options, state: StreamState::default() },
            blocks: Blocks::default(),
            held: HeldEvent::Nothing,
            oversized: None,
            template: Template::new(J::VARYING),
            begun: false,
            passed: false,
            stopped: false,
        }
    }
}

impl<J: Judge> AnswerStream for PassingStream<J> {
    fn state(&self) -> &StreamState {
        &self.stream.state
    }

    fn push(&mut self, mut chunk: Bytes, out: &mut Vec<Bytes>) {
        if self.blocks.takes_lf(&chunk) {
            // The LF belongs to the event before it and is treated the same way.
            let lf = chunk.split_to(1);
            if self.passed {
                out.push(lf);
            }
        }
        if chunk.is_empty() {
            return;
        }
        if self.stopped {
            // Only bytes that directly follow the last event can belong to it.
            self.passed = false;
            return;
        }
        if self.oversized.is_some() || !matches!(self.held, HeldEvent::Nothing) {
            let Some(end) = self.blocks.find(&chunk) else {
                self.hold(chunk, out);
                return;
            };
            let rest = chunk.split_off(end);
            self.complete(chunk, out);
            chunk = rest;
        }
        if !self.stopped {
            self.pass_whole_events(chunk, out);
        }
    }

    fn end(&mut self, out: &mut Vec<Bytes>) {
        if self.stopped {
            return;
        }
        self.stopped = true;
        self.end_held(out);
        if self.stream.state.error.is_none() {
            out.extend(self.judge.take_failure(&mut self.stream));
        }
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        self.stopped = true;
        self.judge.trouble(trouble)
    }
}

impl<J: Judge> PassingStream<J> {
    /// Ends an event without its blank line.
    fn end_held(&mut self, out: &mut Vec<Bytes>) {
        let Some(event) = self.held.take() else { return };
        let seen_whole = self.stream.state.clone();
        let verdict = self.judge_event(&event).verdict;
        let state = &mut self.stream.state;
        if state.error.is_none() {
            let extras = std::mem::take(&mut state.extras);
            *state = StreamState { usage: state.usage, extras, ..seen_whole };
        }
        let finished = state.finished || state.done;
        match verdict {
            EventVerdict::Pass if finished => out.push(event),
            EventVerdict::LastPass => out.extend([event, Bytes::from_static(b"\n\n")]),
            EventVerdict::Replace(event) if finished => out.push(event),
            EventVerdict::Last(event) => out.extend(event),
            EventVerdict::Pass | EventVerdict::Replace(_) | EventVerdict::Change(_) | EventVerdict::Drop => {}
        }
    }

    /// Passes on the events that end in `chunk`, in as few slices as possible, and holds the rest.
    fn pass_whole_events(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) {
        // Bytes before `passed` have been written to `out`; bytes before `start` have been judged.
        let (mut passed, mut start) = (0, self.pass_alike(&chunk));
        while let Some(length) = self.blocks.find(&chunk[start..]) {
            let end = start + length;
            let verdict = self.judge_in(&chunk, start, end);
            self.passed = matches!(verdict, EventVerdict::Pass | EventVerdict::LastPass);
            if verdict != EventVerdict::Pass {
                let keep = if verdict == EventVerdict::LastPass { end } else { start };
                push_slice(&chunk, passed, keep, out);
                passed = end;
                self.replace(verdict, out);
                if self.stopped {
                    return;
                }
            }
            start = end;
            start += self.pass_alike(&chunk[start..]);
        }
        if start < chunk.len() {
            push_slice(&chunk, passed, start, out);
            self.hold(chunk.slice(start..), out);
        } else if passed == 0 && start > 0 {
            out.push(chunk);
        } else {
            push_slice(&chunk, passed, start, out);
        }
    }

    /// Returns the length of the events at the start of `rest` that differ from the last one only in their text.
    #[inline]
    fn pass_alike(&mut self, rest: &[u8]) -> usize {
        let mut length = 0_usize;
        let Some(key) = self.text_key().filter(|_| self.blocks.at_start()) else { return length };
        while let Some(fit) = self.template.fit(&rest[length..], key) {
            let text = &rest[length + fit.text_at..][..fit.text];
            self.stream.state.add_text(meant_bytes(text));
            self.judge.passed_alike(fit.number, &mut self.stream);
            self.passed = true;
            length += fit.length;
        }
        length
    }

    /// Returns the member under which the next event may have its text. The first output and the events after the end
    /// are always judged.
    #[inline]
    fn text_key(&self) -> Option<usize> {
        let state = &self.stream.state;
        self.judge.text_key().filter(|_| state.content && !state.done)
    }

    fn judge_in(&mut self, chunk: &Bytes, start: usize, end: usize) -> EventVerdict {
        let event = &chunk[start..end];
        let Some((name, data)) = plain_event(event, self.blocks.found_lines()).filter(|_| self.begun) else {
            return self.judge_event(event).verdict;
        };
        let before = event.len() - data.len();
        let judged = self.judge.judge(name, trim_line_end(data), &mut self.stream);
        if let (Some(text), Some(key)) = (judged.text, self.text_key())
            // A CR could still be followed by its LF.
            && event.ends_with(b"\n")
        {
            self.template.learn(event, key, text.start + before..text.end + before);
        }
        if let EventVerdict::Change(change) = &judged.verdict {
            return EventVerdict::Replace(change.of(event, before));
        }
        judged.verdict
    }

    /// Judges an event of any form.
    fn judge_event(&mut self, event: &[u8]) -> Judged {
        let mut block = event;
        if !std::mem::replace(&mut self.begun, true) {
            block = block.strip_prefix(b"\xef\xbb\xbf").unwrap_or(block);
        }
        let data = data_of(block);
        self.stream.state.ids_seen |= data.has_id;
        match data.text {
            Some(text) => {
                let verdict = self.judge.judge(data.name, &text, &mut self.stream).verdict;
                if let EventVerdict::Change(change) = &verdict {
                    return EventVerdict::Replace(change.of_event(event, &text)).into();
                }
                verdict.into()
            }
            None => EventVerdict::Pass.into(),
        }
    }

    fn replace(&mut self, verdict: EventVerdict, out: &mut Vec<Bytes>) {
        match verdict {
            // A change has already been turned into a replacement event.
            EventVerdict::Pass | EventVerdict::Drop | EventVerdict::Change(_) => {}
            EventVerdict::Replace(event) => out.push(event),
            EventVerdict::LastPass => self.stopped = true,
            EventVerdict::Last(event) => {
                self.stopped = true;
                out.extend(event);
            }
        }
    }

    /// Completes the held event with `rest`.
    fn complete(&mut self, rest: Bytes, out: &mut Vec<Bytes>) {
        if self.oversized.is_some() {
            self.pass_oversized(rest, out);
            self.passed = true;
            if let Some(oversized) = self.oversized.take() {
                self.end_oversized(&oversized);
            }
            return;
        }
        self.extend_held(rest);
        let event = self.held.take().unwrap_or_default();
        let verdict = self.judge_event(&event).verdict;
        self.passed = matches!(verdict, EventVerdict::Pass | EventVerdict::LastPass);
        if self.passed {
            out.push(event);
        }
        self.replace(verdict, out);
    }

    /// Holds `part`, in which no event ends. If the held event becomes too large, it passes in pieces from then on.
    fn hold(&mut self, part: Bytes, out: &mut Vec<Bytes>) {
        if self.oversized.is_some() {
            self.pass_oversized(part, out);
            return;
        }
        self.extend_held(part);
        if self.held.len() > HELD_BYTES_MAX {
            self.begin_oversized(out);
        }
    }

    fn extend_held(&mut self, part: Bytes) {
        self.held = match std::mem::take(&mut self.held) {
            HeldEvent::Nothing => HeldEvent::Slice(part),
            HeldEvent::Slice(first) => HeldEvent::Copy([first, part].concat()),
            HeldEvent::Copy(mut bytes) => {
                bytes.extend_from_slice(&part);
                HeldEvent::Copy(bytes)
            }
        };
    }

    fn begin_oversized(&mut self, out: &mut Vec<Bytes>) {
        let Some(part) = self.held.take() else { return };
        let block = part.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&part);
        self.begun = true;
        let mut oversized = Gather::<J::Facts>::default();
        oversized.facts_mut().named(data_of(block).name);
        match memchr::memmem::find(block, b"data:") {
            Some(at) => oversized.push(&block[at + 5..]),
            None => oversized.give_up(),
        }
        self.pass_part(&oversized, part, out);
        self.oversized = Some(Box::new(oversized));
    }

    fn pass_oversized(&mut self, part: Bytes, out: &mut Vec<Bytes>) {
        if let Some(mut oversized) = self.oversized.take() {
            oversized.push(&part);
            self.pass_part(&oversized, part, out);
            self.oversized = Some(oversized);
        }
    }

    /// Passes on a part of an oversized event, unless the event is an error.
    fn pass_part(&mut self, oversized: &Gather<J::Facts>, part: Bytes, out: &mut Vec<Bytes>) {
        if oversized.facts().error_begun() {
            let was_open = self.stream.state.event_open;
            let verdict = self.judge.oversized_error(oversized.facts(), &mut self.stream);
            if was_open {
                out.push(Bytes::from_static(b"\n\n"));
            }
            self.replace(verdict, out);
            return;
        }
        let state = &mut self.stream.state;
        state.event_open = true;
        state.content |= oversized.facts().content() || oversized.is_broken();
        out.push(part);
    }

    fn end_oversized(&mut self, oversized: &Gather<J::Facts>) {
        let state = &mut self.stream.state;
        state.event_open = self.stopped && state.event_open;
        if !oversized.is_broken() && !self.stopped {
            self.judge.note(oversized.facts(), &mut self.stream);
        }
    }
}

impl HeldEvent {
    fn take(&mut self) -> Option<Bytes> {
        match std::mem::take(self) {
            Self::Nothing => None,
            Self::Slice(event) => Some(event),
            Self::Copy(event) => Some(event.into()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Slice(event) => event.len(),
            Self::Copy(event) => event.len(),
        }
    }
}

fn push_slice(chunk: &Bytes, from: usize, to: usize, out: &mut Vec<Bytes>) {
    if from < to {
        out.push(if to - from == chunk.len() { chunk.clone() } else { chunk.slice(from..to) });
    }
}

/// Returns the name and data of an event in a common form: one data line, alone or after one line with the name.
#[inline]
fn plain_event(event: &[u8], lines: u32) -> Option<(&[u8], &[u8])> {
    let (name, data) = match lines {
        1 => (b"".as_slice(), event),
        2 => {
            let named = event.strip_prefix(b"event:")?;
            let (name, data) = named.split_at_checked(memchr::memchr2(b'\n', b'\r', named)?)?;
            let data = data.strip_prefix(b"\r").unwrap_or(data);
            (name.strip_prefix(b" ").unwrap_or(name), data.strip_prefix(b"\n").unwrap_or(data))
        }
        _ => return None,
    };
    let data = data.strip_prefix(b"data:")?;
    Some((name, data.strip_prefix(b" ").unwrap_or(data)))
}

fn trim_line_end(data: &[u8]) -> &[u8] {
    let end = data.iter().rev().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
    &data[..data.len() - end]
}
