//! Interprets the events of a Responses stream and decides how each is forwarded.
//!
//! ```text
//! response.created -> response.in_progress -> output_item.added -> ... .delta ... -> output_item.done -> ...
//!   -> response.completed | response.incomplete | response.failed | error
//! ```

use bytes::Bytes;
use serde_json::{Value, json};
use shared::usage::Finish;

use super::envelope::{Envelope, ResponseNames};
use super::event::{ResponsesEventFacts, ResponsesEventKind};
use super::failed;
use crate::envelope::{StreamError, named_event, sanitize_value};
use crate::passthrough::{EventFacts, EventVerdict, Gather, Judge, Judged, JudgedStream, Varying};
use crate::stream::Trouble;

/// Judges events one after the other.
#[derive(Debug, Default)]
pub(super) struct ResponsesJudge {
    /// The names of the response that the stream carries.
    names: ResponseNames,
    /// The sequence number of the next event.
    next: u64,
    /// True if the last event was a delta that contained only text.
    after_text: bool,
}

impl ResponsesJudge {
    fn look(&mut self, name: &[u8], data: &[u8], stream: &mut JudgedStream) -> Judged {
        let Some(mut seen) = Gather::<ResponsesEventFacts>::of(data) else {
            return self.unknown(data, stream).into();
        };
        if seen.kind == ResponsesEventKind::None {
            seen.kind = ResponsesEventKind::named(name);
        }
        if let Some(verdict) = self.error_in(&seen, data, stream) {
            return verdict.into();
        }
        if stream.state.done {
            return EventVerdict::Pass.into();
        }
        if seen.kind == ResponsesEventKind::End && seen.response.finish() == Some(Finish::Error) {
            return self.ends_failed(&seen, stream).into();
        }
        self.note_seen(&seen, stream);
        let text = seen.text.filter(|_| seen.kind == ResponsesEventKind::Delta);
        self.after_text = text.is_some();
        Judged { verdict: EventVerdict::Pass, text }
    }

    fn error_in(
        &mut self,
        seen: &ResponsesEventFacts,
        data: &[u8],
        stream: &mut JudgedStream,
    ) -> Option<EventVerdict> {
        let has_error_value = seen.response.error.truthy().is_some();
        let is_odd = seen.odd && seen.kind == ResponsesEventKind::None && !seen.has_error;
        let is_error = seen.kind == ResponsesEventKind::Error
            || seen.kind == ResponsesEventKind::Failed
            || (seen.has_error && has_error_value)
            || is_odd;
        if !is_error {
            return None;
        }
        if stream.state.done {
            return Some(EventVerdict::Last(None));
        }
        self.count(seen.number);
        Some(if seen.kind == ResponsesEventKind::Failed {
            failed(seen, data, stream)
        } else {
            self.error(seen, data, stream)
        })
    }

    fn note_seen(&mut self, seen: &ResponsesEventFacts, stream: &mut JudgedStream) {
        self.count(seen.number);
        match seen.kind {
            ResponsesEventKind::Snapshot => self.names = seen.response.names.clone(),
            ResponsesEventKind::Delta if seen.delta_bytes > 0 => {
                stream.state.content = true;
                stream.state.add_text(seen.delta_bytes);
            }
            ResponsesEventKind::End => ends(seen, stream),
            ResponsesEventKind::ItemDone => {
                stream.state.content |= seen.has_output() || seen.encrypted;
                seen.item.add_to(&mut stream.state.extras.units);
            }
            ResponsesEventKind::Other => stream.state.content |= seen.has_output(),
            ResponsesEventKind::Delta
            | ResponsesEventKind::None
            | ResponsesEventKind::Failed
            | ResponsesEventKind::Error => {}
        }
    }

    /// Ends the stream of a response that ended as a failure.
    #[cold]
    fn ends_failed(&mut self, seen: &ResponsesEventFacts, stream: &mut JudgedStream) -> EventVerdict {
        self.count(seen.number);
        reported(&seen.response, stream);
        stream.state.finished = true;
        stream.state.finish = Some(Finish::Error);
        stream.state.failure = Some(Box::new(StreamError::of_failed_response()));
        EventVerdict::Last(self.take_failure(stream))
    }

    /// Updates the sequence number; an event without a number is counted.
    fn count(&mut self, number: Option<u64>) {
        self.next = number.unwrap_or(self.next).saturating_add(1);
    }

    /// Ends the stream with an error event. The event keeps its bytes, unless they contain secrets or the SDKs would
    /// not recognise it as an error.
    fn error(&self, seen: &ResponsesEventFacts, data: &[u8], stream: &mut JudgedStream) -> EventVerdict {
        let read = serde_json::from_slice::<Value>(data).ok();
        let read = read.and_then(|value| Some((StreamError::of_document(&value)?, value)));
        let Some((error, mut value)) = read else { return self.unreadable_error(stream) };
        let secrets = stream.options.known();
        let error = error.sanitized(&secrets);
        let changed = sanitize_value(&mut value, &secrets);
        let is_known = seen.has_error
            || (seen.kind == ResponsesEventKind::Error && value.get("message").is_some_and(Value::is_string));
        let verdict = if !is_known {
            EventVerdict::Last(Some(self.event_of(&error)))
        } else if changed {
            EventVerdict::Last(Some(named_event("error", &value.to_string())))
        } else {
            EventVerdict::LastPass
        };
        stream.state.error = Some(error);
        verdict
    }

    fn event_of(&self, error: &StreamError) -> Bytes {
        let number = self.next.saturating_sub(1);
        let (code, message, param) = (&error.code, &error.message, &error.param);
        let event = json!({"type": "error", "code": code, "message": message, "param": param, "sequence_number": number});
        named_event("error", &event.to_string())
    }

    /// Judges data that is not an object. SDKs ignore it, but it may be an error in an array.
    fn unknown(&mut self, data: &[u8], stream: &mut JudgedStream) -> EventVerdict {
        let read =
            || serde_json::from_slice(data).ok().and_then(|value: Value| StreamError::of_document(&value));
        let is_array = data.trim_ascii_start().first() == Some(&b'[') && !stream.state.done;
        if let Some(error) = is_array.then(read).flatten() {
            self.count(None);
            let error = error.sanitized(&stream.options.known());
            stream.fail(self.event_of(&error), error)
        } else {
            stream.opaque(data)
        }
    }
}

fn ends(seen: &ResponsesEventFacts, stream: &mut JudgedStream) {
    let response = &seen.response;
    reported(response, stream);
    stream.state.finished = true;
    stream.state.finish = response.finish();
    stream.state.done = true;
    if response.text_bytes > 0 && stream.state.output_bytes == 0 {
        stream.state.add_text(response.text_bytes.try_into().unwrap_or(usize::MAX));
    }
    stream.state.content |= response.text_bytes > 0;
}

/// Records the usage that the response reports.
fn reported(response: &Envelope<2>, stream: &mut JudgedStream) {
    stream.state.usage = response.usage.or(stream.state.usage);
    stream.state.extras.replace_by(response.extras.clone());
}

/// Ends the stream with a failed response, in which only the error may be changed.
fn failed(seen: &ResponsesEventFacts, data: &[u8], stream: &mut JudgedStream) -> EventVerdict {
    let response = &seen.response;
    reported(response, stream);
    let secrets = stream.options.known();
    let error_value = response.error.truthy().and_then(|raw| serde_json::from_slice::<Value>(raw).ok());
    let Some(mut error_value) = error_value else {
        let message = "The response failed.".to_owned();
        stream.state.error = Some(StreamError { message, ..StreamError::default() });
        return EventVerdict::LastPass;
    };
    stream.state.error = Some(StreamError::of_member(&error_value).sanitized(&secrets));
    if !sanitize_value(&mut error_value, &secrets) {
        return EventVerdict::LastPass;
    }
    let span = response.error.span().unwrap_or_default();
    let (before, after) = (data.get(..span.start), data.get(span.end..));
    let data =
        [before.unwrap_or_default(), error_value.to_string().as_bytes(), after.unwrap_or_default()].concat();
    EventVerdict::Last(Some(named_event("response.failed", &String::from_utf8_lossy(&data))))
}

impl ResponsesEventFacts {
    fn has_output(&self) -> bool {
        self.is_call || self.other_bytes > 0
    }
}

impl Judge for ResponsesJudge {
    type Facts = ResponsesEventFacts;
    const VARYING: Varying = Varying::PaddingAndNumber;

    #[inline]
    fn text_key(&self) -> Option<usize> {
        self.after_text.then_some(0)
    }

    #[inline]
    fn passed_alike(&mut self, number: Option<u64>, _stream: &mut JudgedStream) {
        self.count(number);
    }

    fn judge(&mut self, name: &[u8], data: &[u8], stream: &mut JudgedStream) -> Judged {
        if data.trim_ascii().is_empty() { EventVerdict::Pass.into() } else { self.look(name, data, stream) }
    }

    fn note(&mut self, oversized: &ResponsesEventFacts, stream: &mut JudgedStream) {
        self.note_seen(oversized, stream);
    }

    fn oversized_error(
        &mut self,
        oversized: &ResponsesEventFacts,
        stream: &mut JudgedStream,
    ) -> EventVerdict {
        let seen = oversized;
        self.count(seen.number);
        let error_value =
            seen.response.error.truthy().and_then(|raw| serde_json::from_slice::<Value>(raw).ok());
        let Some(error_value) = error_value else { return self.unreadable_error(stream) };
        let error = StreamError::of_member(&error_value).sanitized(&stream.options.known());
        let names = if seen.response.names.id.is_empty() { &self.names } else { &seen.response.names };
        let code = error.code.as_deref().unwrap_or("server_error");
        let event = failed::event(names, "0", self.next.saturating_sub(1), code, &error.message);
        stream.fail(event, error)
    }

    fn error_event(&self, error: &StreamError) -> Bytes {
        let number = self.next.saturating_sub(1);
        failed::event(&self.names, "0", number, "server_error", &error.message)
    }

    fn trouble(&self, trouble: Trouble<'_>) -> Bytes {
        let id = trouble.request_id.trim_start_matches("req_");
        failed::event(&self.names, id, self.next, trouble.row.code, trouble.message)
    }
}

impl EventFacts for ResponsesEventFacts {
    fn named(&mut self, name: &[u8]) {
        self.kind = ResponsesEventKind::named(name);
    }

    fn content(&self) -> bool {
        match self.kind {
            ResponsesEventKind::Delta => true,
            ResponsesEventKind::ItemDone => self.has_output() || self.encrypted,
            ResponsesEventKind::End => self.response.text_bytes > 0,
            ResponsesEventKind::Other => self.has_output(),
            ResponsesEventKind::None
            | ResponsesEventKind::Snapshot
            | ResponsesEventKind::Failed
            | ResponsesEventKind::Error => false,
        }
    }

    fn error_begun(&self) -> bool {
        let is_error = self.kind == ResponsesEventKind::Failed
            || self.kind == ResponsesEventKind::Error
            || self.has_error;
        is_error && self.response.error.begun()
    }
}
