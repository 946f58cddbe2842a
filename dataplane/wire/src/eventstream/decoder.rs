//! A decoder that assembles whole messages from reads that are cut at any byte.
//!
//! ```text
//!   [total length u32][headers length u32][sum u32] [headers] [payload] [sum u32]
//!    `------------ the first sum is over these         `-- the last one over all before it
//! ```
//!
//! A message within one read is not copied. Of a split message at most [`MESSAGE_BYTES_MAX`] are buffered; its length
//! is used only after the prelude's checksum has been verified. After an error nothing more is read.

#![expect(
    clippy::indexing_slicing,
    reason = "the lengths of a message are verified before it is cut; a wrong one must fail in the fuzzer"
)]

use std::fmt;

use super::EventStreamMessage;

/// The maximum message size in bytes: the service's own limits are 16 MiB of payload and 128 KiB of headers.
pub const MESSAGE_BYTES_MAX: usize = (16 << 20) + (128 << 10) + AROUND_BYTES;

/// The error after which a decoder reads nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventStreamFault {
    /// A checksum does not match.
    Sum,
    /// The lengths of a message contradict each other.
    Lengths,
    /// A message is larger than [`MESSAGE_BYTES_MAX`].
    TooLarge,
    /// The headers of a message are malformed.
    Headers,
}

impl fmt::Display for EventStreamFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "a checksum does not match",
            Self::Lengths => "the lengths of a message are invalid",
            Self::TooLarge => "a message is too large",
            Self::Headers => "the headers of a message are invalid",
        })
    }
}

impl std::error::Error for EventStreamFault {}

/// A decoder for one event stream of Amazon's binary framing.
#[derive(Debug, Default)]
pub struct EventStreamDecoder {
    /// The start of an incomplete message.
    held: Vec<u8>,
    fault: Option<EventStreamFault>,
}

impl EventStreamDecoder {
    /// Reads the next piece and calls `see` with each message that ends in it. If `see` returns false, the rest of the
    /// piece is not read.
    pub fn push(
        &mut self,
        piece: &[u8],
        see: &mut dyn FnMut(EventStreamMessage<'_>) -> bool,
    ) -> Result<(), EventStreamFault> {
        let result = match self.fault {
            Some(fault) => Err(fault),
            None => self.read(piece, see),
        };
        self.fault = result.err();
        result
    }

    /// True if the decoder holds no incomplete message.
    pub fn is_between(&self) -> bool {
        self.held.is_empty()
    }

    fn read(
        &mut self,
        mut piece: &[u8],
        see: &mut dyn FnMut(EventStreamMessage<'_>) -> bool,
    ) -> Result<(), EventStreamFault> {
        while !self.held.is_empty() {
            let Some(wanted) = self.missing()? else { break };
            let (more, rest) = piece.split_at_checked(wanted).unwrap_or((piece, &[]));
            self.held.extend_from_slice(more);
            piece = rest;
            if more.len() < wanted {
                return Ok(());
            }
            if length(&self.held)? == Some(self.held.len()) {
                let mut whole = std::mem::take(&mut self.held);
                let goes_on = see(message(&whole)?);
                whole.clear();
                whole.shrink_to(KEPT_BYTES_MAX);
                self.held = whole;
                if !goes_on {
                    return Ok(());
                }
            }
        }
        while let Some(length) = length(piece)? {
            let Some((whole, rest)) = piece.split_at_checked(length) else { break };
            if !see(message(whole)?) {
                return Ok(());
            }
            piece = rest;
        }
        self.held.extend_from_slice(piece);
        Ok(())
    }

    /// Returns the number of bytes that the held message still needs, or that its prelude needs if the length is not
    /// known yet.
    fn missing(&self) -> Result<Option<usize>, EventStreamFault> {
        let wanted = length(&self.held)?.unwrap_or(PRELUDE_BYTES);
        Ok(wanted.checked_sub(self.held.len()).filter(|missing| *missing > 0))
    }
}

/// Returns the length of the message at the start of `bytes`. `None` if the prelude is incomplete.
fn length(bytes: &[u8]) -> Result<Option<usize>, EventStreamFault> {
    let Some(prelude) = bytes.first_chunk::<PRELUDE_BYTES>() else { return Ok(None) };
    if word(prelude, 8) != crc32fast::hash(&prelude[..8]) {
        return Err(EventStreamFault::Sum);
    }
    let (total, headers) = (size(prelude, 0), size(prelude, 4));
    if total > MESSAGE_BYTES_MAX {
        return Err(EventStreamFault::TooLarge);
    }
    if total < AROUND_BYTES || headers > total - AROUND_BYTES {
        return Err(EventStreamFault::Lengths);
    }
    Ok(Some(total))
}

/// Parses a complete message whose length has been verified.
fn message(whole: &[u8]) -> Result<EventStreamMessage<'_>, EventStreamFault> {
    let end = whole.len() - 4;
    if word(whole, end) != crc32fast::hash(&whole[..end]) {
        return Err(EventStreamFault::Sum);
    }
    let (headers, payload) = whole[PRELUDE_BYTES..end].split_at(size(whole, 4));
    EventStreamMessage::new(headers, payload).ok_or(EventStreamFault::Headers)
}

/// Returns the number at index `at`, which is followed by at least three bytes.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Returns the same as a size. What does not fit is larger than every limit.
fn size(bytes: &[u8], at: usize) -> usize {
    word(bytes, at).try_into().unwrap_or(usize::MAX)
}

/// The size of the two lengths and their checksum.
const PRELUDE_BYTES: usize = 12;
/// The size of a message without its headers and payload.
const AROUND_BYTES: usize = PRELUDE_BYTES + 4;
/// The maximum memory that is kept between two messages, in bytes.
const KEPT_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cutting;

    /// Encodes a message with correct checksums.
    fn encode(headers: &[u8], payload: &[u8]) -> Vec<u8> {
        let total = u32::try_from(AROUND_BYTES + headers.len() + payload.len()).unwrap();
        let mut bytes = total.to_be_bytes().to_vec();
        bytes.extend(u32::try_from(headers.len()).unwrap().to_be_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
        bytes.extend(headers);
        bytes.extend(payload);
        bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
        bytes
    }

    fn decode(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Result<bool, EventStreamFault>) {
        let (mut decoder, mut seen) = (EventStreamDecoder::default(), Vec::new());
        for piece in pieces {
            let mut see = |message: EventStreamMessage<'_>| {
                seen.push(message.payload().to_vec());
                true
            };
            if let Err(fault) = decoder.push(piece, &mut see) {
                assert_eq!(decoder.push(b"x", &mut |_| true), Err(fault), "a fault stays");
                return (seen, Err(fault));
            }
        }
        (seen, Ok(decoder.is_between()))
    }

    #[test]
    fn the_checksum_is_the_crc32_of_zlib() {
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn message_lengths_are_checked_before_buffering() {
        let prelude = |total: u32, headers: u32| {
            let mut bytes = [total.to_be_bytes(), headers.to_be_bytes()].concat();
            bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
            bytes
        };
        let largest = u32::try_from(MESSAGE_BYTES_MAX).unwrap();
        let rows = [
            ("shorter than its frame", prelude(15, 0), Err(EventStreamFault::Lengths)),
            ("more headers than there is room", prelude(20, 5), Err(EventStreamFault::Lengths)),
            ("the largest", prelude(largest, 0), Ok(false)),
            ("one larger", prelude(largest + 1, 0), Err(EventStreamFault::TooLarge)),
            ("the maximum length", prelude(u32::MAX, u32::MAX), Err(EventStreamFault::TooLarge)),
            ("no sum", vec![0; 12], Err(EventStreamFault::Sum)),
        ];
        for (name, bytes, want) in rows {
            assert_eq!(decode(&[&bytes]).1, want, "{name}");
            assert_eq!(decode(&bytes.chunks(1).collect::<Vec<_>>()).1, want, "{name}, byte by byte");
        }
    }

    #[test]
    fn malformed_event_headers_are_a_fault() {
        assert_eq!(decode(&[&encode(b"\x01a\x0a", b"{}")]).1, Err(EventStreamFault::Headers));
    }

    #[test]
    fn every_changed_byte_is_found() {
        let bytes = encode(b"\x01a\x07\0\x01x", b"{\"p\":1}");
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert_ne!(decode(&[&changed]).1, Ok(true), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn no_event_is_decoded_after_the_callback_returns_false() {
        let (mut decoder, mut seen) = (EventStreamDecoder::default(), 0);
        let bytes = [encode(b"", b"1"), encode(b"", b"2")].concat();
        let result = decoder.push(&bytes, &mut |_| {
            seen += 1;
            false
        });
        assert_eq!((result, seen), (Ok(()), 1));
    }

    proptest! {
        #[test]
        fn decoded_messages_are_the_same_at_any_split(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..5),
            rest in 0..20_usize,
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut bytes: Vec<u8> = payloads.iter().flat_map(|payload| encode(b"\x01a\x00", payload)).collect();
            let last = encode(b"", b"never whole");
            bytes.extend(&last[..rest]);
            let pieces = cutting::cut(&bytes, &cuts);
            let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
            prop_assert_eq!(decode(&pieces), (payloads, Ok(rest == 0)));
        }
    }
}
