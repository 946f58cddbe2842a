//! Moves a body from the thread of a worker to another thread.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt as _;
use shared::port::BoxError;
use tokio::sync::mpsc;

/// Returns a future and a body that can be read on any thread. The future feeds that body from `body` while it is
/// polled on this thread.
pub(crate) fn pipe<B>(body: B) -> (impl Future<Output = ()>, PipedBody)
where
    B: http_body::Body<Data = Bytes, Error = BoxError> + Unpin,
{
    let (frames, piped) = mpsc::channel(1);
    let ended = body.is_end_stream();
    (pump(body, frames), PipedBody { frames: piped, ended })
}

type PipedFrame = Option<Result<Frame<Bytes>, BoxError>>;

/// Forwards the frames of `body` at the receiver's pace. Drops the body, which cancels it, when the receiver is dropped.
async fn pump<B>(mut body: B, frames: mpsc::Sender<PipedFrame>)
where
    B: http_body::Body<Data = Bytes, Error = BoxError> + Unpin,
{
    while let Ok(room) = frames.reserve().await {
        let item = tokio::select! {
            item = body.frame() => item,
            () = frames.closed() => return,
        };
        let more = matches!(item, Some(Ok(_)));
        room.send(item);
        if !more {
            return;
        }
    }
}

/// A body that a worker sends. If the channel closes before the end, the worker has ended and the body is an error.
#[derive(Debug)]
pub(crate) struct PipedBody {
    frames: mpsc::Receiver<PipedFrame>,
    ended: bool,
}

impl http_body::Body for PipedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<PipedFrame> {
        if self.ended {
            return Poll::Ready(None);
        }
        let item = ready!(self.frames.poll_recv(cx)).unwrap_or_else(|| Some(Err(STOPPING.into())));
        self.ended = !matches!(item, Some(Ok(_)));
        Poll::Ready(item)
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

const STOPPING: &str = "The gateway is stopping.";
