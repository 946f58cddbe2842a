//! Interprets the events of a native Gemini stream: unnamed events, each with a piece of the answer and the total usage
//! so far. There is no final event; the stream is complete when a candidate has its finish reason.
//!
//! A finish reason that stands for a failure of the model passes: it belongs to the protocol, and clients act on it.

use bytes::Bytes;
use serde_json::Value;
use shared::usage::TokenCounts;

use super::facts::GeminiFacts;
use crate::envelope::{StreamError, google_event, google_stream_error, google_trouble, sanitize_value};
use crate::passthrough::{EventVerdict, Gather, Judge, Judged, JudgedStream, Varying};
use crate::stream::Trouble;

/// Judges events one after the other.
#[derive(Debug, Default)]
pub(crate) struct GeminiJudge {
    /// True if the last event contained only text besides usage.
    after_text: bool,
}

impl GeminiJudge {
    fn look(&mut self, data: &[u8], stream: &mut JudgedStream) -> Judged {
        self.after_text = false;
        let Some(seen) = Gather::<GeminiFacts>::of(data) else {
            return self.unknown(data, stream).into();
        };
        if seen.is_error {
            return self.error(data, stream).into();
        }
        self.note(&seen, stream);
        let text = seen.text.filter(|_| !seen.finished);
        self.after_text = text.is_some();
        Judged { verdict: EventVerdict::Pass, text }
    }

    /// Ends the stream with an error event. The event keeps its bytes, unless they contain secrets or the SDKs would not
    /// recognise it as an error.
    fn error(&self, data: &[u8], stream: &mut JudgedStream) -> EventVerdict {
        let Ok(mut value) = serde_json::from_slice::<Value>(data) else {
            return self.unreadable_error(stream);
        };
        let secrets = stream.options.known();
        let Some(error) = StreamError::of_document(&value) else { return self.unreadable_error(stream) };
        let error = error.sanitized(&secrets);
        let changed = sanitize_value(&mut value, &secrets);
        let verdict = if !is_known(&value) {
            EventVerdict::Last(Some(google_stream_error(&error)))
        } else if changed {
            EventVerdict::Last(Some(google_event(&value)))
        } else {
            EventVerdict::LastPass
        };
        stream.state.error = Some(error);
        verdict
    }

    /// Judges data that is not an object; it may be an error in an array.
    fn unknown(&self, data: &[u8], stream: &mut JudgedStream) -> EventVerdict {
        let is_error = data.trim_ascii_start().first() == Some(&b'[')
            && serde_json::from_slice(data)
                .is_ok_and(|value: Value| StreamError::of_document(&value).is_some());
        if is_error { self.error(data, stream) } else { stream.opaque(data) }
    }
}

impl Judge for GeminiJudge {
    type Facts = GeminiFacts;
    const VARYING: Varying = Varying::RunningUsage;

    #[inline]
    fn text_key(&self) -> Option<usize> {
        self.after_text.then_some(0)
    }

    /// `number` is the running count of the candidates' tokens, whatever their modality.
    fn passed_alike(&mut self, number: Option<u64>, stream: &mut JudgedStream) {
        if let (Some(candidates), Some(usage)) = (number, &mut stream.state.usage) {
            let others = usage.audio_output.saturating_add(usage.image_output);
            *usage = TokenCounts { output: candidates.saturating_sub(others), ..*usage };
        }
    }

    fn judge(&mut self, _name: &[u8], data: &[u8], stream: &mut JudgedStream) -> Judged {
        if data.trim_ascii().is_empty() { EventVerdict::Pass.into() } else { self.look(data, stream) }
    }

    fn note(&mut self, seen: &GeminiFacts, stream: &mut JudgedStream) {
        let state = &mut stream.state;
        if seen.has_output {
            state.content = true;
            state.add_text(seen.text_bytes);
        }
        state.finished |= seen.finished;
        state.finish = seen.finish.or(state.finish);
        state.usage = seen.usage().or(state.usage);
        state.extras.replace_by(seen.extras());
    }

    fn error_event(&self, error: &StreamError) -> Bytes {
        google_stream_error(error)
    }

    fn trouble(&self, trouble: Trouble<'_>) -> Bytes {
        google_trouble(trouble.row, trouble.message, trouble.request_id)
    }
}

/// Returns true if the SDKs recognise the error.
fn is_known(value: &Value) -> bool {
    value.pointer("/error/code").is_some_and(Value::is_number)
        && value.pointer("/error/message").is_some_and(Value::is_string)
        && value.pointer("/error/status").is_some_and(Value::is_string)
}
