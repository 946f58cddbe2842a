//! Response bodies that are produced while the client reads them. The producer waits for the client and is notified
//! when it disconnects. A body whose producer ends in any other way than by [`Feed::finish`] is aborted, so that the client
//! does not take it for complete.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt as _;
use shared::port::{Body, BoxError};
use tokio::sync::mpsc;

/// The sending half of a streamed body.
#[derive(Debug)]
pub(crate) struct Feed {
    pieces: mpsc::Sender<Result<Bytes, BoxError>>,
    /// True if the pieces that were sent are the whole body.
    is_whole: Arc<AtomicBool>,
}

/// The error of a send after the client has disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientGone;

/// Creates a streamed body and its feed.
pub(crate) fn channel() -> (Feed, Body) {
    channel_of(PIECES_MAX)
}

/// Creates a streamed body whose queue holds this many pieces.
pub(crate) fn channel_of(pieces_max: usize) -> (Feed, Body) {
    let (feed, pieces) = mpsc::channel(pieces_max);
    let is_whole = Arc::new(AtomicBool::new(false));
    let body = StreamedBody { pieces, is_whole: Arc::clone(&is_whole) };
    (Feed { pieces: feed, is_whole }, body.boxed_unsync())
}

impl Feed {
    /// Sends `piece`, waiting for room in the queue.
    pub(crate) async fn send(&self, piece: Bytes) -> Result<(), ClientGone> {
        self.pieces.send(Ok(piece)).await.map_err(|_| ClientGone)
    }

    /// Sends `piece` like [`Feed::send`], from a thread without a runtime.
    pub(crate) fn send_blocking(&self, piece: Bytes) -> Result<(), ClientGone> {
        self.pieces.blocking_send(Ok(piece)).map_err(|_| ClientGone)
    }

    /// Waits for room in the queue.
    pub(crate) async fn room(&self) -> Result<(), ClientGone> {
        self.pieces.reserve().await.map(drop).map_err(|_| ClientGone)
    }

    /// Waits until the client has disconnected.
    pub(crate) async fn gone(&self) {
        self.pieces.closed().await;
    }

    /// Ends the body, which is complete.
    pub(crate) fn finish(self) {
        self.is_whole.store(true, Ordering::Release);
    }

    /// Aborts the body like [`Feed::fail`], from a thread without a runtime.
    pub(crate) fn fail_blocking(self, why: &'static str) {
        tracing::error!("{why}");
        let _ = self.pieces.blocking_send(Err(why.into()));
    }

    /// Aborts the body, so that the client does not take it for complete.
    pub(crate) async fn fail(self, why: &'static str) {
        tracing::error!("{why}");
        let _ = self.pieces.send(Err(why.into())).await;
    }
}

struct StreamedBody {
    pieces: mpsc::Receiver<Result<Bytes, BoxError>>,
    is_whole: Arc<AtomicBool>,
}

impl http_body::Body for StreamedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let piece = ready!(self.pieces.poll_recv(context));
        // Only the first end is reported.
        let is_cut = piece.is_none() && !self.is_whole.swap(true, Ordering::Acquire);
        Poll::Ready(if is_cut { Some(Err(CUT.into())) } else { piece.map(|piece| piece.map(Frame::data)) })
    }
}

/// The maximum number of queued pieces.
const PIECES_MAX: usize = 2;
const CUT: &str = "the answer ended before it was complete";

#[cfg(test)]
mod tests {
    use super::*;

    async fn collected(body: Body) -> Result<Bytes, String> {
        body.collect().await.map(http_body_util::Collected::to_bytes).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_body_ends_properly_only_if_its_feed_finishes() {
        let (feed, body) = channel();
        feed.send("one".into()).await.unwrap();
        feed.finish();
        assert_eq!(collected(body).await, Ok("one".into()));
        let (feed, body) = channel();
        feed.send("one".into()).await.unwrap();
        drop(feed);
        assert_eq!(collected(body).await, Err(CUT.to_owned()));
        let (feed, body) = channel();
        feed.send("one".into()).await.unwrap();
        feed.fail("why").await;
        assert_eq!(collected(body).await, Err("why".to_owned()));
    }
}
