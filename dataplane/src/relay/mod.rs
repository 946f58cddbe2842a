//! Response bodies.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use shared::port::{self, BoxError, ExchangeTap, Side};

mod base64_video;
pub(crate) mod json_array;
mod keepalive;
mod late_usage;
mod silence;
mod stream;

pub(crate) use self::base64_video::{Base64Video, UpstreamVideo, VideoSource};
use self::json_array::JsonArray;
pub(crate) use self::keepalive::{FailoverResult, KeepaliveStream};
pub(crate) use self::late_usage::LateUsageQueue;
pub(crate) use self::stream::{Relay, RelayContext, RelayParts, Scan, pass_whole};
use crate::server::service::AnswerBody;

/// The body of a response.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    kind: Kind,
    /// The observer of its pieces, if the exchange is captured.
    tap: Option<Arc<dyn ExchangeTap>>,
}

#[derive(Debug)]
enum Kind {
    Full(Bytes),
    Relay(Box<Relay>),
    Keepalive(Box<KeepaliveStream>),
    Base64Video(Box<Base64Video>),
    Array(Box<JsonArray>),
    Port(port::Body),
}

impl From<Kind> for ResponseBody {
    fn from(kind: Kind) -> Self {
        Self { kind, tap: None }
    }
}

impl ResponseBody {
    pub(crate) fn full(bytes: Bytes) -> Self {
        Kind::Full(bytes).into()
    }

    pub(crate) fn relay(relay: Box<Relay>) -> Self {
        Kind::Relay(relay).into()
    }

    pub(crate) fn keepalive(stream: KeepaliveStream) -> Self {
        Kind::Keepalive(Box::new(stream)).into()
    }

    pub(crate) fn base64_video(video: Base64Video) -> Self {
        Kind::Base64Video(Box::new(video)).into()
    }

    /// Turns a stream of events into one JSON array.
    fn array(self) -> Self {
        Kind::Array(Box::new(JsonArray::new(self))).into()
    }

    pub(crate) fn port(body: port::Body) -> Self {
        Kind::Port(body).into()
    }

    /// Reports the pieces of the body to `tap`.
    pub(crate) fn capture(&mut self, tap: Arc<dyn ExchangeTap>) {
        self.tap = Some(tap);
    }

    /// Returns the bytes of a complete body, or the body itself.
    fn into_whole(self) -> Result<Bytes, Self> {
        match self.kind {
            Kind::Full(bytes) => Ok(bytes),
            _ => Err(self),
        }
    }

    /// Returns the relay, or the bytes of a complete body.
    pub(crate) fn into_relay(self) -> Result<Box<Relay>, Bytes> {
        match self.kind {
            Kind::Relay(relay) => Ok(relay),
            Kind::Full(bytes) => Err(bytes),
            Kind::Keepalive(_) | Kind::Base64Video(_) | Kind::Array(_) | Kind::Port(_) => Err(Bytes::new()),
        }
    }
}

impl AnswerBody for ResponseBody {
    fn is_cut(&self) -> bool {
        match &self.kind {
            Kind::Relay(relay) => relay.is_cut(),
            Kind::Keepalive(stream) => stream.is_cut(),
            Kind::Array(array) => array.inner().is_cut(),
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
        let data = match &mut self.kind {
            Kind::Full(bytes) if bytes.is_empty() => None,
            Kind::Full(bytes) => Some(Ok(std::mem::take(bytes))),
            Kind::Relay(relay) => ready!(relay.poll_data(cx)),
            Kind::Keepalive(stream) => ready!(stream.poll_data(cx)),
            Kind::Base64Video(video) => ready!(video.poll_data(cx)),
            Kind::Array(array) => ready!(array.poll_data(cx)),
            // Captured exchanges have no such body.
            Kind::Port(body) => return Pin::new(body).poll_frame(cx),
        };
        if let (Some(tap), Some(Ok(piece))) = (&self.tap, &data) {
            tap.piece(Side::ClientResponse, piece);
        }
        Poll::Ready(data.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Full(bytes) => bytes.is_empty(),
            Kind::Relay(_) | Kind::Keepalive(_) | Kind::Base64Video(_) | Kind::Array(_) => false,
            Kind::Port(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Relay(_) | Kind::Keepalive(_) | Kind::Base64Video(_) | Kind::Array(_) => {
                SizeHint::default()
            }
            Kind::Port(body) => body.size_hint(),
        }
    }
}
