//! Reports what is exchanged with an upstream to the observer of a request, if it has one. Only requests that an
//! administrator runs from inside the process have an observer; for all others this is one comparison.

use std::fmt::Write as _;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, Request, response};
use shared::port::UpstreamTap;

use super::request::{SegmentedBody, UpstreamRequest};
use super::{Broken, UpstreamBody, UpstreamResponse};

/// The body of an answer whose pieces are reported.
#[derive(Debug)]
pub(crate) struct TappedBody {
    pub(super) body: UpstreamBody,
    tap: Arc<dyn UpstreamTap>,
}

/// Reports a request that is about to be sent, and returns it: a caller that kept it in a variable would make every
/// exchange's future larger. The values of fields that the provider instance sets are left out, because they contain
/// its credential.
pub(super) fn noted(request: &UpstreamRequest<'_>, sent: Request<SegmentedBody>) -> Request<SegmentedBody> {
    let Some(tap) = request.tap else { return sent };
    let target = sent.uri().path_and_query().map_or("/", |path| path.as_str());
    let first = format!("{} {target} {:?}", sent.method(), sent.version());
    tap.request(head(first, sent.headers(), |name| is_secret(request, name)), &request.segments);
    sent
}

/// Reports the head of an answer.
pub(super) fn note_answer(request: &UpstreamRequest<'_>, answer: &response::Parts) {
    let Some(tap) = request.tap else { return };
    let first = format!("{:?} {}", answer.version, answer.status);
    tap.answer(head(first, &answer.headers, |_| false));
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
    request.is_fixed(name) || is_signed && (*name == AUTHORIZATION || is_signature(name.as_str()))
}

/// Returns a head as text, one line per field.
fn head(first: String, headers: &HeaderMap, is_secret: impl Fn(&HeaderName) -> bool) -> String {
    let mut head = first;
    for (name, value) in headers {
        let value = if is_secret(name) { HIDDEN.into() } else { String::from_utf8_lossy(value.as_bytes()) };
        let _ = write!(head, "\n{name}: {value}");
    }
    head
}

const HIDDEN: &str = "[hidden]";

impl TappedBody {
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        let item = ready!(self.body.poll_data(cx));
        if let Some(Ok(piece)) = &item {
            self.tap.piece(piece);
        }
        Poll::Ready(item)
    }
}
