//! What a client's JSON must be beyond its structure: UTF-8, without raw control characters in strings. Upstreams
//! differ in what they make of either, so that what was checked here would not be what they read.

/// Checks that the pieces of one text are UTF-8 together. A character that a cut goes through is carried over.
#[derive(Debug, Default)]
pub(crate) struct Utf8Check {
    carried: [u8; CHARACTER_BYTES_MAX],
    carried_bytes: usize,
    /// Bytes of all earlier pieces.
    before: usize,
}

impl Utf8Check {
    /// Reads the next piece, or returns the offset in the text of the first character that is none.
    #[inline]
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<(), usize> {
        let before = self.before;
        self.before = before.saturating_add(piece.len());
        let mut from = 0;
        let start = before.saturating_sub(self.carried_bytes);
        while self.carried_bytes > 0 {
            let Some(&byte) = piece.get(from) else { return Ok(()) };
            self.complete(byte).map_err(|()| start)?;
            from = from.saturating_add(1);
        }
        let rest = piece.get(from..).unwrap_or_default();
        let Err(error) = std::str::from_utf8(rest) else { return Ok(()) };
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

/// Returns true if a control character of ASCII stands in `bytes`. Compiles to vector instructions.
#[inline]
pub(crate) fn has_control(bytes: &[u8]) -> bool {
    let any = |lane: &[u8]| lane.iter().fold(false, |any, byte| any | (*byte < b' '));
    let (lanes, rest) = bytes.as_chunks::<LANE_BYTES>();
    lanes.iter().any(|lane| any(lane)) || any(rest)
}

const LANE_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_utf8_wherever_it_is_cut() {
        let text = "aé漢🙂\u{7f}z";
        for (bytes, want) in [
            (text.as_bytes(), Ok(())),
            (b"ab\xffc".as_slice(), Err(2)),
            (b"ab\xc3(c", Err(2)),
            (b"\xed\xa0\x80", Err(0)),
            (b"\xc0\xaf", Err(0)),
            (b"\xf0\x9f\x99", Ok(())),
        ] {
            assert_eq!(Utf8Check::default().push(bytes), want, "{bytes:x?}");
            for cut in 0..=bytes.len() {
                let mut check = Utf8Check::default();
                let (first, second) = bytes.split_at(cut);
                let outcome = check.push(first).and_then(|()| check.push(second));
                assert_eq!(outcome, want, "{bytes:x?} cut at {cut}");
                let mut check = Utf8Check::default();
                let single = bytes.iter().try_for_each(|byte| check.push(&[*byte]));
                assert_eq!(single, want, "{bytes:x?} byte by byte");
            }
        }
    }

    #[test]
    fn a_control_character_is_found_wherever_it_stands() {
        for length in [1, 5, LANE_BYTES, 3 * LANE_BYTES + 7] {
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
