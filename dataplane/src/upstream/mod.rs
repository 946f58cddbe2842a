//! Upstreams: sends one request to one provider instance and reads its answer, over the network or inside the process.
//! Retries are implemented elsewhere.

use std::sync::Arc;

use http::response;

mod answer;
pub(crate) mod arriving;
mod connect;
pub(crate) mod dial;
mod echo;
mod error;
pub(crate) mod fetch;
pub(crate) mod http1;
pub(crate) mod http2;
mod incoming;
mod io;
mod limits;
pub(crate) mod pool;
pub(crate) mod request;
pub(crate) mod resolve;
mod send;
mod tap;
pub(crate) mod tunnel;
pub(crate) mod voice;

pub(crate) use self::answer::{Broken, Incomplete, KeptHeaders, UpstreamBody, UpstreamResponse};
use self::dial::Tls;
pub(crate) use self::error::SendError;
use self::pool::Pool;
use self::request::UpstreamRequest;
pub(crate) use self::send::send;
use self::voice::Voices;
use crate::clock::CoarseClock;

/// The upstream side of one worker: its connections, and the parts that all workers share.
#[derive(Debug)]
pub(crate) struct Upstreams {
    pub(crate) pool: Pool,
    pub(crate) tls: Arc<Tls>,
    pub(crate) voices: Arc<Voices>,
    pub(crate) clock: CoarseClock,
}

impl Upstreams {
    /// Returns the kept header fields of an answer, and stores the limits that it reports.
    fn keep(&self, request: &UpstreamRequest<'_>, head: &response::Parts) -> KeptHeaders {
        limits::keep(&request.provider, &head.headers, self.clock.now());
        tap::note_answer(request, head);
        KeptHeaders::of(&head.headers)
    }
}
