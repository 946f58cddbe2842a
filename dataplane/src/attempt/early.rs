//! A request that is sent while its body arrives from the client, before it is certain that it will be made.
//!
//! A large prompt takes long to arrive, and as long again to be sent. Once the model is read and the conversation has
//! begun, the first target of the route is probably the one that gets the request, so its bytes go there as they arrive.
//! The last piece is held back until the ordinary path has come to the same request: an upstream cannot act on a request
//! whose end it does not have. So nothing depends on the guess. Quotas, circuits and the record are those of any other
//! request, and if the guess was wrong, the request is cancelled and another is sent from the kept body.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue};
use shared::routing::{ProviderInstance, Target};

use crate::adapt::TargetRequest;
use crate::server::io::ConnectionState;
use crate::upstream::arriving::ArrivingBody;
use crate::upstream::request::{JSON, JSON_OR_EVENTS, RequestKind, UpstreamRequest, length_of};
use crate::upstream::{self, SendError, UpstreamResponse, Upstreams};

/// A request whose end is held back.
pub(crate) struct EarlySend {
    provider: Arc<ProviderInstance>,
    path: PathAndQuery,
    of_model: Vec<(HeaderName, HeaderValue)>,
    body: HeldBack,
    sending: Sending,
    client: Rc<ConnectionState>,
}

/// A request that is being sent, until the head of its answer.
pub(super) type Sending = Pin<Box<dyn Future<Output = Result<UpstreamResponse, SendError>>>>;

/// A body whose end is held back. Dropping it cancels the request.
struct HeldBack(Rc<ArrivingBody>);

impl Drop for HeldBack {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl std::fmt::Debug for EarlySend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EarlySend").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The parts of a request whose body has begun to arrive.
#[derive(Debug)]
pub(crate) struct EarlyRequest<'a> {
    pub(crate) target: &'a Target,
    /// The request for the target, with so much of its body as has arrived.
    pub(crate) request: TargetRequest,
    pub(crate) bytes_left: u64,
    pub(crate) forwarded: Vec<(HeaderName, HeaderValue)>,
    pub(crate) request_id: HeaderValue,
    /// The connection on which it arrives.
    pub(crate) client: &'a Rc<ConnectionState>,
}

impl EarlySend {
    /// Begins to send `early`. Nothing is sent before it is polled.
    pub(crate) fn begin(upstreams: &Rc<Upstreams>, early: EarlyRequest<'_>) -> Self {
        let EarlyRequest { target, request, bytes_left, forwarded, request_id, client } = early;
        let TargetRequest { path, segments, .. } = request;
        let bytes = length_of(&segments).saturating_add(bytes_left);
        let body = Rc::new(ArrivingBody::new(bytes, segments));
        let (upstreams, provider) = (Rc::clone(upstreams), Arc::clone(&target.provider));
        let (own_path, own_body, of_model) = (path.clone(), Rc::clone(&body), target.model.headers.to_vec());
        let sending = async move {
            let request = UpstreamRequest {
                provider,
                kind: RequestKind::Post,
                path: own_path,
                forwarded: &forwarded,
                request_id: &request_id,
                of_model,
                trace: None,
                tap: None,
                content_type: &JSON,
                accept: &JSON_OR_EVENTS,
                segments: Vec::new(),
                arriving: Some(own_body),
            };
            upstream::send(&upstreams, &request).await
        };
        Self {
            provider: Arc::clone(&target.provider),
            path,
            of_model: target.model.headers.to_vec(),
            body: HeldBack(body),
            sending: Box::pin(sending),
            client: Rc::clone(client),
        }
    }

    /// Adds segments that have arrived and are not the last.
    pub(crate) fn extend(&self, segments: &[Bytes]) {
        self.body.0.extend(segments);
    }

    /// Sends what has arrived. Ready if the request has ended before its body, by a failure or an early answer.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.sending.as_mut().poll(cx).map(drop)
    }

    /// Releases the end of the body if `request` is the one that is being sent, and cancels it otherwise.
    pub(super) fn complete(self, request: &UpstreamRequest<'_>) -> Option<Sending> {
        let Self { provider, path, of_model, body, sending, client } = self;
        let is_same = Arc::ptr_eq(&provider, &request.provider)
            && request.kind == RequestKind::Post
            && path == request.path
            && of_model == request.of_model
            && *request.content_type == JSON
            && request.trace.is_none()
            && request.tap.is_none();
        let is_complete = is_same && body.0.complete(&request.segments);
        client.was_misjudged.update(|before| before || !is_complete);
        is_complete.then_some(sending)
    }
}
