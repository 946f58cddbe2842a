//! The chunked coding (RFC 9112 section 7.1), decoded in place: the data of all chunks in a buffer is moved
//! together over their size lines, so that one read of the socket becomes one piece. What another parser might read
//! differently is refused (LIM-5): extensions and trailers are checked, though nothing of them is kept.

use memchr::{memchr, memchr_iter, memmem};

/// Where in a chunked body the next byte belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunked {
    state: State,
    /// Bytes of the extensions so far.
    extension_bytes: usize,
}

/// ```text
///   Size --line, n > 0--> Data(n) --n bytes--> DataEnd --CRLF--> Size
///     '----line, 0-----> Trailers --empty line--> Ended
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    Data(u64),
    DataEnd,
    Trailers,
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
/// Bytes of the extensions of all chunks of a body.
const EXTENSION_BYTES_MAX: usize = 16 << 10;
/// Trailers of a body.
const TRAILERS_MAX: usize = 32;

impl Chunked {
    /// True if the last chunk and the trailers have come.
    pub(super) fn has_ended(self) -> bool {
        self.state == State::Ended
    }

    /// Decodes as much of `buffer` as can be. An incomplete line is left for the next pass.
    pub(super) fn decode(&mut self, buffer: &mut [u8]) -> Result<Decoded, &'static str> {
        let mut decoded = Decoded { data: 0, used: 0 };
        loop {
            let rest = buffer.get(decoded.used..).unwrap_or_default();
            match self.state {
                State::Ended => return Ok(decoded),
                _ if rest.is_empty() => return Ok(decoded),
                State::Data(left) => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    let from = decoded.used;
                    if from != decoded.data {
                        buffer.copy_within(from..from + count, decoded.data);
                    }
                    decoded.data += count;
                    decoded.used += count;
                    let left = left.saturating_sub(count as u64);
                    self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                }
                State::DataEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        decoded.used += 2;
                        self.state = State::Size;
                    }
                    [b'\r'] => return Ok(decoded),
                    _ => return Err("a chunk does not end where it should"),
                },
                State::Size => {
                    let Some(line) = line(rest)? else { return Ok(decoded) };
                    decoded.used += line.len() + 2;
                    let (size, extension) = size(line)?;
                    self.extension_bytes += extension;
                    if self.extension_bytes > EXTENSION_BYTES_MAX {
                        return Err("its chunks have extensions that are too long together");
                    }
                    self.state = if size == 0 { State::Trailers } else { State::Data(size) };
                }
                State::Trailers => {
                    let Some(bytes) = trailers(rest)? else { return Ok(decoded) };
                    decoded.used += bytes;
                    self.state = State::Ended;
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

/// Reads a size line; returns the size and how long the extension is.
fn size(line: &[u8]) -> Result<(u64, usize), &'static str> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, rest) = line.split_at_checked(digits).unwrap_or_default();
    if digits.is_empty() || digits.len() > 15 {
        return Err(BAD_SIZE);
    }
    let blank = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    match rest.get(blank..).unwrap_or_default() {
        [] => {}
        [b';', extension @ ..] if extension.iter().all(|byte| is_text(*byte)) => {}
        [b';', ..] => return Err("a chunk has an extension with a control character"),
        _ => return Err(BAD_SIZE),
    }
    let size = digits.iter().fold(0_u64, |size, digit| {
        (size << 4) | u64::from(char::from(*digit).to_digit(16).unwrap_or_default())
    });
    Ok((size, rest.len()))
}

/// True for what may stand in a line: visible characters, spaces, tabs, and bytes beyond ASCII.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}

/// Returns how long the trailers at the start of `bytes` are, their empty line included; `None` if that has not come.
fn trailers(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    if bytes.starts_with(b"\r\n") {
        return Ok(Some(2));
    }
    let end = memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4);
    let section = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
    if section.len() > LINE_BYTES_MAX {
        return Err("the trailers are too long");
    }
    let is_bare = |at: usize| at.checked_sub(1).and_then(|before| section.get(before)) != Some(&b'\r');
    if memchr_iter(b'\n', section).any(is_bare) {
        return Err("a trailer ends without a carriage return");
    }
    let Some(end) = end else { return Ok(None) };
    let mut fields = [httparse::EMPTY_HEADER; TRAILERS_MAX];
    match httparse::parse_headers(section, &mut fields) {
        Ok(httparse::Status::Complete(_)) => Ok(Some(end)),
        Ok(httparse::Status::Partial) | Err(_) => Err("its trailers are no header fields"),
    }
}

const BAD_SIZE: &str = "a chunk has a size that is no number";

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `wire` in two parts as a connection would: undecoded bytes stay in the buffer.
    fn decode(wire: &[u8], cut: usize) -> Result<(Vec<u8>, bool, usize), &'static str> {
        let (mut coding, mut data, mut buffer) = (Chunked::default(), Vec::new(), Vec::new());
        for part in [&wire[..cut], &wire[cut..]] {
            buffer.extend_from_slice(part);
            let decoded = coding.decode(&mut buffer)?;
            data.extend_from_slice(&buffer[..decoded.data]);
            buffer.drain(..decoded.used);
        }
        Ok((data, coding.has_ended(), buffer.len()))
    }

    #[test]
    fn data_comes_out_the_same_however_it_is_cut() {
        let wire = b"5\r\nhello\r\n1;ext=1\r\n \r\nA\r\n0123456789\r\n0\r\nX-Trailer: a\r\n\r\n";
        for cut in 0..=wire.len() {
            let (data, ended, left) = decode(wire, cut).unwrap();
            assert_eq!((data.as_slice(), ended, left), (&b"hello 0123456789"[..], true, 0), "cut at {cut}");
        }
    }

    #[test]
    fn bytes_after_the_end_are_left_alone() {
        let (data, ended, left) = decode(b"1\r\na\r\n0\r\n\r\nHTTP/1.1 200 OK", 3).unwrap();
        assert_eq!((data.as_slice(), ended, left), (&b"a"[..], true, 15));
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
