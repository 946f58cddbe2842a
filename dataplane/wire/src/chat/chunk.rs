//! Interprets the events of a chat stream and decides how each is forwarded.

use std::ops::Range;

use bytes::Bytes;
use serde_json::Value;
use shared::usage::Finish;

use super::failed::ChoiceEnd;
use super::findings::{ChatFindings, ChatScan, tree};
use super::named;
use super::prefilter::{may_be_error, needs_a_look, text_span};
use crate::envelope::{self, StreamError, event_of, sanitize_value};
use crate::json::meant_bytes;
use crate::passthrough::{EventFacts, EventVerdict, Judge, Judged, JudgedStream, TextChange, Varying};
use crate::stream::Trouble;

/// Judges events one after the other.
///
/// Members are recognised by their plain names. After the first output, a name written with `\u` escapes may be missed.
#[derive(Debug, Default)]
pub(crate) struct ChatJudge {
    /// The index of the text member that contained the last text.
    text_key: Option<usize>,
}

impl Judge for ChatJudge {
    type Facts = ChatFindings;
    const VARYING: Varying = Varying::Padding;

    #[inline]
    fn text_key(&self) -> Option<usize> {
        self.text_key
    }

    fn judge(&mut self, _name: &[u8], data: &[u8], stream: &mut JudgedStream) -> Judged {
        if stream.state.done {
            return after_done(data, stream).into();
        }
        if let Some(text) = self.plain_text(data, stream) {
            stream.state.add_text(meant_bytes(data.get(text.clone()).unwrap_or_default()));
            return Judged { verdict: EventVerdict::Pass, text: Some(text) };
        }
        self.look(data, stream).into()
    }

    fn note(&mut self, oversized: &ChatFindings, stream: &mut JudgedStream) {
        let _ = self.note_seen(oversized, stream);
    }

    fn error_event(&self, error: &StreamError) -> Bytes {
        event_of(&error.to_value())
    }

    fn trouble(&self, trouble: Trouble<'_>) -> Bytes {
        envelope::chat_stream_error(trouble.row, trouble.message, trouble.request_id)
    }
}

impl EventFacts for ChatFindings {
    fn content(&self) -> bool {
        self.content
    }

    fn error_begun(&self) -> bool {
        self.error.begun()
    }
}

impl ChatJudge {
    /// Returns the range of the text in a chunk that contains only text, under the same member as the text before.
    #[inline]
    fn plain_text(&self, data: &[u8], stream: &JudgedStream) -> Option<Range<usize>> {
        let key = self.text_key.filter(|_| stream.state.content && data.first() == Some(&b'{'))?;
        if needs_a_look(data) { None } else { text_span(data, key) }
    }

    fn look(&mut self, data: &[u8], stream: &mut JudgedStream) -> EventVerdict {
        if data.starts_with(b"[DONE]") {
            if let Some(event) = self.take_failure(stream) {
                return EventVerdict::Last(Some(event));
            }
            stream.state.done = true;
            return EventVerdict::Pass;
        }
        let trimmed = data.trim_ascii();
        if trimmed.is_empty() {
            return EventVerdict::Pass;
        }
        if trimmed.first() == Some(&b'[') && may_be_error(trimmed) {
            return self.odd_error(trimmed, stream);
        }
        match ChatScan::of(trimmed) {
            Some(seen) if seen.error().is_some() => {
                stream.state.usage = seen.token_counts().or(stream.state.usage);
                self.error(trimmed, stream)
            }
            Some(seen) if seen.odd && !seen.has_choices => self.odd_error(trimmed, stream),
            Some(seen) => {
                if seen.may_have_failed && ends_failed(&seen, trimmed, stream) {
                    return EventVerdict::Drop;
                }
                let verdict = self.note_seen(&seen, stream);
                match seen.unnamed {
                    Some(usage) if verdict == EventVerdict::Pass => Self::name_usage(data, &usage),
                    Some(_) | None => verdict,
                }
            }
            None => stream.opaque(data),
        }
    }

    /// Records the facts of a chunk without an error.
    fn note_seen(&mut self, seen: &ChatFindings, stream: &mut JudgedStream) -> EventVerdict {
        stream.state.usage = seen.token_counts().or(stream.state.usage);
        stream.state.extras.replace_by(seen.extras());
        stream.state.finished |= seen.finished;
        stream.state.finish = seen.finish.or(stream.state.finish);
        if seen.content {
            stream.state.content = true;
            self.text_key = seen.text_key.or(self.text_key);
            stream.state.add_text(seen.text_bytes.try_into().unwrap_or(usize::MAX));
        }
        let usage_only = seen.has_usage() && !seen.has_choice;
        if usage_only && stream.options.drop_usage_only { EventVerdict::Drop } else { EventVerdict::Pass }
    }

    /// Adds OpenAI's missing names to the `usage` at this range of `data`, which does not count leading white space.
    #[cold]
    fn name_usage(data: &[u8], usage: &Range<usize>) -> EventVerdict {
        let before = data.len().saturating_sub(data.trim_ascii_start().len());
        let part = usage.start.saturating_add(before)..usage.end.saturating_add(before);
        match data.get(part.clone()).and_then(named) {
            Some(by) => EventVerdict::Change(Box::new(TextChange { part, by })),
            None => EventVerdict::Pass,
        }
    }

    /// Ends the stream with an error event. The event keeps its bytes unless they contain secrets.
    fn error(&self, data: &[u8], stream: &mut JudgedStream) -> EventVerdict {
        let Some(mut value) = tree(data) else { return self.unreadable_error(stream) };
        let secrets = stream.options.known();
        stream.state.error = Some(StreamError::of_document(&value).unwrap_or_default().sanitized(&secrets));
        let changed = sanitize_diagnostics(&mut value, &secrets);
        if changed { EventVerdict::Last(Some(event_of(&value))) } else { EventVerdict::LastPass }
    }

    /// Ends the stream with an error in a shape that SDKs do not recognise, such as an array or `{"detail": ..}`; it is
    /// rewritten as a standard one.
    fn odd_error(&self, data: &[u8], stream: &mut JudgedStream) -> EventVerdict {
        let Some(error) = tree(data).as_ref().and_then(StreamError::of_document) else {
            return stream.opaque(data);
        };
        let error = error.sanitized(&stream.options.known());
        stream.fail(self.error_event(&error), error)
    }
}

/// Notes the failure of a choice that ended as one. Its chunk is dropped, and the error takes the place of the end of
/// the stream, because the usage may still follow. Returns false if no choice failed.
#[cold]
fn ends_failed(seen: &ChatFindings, data: &[u8], stream: &mut JudgedStream) -> bool {
    let Some(failure) = tree(data).as_ref().and_then(ChoiceEnd::failure_in) else { return false };
    stream.state.usage = seen.token_counts().or(stream.state.usage);
    stream.state.extras.replace_by(seen.extras());
    stream.state.finished = true;
    stream.state.finish = Some(Finish::Error);
    let secrets = stream.options.known();
    stream.state.failure.get_or_insert_with(|| Box::new(failure.sanitized(&secrets)));
    true
}

/// Judges an event after `[DONE]`, where the SDKs stop reading. It passes, unless it is an error, which might quote a
/// key.
fn after_done(data: &[u8], stream: &JudgedStream) -> EventVerdict {
    let is_error = may_be_error(data) && ChatScan::of(data).is_some_and(|seen| seen.error().is_some());
    if is_error { EventVerdict::Last(None) } else { stream.opaque(data) }
}

/// Sanitizes every member except the model's output.
fn sanitize_diagnostics(value: &mut Value, secrets: &[&str]) -> bool {
    let Some(members) = value.as_object_mut() else { return false };
    let mut changed = false;
    for (_, member) in members.iter_mut().filter(|(key, _)| *key != "choices") {
        changed |= sanitize_value(member, secrets);
    }
    changed
}
