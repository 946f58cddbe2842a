//! Bodies that are written while the client reads them. Whoever writes waits for the client, and hears when it
//! has gone.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt as _;
use shared::port::{Body, BoxError};
use tokio::sync::mpsc;

/// Where a body is written.
#[derive(Debug)]
pub(crate) struct Feed(mpsc::Sender<Result<Bytes, BoxError>>);

/// The client reads no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// A body, and where it is written. It ends when the feed is dropped.
pub(crate) fn channel() -> (Feed, Body) {
    let (feed, pieces) = mpsc::channel(PIECES_MAX);
    (Feed(feed), StreamedBody(pieces).boxed_unsync())
}

impl Feed {
    /// Waits until there is room for `piece`.
    pub(crate) async fn send(&self, piece: Bytes) -> Result<(), Gone> {
        self.0.send(Ok(piece)).await.map_err(|_| Gone)
    }

    /// Breaks the body off, so that nobody takes it for whole.
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

/// Pieces that wait for the client.
const PIECES_MAX: usize = 2;
