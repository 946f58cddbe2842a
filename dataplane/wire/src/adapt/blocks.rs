//! An upstream's stream as whole events, cut anywhere on its way.
//!
//! An event that stands in one read is not copied. Of one that does not, at most [`EVENT_BYTES_MAX`] are kept.

use std::borrow::Cow;

use crate::sse::{Blocks, data_of};

/// Bytes of one event that an adapted stream may have: a whole answer's worth of arguments, or an image.
pub(super) const EVENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Finds the events.
#[derive(Debug, Default)]
pub(super) struct Events {
    blocks: Blocks,
    /// The beginning of an event whose end has not come.
    held: Vec<u8>,
    /// The first block may begin with a byte order mark.
    begun: bool,
}

/// An event is larger than may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

impl Events {
    /// Gives the data of each event that ends in `chunk` to `take`, until that says false. Events without data are
    /// none.
    pub(super) fn push(
        &mut self,
        mut chunk: &[u8],
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), TooLarge> {
        if self.blocks.takes_lf(chunk) {
            chunk = chunk.get(1..).unwrap_or_default();
        }
        while let Some(end) = self.blocks.find(chunk) {
            let (block, rest) = chunk.split_at_checked(end).unwrap_or((chunk, &[]));
            chunk = rest;
            let goes_on = if self.held.is_empty() {
                self.block(block, &mut take)
            } else {
                let mut held = std::mem::take(&mut self.held);
                held.extend_from_slice(block);
                let goes_on = self.block(&held, &mut take);
                held.clear();
                self.held = held;
                goes_on
            };
            if !goes_on {
                return Ok(());
            }
        }
        if self.held.len().saturating_add(chunk.len()) > EVENT_BYTES_MAX {
            return Err(TooLarge);
        }
        self.held.extend_from_slice(chunk);
        Ok(())
    }

    /// The stream has ended: gives what its last event says, if only its empty line is missing.
    pub(super) fn end(&mut self, take: impl FnOnce(&[u8])) {
        let held = std::mem::take(&mut self.held);
        if let Some(data) = data_of(self.without_mark(&held)).text {
            take(&data);
        }
    }

    fn without_mark<'b>(&mut self, block: &'b [u8]) -> &'b [u8] {
        if std::mem::replace(&mut self.begun, true) {
            return block;
        }
        block.strip_prefix(b"\xef\xbb\xbf").unwrap_or(block)
    }

    fn block(&mut self, block: &[u8], take: &mut impl FnMut(&[u8]) -> bool) -> bool {
        let block = self.without_mark(block);
        if self.blocks.found_single_line()
            && let Some(data) = block.strip_prefix(b"data:")
        {
            return take(data.strip_prefix(b" ").unwrap_or(data).trim_ascii_end());
        }
        match data_of(block).text {
            Some(Cow::Borrowed(data)) => take(data),
            Some(Cow::Owned(data)) => take(&data),
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let (mut reader, mut seen) = (Events::default(), Vec::new());
        for piece in pieces {
            let take = |data: &[u8]| {
                seen.push(String::from_utf8_lossy(data).into_owned());
                true
            };
            assert_eq!(reader.push(piece, take), Ok(()));
        }
        seen
    }

    #[test]
    fn events_do_not_depend_on_the_cuts() {
        let stream = b"\xef\xbb\xbfdata: a\r\n\r\n: comment\n\nevent: x\ndata:b\ndata: c\n\nid: 1\n\ndata: d\r\rdata: e\n";
        let want = ["a", "b\nc", "d"];
        assert_eq!(events(&[stream]), want);
        for at in 0..=stream.len() {
            assert_eq!(events(&[&stream[..at], &stream[at..]]), want, "{at}");
        }
        assert_eq!(events(&stream.chunks(1).collect::<Vec<_>>()), want);
    }

    #[test]
    fn an_event_larger_than_the_bound_is_none() {
        let mut reader = Events::default();
        let piece = vec![b'x'; EVENT_BYTES_MAX / 2];
        assert_eq!(reader.push(&piece, |_| true), Ok(()));
        assert_eq!(reader.push(&piece, |_| true), Ok(()));
        assert_eq!(reader.push(b"x", |_| true), Err(TooLarge));
    }

    #[test]
    fn a_last_event_without_its_empty_line_is_read_at_the_end() {
        let mut reader = Events::default();
        assert_eq!(reader.push(b"data: a\n\ndata: [DONE]", |_| true), Ok(()));
        let mut seen = Vec::new();
        reader.end(|data| seen.extend_from_slice(data));
        assert_eq!(seen, b"[DONE]");
    }
}
