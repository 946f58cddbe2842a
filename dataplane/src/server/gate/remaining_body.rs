//! The part of a request body that has not arrived yet: a number of bytes, or chunks up to the end of the trailers
//! (RFC 9112 section 7.1). Nothing is decoded here; hyper does that. The gate follows the chunks to find the start of
//! the next head, and rejects what hyper accepts but another parser might read differently.

#![expect(
    clippy::indexing_slicing,
    reason = "positions come from counts of the same bytes; a wrong one must fail in the fuzzer"
)]

/// The rest of a body that has not arrived yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemainingBody {
    /// A number of bytes.
    Length(u64),
    /// Chunks, then trailers.
    Chunks(Chunks),
}

impl RemainingBody {
    /// Creates the state of a chunked body before its first byte.
    pub(super) fn chunked() -> Self {
        Self::Chunks(Chunks::default())
    }

    /// Returns how many of the client's next bytes belong to the body.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        match self {
            Self::Length(left) => Ok(take(left, bytes)),
            Self::Chunks(chunks) => chunks.advance(bytes),
        }
    }

    /// True if the whole body has arrived.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunks(chunks) => chunks.place == Place::Ended,
        }
    }
}

/// Parser state within a chunked body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Chunks {
    place: Place,
    /// The chunk size parsed so far, then the remaining bytes of its data.
    left: u64,
    /// Bytes after the sizes of all chunks so far.
    extension_bytes: u16,
    trailer_bytes: u16,
    trailers: u8,
}

/// ```text
///   Size --> Blank --> Extension --> SizeLf --n > 0--> Data --> DataCr --> DataLf --> Size
///                                      '--n = 0--> Line --> Trailer --> TrailerLf --> Line
///                                                    '--> LastLf --> Ended
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// After this many digits of a chunk size.
    Size(u8),
    Blank,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the start of a trailer, or of the empty line after the last one.
    Line,
    Trailer,
    TrailerLf,
    LastLf,
    Ended,
}

impl Default for Place {
    fn default() -> Self {
        Self::Size(0)
    }
}

/// Maximum digits of a chunk size: enough for any body, without overflow.
const DIGITS_MAX: u8 = 15;
/// Maximum total bytes of the extensions of a body's chunks.
const EXTENSION_BYTES_MAX: u16 = 16 << 10;
/// Maximum total bytes of a body's trailers.
const TRAILER_BYTES_MAX: u16 = 4 << 10;
/// Maximum number of a body's trailers.
const TRAILERS_MAX: u8 = 32;

const BAD_SIZE: &str = "a chunk size is not a number";
const BAD_LINE: &str = "a chunk line has no carriage return";

impl Chunks {
    fn advance(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        let mut used = 0;
        while self.place != Place::Ended {
            let rest = &bytes[used..];
            let Some(byte) = rest.first() else { break };
            if self.place == Place::Data {
                used += take(&mut self.left, rest);
                if self.left == 0 {
                    self.place = Place::DataCr;
                }
            } else {
                self.place = self.step(*byte)?;
                used += 1;
            }
        }
        Ok(used)
    }

    /// Returns the place after `byte`, which is not chunk data.
    fn step(&mut self, byte: u8) -> Result<Place, &'static str> {
        match (self.place, byte) {
            (Place::Size(digits), _)
                if digits < DIGITS_MAX
                    && let Some(digit) = char::from(byte).to_digit(16) =>
            {
                self.left = self.left << 4 | u64::from(digit);
                Ok(Place::Size(digits + 1))
            }
            (Place::Size(0), _) => Err(BAD_SIZE),
            (Place::Size(_) | Place::Blank | Place::Extension, b'\r') => Ok(Place::SizeLf),
            (Place::Size(_) | Place::Blank, b' ' | b'\t') => self.extend(Place::Blank),
            (Place::Size(_) | Place::Blank, b';') => self.extend(Place::Extension),
            (Place::Size(_) | Place::Blank, _) => Err(BAD_SIZE),
            (Place::Extension, _) if is_text(byte) => self.extend(Place::Extension),
            (Place::Extension, _) => Err("a chunk extension contains a control character"),
            (Place::SizeLf, b'\n') => Ok(if self.left == 0 { Place::Line } else { Place::Data }),
            (Place::DataCr, b'\r') => Ok(Place::DataLf),
            (Place::DataLf, b'\n') => Ok(Place::Size(0)),
            (Place::DataCr | Place::DataLf, _) => Err("the data of a chunk does not end with CR LF"),
            (Place::Line, b'\r') => Ok(Place::LastLf),
            (Place::Line | Place::Trailer, _) if is_text(byte) => self.trail(),
            (Place::Trailer, b'\r') => Ok(Place::TrailerLf),
            (Place::Line | Place::Trailer, _) => Err("a trailer contains a control character"),
            (Place::TrailerLf, b'\n') => Ok(Place::Line),
            (Place::LastLf, b'\n') => Ok(Place::Ended),
            (Place::SizeLf | Place::TrailerLf | Place::LastLf, _) => Err(BAD_LINE),
            (Place::Data | Place::Ended, _) => Ok(self.place),
        }
    }

    /// Counts a byte after a chunk size.
    fn extend(&mut self, place: Place) -> Result<Place, &'static str> {
        self.extension_bytes += 1;
        let fits = self.extension_bytes <= EXTENSION_BYTES_MAX;
        if fits { Ok(place) } else { Err("the chunk extensions exceed 16 KiB in total") }
    }

    /// Counts a byte of a trailer, and the trailer itself at its first byte.
    fn trail(&mut self) -> Result<Place, &'static str> {
        self.trailers += u8::from(self.place == Place::Line);
        self.trailer_bytes += 1;
        let fits = self.trailers <= TRAILERS_MAX && self.trailer_bytes <= TRAILER_BYTES_MAX;
        if fits {
            Ok(Place::Trailer)
        } else {
            Err("more than 32 trailers, or trailers of more than 4 KiB in \
             total")
        }
    }
}

/// Subtracts up to the length of `bytes` from `left`; returns the subtracted number.
fn take(left: &mut u64, bytes: &[u8]) -> usize {
    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
    *left -= count as u64;
    count
}

/// True for the bytes allowed in a line: visible characters, spaces, tabs and bytes above ASCII.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows `wire` in two parts; returns the number of bytes of the body, if it is complete.
    fn advance(wire: &[u8], cut: usize) -> Result<Option<usize>, &'static str> {
        let mut body = RemainingBody::chunked();
        let first = body.advance(&wire[..cut])?;
        let second = if first == cut { body.advance(&wire[cut..])? } else { 0 };
        Ok(body.has_ended().then_some(first + second))
    }

    #[test]
    fn the_end_of_a_chunked_body_is_found_at_any_split() {
        let body = b"5\r\nhello\r\n1;ext=1\r\n \r\nA \t\r\n0123456789\r\n0\r\nX-Trailer: a\r\n\r\n";
        let wire = [body.as_slice(), b"GET / HTTP/1.1"].concat();
        for cut in 0..=wire.len() {
            assert_eq!(advance(&wire, cut), Ok(Some(body.len())), "cut at {cut}");
        }
        for length in 0..body.len() {
            assert_eq!(advance(&body[..length], 0), Ok(None), "{length} bytes are not all of it");
        }
    }

    #[test]
    fn ambiguous_chunked_coding_is_rejected() {
        let long = [b"1;".as_slice(), &[b'x'; 16 << 10], b"\r\na\r\n"].concat();
        let trailers = [b"0\r\n".as_slice(), &b"a: b\r\n".repeat(33), b"\r\n"].concat();
        let trailer = [b"0\r\na: ".as_slice(), &[b'x'; 4 << 10], b"\r\n\r\n"].concat();
        let wires: [&[u8]; 11] = [
            b"5\nhello\r\n",
            b"5\r\nhelloX\r\n",
            b"5\r\r\nhello\r\n",
            b"5\x0c\r\nhello\r\n",
            b"5;a\0\r\nhello\r\n",
            b"x\r\n",
            b"\r\n",
            b"-1\r\n",
            b"0x5\r\nhello\r\n",
            b"1000000000000000\r\n",
            b"0\r\na: b\n\r\n",
        ];
        for wire in wires {
            for cut in 0..=wire.len() {
                assert!(advance(wire, cut).is_err(), "{:?} cut at {cut}", String::from_utf8_lossy(wire));
            }
        }
        for wire in [&long, &trailers, &trailer] {
            assert!(advance(wire, wire.len() / 2).is_err(), "{:?}", String::from_utf8_lossy(wire));
        }
    }

    #[test]
    fn a_body_with_a_length_ends_after_its_bytes() {
        let mut body = RemainingBody::Length(5);
        assert_eq!((body.advance(b"abc"), body.has_ended()), (Ok(3), false));
        assert_eq!((body.advance(b"defg"), body.has_ended()), (Ok(2), true));
    }
}
