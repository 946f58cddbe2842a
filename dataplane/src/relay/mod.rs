//! Response bodies.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use shared::port::{self, BoxError, ExchangeTap};

mod base64_video;
mod captured;
mod keepalive;
mod late_usage;
mod silence;
mod stream;

pub(crate) use self::base64_video::{Base64Video, UpstreamVideo, VideoSource};
use self::captured::CapturedBody;
pub(crate) use self::keepalive::{FailoverResult, KeepaliveStream};
pub(crate) use self::late_usage::LateUsageQueue;
pub(crate) use self::stream::{Relay, RelayContext, RelayParts, Scan, pass_whole};
use crate::server::service::AnswerBody;

/// The body of a response.
#[derive(Debug)]
pub(crate) struct ResponseBody(Kind);

#[derive(Debug)]
enum Kind {
    Full(Bytes),
    Relay(Box<Relay>),
    Keepalive(Box<KeepaliveStream>),
    Base64Video(Box<Base64Video>),
    Port(port::Body),
    Captured(Box<CapturedBody>),
}

impl ResponseBody {
    pub(crate) fn full(bytes: Bytes) -> Self {
        Self(Kind::Full(bytes))
    }

    pub(crate) fn relay(relay: Box<Relay>) -> Self {
        Self(Kind::Relay(relay))
    }

    pub(crate) fn keepalive(early: KeepaliveStream) -> Self {
        Self(Kind::Keepalive(Box::new(early)))
    }

    pub(crate) fn base64_video(inline: Base64Video) -> Self {
        Self(Kind::Base64Video(Box::new(inline)))
    }

    pub(crate) fn port(body: port::Body) -> Self {
        Self(Kind::Port(body))
    }

    /// Returns the body with its pieces reported to `tap`.
    pub(crate) fn captured(self, tap: Arc<dyn ExchangeTap>) -> Self {
        Self(Kind::Captured(Box::new(CapturedBody { body: self, tap })))
    }

    /// Returns the relay, or the bytes of a complete body.
    pub(crate) fn into_relay(self) -> Result<Box<Relay>, Bytes> {
        match self.0 {
            Kind::Relay(relay) => Ok(relay),
            Kind::Full(bytes) => Err(bytes),
            Kind::Keepalive(_) | Kind::Base64Video(_) | Kind::Port(_) | Kind::Captured(_) => {
                Err(Bytes::new())
            }
        }
    }
}

impl AnswerBody for ResponseBody {
    fn is_cut(&self) -> bool {
        match &self.0 {
            Kind::Relay(relay) => relay.is_cut(),
            Kind::Keepalive(early) => early.is_cut(),
            Kind::Captured(captured) => captured.body.is_cut(),
            Kind::Full(_) | Kind::Base64Video(_) | Kind::Port(_) => false,
        }
    }
}

impl Body for ResponseBody {
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
            Kind::Keepalive(early) => early.poll_data(cx).map(|item| item.map(|data| data.map(Frame::data))),
            Kind::Base64Video(inline) => {
                inline.poll_data(cx).map(|item| item.map(|data| data.map(Frame::data)))
            }
            Kind::Port(body) => Pin::new(body).poll_frame(cx),
            Kind::Captured(captured) => captured.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Full(bytes) => bytes.is_empty(),
            Kind::Relay(_) | Kind::Keepalive(_) | Kind::Base64Video(_) => false,
            Kind::Port(body) => body.is_end_stream(),
            Kind::Captured(captured) => captured.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Relay(_) | Kind::Keepalive(_) | Kind::Base64Video(_) => SizeHint::default(),
            Kind::Port(body) => body.size_hint(),
            Kind::Captured(captured) => captured.body.size_hint(),
        }
    }
}
