//! Variable-length numbers of one to ten bytes, with seven bits in each, and length-prefixed texts.

/// Appends a number.
pub fn put(out: &mut Vec<u8>, mut number: u64) {
    loop {
        // The low seven bits always fit.
        let low = (number & 0x7f).to_le_bytes()[0];
        number >>= 7;
        if number == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Appends a text.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    match u8::try_from(text.len()) {
        Ok(0) => return out.push(0),
        Ok(length @ ..0x80) => out.push(length),
        _ => put(out, u64::try_from(text.len()).unwrap_or(u64::MAX)),
    }
    out.extend_from_slice(text.as_bytes());
}

/// Takes a number off the front. Returns `None` if it is incomplete or too large.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    let mut number = u64::from(first & 0x7f);
    for shift in (7..70).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let low = u64::from(byte & 0x7f);
        if shift == 63 && low > 1 {
            return None;
        }
        number |= low << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Takes a length-prefixed run of bytes off the front.
pub fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take(bytes)?).ok()?;
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

/// Takes a text off the front.
pub fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(take_bytes(bytes)?).ok()
}

/// Takes `N` texts off the front. They are nearly always short: their length bytes are then ASCII too, so all of them
/// are validated as UTF-8 at once.
pub fn take_texts<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<[&'a str; N]> {
    let mut texts = [""; N];
    let Some((all, rest)) = short_texts::<N>(bytes) else {
        for text in &mut texts {
            *text = take_text(bytes)?;
        }
        return Some(texts);
    };
    let mut left = std::str::from_utf8(all).ok()?;
    for text in &mut texts {
        let length = usize::from(*left.as_bytes().first()?);
        (*text, left) = left.get(1..)?.split_at_checked(length)?;
    }
    *bytes = rest;
    Some(texts)
}

/// Returns the bytes of the first `N` texts, and the rest; `None` if one is longer than 127 bytes, or incomplete.
fn short_texts<const N: usize>(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut end = 0_usize;
    for _ in 0..N {
        let length = *bytes.get(end).filter(|length| **length < 0x80)?;
        end += 1 + usize::from(length);
    }
    bytes.split_at_checked(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_and_a_cut_number_is_rejected() {
        let edges = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit]).chain([u64::MAX]);
        for number in edges {
            let mut out = Vec::new();
            put(&mut out, number);
            let mut rest = out.as_slice();
            assert_eq!((take(&mut rest), rest), (Some(number), &[][..]), "{number}");
            for cut in 0..out.len() {
                assert_eq!(take(&mut &out[..cut]), None, "{number} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_rejected() {
        let mut most = [0xff; 10];
        most[9] = 1;
        assert_eq!(take(&mut most.as_slice()), Some(u64::MAX));
        most[9] = 2;
        assert_eq!(take(&mut most.as_slice()), None);
        assert_eq!(take(&mut [0xff; 11].as_slice()), None);
    }

    #[test]
    fn several_texts_round_trip_and_invalid_utf8_is_rejected() {
        let long = "ö".repeat(64);
        for texts in [["", "a", "b/c"], ["ä", "", "ß"], ["a", &long, "b"], [&long, &long, &long]] {
            let mut out = Vec::new();
            texts.iter().for_each(|text| put_text(&mut out, text));
            let whole = out.len();
            out.push(0x80);
            let mut rest = out.as_slice();
            assert_eq!((take_texts(&mut rest), rest), (Some(texts), &[0x80][..]), "{texts:?}");
            for cut in 0..whole {
                assert_eq!(take_texts::<3>(&mut &out[..cut]), None, "{texts:?} cut at {cut}");
            }
        }
        // Each text is invalid by itself, although a length byte between them could combine two into a valid one.
        for halves in [[1, 0xc3, 1, 0xa4], [2, 0xc3, 1, 0xa4], [1, 0xa4, 1, b'a']] {
            assert_eq!(take_texts::<2>(&mut halves.as_slice()), None, "{halves:?}");
        }
    }

    #[test]
    fn a_cut_text_and_invalid_utf8_are_rejected() {
        let mut out = Vec::new();
        put_text(&mut out, "ä/b");
        assert_eq!(take_text(&mut out.as_slice()), Some("ä/b"));
        for cut in 0..out.len() {
            assert_eq!(take_text(&mut &out[..cut]), None);
        }
        assert_eq!(take_text(&mut [1, 0xff].as_slice()), None);
    }
}
