//! The chunked coding (RFC 9112 section 7.1), decoded in place: the data of all chunks in a buffer is moved
//! together over their size lines, so that one read of the socket becomes one piece.

use memchr::memchr;

/// Where in a chunked body the next byte belongs.
///
/// ```text
///   Size --line, n > 0--> Data(n) --n bytes--> DataEnd --CRLF--> Size
///     '----line, 0-----> Trailer --empty line--> Ended
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Chunked {
    #[default]
    Size,
    Data(u64),
    DataEnd,
    Trailer {
        bytes: usize,
    },
    Ended,
}

/// What one pass over a buffer found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    /// Bytes of data, now at the start of the buffer.
    pub(super) data: usize,
    /// Bytes used up, the data included; what follows is undecoded.
    pub(super) used: usize,
}

/// Bytes of a size line with its extensions, and of all trailers.
const LINE_BYTES_MAX: usize = 4 << 10;

impl Chunked {
    /// Decodes as much of `buffer` as can be. An incomplete line is left for the next pass.
    pub(super) fn decode(&mut self, buffer: &mut [u8]) -> Result<Decoded, &'static str> {
        let mut decoded = Decoded { data: 0, used: 0 };
        loop {
            let rest = buffer.get(decoded.used..).unwrap_or_default();
            match *self {
                Self::Ended => return Ok(decoded),
                _ if rest.is_empty() => return Ok(decoded),
                Self::Data(left) => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    let from = decoded.used;
                    if from != decoded.data {
                        buffer.copy_within(from..from + count, decoded.data);
                    }
                    decoded.data += count;
                    decoded.used += count;
                    let left = left.saturating_sub(count as u64);
                    *self = if left == 0 { Self::DataEnd } else { Self::Data(left) };
                }
                Self::DataEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        decoded.used += 2;
                        *self = Self::Size;
                    }
                    [b'\r'] => return Ok(decoded),
                    _ => return Err("a chunk does not end where it should"),
                },
                Self::Size => {
                    let Some(line) = line(rest)? else { return Ok(decoded) };
                    decoded.used += line.len() + 2;
                    *self = match size(line)? {
                        0 => Self::Trailer { bytes: 0 },
                        size => Self::Data(size),
                    };
                }
                Self::Trailer { bytes } => {
                    let Some(line) = line(rest)? else { return Ok(decoded) };
                    decoded.used += line.len() + 2;
                    let bytes = bytes + line.len();
                    if bytes > LINE_BYTES_MAX {
                        return Err("the trailers are too long");
                    }
                    *self = if line.is_empty() { Self::Ended } else { Self::Trailer { bytes } };
                }
            }
        }
    }
}

/// The first line of `bytes` without its CRLF; `None` if its end has not come.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, &'static str> {
    match memchr(b'\n', bytes) {
        Some(end) if end <= LINE_BYTES_MAX => {
            let line = bytes.get(..end).and_then(|line| line.strip_suffix(b"\r"));
            line.map(Some).ok_or("a chunk has a line without a carriage return")
        }
        None if bytes.len() <= LINE_BYTES_MAX => Ok(None),
        _ => Err("a chunk has a size line that is too long"),
    }
}

fn size(line: &[u8]) -> Result<u64, &'static str> {
    let digits = line.split(|b| *b == b';').next().unwrap_or_default().trim_ascii_end();
    if digits.is_empty() || digits.len() > 15 {
        return Err(BAD_SIZE);
    }
    digits.iter().try_fold(0_u64, |size, digit| {
        let value = char::from(*digit).to_digit(16).ok_or(BAD_SIZE)?;
        Ok((size << 4) | u64::from(value))
    })
}

const BAD_SIZE: &str = "a chunk has a size that is no number";

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `wire` in two parts as a connection would: undecoded bytes stay in the buffer.
    fn decode(wire: &[u8], cut: usize) -> Result<(Vec<u8>, Chunked, usize), &'static str> {
        let (mut state, mut data, mut buffer) = (Chunked::default(), Vec::new(), Vec::new());
        for part in [&wire[..cut], &wire[cut..]] {
            buffer.extend_from_slice(part);
            let decoded = state.decode(&mut buffer)?;
            data.extend_from_slice(&buffer[..decoded.data]);
            buffer.drain(..decoded.used);
        }
        Ok((data, state, buffer.len()))
    }

    #[test]
    fn data_comes_out_the_same_however_it_is_cut() {
        let wire = b"5\r\nhello\r\n1;ext=1\r\n \r\nA\r\n0123456789\r\n0\r\nX-Trailer: a\r\n\r\n";
        for cut in 0..=wire.len() {
            let (data, state, left) = decode(wire, cut).unwrap();
            assert_eq!(
                (data.as_slice(), state, left),
                (&b"hello 0123456789"[..], Chunked::Ended, 0),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn bytes_after_the_end_are_left_alone() {
        let (data, state, left) = decode(b"1\r\na\r\n0\r\n\r\nHTTP/1.1 200 OK", 3).unwrap();
        assert_eq!((data.as_slice(), state, left), (&b"a"[..], Chunked::Ended, 15));
    }

    #[test]
    fn a_coding_in_doubt_is_refused() {
        let long = [b"1;".as_slice(), &[b'x'; 5000], b"\r\na\r\n"].concat();
        let wires: [&[u8]; 8] = [
            b"5\nhello\r\n",
            b"5\r\nhelloX\r\n",
            b"x\r\n",
            b"\r\n",
            b"-1\r\n",
            b"0x5\r\nhello\r\n",
            b"1000000000000000\r\n",
            &long,
        ];
        for wire in wires {
            for cut in 0..=wire.len() {
                assert!(decode(wire, cut).is_err(), "{:?} cut at {cut}", String::from_utf8_lossy(wire));
            }
        }
    }
}
