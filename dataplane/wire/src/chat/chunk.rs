//! What one event of a chat stream means, and what becomes of it.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde_json::Value;

use super::answer::{Answer, Seen, tree};
use super::judge::{may_be_error, needs_a_look, text_span};
use crate::envelope::{StreamError, event_of, sanitize_value};
use crate::stream::{StreamOptions, StreamState};

/// What becomes of an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes on as it came.
    Pass,
    /// It does not go on.
    Drop,
    /// Something else goes on in its place.
    Replace(Bytes),
    /// It goes on as it came, and nothing comes after it.
    LastPass,
    /// This, if anything, goes on in its place, and nothing comes after it.
    Last(Option<Bytes>),
}

/// Judges events one after the other.
#[derive(Debug, Default)]
pub(super) struct Judge {
    options: StreamOptions,
    pub(super) state: StreamState,
    /// Which of the known text members held the last text.
    text_key: Option<usize>,
}

impl Judge {
    pub(super) fn new(options: StreamOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Judges one whole event by its data.
    pub(super) fn judge(&mut self, data: &[u8]) -> Verdict {
        match self.plain_text(data) {
            Some((_, text)) => {
                self.add_text(text.len());
                Verdict::Pass
            }
            None => self.judge_closely(data),
        }
    }

    /// The same of a chunk that holds more than text where text stood before.
    pub(super) fn judge_closely(&mut self, data: &[u8]) -> Verdict {
        if self.state.done { self.after_done(data) } else { self.look(data) }
    }

    /// Under which member, and where, the text of a chunk stands that holds nothing else, if text stood there
    /// before.
    #[inline]
    pub(super) fn plain_text(&self, data: &[u8]) -> Option<(usize, Range<usize>)> {
        let key = self.text_key().filter(|_| data.first() == Some(&b'{'))?;
        if needs_a_look(data) { None } else { Some((key, text_span(data, key)?)) }
    }

    /// Where text is looked for. `None` if every event is looked at.
    #[inline]
    pub(super) fn text_key(&self) -> Option<usize> {
        self.text_key.filter(|_| self.state.content && !self.state.done)
    }

    /// Counts one more event with output.
    #[inline]
    pub(super) fn add_text(&mut self, bytes: usize) {
        let bytes = bytes.try_into().unwrap_or(u64::MAX);
        self.state.content_events = self.state.content_events.saturating_add(1);
        self.state.output_bytes = self.state.output_bytes.saturating_add(bytes);
    }

    /// The SDKs stop reading at `[DONE]`. What comes after it passes, but for an error that might quote a key.
    fn after_done(&self, data: &[u8]) -> Verdict {
        let is_error = may_be_error(data) && Answer::of(data).is_ok_and(|seen| seen.error().is_some());
        if is_error { Verdict::Last(None) } else { self.opaque(data) }
    }

    fn look(&mut self, data: &[u8]) -> Verdict {
        if data.starts_with(b"[DONE]") {
            self.state.done = true;
            return Verdict::Pass;
        }
        let trimmed = data.trim_ascii();
        if trimmed.is_empty() {
            return Verdict::Pass;
        }
        if trimmed.first() == Some(&b'[') && may_be_error(trimmed) {
            return self.odd_error(trimmed);
        }
        match Answer::of(trimmed) {
            Ok(seen) if seen.error().is_some() => self.error(trimmed),
            Ok(seen) if seen.odd && !seen.has_choices => self.odd_error(trimmed),
            Ok(seen) => self.note(&seen),
            Err(_) => self.opaque(data),
        }
    }

    /// Notes what a chunk without an error holds.
    pub(super) fn note(&mut self, seen: &Seen) -> Verdict {
        self.state.usage = seen.token_counts().or(self.state.usage);
        self.state.finished |= seen.finished;
        if seen.content {
            self.state.content = true;
            self.text_key = seen.text_key.or(self.text_key);
            self.add_text(seen.text_bytes.try_into().unwrap_or(usize::MAX));
        }
        let usage_only = seen.has_usage() && !seen.has_choice;
        if usage_only && self.options.drop_usage_only { Verdict::Drop } else { Verdict::Pass }
    }

    /// An error event ends the stream. It keeps its bytes unless they give something away.
    pub(super) fn error(&mut self, data: &[u8]) -> Verdict {
        let Some(mut value) = tree(data) else { return self.unreadable_error() };
        let secrets = self.options.known();
        self.state.error = Some(StreamError::of_document(&value).unwrap_or_default().sanitized(&secrets));
        let changed = sanitize_diagnostics(&mut value, &secrets);
        if changed { Verdict::Last(Some(event_of(&value))) } else { Verdict::LastPass }
    }

    /// An error that is too large, or nested too deeply, to be read.
    pub(super) fn unreadable_error(&mut self) -> Verdict {
        let error = StreamError { message: UNREADABLE.to_owned(), ..StreamError::default() };
        let event = event_of(&error.to_value());
        self.state.error = Some(error);
        Verdict::Last(Some(event))
    }

    /// An error in a shape that SDKs do not know as one, an array for example, or `{"detail": ..}`: it becomes
    /// one that they do.
    fn odd_error(&mut self, data: &[u8]) -> Verdict {
        let secrets = self.options.known();
        let Some(error) = tree(data).as_ref().and_then(StreamError::of_document) else {
            return self.opaque(data);
        };
        let error = error.sanitized(&secrets);
        let event = event_of(&error.to_value());
        self.state.error = Some(error);
        Verdict::Last(Some(event))
    }

    /// Data that means nothing to us: it may still give something away.
    fn opaque(&self, data: &[u8]) -> Verdict {
        if data.first() == Some(&b'{') && self.state.content {
            return Verdict::Pass;
        }
        let text = String::from_utf8_lossy(data);
        match shared::sanitize::diagnostic(&text, &self.options.known()) {
            Cow::Borrowed(_) => Verdict::Pass,
            Cow::Owned(clean) => {
                Verdict::Replace(format!("data: {}\n\n", clean.replace(['\n', '\r'], " ")).into())
            }
        }
    }
}

/// Cleans every member but the model's output.
fn sanitize_diagnostics(value: &mut Value, secrets: &[&str]) -> bool {
    let Some(members) = value.as_object_mut() else { return false };
    let mut changed = false;
    for (_, member) in members.iter_mut().filter(|(key, _)| *key != "choices") {
        changed |= sanitize_value(member, secrets);
    }
    changed
}

const UNREADABLE: &str = "The upstream sent an error that is too large to pass on.";
