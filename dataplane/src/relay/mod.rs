//! Response bodies.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use shared::port::{self, BoxError};

mod base64_video;
mod keepalive;
mod late_usage;
mod stream;

pub(crate) use self::base64_video::{Coming, Inline, Source};
pub(crate) use self::keepalive::{Early, Finished};
pub(crate) use self::late_usage::Tails;
pub(crate) use self::stream::{Parts, Relay, RelayContext, Scan, pass_whole};
use crate::server::service::AnswerBody;

/// The body of a response.
#[derive(Debug)]
pub(crate) struct Reply(Kind);

#[derive(Debug)]
enum Kind {
    Full(Bytes),
    Relay(Box<Relay>),
    Early(Box<Early>),
    Inline(Box<Inline>),
    Port(port::Body),
}

impl Reply {
    pub(crate) fn full(bytes: Bytes) -> Self {
        Self(Kind::Full(bytes))
    }

    pub(crate) fn relay(relay: Box<Relay>) -> Self {
        Self(Kind::Relay(relay))
    }

    pub(crate) fn early(early: Early) -> Self {
        Self(Kind::Early(Box::new(early)))
    }

    pub(crate) fn inline(inline: Inline) -> Self {
        Self(Kind::Inline(Box::new(inline)))
    }

    pub(crate) fn port(body: port::Body) -> Self {
        Self(Kind::Port(body))
    }

    /// Returns the relay, or the bytes of a complete body.
    pub(crate) fn into_relay(self) -> Result<Box<Relay>, Bytes> {
        match self.0 {
            Kind::Relay(relay) => Ok(relay),
            Kind::Full(bytes) => Err(bytes),
            Kind::Early(_) | Kind::Inline(_) | Kind::Port(_) => Err(Bytes::new()),
        }
    }
}

impl AnswerBody for Reply {
    fn is_cut(&self) -> bool {
        match &self.0 {
            Kind::Relay(relay) => relay.is_cut(),
            Kind::Early(early) => early.is_cut(),
            Kind::Full(_) | Kind::Inline(_) | Kind::Port(_) => false,
        }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Relay(relay) => relay.poll_data(cx).map(|item| item.map(|data| data.map(Frame::data))),
            Kind::Early(early) => early.poll_data(cx).map(|item| item.map(|data| data.map(Frame::data))),
            Kind::Inline(inline) => inline.poll_data(cx).map(|item| item.map(|data| data.map(Frame::data))),
            Kind::Port(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Full(bytes) => bytes.is_empty(),
            Kind::Relay(_) | Kind::Early(_) | Kind::Inline(_) => false,
            Kind::Port(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Relay(_) | Kind::Early(_) | Kind::Inline(_) => SizeHint::default(),
            Kind::Port(body) => body.size_hint(),
        }
    }
}
