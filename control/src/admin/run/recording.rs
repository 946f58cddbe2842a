//! Recordings of the requests that were run from the console, on both sides of the gateway. They are kept in
//! memory only, for the latest requests and a short time, and with bounds on every part.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use shared::port::{Body, BoxError, ExchangeTap, Side};

use crate::common::bounds::RECORDINGS;
use crate::common::recorded::{Allowance, BYTES_MAX, RecordedExchange, Sides};

/// The recordings of the latest runs, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Recordings(Mutex<VecDeque<Arc<Recording>>>);

/// The recording of one run.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(super) request_id: String,
    /// The human who sent the run; `None` for an administrator.
    human: Option<String>,
    began: Instant,
    sides: Mutex<Sides>,
}

/// The time for which a recording is kept.
const KEPT: Duration = Duration::from_secs(600);

impl Recordings {
    /// Begins a recording. If there are too many, the oldest one ends of the caller that has the most.
    pub(super) fn begin(&self, request_id: String, human: Option<&str>, began: Instant) -> Arc<Recording> {
        let sides = Sides::new(Allowance::of(&Arc::new(AtomicUsize::new(BYTES_MAX))));
        let human = human.map(str::to_owned);
        let recording = Arc::new(Recording { request_id, human, began, sides: Mutex::new(sides) });
        let mut kept = self.kept(began);
        if RECORDINGS.is_full(kept.len()) {
            let count = |of: &Arc<Recording>| kept.iter().filter(|other| other.human == of.human).count();
            let most = kept.iter().map(count).max().unwrap_or_default();
            let oldest = kept.iter().position(|recording| count(recording) == most);
            oldest.and_then(|at| kept.remove(at));
        }
        kept.push_back(Arc::clone(&recording));
        recording
    }

    /// Returns the newest recording of a request, unless it is too old at `now`. A human finds only those of their own
    /// runs.
    pub(crate) fn find(&self, request_id: &str, human: Option<&str>, now: Instant) -> Option<Arc<Recording>> {
        let is_meant = |recording: &&Arc<Recording>| {
            recording.request_id == request_id && (human.is_none() || recording.human.as_deref() == human)
        };
        self.kept(now).iter().rev().find(is_meant).cloned()
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
    /// Returns what has been recorded so far.
    pub(crate) fn exchange(&self) -> RecordedExchange {
        let kept = self.lock().kept();
        RecordedExchange::new(&self.request_id, kept)
    }

    /// Returns `body` with its pieces recorded for `side`.
    pub(super) fn around(self: &Arc<Self>, side: Side, body: Body) -> Body {
        Body::new(RecordedBody { body, side, recording: Arc::clone(self) })
    }

    fn lock(&self) -> MutexGuard<'_, Sides> {
        self.sides.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ExchangeTap for Recording {
    fn begin(&self, side: Side, head: String) {
        self.lock().begin(side, head);
    }

    fn piece(&self, side: Side, piece: &Bytes) {
        let at_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.lock().piece(side, at_us, piece);
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
    use crate::common::bounds::tests::passes;

    #[test]
    fn a_human_finds_the_recordings_of_their_own_runs_alone() {
        let (recordings, began) = (Recordings::default(), Instant::now());
        recordings.begin("a".to_owned(), Some("prn_1"), began);
        recordings.begin("b".to_owned(), None, began);
        let find = |id, human| recordings.find(id, human, began).is_some();
        assert!(find("a", Some("prn_1")) && find("a", None) && find("b", None));
        assert!(!find("a", Some("prn_2")) && !find("b", Some("prn_1")));
    }

    #[test]
    fn sixteen_runs_are_kept_for_ten_minutes() {
        let recordings = Recordings::default();
        let began = Instant::now();
        let find =
            |id: usize, after: Duration| recordings.find(&id.to_string(), None, began + after).is_some();
        passes(&RECORDINGS, || {
            for id in 0..=RECORDINGS.max() {
                recordings.begin(id.to_string(), None, began);
            }
        });
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
        recordings.begin("a".to_owned(), None, began);
        recordings.begin("b".to_owned(), None, began + Duration::from_secs(1));
        assert_eq!((recordings.prune(began + Duration::from_secs(2)), count()), (began + KEPT, 2));
        let next = recordings.prune(began + KEPT);
        assert_eq!((next, count()), (began + KEPT + Duration::from_secs(1), 1));
        recordings.prune(next);
        assert_eq!(count(), 0);
    }
}
