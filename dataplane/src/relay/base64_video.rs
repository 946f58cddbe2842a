//! Encodes an upstream's bytes as base64 inside a JSON answer while they arrive: a video that the upstream streams is
//! never held as a whole. If the client disconnects, this body is dropped, which closes the upstream's connection.
//!
//! ```text
//!   Head --> Film --upstream ended well--> Tail --> End
//!              '----broke off, silent, too long---> End   (the client's connection is cut: no end of the JSON)
//! ```

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use shared::port::BoxError;
use shared::routing::ProviderInstance;
use tokio::time::{Instant, Sleep};

use crate::memory_budget::MemoryReservation;
use crate::upstream::{UpstreamBody, Upstreams};

/// JSON body with base64 content between a fixed head and tail.
#[derive(Debug)]
pub(crate) struct Base64Video {
    head: Bytes,
    source: VideoSource,
    tail: Bytes,
    phase: VideoPhase,
}

/// Source of the base64 content.
#[derive(Debug)]
pub(crate) enum VideoSource {
    /// Content in memory, already in base64; `_memory` accounts for its bytes.
    InMemory { base64: Bytes, _memory: MemoryReservation },
    /// Raw bytes that arrive from an upstream.
    Upstream(Box<UpstreamVideo>),
}

/// A video body that arrives from an upstream; see [`VideoSource::Upstream`].
#[derive(Debug)]
pub(crate) struct UpstreamVideo {
    upstreams: Rc<Upstreams>,
    provider: Arc<ProviderInstance>,
    body: UpstreamBody,
    /// Bytes read but not yet encoded: first the initial piece, later fewer than the three bytes of a base64 group.
    unencoded: Vec<u8>,
    bytes: u64,
    timer: Option<Pin<Box<Sleep>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VideoPhase {
    Head,
    Video,
    Tail,
    End,
}

/// Maximum bytes of a video that are relayed, far above the longest of any vendor. The limit keeps an endless body from
/// occupying a connection forever.
const BYTES_MAX: u64 = 2 << 30;

impl Base64Video {
    /// Creates a body of `head`, the base64 of `source` and `tail`.
    pub(crate) fn new((head, tail): (Bytes, Bytes), source: VideoSource) -> Self {
        Self { head, source, tail, phase: VideoPhase::Head }
    }

    /// Returns the next bytes for the client.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            match self.phase {
                VideoPhase::Head => {
                    self.phase = VideoPhase::Video;
                    return Poll::Ready(Some(Ok(std::mem::take(&mut self.head))));
                }
                VideoPhase::Video => match ready!(self.source.poll_base64(cx)) {
                    Ok(None) => self.phase = VideoPhase::Tail,
                    Ok(Some(base64)) => return Poll::Ready(Some(Ok(base64))),
                    Err(why) => {
                        self.phase = VideoPhase::End;
                        return Poll::Ready(Some(Err(why.into())));
                    }
                },
                VideoPhase::Tail => {
                    self.phase = VideoPhase::End;
                    return Poll::Ready(Some(Ok(std::mem::take(&mut self.tail))));
                }
                VideoPhase::End => return Poll::Ready(None),
            }
        }
    }
}

impl VideoSource {
    fn poll_base64(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, &'static str>> {
        match self {
            Self::InMemory { base64, .. } => {
                let base64 = std::mem::take(base64);
                Poll::Ready(Ok(Some(base64).filter(|base64| !base64.is_empty())))
            }
            Self::Upstream(coming) => coming.poll_base64(cx),
        }
    }
}

impl UpstreamVideo {
    /// Creates the content of `first`, which was read already, and the rest of `body`.
    pub(crate) fn new(
        upstreams: &Rc<Upstreams>,
        provider: &Arc<ProviderInstance>,
        first: &[u8],
        body: UpstreamBody,
    ) -> Self {
        Self {
            upstreams: Rc::clone(upstreams),
            provider: Arc::clone(provider),
            body,
            unencoded: first.to_vec(),
            bytes: first.len() as u64,
            timer: None,
        }
    }

    fn poll_base64(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, &'static str>> {
        loop {
            let whole = self.unencoded.len() - self.unencoded.len() % 3;
            if whole > 0 {
                let rest = self.unencoded.split_off(whole);
                let groups = std::mem::replace(&mut self.unencoded, rest);
                return Poll::Ready(Ok(Some(BASE64_STANDARD.encode(groups).into())));
            }
            match self.body.poll_data(cx) {
                Poll::Ready(Some(Ok(piece))) => {
                    self.timer = None;
                    self.bytes += piece.len() as u64;
                    if self.bytes > BYTES_MAX {
                        return Poll::Ready(Err("the video is too long"));
                    }
                    self.unencoded.extend_from_slice(&piece);
                }
                Poll::Ready(Some(Err(_))) => {
                    return Poll::Ready(Err("the upstream's connection broke inside the video"));
                }
                Poll::Ready(None) => {
                    self.body.recycle(&self.upstreams, &self.provider);
                    let last = std::mem::take(&mut self.unencoded);
                    return Poll::Ready(Ok((!last.is_empty()).then(|| BASE64_STANDARD.encode(last).into())));
                }
                Poll::Pending => {
                    let silence = self.provider.stream_idle_timeout;
                    let timer = self
                        .timer
                        .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + silence)));
                    ready!(timer.as_mut().poll(cx));
                    return Poll::Ready(Err("the upstream stopped sending inside the video"));
                }
            }
        }
    }
}
