//! What the events of a Responses stream mean.
//!
//! ```text
//! response.created -> response.in_progress -> output_item.added -> ... .delta ... -> output_item.done -> ...
//!   -> response.completed | response.incomplete | response.failed | error
//! ```

use bytes::Bytes;
use serde_json::{Value, json};

use super::envelope::{Envelope, Names};
use super::event::{Kind, Seen};
use super::failed;
use crate::envelope::{StreamError, named_event, sanitize_value};
use crate::json::Fault;
use crate::passing::{self, Gather, Judge, Judged, OversizedScan, Varying, Verdict};
use crate::stream::{StreamOptions, StreamState, Trouble};

/// Judges events one after the other.
#[derive(Debug, Default)]
pub(super) struct ResponsesJudge {
    options: StreamOptions,
    state: StreamState,
    /// The response that the stream is about.
    names: Names,
    /// The number of the next event.
    next: u64,
    /// The last event was a delta that held nothing but text.
    after_text: bool,
}

impl ResponsesJudge {
    pub(super) fn new(options: StreamOptions) -> Self {
        Self { options, ..Self::default() }
    }

    fn look(&mut self, name: &[u8], data: &[u8]) -> Judged {
        let Ok(mut seen) = Gather::<Seen>::of(data) else { return self.unknown(data).into() };
        if seen.kind == Kind::None {
            seen.kind = Kind::named(name);
        }
        if let Some(verdict) = self.error_in(&seen, data) {
            return verdict.into();
        }
        if self.state.done {
            return Verdict::Pass.into();
        }
        self.note_seen(&seen);
        let text = seen.text.filter(|_| seen.kind == Kind::Delta);
        self.after_text = text.is_some();
        Judged { verdict: Verdict::Pass, text }
    }

    fn error_in(&mut self, seen: &Seen, data: &[u8]) -> Option<Verdict> {
        let says_error = seen.response.error.truthy().is_some();
        let is_odd = seen.odd && seen.kind == Kind::None && !seen.has_error;
        let is_error =
            seen.kind == Kind::Error || seen.kind == Kind::Failed || (seen.has_error && says_error) || is_odd;
        if !is_error {
            return None;
        }
        if self.state.done {
            return Some(Verdict::Last(None));
        }
        self.count(seen.number);
        Some(if seen.kind == Kind::Failed { self.failed(seen, data) } else { self.error(seen, data) })
    }

    fn note_seen(&mut self, seen: &Seen) {
        self.count(seen.number);
        match seen.kind {
            Kind::Snapshot => self.names = seen.response.names.clone(),
            Kind::Delta if seen.delta_bytes > 0 => {
                self.state.content = true;
                self.state.add_text(seen.delta_bytes);
            }
            Kind::End => self.ends(seen),
            Kind::ItemDone => {
                self.state.content |= seen.has_output() || seen.encrypted;
                seen.item.add_to(&mut self.state.extras.units);
            }
            Kind::Other => self.state.content |= seen.has_output(),
            Kind::Delta | Kind::None | Kind::Failed | Kind::Error => {}
        }
    }

    fn ends(&mut self, seen: &Seen) {
        let response = &seen.response;
        self.reported(response);
        self.state.finished = true;
        self.state.done = true;
        if response.text_bytes > 0 && self.state.output_bytes == 0 {
            self.state.add_text(response.text_bytes.try_into().unwrap_or(usize::MAX));
        }
        self.state.content |= response.text_bytes > 0;
    }

    /// Notes what the response reports of its usage.
    fn reported(&mut self, response: &Envelope) {
        self.state.usage = response.usage.or(self.state.usage);
        self.state.extras.replace_by(response.extras.clone());
    }

    /// Where an event does not say its number, the events are counted.
    fn count(&mut self, number: Option<u64>) {
        self.next = number.unwrap_or(self.next).saturating_add(1);
    }

    /// The response failed: all that may be changed is what its error says.
    fn failed(&mut self, seen: &Seen, data: &[u8]) -> Verdict {
        let response = &seen.response;
        self.reported(response);
        let secrets = self.options.known();
        let said = response.error.truthy().and_then(|raw| serde_json::from_slice::<Value>(raw).ok());
        let Some(mut said) = said else {
            let message = "The response failed.".to_owned();
            self.state.error = Some(StreamError { message, ..StreamError::default() });
            return Verdict::LastPass;
        };
        self.state.error = Some(StreamError::of_member(&said).sanitized(&secrets));
        if !sanitize_value(&mut said, &secrets) {
            return Verdict::LastPass;
        }
        let span = response.error.span().unwrap_or_default();
        let (before, after) = (data.get(..span.start), data.get(span.end..));
        let data =
            [before.unwrap_or_default(), said.to_string().as_bytes(), after.unwrap_or_default()].concat();
        Verdict::Last(Some(named_event("response.failed", &String::from_utf8_lossy(&data))))
    }

    /// An error event ends the stream. It keeps its bytes unless they give something away, or the SDKs would
    /// not know it as an error.
    fn error(&mut self, seen: &Seen, data: &[u8]) -> Verdict {
        let read = serde_json::from_slice::<Value>(data).ok();
        let read = read.and_then(|value| Some((StreamError::of_document(&value)?, value)));
        let Some((error, mut value)) = read else { return self.unreadable_error() };
        let secrets = self.options.known();
        let error = error.sanitized(&secrets);
        let changed = sanitize_value(&mut value, &secrets);
        let is_known = seen.has_error
            || (seen.kind == Kind::Error && value.get("message").is_some_and(Value::is_string));
        let verdict = if !is_known {
            Verdict::Last(Some(self.event_of(&error)))
        } else if changed {
            Verdict::Last(Some(named_event("error", &value.to_string())))
        } else {
            Verdict::LastPass
        };
        self.state.error = Some(error);
        verdict
    }

    fn event_of(&self, error: &StreamError) -> Bytes {
        let number = self.next.saturating_sub(1);
        let (code, message, param) = (&error.code, &error.message, &error.param);
        let event = json!({"type": "error", "code": code, "message": message, "param": param, "sequence_number": number});
        named_event("error", &event.to_string())
    }

    fn unreadable_error(&mut self) -> Verdict {
        let error = StreamError { message: StreamError::UNREADABLE.to_owned(), ..StreamError::default() };
        let number = self.next.saturating_sub(1);
        let event = failed::event(&self.names, "0", number, "server_error", &error.message);
        self.state.error = Some(error);
        Verdict::Last(Some(event))
    }

    /// Data that is no object: it means nothing to an SDK, but for an error in an array.
    fn unknown(&mut self, data: &[u8]) -> Verdict {
        let read =
            || serde_json::from_slice(data).ok().and_then(|value: Value| StreamError::of_document(&value));
        let is_array = data.trim_ascii_start().first() == Some(&b'[') && !self.state.done;
        if let Some(error) = is_array.then(read).flatten() {
            self.count(None);
            let error = error.sanitized(&self.options.known());
            let event = self.event_of(&error);
            self.state.error = Some(error);
            Verdict::Last(Some(event))
        } else if data.first() == Some(&b'{') && self.state.content {
            Verdict::Pass
        } else {
            passing::opaque(data, &self.options.known())
        }
    }
}

impl Seen {
    fn has_output(&self) -> bool {
        self.is_call || self.other_bytes > 0
    }
}

impl Judge for ResponsesJudge {
    type Oversized = Gather<Seen>;
    const VARYING: Varying = Varying::PaddingAndNumber;

    fn state(&self) -> &StreamState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut StreamState {
        &mut self.state
    }

    #[inline]
    fn text_key(&self) -> Option<usize> {
        (self.after_text && !self.state.done).then_some(0)
    }

    #[inline]
    fn passed_alike(&mut self, number: Option<u64>) {
        self.count(number);
    }

    fn judge(&mut self, name: &[u8], data: &[u8]) -> Judged {
        if data.trim_ascii().is_empty() { Verdict::Pass.into() } else { self.look(name, data) }
    }

    fn note(&mut self, oversized: &Gather<Seen>) {
        self.note_seen(oversized.facts());
    }

    fn oversized_error(&mut self, oversized: &Gather<Seen>) -> Verdict {
        let seen = oversized.facts();
        self.count(seen.number);
        let said = seen.response.error.truthy().and_then(|raw| serde_json::from_slice::<Value>(raw).ok());
        let Some(said) = said else { return self.unreadable_error() };
        let error = StreamError::of_member(&said).sanitized(&self.options.known());
        let names = if seen.response.names.id.is_empty() { &self.names } else { &seen.response.names };
        let code = error.code.as_deref().unwrap_or("server_error");
        let event = failed::event(names, "0", self.next.saturating_sub(1), code, &error.message);
        self.state.error = Some(error);
        Verdict::Last(Some(event))
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        let id = trouble.request_id.trim_start_matches("req_");
        failed::event(&self.names, id, self.next, trouble.row.code, trouble.message)
    }
}

impl OversizedScan for Gather<Seen> {
    fn named(&mut self, name: &[u8]) {
        self.facts_mut().kind = Kind::named(name);
    }

    fn push(&mut self, part: &[u8]) -> Result<(), Fault> {
        Self::push(self, part)
    }

    fn content(&self) -> bool {
        let seen = self.facts();
        match seen.kind {
            Kind::Delta => true,
            Kind::ItemDone => seen.has_output() || seen.encrypted,
            Kind::End => seen.response.text_bytes > 0,
            Kind::Other => seen.has_output(),
            Kind::None | Kind::Snapshot | Kind::Failed | Kind::Error => false,
        }
    }

    fn error_begun(&self) -> bool {
        let seen = self.facts();
        let is_error = seen.kind == Kind::Failed || seen.kind == Kind::Error || seen.has_error;
        is_error && seen.response.error.begun()
    }
}
