//! Splits a stream into the data of its events, without copying an event that lies within one read.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

use super::{Blocks, TooLarge, data_of};

/// The maximum number of bytes buffered for one incomplete event. The last event of a Responses stream contains the
/// whole answer.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Finds events in successive reads.
#[derive(Debug, Default)]
pub(crate) struct EventFinder {
    blocks: Blocks,
    /// The incomplete event at the end of the last read.
    held: Vec<u8>,
    /// True once the first block, which may begin with a byte order mark, has been seen.
    begun: bool,
}

impl EventFinder {
    /// Calls `each` with the data of every event that ends in `chunk`, until it returns false.
    pub(crate) fn push(
        &mut self,
        mut chunk: &[u8],
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), TooLarge> {
        while let Some(end) = self.blocks.find(chunk) {
            let (block, rest) = chunk.split_at_checked(end).unwrap_or((chunk, &[]));
            chunk = rest;
            let more = if self.held.is_empty() {
                deliver(block, &mut self.begun, &mut each)
            } else {
                self.keep(block)?;
                let more = deliver(&self.held, &mut self.begun, &mut each);
                self.held.clear();
                more
            };
            if !more {
                return Ok(());
            }
        }
        self.keep(chunk)
    }

    /// Ends the stream: calls `each` with the data of a last event that lacks its blank line.
    pub(crate) fn end(&mut self, mut each: impl FnMut(&[u8]) -> bool) {
        let held = std::mem::take(&mut self.held);
        let _ = deliver(&held, &mut self.begun, &mut each);
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), TooLarge> {
        if self.held.len().saturating_add(part.len()) > EVENT_BYTES_MAX {
            return Err(TooLarge { bytes_max: EVENT_BYTES_MAX });
        }
        self.held.extend_from_slice(part);
        Ok(())
    }
}

/// Returns the text of an event. Invalid UTF-8 is replaced, as clients do.
pub(crate) fn lossy_text(data: &[u8]) -> Cow<'_, str> {
    // Nearly every event is valid, and a check alone is several times faster than a lossy conversion.
    str::from_utf8(data).map_or_else(|_| String::from_utf8_lossy(data), Cow::Borrowed)
}

fn deliver(mut block: &[u8], begun: &mut bool, each: &mut impl FnMut(&[u8]) -> bool) -> bool {
    if !std::mem::replace(begun, true) {
        block = block.strip_prefix(b"\xef\xbb\xbf").unwrap_or(block);
    }
    let data = plain_data(block).map(Cow::Borrowed).or_else(|| data_of(block).text);
    data.is_none_or(|data| each(data.trim_ascii()))
}

/// Returns the data of a block of the usual form: one `data` line, after at most one `event` line.
fn plain_data(block: &[u8]) -> Option<&[u8]> {
    let mut rest = block;
    if rest.starts_with(b"event:") {
        rest = rest.get(memchr(b'\n', rest)?.checked_add(1)?..)?;
    }
    let line = rest.strip_prefix(b"data:")?;
    let (line, after) = line.split_at_checked(memchr2(b'\n', b'\r', line)?)?;
    let plain = after.iter().all(|byte| matches!(byte, b'\n' | b'\r'))
        && memchr(b'\r', block.get(..block.len().checked_sub(rest.len())?)?).is_none();
    plain.then_some(line)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cutting;

    fn found(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut events, mut found) = (EventFinder::default(), Vec::new());
        for piece in pieces {
            let _ = events.push(piece, |data| {
                found.push(data.to_vec());
                true
            });
        }
        found
    }

    #[test]
    fn an_event_over_the_size_limit_is_rejected() {
        let mut events = EventFinder::default();
        let line = vec![b'a'; EVENT_BYTES_MAX - 5];
        assert_eq!(events.push(b"data:", |_| true), Ok(()));
        assert_eq!(events.push(&line, |_| true), Ok(()));
        assert_eq!(events.push(b"a", |_| true), Err(TooLarge { bytes_max: EVENT_BYTES_MAX }));
    }

    #[test]
    fn no_event_is_reported_after_the_callback_returns_false() {
        let (mut events, mut found) = (EventFinder::default(), 0);
        let result = events.push(b"data: a\n\ndata: b\n\n", |_| {
            found += 1;
            false
        });
        assert_eq!((result, found), (Ok(()), 1));
    }

    proptest! {
        #[test]
        fn found_data_matches_the_sse_decoder_at_any_split(
            input in r"(\u{feff})?((data|event|id|foo)?(: ?)?[a\u{e9}\u{1f680}:0-9]{0,4}(\n|\r|\r\n)){0,14}",
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = input.as_bytes();
            let pieces = cutting::cut(bytes, &cuts);
            let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
            let mut decoder = crate::sse::SseDecoder::default();
            decoder.push(bytes).unwrap();
            let want: Vec<Vec<u8>> = std::iter::from_fn(|| decoder.next_event())
                .map(|event| event.data.as_bytes().trim_ascii().to_vec())
                .collect();
            prop_assert_eq!(found(&pieces), want);
        }
    }
}
