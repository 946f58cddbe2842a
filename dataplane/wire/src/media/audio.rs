//! Relays streamed speech and transcriptions (AUD-1, AUD-2). Events pass unchanged; usage is read from them.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use shared::usage::TokenCounts;

use super::events::{MediaEvents, MediaListener, is_error};
use crate::chat::UsageReader;
use crate::envelope::StreamError;
use crate::stream::StreamState;

/// A stream of audio or transcription events.
pub type AudioStream = MediaEvents<Audio>;

/// Reads the events of speech and transcriptions.
#[derive(Debug, Default)]
pub struct Audio {
    /// True if an OpenAI event has been read, so that the stream is complete only after a final event.
    ends_itself: bool,
}

/// The members of an event that are read.
#[derive(Debug, Deserialize)]
struct AudioEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    audio: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    usage: Option<Value>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Counts all output of speech as audio, even if the usage does not declare it as such.
fn spoken(counts: TokenCounts) -> TokenCounts {
    let audio_output = counts.audio_output.saturating_add(counts.output);
    TokenCounts { output: 0, audio_output, ..counts }
}

impl MediaListener for Audio {
    fn read(&mut self, name: &[u8], document: &[u8], state: &mut StreamState) -> Result<(), StreamError> {
        let event = serde_json::from_slice::<AudioEvent<'_>>(document).ok();
        let kind = event.as_ref().and_then(|event| event.kind.as_deref()).unwrap_or_default();
        let fails = event.as_ref().is_some_and(|event| event.error.is_some_and(is_error));
        if name == b"error" || kind == "error" || fails {
            return Err(StreamError::of_odd(document)
                .unwrap_or_else(|| StreamError::of_words(StreamError::UNREADABLE)));
        }
        let ours = kind.starts_with("speech.audio.") || kind.starts_with("transcript.text.");
        self.ends_itself |= ours;
        state.content = true;
        state.finished |= ours && kind.ends_with(".done");
        let Some(event) = &event else { return Ok(()) };
        // An empty string consists of its two quotes.
        let output = [event.audio, event.delta].into_iter().flatten().map(|raw| raw.get().len()).max();
        if let Some(bytes) = output.and_then(|bytes| bytes.checked_sub(2)).filter(|bytes| *bytes > 0) {
            state.add_text(if event.delta.is_some() { bytes } else { 0 });
        }
        if let Some(usage) = event.usage.as_ref().map(UsageReader::of) {
            let counts = usage
                .counts()
                .map(|counts| if kind.starts_with("speech.") { spoken(counts) } else { counts });
            state.usage = counts.or(state.usage);
            state.extras.replace_by(usage.extras());
        }
        Ok(())
    }

    /// Streams of other vendors end with the connection.
    fn ended(&self, state: &mut StreamState) {
        state.finished |= !self.ends_itself;
    }
}
