//! Finds the boundaries between events without decoding their contents.
//!
//! A line ends with LF, CR or CRLF, in any mixture; an empty line ends a block. Each byte is read once, however the
//! input is cut.

#![expect(
    clippy::indexing_slicing,
    reason = "positions come from searches of the piece; a wrong one must fail in the fuzzer"
)]

use std::borrow::Cow;

use memchr::memchr2;

/// Finds the ends of blocks in successive pieces of a stream.
#[derive(Debug, Default)]
pub struct Blocks {
    /// True if the current line is not empty.
    in_line: bool,
    /// True if the last byte was a CR; an LF right after it belongs to the same line end.
    after_cr: bool,
    /// The number of complete lines in the current block.
    lines: u32,
    /// The number of lines of the block found last.
    found_lines: u32,
}

impl Blocks {
    /// Returns the number of bytes of `piece` that belong to the current block, its empty line included. `None` if the
    /// block does not end in `piece`.
    #[inline]
    pub fn find(&mut self, piece: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            if self.after_cr {
                let next = *piece.get(at)?;
                self.after_cr = false;
                at += usize::from(next == b'\n');
            }
            let rest = &piece[at..];
            if !self.in_line {
                match *rest.first()? {
                    byte @ (b'\n' | b'\r') => return Some(self.block_ends(piece, at, byte)),
                    _ => self.in_line = true,
                }
            }
            let end = memchr2(b'\n', b'\r', rest)?;
            self.in_line = false;
            self.after_cr = rest[end] == b'\r';
            // The lines of a block are not bounded, and only one line and several differ.
            self.lines = self.lines.saturating_add(1);
            at += end + 1;
        }
    }

    /// True if the next byte starts a block.
    #[inline]
    pub fn at_start(&self) -> bool {
        !self.in_line && !self.after_cr && self.lines == 0
    }

    /// Returns the number of lines of the block found last.
    #[inline]
    pub fn found_lines(&self) -> u32 {
        self.found_lines
    }

    /// Returns true and consumes the LF if `piece` starts with the LF of a CRLF whose CR ended the last block.
    #[inline]
    pub fn takes_lf(&mut self, piece: &[u8]) -> bool {
        let takes = self.after_cr && self.lines == 0 && piece.first() == Some(&b'\n');
        self.after_cr &= !takes;
        takes
    }

    fn block_ends(&mut self, piece: &[u8], at: usize, byte: u8) -> usize {
        self.found_lines = std::mem::take(&mut self.lines);
        let mut end = at + 1;
        if byte == b'\r' {
            match piece.get(end) {
                Some(b'\n') => end += 1,
                Some(_) => {}
                None => self.after_cr = true,
            }
        }
        end
    }
}

/// The fields of a block that a relay needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BlockData<'a> {
    /// The last `event` field; empty if the block has no such field.
    pub name: &'a [u8],
    /// The `data` lines joined with LF. `None` if there are none.
    pub text: Option<Cow<'a, [u8]>>,
    /// True if the block has an `id` field.
    pub has_id: bool,
}

/// Parses one block.
pub fn data_of(block: &[u8]) -> BlockData<'_> {
    let mut data = BlockData::default();
    for line in block.split(|byte| matches!(byte, b'\n' | b'\r')) {
        let (name, value) = field(line);
        if name == b"data" {
            data.text = Some(match data.text.take() {
                None => Cow::Borrowed(value),
                Some(before) => {
                    let mut joined = before.into_owned();
                    joined.push(b'\n');
                    joined.extend_from_slice(value);
                    Cow::Owned(joined)
                }
            });
        }
        if name == b"event" {
            data.name = value;
        }
        data.has_id |= name == b"id";
    }
    data
}

/// Splits a line into name and value. A comment has an empty name.
pub(super) fn field(line: &[u8]) -> (&[u8], &[u8]) {
    let Some(colon) = memchr::memchr(b':', line) else { return (line, b"") };
    let value = &line[colon + 1..];
    (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(pieces: &[&[u8]]) -> Vec<usize> {
        let (mut blocks, mut found, mut before) = (Blocks::default(), Vec::new(), 0);
        for piece in pieces {
            let mut at = 0;
            while let Some(length) = blocks.find(&piece[at..]) {
                at += length;
                found.push(before + at);
            }
            before += piece.len();
        }
        found
    }

    #[test]
    fn finds_ends_with_every_line_end() {
        let rows: [(&str, &[u8], &[usize]); 6] = [
            ("LF", b"data: a\n\ndata: b\n\n", &[9, 18]),
            ("CRLF", b"data: a\r\n\r\ndata: b\r\n\r\n", &[11, 22]),
            ("CR", b"data: a\r\rdata: b\r\r", &[9, 18]),
            ("mixed", b"data: a\r\n\ndata: b\n\rx", &[10, 19]),
            ("blank lines alone", b"\n\r\n\r", &[1, 3, 4]),
            ("unfinished", b"data: a\n", &[]),
        ];
        for (name, input, want) in rows {
            assert_eq!(ends(&[input]), want, "{name}");
        }
    }

    #[test]
    fn a_split_moves_an_event_end_by_at_most_the_lf_of_its_crlf() {
        let input = b"data: a\r\n\r\nid: 1\r\rdata: b\n\ndata\r\n\r\n: c\r\n\r\n";
        let whole = ends(&[input]);
        for cut in 0..=input.len() {
            let (left, right) = input.split_at(cut);
            let cut_ends = ends(&[left, right]);
            assert_eq!(cut_ends.len(), whole.len(), "{cut}");
            for (got, want) in cut_ends.iter().zip(&whole) {
                assert!(got == want || (*got == cut && got + 1 == *want), "{cut}: {got} for {want}");
            }
        }
    }

    #[test]
    fn reads_data_of_a_block() {
        type Row = (&'static str, &'static [u8], Option<&'static [u8]>, bool);
        let rows: [Row; 7] = [
            ("one", b"data: a\n\n", Some(b"a"), false),
            ("no space", b"data:a\n\n", Some(b"a"), false),
            ("two lines", b"data: a\r\ndata:  b\r\n\r\n", Some(b"a\n b"), false),
            ("name alone", b"data\n\n", Some(b""), false),
            ("other fields", b"event: x\nid: 1\nretry: 5\n\n", None, true),
            ("comment", b": data: x\n\n", None, false),
            ("longer name", b"database: x\n\n", None, false),
        ];
        for (name, block, text, has_id) in rows {
            let data = data_of(block);
            assert_eq!((data.text.as_deref(), data.has_id), (text, has_id), "{name}");
        }
    }
}
