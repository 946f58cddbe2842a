//! Checks of client JSON beyond its structure: it must be UTF-8, and its strings must not contain raw control
//! characters. Upstreams differ in how they read text that breaks either rule.

/// The kinds of bytes in a piece of text. They determine which checks the piece needs; most pieces need none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteSurvey {
    lowest: u8,
    /// The bits that are set in any byte.
    bits: u8,
}

impl ByteSurvey {
    /// Reads the whole piece once. Compiles to vector instructions.
    #[inline]
    pub(crate) fn of(piece: &[u8]) -> Self {
        let nothing = Self { lowest: u8::MAX, bits: 0 };
        piece
            .iter()
            .fold(nothing, |seen, &byte| Self { lowest: seen.lowest.min(byte), bits: seen.bits | byte })
    }

    /// Returns true if the piece contains an ASCII control character, inside or outside of strings.
    pub(crate) fn has_control(self) -> bool {
        self.lowest < b' '
    }

    fn is_ascii(self) -> bool {
        self.bits.is_ascii()
    }
}

/// Checks that the pieces of one text form valid UTF-8. A character that is split between pieces is carried over.
#[derive(Debug, Default)]
pub(crate) struct Utf8Check {
    carried: [u8; CHARACTER_BYTES_MAX],
    carried_bytes: usize,
    /// The total length of all earlier pieces in bytes.
    before: usize,
}

impl Utf8Check {
    /// Reads the next piece, for which `survey` was made. Returns the offset in the text of the first invalid character
    /// as an error.
    #[inline]
    pub(crate) fn push(&mut self, piece: &[u8], survey: ByteSurvey) -> Result<(), usize> {
        let before = self.before;
        self.before = before.saturating_add(piece.len());
        if survey.is_ascii() && self.carried_bytes == 0 { Ok(()) } else { self.decode(piece, before) }
    }

    /// Decodes a piece that starts at offset `before`.
    #[inline(never)]
    fn decode(&mut self, piece: &[u8], before: usize) -> Result<(), usize> {
        let mut from = 0;
        let start = before.saturating_sub(self.carried_bytes);
        while self.carried_bytes > 0 {
            let Some(&byte) = piece.get(from) else { return Ok(()) };
            self.complete(byte).map_err(|()| start)?;
            from = from.saturating_add(1);
        }
        let rest = piece.get(from..).unwrap_or_default();
        let Err(error) = simdutf8::compat::from_utf8(rest) else { return Ok(()) };
        let valid = error.valid_up_to();
        if error.error_len().is_some() {
            return Err(before.saturating_add(from).saturating_add(valid));
        }
        let cut = rest.get(valid..).unwrap_or_default();
        self.carried.iter_mut().zip(cut).for_each(|(to, from)| *to = *from);
        self.carried_bytes = cut.len();
        Ok(())
    }

    /// Adds a byte to the carried character.
    #[cold]
    fn complete(&mut self, byte: u8) -> Result<(), ()> {
        let slot = self.carried.get_mut(self.carried_bytes).ok_or(())?;
        *slot = byte;
        self.carried_bytes = self.carried_bytes.saturating_add(1);
        match std::str::from_utf8(self.carried.get(..self.carried_bytes).unwrap_or_default()) {
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

    fn push(check: &mut Utf8Check, piece: &[u8]) -> Result<(), usize> {
        check.push(piece, ByteSurvey::of(piece))
    }

    #[test]
    fn text_is_utf8_wherever_it_is_cut() {
        let text = "aé漢🙂\u{7f}z";
        let long = text.repeat(12);
        let long_and_broken = [long.as_bytes(), b"\xff", long.as_bytes()].concat();
        for (bytes, want) in [
            (text.as_bytes(), Ok(())),
            (long.as_bytes(), Ok(())),
            (long_and_broken.as_slice(), Err(long.len())),
            (b"ab\xffc".as_slice(), Err(2)),
            (b"ab\xc3(c", Err(2)),
            (b"\xed\xa0\x80", Err(0)),
            (b"\xc0\xaf", Err(0)),
            (b"\xf0\x9f\x99", Ok(())),
        ] {
            assert_eq!(push(&mut Utf8Check::default(), bytes), want, "{bytes:x?}");
            for cut in 0..=bytes.len() {
                let mut check = Utf8Check::default();
                let (first, second) = bytes.split_at(cut);
                let outcome = push(&mut check, first).and_then(|()| push(&mut check, second));
                assert_eq!(outcome, want, "{bytes:x?} cut at {cut}");
                let mut check = Utf8Check::default();
                let single = bytes.iter().try_for_each(|byte| push(&mut check, &[*byte]));
                assert_eq!(single, want, "{bytes:x?} byte by byte");
            }
        }
    }

    #[test]
    fn a_control_character_is_found_wherever_it_stands() {
        let has_control = |bytes: &[u8]| ByteSurvey::of(bytes).has_control();
        for length in [1, 5, 64, 200] {
            let mut bytes = vec![b' '; length];
            assert!(!has_control(&bytes));
            for at in 0..length {
                for control in [0, b'\n', 0x1f] {
                    bytes[at] = control;
                    assert!(has_control(&bytes), "{control} at {at} of {length}");
                }
                bytes[at] = 0xff;
            }
            assert!(!has_control(&bytes));
        }
    }
}
