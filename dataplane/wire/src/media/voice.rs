//! Adds a default voice to speech requests without one.

use std::ops::Range;

use bytes::Bytes;

use crate::json::{JsonPlace, JsonSink, JsonText, JsonWord, Scanner, quote, unescape};
use crate::request::splice;

/// Returns the speech request in `segments` with `voice` added if it has no voice, or in place of a null one.
pub fn with_voice(segments: Vec<Bytes>, voice: &str) -> Vec<Bytes> {
    let (mut scanner, mut seen) = (Scanner::new(), VoiceScan::default());
    // The body has already been scanned and is valid JSON.
    let is_read = segments.iter().all(|segment| scanner.push(segment, &mut seen).is_ok());
    let edit: (Range<usize>, Bytes) = match seen.voice {
        _ if !is_read => return segments,
        None => (seen.first..seen.first, format!(r#""voice":{},"#, quote(voice)).into()),
        Some(Some(null)) => (null, quote(voice).into()),
        Some(None) => return segments,
    };
    splice(&segments, vec![edit])
}

/// Finds the last top-level `voice` member.
#[derive(Debug, Default)]
struct VoiceScan {
    /// The offset after the opening brace of the document.
    first: usize,
    /// The last top-level member name, read in one or several pieces.
    name: Vec<u8>,
    is_key: bool,
    /// The last voice: the range of its value if that is null.
    voice: Option<Option<Range<usize>>>,
    scalar: Option<JsonPlace>,
    word: Vec<u8>,
}

impl VoiceScan {
    fn value(&mut self, depth: u32, null: Option<Range<usize>>) {
        if depth == 1 && unescape(&self.name).as_deref() == Some("voice") {
            self.voice = Some(null);
        }
    }
}

impl JsonSink for VoiceScan {
    fn open(&mut self, at: JsonPlace, _object: bool) {
        if at.depth == 0 {
            self.first = at.offset + 1;
        }
        self.value(at.depth, None);
    }

    fn skips(&self, at: JsonPlace, _object: bool) -> bool {
        at.depth > 0
    }

    fn text_start(&mut self, at: JsonPlace, key: bool) {
        self.is_key = key && at.depth == 1;
        if self.is_key {
            self.name.clear();
        }
    }

    fn piece(&mut self, bytes: &[u8]) {
        let room = NAME_BYTES_MAX - self.name.len();
        if self.is_key {
            self.name.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        } else if self.scalar.is_some() && self.word.len() < NAME_BYTES_MAX {
            self.word.extend_from_slice(bytes);
        }
    }

    fn text_end(&mut self, at: JsonPlace, key: bool) {
        if !key {
            self.value(at.depth, None);
        }
        self.is_key = false;
    }

    fn whole_text(&mut self, text: JsonText<'_>) {
        self.value(text.start.depth, None);
    }

    fn scalar_start(&mut self, at: JsonPlace) {
        self.word.clear();
        self.scalar = Some(at);
    }

    fn scalar_end(&mut self, at: JsonPlace) {
        let Some(start) = self.scalar.take() else { return };
        let null = (self.word == b"null").then_some(start.offset..at.offset);
        self.value(at.depth, null);
    }

    fn whole_scalar(&mut self, word: JsonWord<'_>) {
        let null = (word.raw == b"null").then_some(word.start.offset..word.end().offset);
        self.value(word.start.depth, null);
    }
}

/// The maximum length of a name that is examined, in bytes: `voice` with every letter escaped has 30.
const NAME_BYTES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_voice_is_added_to_a_request_without_one() {
        let rows = [
            (r#"{"input":"Hi."}"#, r#"{"voice":"nova","input":"Hi."}"#),
            (
                r#" { "input":"\"voice\":1", "x":{"voice":"a"}}"#,
                r#" {"voice":"nova", "input":"\"voice\":1", "x":{"voice":"a"}}"#,
            ),
            (r#"{"voice" : null , "input":"Hi."}"#, r#"{"voice" : "nova" , "input":"Hi."}"#),
            (r#"{"input":"Hi.","voice":"alloy"}"#, r#"{"input":"Hi.","voice":"alloy"}"#),
            (r#"{"input":"Hi.","v\u006fice":"alloy"}"#, r#"{"input":"Hi.","v\u006fice":"alloy"}"#),
            (r#"{"input":"Hi.","voice":{"id":"v"}}"#, r#"{"input":"Hi.","voice":{"id":"v"}}"#),
        ];
        for (request, want) in rows {
            for cut in 0..request.len() {
                let pieces = [&request.as_bytes()[..cut], &request.as_bytes()[cut..]];
                let segments = pieces.map(Bytes::copy_from_slice).to_vec();
                let got = with_voice(segments, "nova").concat();
                assert_eq!(String::from_utf8(got).unwrap(), want, "cut at {cut}");
            }
        }
    }
}
