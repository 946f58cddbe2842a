//! Lower-case hexadecimal digits. What each request needs is written into a buffer: a formatted number costs several times as
//! much.

/// Writes the two digits of each byte to the begin of `text`, as far as it has room.
pub fn write(bytes: &[u8], text: &mut [u8]) {
    for (byte, pair) in bytes.iter().zip(text.as_chunks_mut::<2>().0) {
        *pair = PAIRS.get(usize::from(*byte)).copied().unwrap_or_default();
    }
}

/// Returns the two digits of each byte.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = vec![0; 2 * bytes.len()];
    write(bytes, &mut text);
    text.into_iter().map(char::from).collect()
}

/// The two digits of each byte value.
#[expect(clippy::indexing_slicing, reason = "a wrong index fails the build")]
static PAIRS: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [DIGITS[byte / 16], DIGITS[byte % 16]];
        byte += 1;
    }
    pairs
};
