//! Interprets the events of a Messages stream and decides how each is forwarded.
//!
//! ```text
//! message_start -> (content_block_start -> content_block_delta* -> content_block_stop)* -> message_delta+
//!   -> message_stop          ping and unknown events may occur anywhere; an error ends the stream
//! ```

use bytes::Bytes;
use serde_json::Value;
use shared::usage::Finish;

use super::event::{MessagesEventFacts, MessagesEventKind};
use super::usage::MessagesUsage;
use crate::envelope::{StreamError, error_event, messages_stream_error, named_event, sanitize_value};
use crate::finish_word::failed_end;
use crate::passthrough::{EventFacts, EventVerdict, Gather, Judge, Judged, JudgedStream, Varying};
use crate::stream::Trouble;

/// Judges events one after the other.
#[derive(Debug, Default)]
pub(super) struct MessagesJudge {
    usage: MessagesUsage,
    /// True if the last event was a delta that contained only text.
    after_text: bool,
}

impl MessagesJudge {
    fn look(&mut self, name: &[u8], data: &[u8], stream: &mut JudgedStream) -> Judged {
        let Some(mut seen) = Gather::<MessagesEventFacts>::of(data) else {
            return self.unknown(data, stream).into();
        };
        if seen.kind == MessagesEventKind::None {
            seen.kind = MessagesEventKind::named(name);
        }
        let is_odd = seen.odd && matches!(seen.kind, MessagesEventKind::None);
        if seen.kind == MessagesEventKind::Error || seen.error.truthy().is_some() || is_odd {
            return self.error(name, data, stream).into();
        }
        if stream.state.done {
            return EventVerdict::Pass.into();
        }
        if seen.finish == Some(Finish::Error) {
            return self.ends_failed(&seen, data, stream).into();
        }
        if seen.kind == MessagesEventKind::MessageStop
            && let Some(event) = self.take_failure(stream)
        {
            return EventVerdict::Last(Some(event)).into();
        }
        self.note_seen(&seen, stream);
        let text = seen.text.filter(|_| seen.kind == MessagesEventKind::BlockDelta);
        self.after_text = text.is_some();
        Judged { verdict: EventVerdict::Pass, text }
    }

    fn note_seen(&mut self, seen: &MessagesEventFacts, stream: &mut JudgedStream) {
        match seen.kind {
            MessagesEventKind::MessageStart => {
                self.usage.replace_by(&seen.usage);
                stream.state.input = self.usage.counts();
                stream.state.extras = self.usage.extras();
            }
            MessagesEventKind::BlockStart if seen.starts_output || seen.block_bytes > 0 => {
                output(seen.block_bytes, stream)
            }
            MessagesEventKind::BlockDelta if seen.delta_bytes > 0 => output(seen.delta_bytes, stream),
            MessagesEventKind::MessageDelta => {
                self.usage.replace_by(&seen.usage);
                stream.state.usage = self.usage.counts();
                stream.state.extras = self.usage.extras();
                stream.state.finished |= seen.stopped;
                stream.state.finish = seen.finish.or(stream.state.finish);
            }
            MessagesEventKind::MessageStop => stream.state.done = true,
            MessagesEventKind::BlockStart
            | MessagesEventKind::BlockDelta
            | MessagesEventKind::Error
            | MessagesEventKind::None
            | MessagesEventKind::Other => {}
        }
    }

    /// Notes the end of an answer that failed. The error takes the place of the end of the stream.
    #[cold]
    fn ends_failed(
        &mut self,
        seen: &MessagesEventFacts,
        data: &[u8],
        stream: &mut JudgedStream,
    ) -> EventVerdict {
        self.note_seen(seen, stream);
        let read: Value = serde_json::from_slice(data).unwrap_or_default();
        let word = read.pointer("/delta/stop_reason").and_then(Value::as_str).unwrap_or_default();
        let Some(end) = failed_end(word.as_bytes()) else { return EventVerdict::Pass };
        let failure = StreamError::of_failed_end(end, word, "");
        stream.state.failure.get_or_insert_with(|| Box::new(failure));
        EventVerdict::Drop
    }

    /// Ends the stream with an error event. The event keeps its bytes, unless they contain secrets or the SDKs would
    /// not recognise it as an error.
    fn error(&self, name: &[u8], data: &[u8], stream: &mut JudgedStream) -> EventVerdict {
        if stream.state.done {
            return EventVerdict::Last(None);
        }
        let Ok(mut value) = serde_json::from_slice::<Value>(data) else {
            return self.unreadable_error(stream);
        };
        let secrets = stream.options.known();
        let Some(error) = StreamError::of_document(&value) else { return self.unreadable_error(stream) };
        let error = error.sanitized(&secrets);
        let changed = sanitize_value(&mut value, &secrets);
        let verdict = if !is_known(name, &value) {
            EventVerdict::Last(Some(error_event(&error)))
        } else if changed {
            EventVerdict::Last(Some(named_event("error", &value.to_string())))
        } else {
            EventVerdict::LastPass
        };
        stream.state.error = Some(error);
        verdict
    }

    /// Judges data that is not an object. SDKs ignore it, but it may be an error in an array.
    fn unknown(&self, data: &[u8], stream: &mut JudgedStream) -> EventVerdict {
        let is_error = data.trim_ascii_start().first() == Some(&b'[')
            && serde_json::from_slice(data)
                .is_ok_and(|value: Value| StreamError::of_document(&value).is_some());
        if is_error { self.error(b"", data, stream) } else { stream.opaque(data) }
    }
}

fn output(bytes: usize, stream: &mut JudgedStream) {
    stream.state.content = true;
    stream.state.add_text(bytes);
}

impl Judge for MessagesJudge {
    type Facts = MessagesEventFacts;
    const VARYING: Varying = Varying::Blanks;

    #[inline]
    fn text_key(&self) -> Option<usize> {
        self.after_text.then_some(0)
    }

    fn judge(&mut self, name: &[u8], data: &[u8], stream: &mut JudgedStream) -> Judged {
        if data.trim_ascii().is_empty() { EventVerdict::Pass.into() } else { self.look(name, data, stream) }
    }

    fn note(&mut self, oversized: &MessagesEventFacts, stream: &mut JudgedStream) {
        self.note_seen(oversized, stream);
    }

    fn error_event(&self, error: &StreamError) -> Bytes {
        error_event(error)
    }

    fn trouble(&self, trouble: Trouble<'_>) -> Bytes {
        messages_stream_error(trouble.row, trouble.message, trouble.request_id)
    }
}

impl EventFacts for MessagesEventFacts {
    fn named(&mut self, name: &[u8]) {
        self.kind = MessagesEventKind::named(name);
    }

    fn content(&self) -> bool {
        match self.kind {
            MessagesEventKind::BlockStart => self.starts_output || self.block_bytes > 0,
            MessagesEventKind::BlockDelta => true,
            MessagesEventKind::None
            | MessagesEventKind::MessageStart
            | MessagesEventKind::MessageDelta
            | MessagesEventKind::MessageStop
            | MessagesEventKind::Error
            | MessagesEventKind::Other => false,
        }
    }

    fn error_begun(&self) -> bool {
        self.error.begun()
    }
}

/// Returns true if the SDKs recognise the error: by the event's name, and a type and message in the expected members.
fn is_known(name: &[u8], value: &Value) -> bool {
    let text = |pointer| value.pointer(pointer).is_some_and(Value::is_string);
    name == b"error"
        && value.get("type").is_some_and(|kind| kind == "error")
        && text("/error/type")
        && text("/error/message")
}
