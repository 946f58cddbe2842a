//! Begins the spans of requests, and builds the trace headers of their attempts.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};
use std::num::{NonZeroU64, NonZeroU128};
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use shared::request_traces::{RequestTraces, TracedRefusal};
use shared::trace_context::{ClientContext, RequestSpan, SpanId, TraceId, traceparent};

/// Begins the spans of one worker's requests.
#[derive(Debug)]
pub(crate) struct RequestSpans {
    traces: Arc<RequestTraces>,
    random: RandomState,
    number: Cell<u64>,
}

/// The trace headers of one request to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceHeaders {
    pub(crate) parent: HeaderValue,
    pub(crate) state: Option<HeaderValue>,
}

impl RequestSpans {
    pub(crate) fn new(traces: Arc<RequestTraces>) -> Self {
        Self { traces, random: RandomState::new(), number: Cell::new(0) }
    }

    /// Begins the span of a request. Returns `None` if the request is not sampled and belongs to no trace of its client.
    pub(crate) fn begin(&self, headers: &HeaderMap) -> Option<Box<RequestSpan>> {
        let client = if self.traces.propagates { ClientContext::of(headers) } else { None };
        let trace = client.as_ref().map_or_else(|| self.trace(), |client| client.trace);
        let is_sampled = self.traces.sampler.samples(trace, client.as_ref().map(|client| client.is_sampled));
        if !is_sampled && client.is_none() {
            return None;
        }
        let (parent, state) = client.map_or((None, None), |client| (Some(client.span), client.state));
        Some(Box::new(RequestSpan { trace, span: self.span(), parent, is_sampled, state }))
    }

    /// Leaves the span of a refused request for export, if it is sampled. `refusal` gets the span.
    pub(crate) fn refused(&self, headers: &HeaderMap, refusal: impl FnOnce(RequestSpan) -> TracedRefusal) {
        if let Some(span) = self.begin(headers).filter(|span| span.is_sampled) {
            self.traces.refusal(&refusal(*span));
        }
    }

    /// Returns the headers of the attempt at this place of the route trace. A request without a span gets a trace that is not
    /// recorded, so that the upstream does not record one of its own.
    pub(crate) fn headers(&self, request: Option<&RequestSpan>, place: usize) -> Option<TraceHeaders> {
        let (parent, state) = match request {
            _ if !self.traces.propagates => return None,
            Some(request) => {
                let parent = traceparent(request.trace, request.attempt(place), request.is_sampled);
                (parent, request.state.clone())
            }
            None => (traceparent(self.trace(), self.span(), false), None),
        };
        let mut parent = parent?;
        // The encoder of HTTP/2 keeps values for later heads to refer to; this one never occurs again, and would evict others.
        parent.set_sensitive(true);
        Some(TraceHeaders { parent, state })
    }

    fn trace(&self) -> TraceId {
        let number = u128::from(self.random()) << 64 | u128::from(self.random());
        TraceId(NonZeroU128::new(number).unwrap_or(NonZeroU128::MIN))
    }

    fn span(&self) -> SpanId {
        SpanId(NonZeroU64::new(self.random()).unwrap_or(NonZeroU64::MIN))
    }

    fn random(&self) -> u64 {
        self.number.set(self.number.get().wrapping_add(1));
        self.random.hash_one(self.number.get())
    }
}
