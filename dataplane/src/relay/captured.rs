//! A response body whose pieces are reported to the observer of a captured exchange.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame};
use shared::port::{BoxError, ExchangeTap, Side};

use super::ResponseBody;

/// A body, and the observer of its pieces.
#[derive(Debug)]
pub(super) struct CapturedBody {
    pub(super) body: ResponseBody,
    pub(super) tap: Arc<dyn ExchangeTap>,
}

impl CapturedBody {
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let item = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &item
            && let Some(piece) = frame.data_ref()
        {
            self.tap.piece(Side::ClientResponse, piece);
        }
        Poll::Ready(item)
    }
}
