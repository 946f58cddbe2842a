//! Recordings of the requests that were run from the console, on both sides of the gateway. They are kept in
//! memory only, for the latest requests and a short time, and with bounds on every part.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use serde::Serialize;
use shared::port::{Body, BoxError, UpstreamTap};

/// The recordings of the latest runs, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Recordings(Mutex<VecDeque<Arc<Recording>>>);

/// The recording of one run.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(super) request_id: String,
    began: Instant,
    sides: Mutex<Sides>,
}

/// The sides of an exchange, in the order in which they began.
#[derive(Debug)]
struct Sides {
    sides: Vec<RecordedSide>,
    /// Bytes that may still be recorded.
    bytes_left: usize,
    attempt: u32,
}

/// One side of an exchange.
#[derive(Clone, Debug)]
pub(super) struct RecordedSide {
    pub(super) side: Side,
    pub(super) attempt: Option<u32>,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
    pub(super) cut: bool,
    pub(super) pieces_us: Vec<u64>,
}

/// The side of a recorded request or response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Side {
    ClientRequest,
    UpstreamRequest,
    UpstreamResponse,
    ClientResponse,
}

/// The maximum number of recordings.
const RECORDINGS_MAX: usize = 16;
/// The time for which a recording is kept.
const KEPT: Duration = Duration::from_secs(600);
/// The maximum number of bytes of a recording.
const BYTES_MAX: usize = 1 << 20;
/// The maximum number of bytes of one body, so that a large request leaves room for its answer.
const BODY_BYTES_MAX: usize = 256 << 10;
/// The maximum number of bytes of one head.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// The maximum number of arrival times of one body.
const PIECES_MAX: usize = 4_096;
/// The maximum number of sides, of which each attempt has two.
const SIDES_MAX: usize = 64;

impl Recordings {
    /// Begins a recording. The oldest one ends if there are too many.
    pub(super) fn begin(&self, request_id: String, began: Instant) -> Arc<Recording> {
        let sides = Sides { sides: Vec::new(), bytes_left: BYTES_MAX, attempt: 0 };
        let recording = Arc::new(Recording { request_id, began, sides: Mutex::new(sides) });
        let mut kept = self.kept(began);
        if kept.len() >= RECORDINGS_MAX {
            kept.pop_front();
        }
        kept.push_back(Arc::clone(&recording));
        recording
    }

    /// Returns the newest recording of a request, unless it is too old at `now`.
    pub(super) fn find(&self, request_id: &str, now: Instant) -> Option<Arc<Recording>> {
        self.kept(now).iter().rev().find(|recording| recording.request_id == request_id).cloned()
    }

    /// Removes each recording when its time is over, for as long as the future is polled.
    pub(crate) async fn run(&self) {
        loop {
            tokio::time::sleep_until(self.prune(tokio::time::Instant::now().into_std()).into()).await;
        }
    }

    /// Removes the recordings that are too old at `now`. Returns the next time at which one can be too old.
    fn prune(&self, now: Instant) -> Instant {
        self.kept(now).front().map_or(now, |oldest| oldest.began) + KEPT
    }

    /// Removes the recordings that are too old at `now`, and returns the others.
    fn kept(&self, now: Instant) -> MutexGuard<'_, VecDeque<Arc<Recording>>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|recording| now.saturating_duration_since(recording.began) < KEPT);
        kept
    }
}

impl Recording {
    /// Returns a copy of the sides.
    pub(super) fn sides(&self) -> Vec<RecordedSide> {
        self.lock().sides.clone()
    }

    /// Begins a side of the client.
    pub(super) fn begin_side(&self, side: Side, head: String) {
        self.lock().begin(side, None, head);
    }

    /// Returns `body` with its pieces recorded for `side`.
    pub(super) fn around(self: &Arc<Self>, side: Side, body: Body) -> Body {
        Body::new(RecordedBody { body, side, recording: Arc::clone(self) })
    }

    fn piece(&self, side: Side, bytes: &[u8]) {
        let at_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.lock().piece(side, at_us, bytes);
    }

    fn lock(&self) -> MutexGuard<'_, Sides> {
        self.sides.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UpstreamTap for Recording {
    fn request(&self, head: String, body: &[Bytes]) {
        let mut sides = self.lock();
        sides.attempt = sides.attempt.saturating_add(1);
        let attempt = Some(sides.attempt);
        sides.begin(Side::UpstreamRequest, attempt, head);
        drop(sides);
        self.piece(Side::UpstreamRequest, &body.concat());
    }

    fn answer(&self, head: String) {
        let mut sides = self.lock();
        let attempt = Some(sides.attempt);
        sides.begin(Side::UpstreamResponse, attempt, head);
    }

    fn piece(&self, piece: &Bytes) {
        Self::piece(self, Side::UpstreamResponse, piece);
    }
}

impl Sides {
    fn begin(&mut self, side: Side, attempt: Option<u32>, mut head: String) {
        if self.sides.len() >= SIDES_MAX {
            return;
        }
        let bytes = head.floor_char_boundary(HEAD_BYTES_MAX.min(self.bytes_left));
        let cut = bytes < head.len();
        head.truncate(bytes);
        self.bytes_left -= bytes;
        self.sides.push(RecordedSide { side, attempt, head, body: Vec::new(), cut, pieces_us: Vec::new() });
    }

    /// Adds a piece to the latest side of this kind.
    fn piece(&mut self, side: Side, at_us: u64, bytes: &[u8]) {
        let Some(recorded) = self.sides.iter_mut().rev().find(|recorded| recorded.side == side) else {
            return;
        };
        let time_bytes = size_of_val(&at_us);
        if recorded.pieces_us.len() >= PIECES_MAX || self.bytes_left < time_bytes {
            recorded.cut = true;
            return;
        }
        recorded.pieces_us.push(at_us);
        self.bytes_left -= time_bytes;
        let room = self.bytes_left.min(BODY_BYTES_MAX - recorded.body.len());
        let kept = bytes.split_at(bytes.len().min(room)).0;
        recorded.body.extend_from_slice(kept);
        recorded.cut |= kept.len() < bytes.len();
        self.bytes_left -= kept.len();
    }
}

/// A body whose pieces are recorded as they pass.
struct RecordedBody {
    body: Body,
    side: Side,
    recording: Arc<Recording>,
}

impl http_body::Body for RecordedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let item = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(piece) = item.as_ref().and_then(|item| item.as_ref().ok()?.data_ref()) {
            self.recording.piece(self.side, piece);
        }
        Poll::Ready(item)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_runs_are_kept_for_ten_minutes() {
        let recordings = Recordings::default();
        let began = Instant::now();
        let find = |id: usize, after: Duration| recordings.find(&id.to_string(), began + after).is_some();
        for id in 0..=RECORDINGS_MAX {
            recordings.begin(id.to_string(), began);
        }
        assert!(!find(0, Duration::ZERO) && find(1, Duration::ZERO));
        let late = KEPT - Duration::from_millis(1);
        assert!(find(16, late) && !find(16, KEPT) && !find(16, late), "a recording that was too old is gone");
    }

    #[test]
    fn a_recording_is_removed_when_its_time_is_over_though_none_is_read() {
        let recordings = Recordings::default();
        let began = Instant::now();
        let count = || recordings.0.lock().unwrap().len();
        assert_eq!(recordings.prune(began), began + KEPT, "none can be too old before");
        recordings.begin("a".to_owned(), began);
        recordings.begin("b".to_owned(), began + Duration::from_secs(1));
        assert_eq!((recordings.prune(began + Duration::from_secs(2)), count()), (began + KEPT, 2));
        let next = recordings.prune(began + KEPT);
        assert_eq!((next, count()), (began + KEPT + Duration::from_secs(1), 1));
        recordings.prune(next);
        assert_eq!(count(), 0);
    }

    #[test]
    fn every_part_of_a_recording_is_bounded_and_says_so() {
        let recording = Recordings::default().begin("a".to_owned(), Instant::now());
        recording.begin_side(Side::ClientRequest, "h".repeat(HEAD_BYTES_MAX + 1));
        recording.piece(Side::ClientRequest, &vec![b'x'; BODY_BYTES_MAX + 1]);
        recording.begin_side(Side::ClientResponse, String::new());
        (0..=PIECES_MAX).for_each(|_| recording.piece(Side::ClientResponse, b"y"));
        let sides = recording.sides();
        assert_eq!((sides[0].head.len(), sides[0].body.len()), (HEAD_BYTES_MAX, BODY_BYTES_MAX));
        assert_eq!((sides[1].body.len(), sides[1].pieces_us.len()), (PIECES_MAX, PIECES_MAX));
        assert!(sides[0].cut && sides[1].cut);
        for _ in 0..SIDES_MAX {
            recording.request(String::new(), &[Bytes::from(vec![b'z'; BODY_BYTES_MAX])]);
        }
        let sides = recording.sides();
        let bytes = |side: &RecordedSide| side.head.len() + side.body.len() + side.pieces_us.len() * 8;
        assert_eq!(sides.len(), SIDES_MAX);
        assert!(sides.iter().map(bytes).sum::<usize>() <= BYTES_MAX);
        assert!(sides[2..].iter().all(|side| side.cut || side.body.len() == BODY_BYTES_MAX));
        assert_eq!((sides[2].attempt, sides[3].attempt), (Some(1), Some(2)));
    }

    #[test]
    fn pieces_belong_to_the_latest_attempt() {
        let recording = Recordings::default().begin("a".to_owned(), Instant::now());
        for answer in ["one", "two"] {
            recording.request("POST".to_owned(), &[Bytes::from_static(b"body")]);
            recording.answer("200".to_owned());
            UpstreamTap::piece(&*recording, &Bytes::from(answer));
        }
        let sides = recording.sides();
        let recorded: Vec<_> =
            sides.iter().map(|side| (side.side, side.attempt, side.body.as_slice())).collect();
        assert_eq!(
            recorded,
            [
                (Side::UpstreamRequest, Some(1), &b"body"[..]),
                (Side::UpstreamResponse, Some(1), b"one"),
                (Side::UpstreamRequest, Some(2), b"body"),
                (Side::UpstreamResponse, Some(2), b"two"),
            ]
        );
    }
}
