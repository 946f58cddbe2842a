//! A request body to an upstream: slices of the client's body, never copied into one buffer.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// Body of an outgoing request, sent segment by segment.
#[derive(Debug)]
pub(crate) struct Outgoing {
    segments: std::vec::IntoIter<Bytes>,
    bytes_left: u64,
}

impl Outgoing {
    pub(crate) fn new(segments: Vec<Bytes>) -> Self {
        let bytes_left = segments.iter().map(|segment| segment.len() as u64).sum();
        Self { segments: segments.into_iter(), bytes_left }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let segment = self.segments.next();
        self.bytes_left -= segment.as_ref().map_or(0, |segment| segment.len() as u64);
        Poll::Ready(segment.map(|segment| Ok(Frame::data(segment))))
    }

    fn is_end_stream(&self) -> bool {
        self.segments.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}
