//! Checks of client JSON beyond its structure: its strings must be UTF-8 and must not contain raw control characters.
//! Upstreams differ in how they read text that breaks either rule. Bytes outside of strings need no such check, because
//! the structure allows only a few ASCII characters there.

#![expect(
    clippy::indexing_slicing,
    reason = "positions are within the text; a wrong one must fail in the fuzzer"
)]

use super::block::TextBytes;
use super::fault::{JsonFault, What};

/// Checks one string after the other, each in any number of parts.
#[derive(Debug, Default)]
pub(super) struct StrictText {
    utf8: Utf8Check,
}

impl StrictText {
    /// Checks the next part of a string. It starts at offset `before` of the document and contains the kinds of bytes
    /// in `found`; `is_last` is true for the last part of a string. Returns the first error, independent of where the
    /// string is cut.
    #[inline]
    pub(super) fn check(
        &mut self,
        part: &[u8],
        found: TextBytes,
        before: usize,
        is_last: bool,
    ) -> Result<(), JsonFault> {
        if !found.has_control && !found.has_non_ascii && self.utf8.is_complete() {
            return Ok(());
        }
        self.check_odd(part, found, before, is_last)
    }

    #[inline(never)]
    fn check_odd(
        &mut self,
        part: &[u8],
        found: TextBytes,
        before: usize,
        is_last: bool,
    ) -> Result<(), JsonFault> {
        let control = if found.has_control { raw_control(part, before) } else { None };
        let text = self.utf8.push(part, before).and_then(|()| {
            if is_last && !self.utf8.is_complete() {
                Err(self.utf8.start(before + part.len()))
            } else {
                Ok(())
            }
        });
        let text = text.err().map(|offset| JsonFault { offset, what: What::NotUtf8 });
        match control.into_iter().chain(text).min_by_key(|fault| fault.offset) {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }
}

fn raw_control(part: &[u8], before: usize) -> Option<JsonFault> {
    let index = part.iter().position(|byte| *byte < b' ')?;
    Some(JsonFault { offset: before + index, what: What::RawControl(part[index]) })
}

/// Checks that the parts of one text form valid UTF-8. A character that is split between parts is carried over.
#[derive(Debug, Default)]
struct Utf8Check {
    carried: [u8; CHARACTER_BYTES_MAX],
    carried_bytes: usize,
}

impl Utf8Check {
    /// True if no character is incomplete.
    fn is_complete(&self) -> bool {
        self.carried_bytes == 0
    }

    /// Returns the offset of the incomplete character before offset `end`.
    fn start(&self, end: usize) -> usize {
        end - self.carried_bytes
    }

    /// Reads the next part, which starts at offset `before`. Returns the offset of the first invalid character as an
    /// error.
    fn push(&mut self, part: &[u8], before: usize) -> Result<(), usize> {
        let start = self.start(before);
        let mut from = 0;
        while self.carried_bytes > 0 {
            let Some(&byte) = part.get(from) else { return Ok(()) };
            self.complete(byte).map_err(|()| start)?;
            from += 1;
        }
        let rest = &part[from..];
        let Err(error) = simdutf8::compat::from_utf8(rest) else { return Ok(()) };
        let valid = error.valid_up_to();
        if error.error_len().is_some() {
            return Err(before + from + valid);
        }
        let cut = &rest[valid..];
        self.carried[..cut.len()].copy_from_slice(cut);
        self.carried_bytes = cut.len();
        Ok(())
    }

    /// Adds a byte to the carried character, which has at most three bytes.
    fn complete(&mut self, byte: u8) -> Result<(), ()> {
        self.carried[self.carried_bytes] = byte;
        self.carried_bytes += 1;
        match std::str::from_utf8(&self.carried[..self.carried_bytes]) {
            Ok(_) => self.carried_bytes = 0,
            Err(error) if error.error_len().is_some() => return Err(()),
            Err(_) => {}
        }
        Ok(())
    }
}

const CHARACTER_BYTES_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::block::search;

    /// Checks a string in these parts.
    fn check(parts: &[&[u8]]) -> Result<(), (usize, What)> {
        let (mut strict, mut before) = (StrictText::default(), 0);
        for (index, part) in parts.iter().enumerate() {
            let is_last = index + 1 == parts.len();
            let found = search(part, false).bytes;
            strict.check(part, found, before, is_last).map_err(|fault| (fault.offset, fault.what))?;
            before += part.len();
        }
        Ok(())
    }

    #[test]
    fn the_first_error_is_found_at_any_split() {
        let text = "aé漢🙂\u{7f}z";
        let long = text.repeat(12);
        let long_and_broken = [long.as_bytes(), b"\xff", long.as_bytes()].concat();
        let not_utf8 = |at| Err((at, What::NotUtf8));
        for (bytes, want) in [
            (text.as_bytes(), Ok(())),
            (long.as_bytes(), Ok(())),
            (long_and_broken.as_slice(), not_utf8(long.len())),
            (b"ab\xffc".as_slice(), not_utf8(2)),
            (b"ab\xc3(c", not_utf8(2)),
            (b"\xed\xa0\x80", not_utf8(0)),
            (b"\xc0\xaf", not_utf8(0)),
            (b"a\xf0\x9f\x99", not_utf8(1)),
            (b"a\xc3\n", not_utf8(1)),
            (b"a\n\xc3", Err((1, What::RawControl(b'\n')))),
            ("é\0é\n".as_bytes(), Err((2, What::RawControl(0)))),
        ] {
            assert_eq!(check(&[bytes]), want, "{bytes:x?}");
            for cut in 0..=bytes.len() {
                let (first, second) = bytes.split_at(cut);
                assert_eq!(check(&[first, second]), want, "{bytes:x?} cut at {cut}");
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(check(&single), want, "{bytes:x?} byte by byte");
        }
    }
}
