//! The content of one exchange on both sides of the gateway, with a bound on every part.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::bounds::RECORDED_SIDES;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use shared::port::Side;
use shared::sanitize;

/// The recorded sides of an exchange, as they are shown and stored.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RecordedExchange {
    pub(crate) request_id: String,
    /// The sides in the order in which they began. Requests to the built-in `echo` and voice have no upstream sides.
    pub(crate) sides: Vec<RecordedSide>,
}

impl RecordedExchange {
    /// Removes the upstream's sides, which contain addresses and headers of the settings.
    pub(crate) fn without_upstream(mut self) -> Self {
        self.sides.retain(|recorded| matches!(recorded.side, Side::ClientRequest | Side::ClientResponse));
        self
    }
}

/// One side of an exchange.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RecordedSide {
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::Side"))]
    side: Side,
    /// The number of the upstream request; null on the client's sides.
    attempt: Option<u32>,
    /// The first line and the header fields. Values that contain a credential are `[hidden]`.
    head: String,
    /// The body, or its first 256 KiB. Secrets of providers are redacted.
    body: String,
    /// True if `body` is base64, because the bytes are not text.
    base64: bool,
    /// The length of the whole body that passed, in bytes.
    bytes: u64,
    /// True if the head, the body or the times are incomplete.
    cut: bool,
    /// The arrival times of the body's pieces, in microseconds since the recording began.
    pieces_us: Vec<u64>,
}

/// The sides of an exchange while they are recorded, in the order in which they began.
#[derive(Debug, Default)]
pub(crate) struct Sides {
    sides: Vec<KeptSide>,
    allowance: Allowance,
    attempt: u32,
}

/// A side as it is kept in memory. Copies share the bytes of long pieces.
#[derive(Clone, Debug)]
pub(crate) struct KeptSide {
    side: Side,
    attempt: Option<u32>,
    head: String,
    body: KeptBody,
    bytes: u64,
    cut: bool,
    pieces_us: Vec<u64>,
}

/// The kept start of a body. Short pieces are copied together: each would keep the whole buffer alive that it was read into.
#[derive(Clone, Debug, Default)]
struct KeptBody {
    segments: Vec<Bytes>,
    short: BytesMut,
    bytes: usize,
}

/// The bytes that a recording may still take, of its own maximum and of that which recordings of a kind share.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    left: usize,
    taken: usize,
    shared: Arc<AtomicUsize>,
}

/// The maximum number of bytes of a recording.
pub(crate) const BYTES_MAX: usize = 1 << 20;
/// The maximum number of bytes of one body, so that a large request leaves room for its answer.
const BODY_BYTES_MAX: usize = 256 << 10;
/// The maximum number of bytes of one head.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// The maximum number of arrival times of one body.
const PIECES_MAX: usize = 4_096;
/// The length below which a piece is copied, in bytes.
const SHORT_BYTES: usize = 4 << 10;

impl Allowance {
    /// Returns an allowance of [`BYTES_MAX`] that also counts against `shared`, the bytes that all recordings of this kind
    /// may still take.
    pub(crate) fn of(shared: &Arc<AtomicUsize>) -> Self {
        Self { left: BYTES_MAX, taken: 0, shared: Arc::clone(shared) }
    }

    /// Takes up to `wanted` bytes. Returns the number taken, which is 0 if the shared bytes are used up.
    fn take(&mut self, wanted: usize) -> usize {
        let bytes = wanted.min(self.left);
        let taken =
            self.shared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        let bytes = if taken.is_ok() { bytes } else { 0 };
        self.left -= bytes;
        self.taken += bytes;
        bytes
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        self.shared.fetch_add(self.taken, Ordering::Relaxed);
    }
}

impl Sides {
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self { sides: Vec::new(), allowance, attempt: 0 }
    }

    /// Begins a side. An upstream request begins an attempt.
    pub(crate) fn begin(&mut self, side: Side, mut head: String) {
        self.attempt += u32::from(side == Side::UpstreamRequest);
        if RECORDED_SIDES.is_full(self.sides.len()) {
            return;
        }
        let is_upstream = matches!(side, Side::UpstreamRequest | Side::UpstreamResponse);
        let attempt = is_upstream.then_some(self.attempt);
        let room = self.allowance.take(head.len().min(HEAD_BYTES_MAX));
        let cut = room < head.len();
        head.truncate(head.floor_char_boundary(room));
        let (body, pieces_us) = (KeptBody::default(), Vec::new());
        self.sides.push(KeptSide { side, attempt, head, body, bytes: 0, cut, pieces_us });
    }

    /// Adds a piece to the latest side of this kind.
    pub(crate) fn piece(&mut self, side: Side, at_us: u64, piece: &Bytes) {
        let Some(kept) = self.sides.iter_mut().rev().find(|kept| kept.side == side) else { return };
        kept.bytes = kept.bytes.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        let time_bytes = size_of_val(&at_us);
        if kept.pieces_us.len() >= PIECES_MAX || self.allowance.take(time_bytes) < time_bytes {
            kept.cut = true;
            return;
        }
        kept.pieces_us.push(at_us);
        let room = self.allowance.take(piece.len().min(BODY_BYTES_MAX - kept.body.bytes));
        kept.cut |= room < piece.len();
        kept.body.push(piece.slice(..room));
    }

    /// Takes the sides of an exchange that has ended.
    pub(crate) fn take(&mut self) -> Vec<KeptSide> {
        std::mem::take(&mut self.sides)
    }

    /// Returns a copy of the sides.
    pub(crate) fn kept(&self) -> Vec<KeptSide> {
        self.sides.clone()
    }
}

impl KeptBody {
    fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        if piece.len() < SHORT_BYTES {
            self.short.extend_from_slice(&piece);
            return;
        }
        if !self.short.is_empty() {
            self.segments.push(self.short.split().freeze());
        }
        self.segments.push(piece);
    }

    fn whole(&self) -> Vec<u8> {
        let mut whole = self.segments.concat();
        whole.extend_from_slice(&self.short);
        whole
    }
}

impl RecordedExchange {
    /// Returns the form of `sides` without the secrets of providers.
    pub(crate) fn new(request_id: &str, sides: Vec<KeptSide>) -> Self {
        Self { request_id: request_id.to_owned(), sides: sides.into_iter().map(RecordedSide::from).collect() }
    }
}

impl From<KeptSide> for RecordedSide {
    fn from(kept: KeptSide) -> Self {
        let KeptSide { side, attempt, head, body, bytes, cut, pieces_us } = kept;
        let head = sanitize::guarded(&head).into_owned();
        let (body, base64) = shown(&body.whole());
        Self { side, attempt, head, body, base64, bytes, cut, pieces_us }
    }
}

/// Returns a body as text without secrets, and true if it is in base64.
fn shown(body: &[u8]) -> (String, bool) {
    let text = String::from_utf8_lossy(body);
    let clean = sanitize::guarded(&text);
    // A text that was cut may end inside a character.
    let is_text = std::str::from_utf8(body).err().is_none_or(|error| error.error_len().is_none());
    if is_text || clean != text { (clean.into_owned(), false) } else { (BASE64_STANDARD.encode(body), true) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::bounds::tests::passes;

    fn alone() -> Sides {
        Sides::new(Allowance::of(&Arc::new(AtomicUsize::new(usize::MAX / 2))))
    }

    #[test]
    fn every_part_of_a_recording_is_bounded_and_marked_as_cut() {
        let mut sides = alone();
        sides.begin(Side::ClientRequest, "h".repeat(HEAD_BYTES_MAX + 1));
        sides.piece(Side::ClientRequest, 0, &Bytes::from(vec![b'x'; BODY_BYTES_MAX + 1]));
        sides.begin(Side::ClientResponse, String::new());
        (0..=PIECES_MAX).for_each(|_| sides.piece(Side::ClientResponse, 0, &Bytes::from_static(b"y")));
        let kept = sides.kept();
        assert_eq!((kept[0].head.len(), kept[0].body.bytes), (HEAD_BYTES_MAX, BODY_BYTES_MAX));
        assert_eq!(kept[0].bytes, BODY_BYTES_MAX as u64 + 1, "the length of what passed is exact");
        assert_eq!((kept[1].body.bytes, kept[1].pieces_us.len()), (PIECES_MAX, PIECES_MAX));
        assert!(kept[0].cut && kept[1].cut);
        passes(&RECORDED_SIDES, || {
            for _ in 0..RECORDED_SIDES.max() {
                sides.begin(Side::UpstreamRequest, String::new());
                sides.piece(Side::UpstreamRequest, 0, &Bytes::from(vec![b'z'; BODY_BYTES_MAX]));
            }
        });
        let kept = sides.kept();
        let bytes = |side: &KeptSide| side.head.len() + side.body.bytes + side.pieces_us.len() * 8;
        assert_eq!(kept.len(), RECORDED_SIDES.max());
        assert!(kept.iter().map(bytes).sum::<usize>() <= BYTES_MAX);
        assert!(kept[2..].iter().all(|side| side.cut || side.body.bytes == BODY_BYTES_MAX));
        assert_eq!((kept[2].attempt, kept[3].attempt), (Some(1), Some(2)));
    }

    #[test]
    fn recordings_share_a_bound_and_return_their_bytes_when_they_end() {
        let shared = Arc::new(AtomicUsize::new(100));
        let [mut one, mut two] = [(); 2].map(|()| Sides::new(Allowance::of(&shared)));
        one.begin(Side::ClientRequest, "h".repeat(60));
        two.begin(Side::ClientRequest, "h".repeat(60));
        assert_eq!((one.kept()[0].cut, two.kept()[0].cut, shared.load(Ordering::Relaxed)), (false, true, 40));
        drop((one, two));
        assert_eq!(shared.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn short_and_long_pieces_are_kept_in_their_order() {
        let mut sides = alone();
        sides.begin(Side::ClientResponse, String::new());
        let long = vec![b'l'; SHORT_BYTES];
        for piece in [&b"a"[..], b"b", &long, b"c", &long, b"d"] {
            sides.piece(Side::ClientResponse, 7, &Bytes::copy_from_slice(piece));
        }
        let want = [&b"ab"[..], &long, b"c", &long, b"d"].concat();
        assert_eq!(sides.kept()[0].body.whole(), want);
    }

    #[test]
    fn pieces_belong_to_the_latest_attempt() {
        let mut sides = alone();
        for answer in ["one", "two"] {
            sides.begin(Side::UpstreamRequest, "POST".to_owned());
            sides.piece(Side::UpstreamRequest, 0, &Bytes::from_static(b"body"));
            sides.begin(Side::UpstreamResponse, "200".to_owned());
            sides.piece(Side::UpstreamResponse, 0, &Bytes::from(answer));
        }
        let shown = RecordedExchange::new("a", sides.kept()).sides;
        let shown: Vec<_> = shown.iter().map(|side| (side.side, side.attempt, side.body.as_str())).collect();
        assert_eq!(
            shown,
            [
                (Side::UpstreamRequest, Some(1), "body"),
                (Side::UpstreamResponse, Some(1), "one"),
                (Side::UpstreamRequest, Some(2), "body"),
                (Side::UpstreamResponse, Some(2), "two"),
            ]
        );
    }
}
