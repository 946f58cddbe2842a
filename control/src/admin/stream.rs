//! Response bodies that are produced while the client reads them. The producer waits for the client and is notified
//! when it disconnects.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt as _;
use shared::port::{Body, BoxError};
use tokio::sync::mpsc;

/// The sending half of a streamed body.
#[derive(Debug)]
pub(crate) struct Feed(mpsc::Sender<Result<Bytes, BoxError>>);

/// The error of a send after the client has disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientGone;

/// Creates a streamed body and its feed. The body ends when the feed is dropped.
pub(crate) fn channel() -> (Feed, Body) {
    channel_of(PIECES_MAX)
}

/// Creates a streamed body whose queue holds this many pieces.
pub(crate) fn channel_of(pieces_max: usize) -> (Feed, Body) {
    let (feed, pieces) = mpsc::channel(pieces_max);
    (Feed(feed), StreamedBody(pieces).boxed_unsync())
}

impl Feed {
    /// Sends `piece`, waiting for room in the queue.
    pub(crate) async fn send(&self, piece: Bytes) -> Result<(), ClientGone> {
        self.0.send(Ok(piece)).await.map_err(|_| ClientGone)
    }

    /// Sends `piece` like [`Feed::send`], from a thread without a runtime.
    pub(crate) fn send_blocking(&self, piece: Bytes) -> Result<(), ClientGone> {
        self.0.blocking_send(Ok(piece)).map_err(|_| ClientGone)
    }

    /// Waits for room in the queue.
    pub(crate) async fn room(&self) -> Result<(), ClientGone> {
        self.0.reserve().await.map(drop).map_err(|_| ClientGone)
    }

    /// Waits until the client has disconnected.
    pub(crate) async fn gone(&self) {
        self.0.closed().await;
    }

    /// Aborts the body like [`Feed::fail`], from a thread without a runtime.
    pub(crate) fn fail_blocking(self, why: &'static str) {
        tracing::error!("{why}");
        let _ = self.0.blocking_send(Err(why.into()));
    }

    /// Aborts the body, so that the client does not take it for complete.
    pub(crate) async fn fail(self, why: &'static str) {
        tracing::error!("{why}");
        let _ = self.0.send(Err(why.into())).await;
    }
}

struct StreamedBody(mpsc::Receiver<Result<Bytes, BoxError>>);

impl http_body::Body for StreamedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// The maximum number of queued pieces.
const PIECES_MAX: usize = 2;
