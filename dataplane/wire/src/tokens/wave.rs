//! Reads the duration of uncompressed audio from the header of its RIFF file.

/// Returns the duration of the first `bytes` bytes of a WAV file that starts with `head`, in milliseconds. `None` for
/// other files and for compressed audio, whose decoders need not follow the header. Uses the lower of the header's two
/// rates.
pub(crate) fn wave_ms(head: &[u8], bytes: u64) -> Option<u64> {
    if !head.starts_with(b"RIFF") || head.get(8..12) != Some(b"WAVE") {
        return None;
    }
    let mut at = 12_usize;
    loop {
        let length = usize::try_from(number(head, at.checked_add(4)?, 4)?).ok()?;
        let chunk = at.checked_add(8)?;
        if head.get(at..chunk.min(at.checked_add(4)?)) == Some(b"fmt ") {
            return by_format(head.get(chunk..)?, bytes);
        }
        // Chunks start at even offsets.
        at = chunk.checked_add(length.checked_add(length % 2)?)?;
    }
}

fn by_format(format: &[u8], bytes: u64) -> Option<u64> {
    let is_plain = PLAIN.contains(&number(format, 0, 2)?);
    let by_samples = number(format, 4, 4)?.saturating_mul(number(format, 12, 2)?);
    let rate = number(format, 8, 4)?.min(by_samples);
    bytes.saturating_mul(1_000).checked_div(rate).filter(|_| is_plain)
}

/// Returns a little-endian number of `length` bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// The number of bytes at the start of a file in which its format is searched.
pub(crate) const WAVE_HEAD_BYTES: usize = 512;
/// Formats with a fixed number of bytes per second: PCM, floating point, A-law, mu-law, and PCM with an extension.
const PLAIN: [u64; 5] = [1, 3, 6, 7, 0xfffe];

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file with 16 bits, one channel and 8,000 samples per second, with this format and the bytes `before`
    /// in front of it.
    fn wave(format: u16, rate: u32, before: &[u8]) -> Vec<u8> {
        let fmt = [
            &format.to_le_bytes()[..],
            &[1, 0],
            &8_000_u32.to_le_bytes(),
            &rate.to_le_bytes(),
            &[2, 0, 16, 0],
        ];
        [b"RIFF\0\0\0\0WAVE", before, b"fmt \x10\0\0\0", &fmt.concat(), b"data\xff\xff\xff\xff"].concat()
    }

    #[test]
    fn the_wave_header_holds_the_length_of_pcm_sound() {
        for (name, head, bytes, want) in [
            ("PCM", wave(1, 16_000, b""), 16_000, Some(1_000)),
            (
                "a chunk of an odd length before the format",
                wave(1, 16_000, b"JUNK\x03\0\0\0abc\0"),
                32_000,
                Some(2_000),
            ),
            ("a rate that is too high", wave(1, u32::MAX, b""), 16_000, Some(1_000)),
            ("no rate", wave(1, 0, b""), 16_000, None),
            ("MP3 in a WAV file", wave(0x55, 16_000, b""), 16_000, None),
            ("a format that is too far away", wave(1, 16_000, b"LIST\0\xff\0\0"), 16_000, None),
            ("another file", b"OggS............".to_vec(), 16_000, None),
        ] {
            assert_eq!(wave_ms(&head, bytes), want, "{name}");
            for cut in 0..head.len().min(34) {
                assert_eq!(wave_ms(&head[..cut], bytes), None, "{name} cut at {cut}");
            }
        }
    }
}
