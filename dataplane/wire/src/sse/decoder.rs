//! A decoder for event streams that implements all of the WHATWG rules on pieces of any size.
//!
//! The events do not depend on how the input was cut. The decoder keeps at most the given number of bytes of an
//! unfinished event.

#![expect(
    clippy::indexing_slicing,
    reason = "positions come from searches of the piece; a wrong one must fail in the fuzzer"
)]

use std::collections::VecDeque;
use std::fmt;

use super::block::field;
use memchr::memchr2;

/// The default limit in bytes: the same as for a request body.
pub const EVENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One dispatched event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent {
    /// The event type; `message` if none was given.
    pub event: String,
    /// The data lines joined with LF.
    pub data: String,
    /// The last event ID at the time of dispatch.
    pub id: String,
}

/// An event exceeds the decoder's limit. Nothing can be read after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// The limit in bytes.
    pub bytes_max: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an event is larger than {} bytes", self.bytes_max)
    }
}

impl std::error::Error for TooLarge {}

/// A decoder for one event stream.
#[derive(Debug)]
pub struct SseDecoder {
    bytes_max: usize,
    begun: bool,
    after_cr: bool,
    /// The current line so far, if it began in an earlier piece.
    line: Vec<u8>,
    data: Vec<u8>,
    event: Vec<u8>,
    id: Vec<u8>,
    retry_ms: Option<u64>,
    ready: VecDeque<SseEvent>,
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::new(EVENT_BYTES_MAX)
    }
}

impl SseDecoder {
    /// Creates a decoder that keeps at most `bytes_max` bytes of an event.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            begun: false,
            after_cr: false,
            line: Vec::new(),
            data: Vec::new(),
            event: Vec::new(),
            id: Vec::new(),
            retry_ms: None,
            ready: VecDeque::new(),
        }
    }

    /// Reads the next piece. The caller takes the events out before the next call.
    pub fn push(&mut self, mut piece: &[u8]) -> Result<(), TooLarge> {
        while !piece.is_empty() {
            if std::mem::take(&mut self.after_cr)
                && let Some(rest) = piece.strip_prefix(b"\n")
            {
                piece = rest;
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', piece) else {
                self.check(piece.len())?;
                self.line.extend_from_slice(piece);
                return Ok(());
            };
            let (line, rest) = piece.split_at(end);
            self.check(line.len())?;
            self.after_cr = rest[0] == b'\r';
            piece = &rest[1..];
            if self.line.is_empty() {
                self.line_ends(line);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.line_ends(&whole);
                whole.clear();
                self.line = whole;
            }
        }
        Ok(())
    }

    /// Returns the next complete event.
    pub fn next_event(&mut self) -> Option<SseEvent> {
        self.ready.pop_front()
    }

    /// Returns the last reconnection time that the stream sent.
    pub fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// Ends the stream. Returns true if an event was cut off, which is then discarded.
    pub fn finish(self) -> bool {
        !self.line.is_empty() || !self.data.is_empty()
    }

    fn check(&self, more: usize) -> Result<(), TooLarge> {
        let kept = [self.line.len(), self.data.len(), self.event.len(), self.id.len()].iter().sum::<usize>();
        if kept + more > self.bytes_max {
            return Err(TooLarge { bytes_max: self.bytes_max });
        }
        Ok(())
    }

    fn line_ends(&mut self, mut line: &[u8]) {
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch();
            return;
        }
        let (name, value) = field(line);
        match name {
            b"data" => {
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            b"event" => value.clone_into(&mut self.event),
            b"id" if memchr::memchr(0, value).is_none() => value.clone_into(&mut self.id),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                self.retry_ms = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
            }
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        let event = std::mem::take(&mut self.event);
        if self.data.pop().is_none() {
            return;
        }
        let data = std::mem::take(&mut self.data);
        self.ready.push_back(SseEvent {
            event: if event.is_empty() { "message".to_owned() } else { text(event) },
            data: text(data),
            id: text(self.id.clone()),
        });
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cutting;

    fn decode(pieces: &[&[u8]]) -> Vec<SseEvent> {
        let (mut decoder, mut events) = (SseDecoder::default(), Vec::new());
        for piece in pieces {
            decoder.push(piece).unwrap();
            events.extend(std::iter::from_fn(|| decoder.next_event()));
        }
        events
    }

    #[test]
    fn the_decoder_buffers_no_more_than_its_limit() {
        let mut decoder = SseDecoder::new(16);
        assert_eq!(decoder.push(b"data: 0123456789"), Ok(()), "exactly the bound");
        assert_eq!(decoder.push(b"a"), Err(TooLarge { bytes_max: 16 }));
        let mut decoder = SseDecoder::new(16);
        assert_eq!(decoder.push(b"data: 0\ndata: 0\n"), Ok(()));
        assert_eq!(decoder.push(b"data: 0123456\n"), Err(TooLarge { bytes_max: 16 }), "lines add up");
    }

    #[test]
    fn the_decoder_reports_an_unterminated_last_event() {
        for (input, cut) in [("data: a\n\n", false), ("data: a\n", true), ("dat", true), (": x\n", false)] {
            let mut decoder = SseDecoder::default();
            decoder.push(input.as_bytes()).unwrap();
            assert_eq!(decoder.finish(), cut, "{input:?}");
        }
    }

    proptest! {
        #[test]
        fn decoded_events_are_the_same_at_any_split(
            input in r"(\u{feff}?(data|event|id|retry|foo)?(: ?)?[a\u{e9}\u{1f680}:0-9]{0,4}(\n|\r|\r\n)){0,12}",
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = input.as_bytes();
            let pieces = cutting::cut(bytes, &cuts);
            let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
            prop_assert_eq!(decode(&pieces), decode(&[bytes]));
        }
    }
}
