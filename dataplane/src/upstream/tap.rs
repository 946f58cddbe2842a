//! Reports what is exchanged with an upstream to the observer of a request, if it has one: that of a run from the console, or
//! of a request whose bodies are captured. For all others this is one comparison.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderName, Request, response};
use shared::port::{ExchangeTap, Side};

use super::request::{SegmentedBody, UpstreamRequest};
use super::{Broken, UpstreamBody, UpstreamResponse};
use crate::head_text::{head_text, is_credential};

/// The body of an answer whose pieces are reported.
#[derive(Debug)]
pub(crate) struct TappedBody {
    pub(super) body: UpstreamBody,
    tap: Arc<dyn ExchangeTap>,
}

/// Reports a request that is about to be sent, and returns it: a caller that kept it in a variable would make every
/// exchange's future larger. The values of fields that the provider instance sets are left out, because they contain
/// its credential.
pub(super) fn noted(request: &UpstreamRequest<'_>, sent: Request<SegmentedBody>) -> Request<SegmentedBody> {
    let Some(tap) = request.tap else { return sent };
    let target = sent.uri().path_and_query().map_or("/", |path| path.as_str());
    let first = format!("{} {target} {:?}", sent.method(), sent.version());
    tap.begin(Side::UpstreamRequest, head_text(first, sent.headers(), |name| is_secret(request, name)));
    request.segments.iter().for_each(|segment| tap.piece(Side::UpstreamRequest, segment));
    sent
}

/// Reports the head of an answer.
pub(super) fn note_answer(request: &UpstreamRequest<'_>, answer: &response::Parts) {
    let Some(tap) = request.tap else { return };
    let first = format!("{:?} {}", answer.version, answer.status);
    tap.begin(Side::UpstreamResponse, head_text(first, &answer.headers, is_credential));
}

/// Wraps the body of an answer, so that its pieces are reported.
pub(super) fn around(request: &UpstreamRequest<'_>, answer: UpstreamResponse) -> UpstreamResponse {
    let Some(tap) = request.tap else { return answer };
    let tapped = TappedBody { body: answer.body, tap: Arc::clone(tap) };
    UpstreamResponse { body: UpstreamBody::Tapped(Box::new(tapped)), ..answer }
}

fn is_secret(request: &UpstreamRequest<'_>, name: &HeaderName) -> bool {
    let is_signature = |name: &str| name.starts_with("x-amz-") || name.starts_with("webhook-");
    let is_signed = request.provider.signer.is_some();
    request.is_fixed(name)
        || is_credential(name)
        || is_signed && (*name == AUTHORIZATION || is_signature(name.as_str()))
}

impl TappedBody {
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        let item = ready!(self.body.poll_data(cx));
        if let Some(Ok(piece)) = &item {
            self.tap.piece(Side::UpstreamResponse, piece);
        }
        Poll::Ready(item)
    }
}
