//! Numbers of one to ten bytes, seven bits in each, and texts with their length before them.

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
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
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, u64::try_from(text.len()).unwrap_or(u64::MAX));
    out.extend_from_slice(text.as_bytes());
}

/// Takes a number off the front; `None` where there is no whole one.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
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

/// Takes as many bytes off the front as the number before them says.
pub(crate) fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take(bytes)?).ok()?;
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

/// Takes a text off the front.
pub(crate) fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(take_bytes(bytes)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_a_part_of_one_is_none() {
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
    fn a_number_of_more_than_64_bits_is_none() {
        let mut most = [0xff; 10];
        most[9] = 1;
        assert_eq!(take(&mut most.as_slice()), Some(u64::MAX));
        most[9] = 2;
        assert_eq!(take(&mut most.as_slice()), None);
        assert_eq!(take(&mut [0xff; 11].as_slice()), None);
    }

    #[test]
    fn a_text_that_is_cut_or_no_text_is_none() {
        let mut out = Vec::new();
        put_text(&mut out, "ä/b");
        assert_eq!(take_text(&mut out.as_slice()), Some("ä/b"));
        for cut in 0..out.len() {
            assert_eq!(take_text(&mut &out[..cut]), None);
        }
        assert_eq!(take_text(&mut [1, 0xff].as_slice()), None);
    }
}
