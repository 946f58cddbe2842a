//! Reads the bodies of hyper's answers, over either version of HTTP.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Body as _;
use hyper::body::Incoming;

/// Returns the next data frame. Skips trailers, which are never relayed.
pub(super) fn poll_incoming(body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Bytes>>> {
    loop {
        match std::task::ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Some(Ok(data)));
                }
            }
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => return Poll::Ready(None),
        }
    }
}
