//! The tracing of requests: the sampler, and the queue in which the data plane leaves the encoded spans of finished requests
//! for the control service to export. No worker waits for the queue.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use crate::bounds::QUEUED_SPANS;
use crate::error_kind::ErrorKind;
use crate::trace_context::{RequestSpan, TraceId};
use crate::usage::UsageEvent;

/// The tracing of requests. Both planes hold a reference to it; without one, requests are not traced.
#[derive(Debug)]
pub struct RequestTraces {
    /// Decides which requests are traced.
    pub sampler: Sampler,
    /// True if the trace context of clients is continued, and upstreams may receive it.
    pub propagates: bool,
    encoder: Box<dyn SpanEncoder>,
    queue: Sender<Queued>,
    queued: Mutex<Receiver<Queued>>,
    dropped: AtomicU64,
    /// Requests in the queue, and the most of them. They are counted here, because what finds no place is not encoded.
    requests: AtomicUsize,
    requests_max: usize,
    /// Refusals in the queue, and the most of them: anyone can cause them, so they leave room for exchanges.
    refusals: AtomicUsize,
    refusals_max: usize,
}

/// Encodes the spans of finished requests. A worker encodes them, while their facts are in its cache: the memory of its
/// events stays its own, and what waits for the export is small.
pub trait SpanEncoder: fmt::Debug + Send + Sync {
    /// Encodes the span of an exchange and one for each of its attempts.
    fn exchange(&self, span: &RequestSpan, event: &UsageEvent) -> EncodedSpans;

    /// Encodes the span of a refused request.
    fn refusal(&self, refusal: &TracedRefusal) -> EncodedSpans;
}

/// Spans in the format of their export. Those of several requests are appended to each other.
#[derive(Clone, Debug, Default)]
pub struct EncodedSpans {
    /// The encoded spans.
    pub bytes: Vec<u8>,
    /// The number of spans.
    pub count: u64,
}

/// The spans of one finished request.
#[derive(Debug)]
struct Queued {
    spans: EncodedSpans,
    is_refusal: bool,
}

/// A request that was refused before routing. It has no record.
#[derive(Debug)]
pub struct TracedRefusal {
    /// The span of the request.
    pub span: RequestSpan,
    /// The time at which its head arrived.
    pub started_at_ms: u64,
    /// The time until its refusal.
    pub duration_us: u64,
    /// The method, or `_OTHER` for one that the conventions do not know.
    pub method: &'static str,
    /// The path, if it is an operation's.
    pub route: Option<&'static str>,
    /// The status of the answer.
    pub status: u16,
    /// The error.
    pub error: ErrorKind,
    /// The ID of the request.
    pub request_id: Box<str>,
}

impl RequestTraces {
    /// Creates the tracing with room for `requests_max` finished requests.
    pub fn new(
        sampler: Sampler,
        propagates: bool,
        requests_max: usize,
        encoder: Box<dyn SpanEncoder>,
    ) -> Self {
        let (queue, queued) = channel();
        Self {
            sampler,
            propagates,
            encoder,
            queue,
            queued: Mutex::new(queued),
            dropped: AtomicU64::new(0),
            requests: AtomicUsize::new(0),
            requests_max,
            refusals: AtomicUsize::new(0),
            refusals_max: requests_max.div_ceil(REFUSALS_SHARE),
        }
    }

    /// Queues the spans of an exchange. They are dropped and counted if the queue is full.
    pub fn exchange(&self, span: &RequestSpan, event: &UsageEvent) {
        if enters(&self.requests, self.requests_max) {
            self.queue(self.encoder.exchange(span, event), false);
        } else {
            let attempts = event.trace.iter().filter(|step| step.result.is_attempt()).count();
            self.drop_spans(1 + attempts as u64);
        }
    }

    /// Queues the span of a refused request. It is dropped and counted if the queue is full, or full of refusals.
    pub fn refusal(&self, refusal: &TracedRefusal) {
        if !enters(&self.refusals, self.refusals_max) {
            self.drop_spans(1);
        } else if !enters(&self.requests, self.requests_max) {
            self.refusals.fetch_sub(1, Ordering::Relaxed);
            self.drop_spans(1);
        } else {
            self.queue(self.encoder.refusal(refusal), true);
        }
    }

    fn drop_spans(&self, spans: u64) {
        self.dropped.fetch_add(spans, Ordering::Relaxed);
        QUEUED_SPANS.reach_times(spans);
    }

    /// Queues spans for which a place has been taken.
    fn queue(&self, spans: EncodedSpans, is_refusal: bool) {
        // The receiver is in this value, so it is there.
        let _ = self.queue.send(Queued { spans, is_refusal });
    }

    /// Takes the spans of the request that has waited longest.
    pub fn take(&self) -> Option<EncodedSpans> {
        let taken = self.queued.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok()?;
        self.requests.fetch_sub(1, Ordering::Relaxed);
        if taken.is_refusal {
            self.refusals.fetch_sub(1, Ordering::Relaxed);
        }
        Some(taken.spans)
    }

    /// Returns the number of spans that were dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Takes a place among `max`. Returns false if all are taken.
fn enters(taken: &AtomicUsize, max: usize) -> bool {
    let is_free = taken.fetch_add(1, Ordering::Relaxed) < max;
    if !is_free {
        taken.fetch_sub(1, Ordering::Relaxed);
    }
    is_free
}

/// Decides which requests are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    /// Traces whose ID has lower bits below this bound are sampled.
    below: u64,
    /// True if a client's decision takes precedence.
    follows_client: bool,
}

impl Sampler {
    /// Creates a sampler for this share of the traces, in billionths. With `follows_client`, the decision of a client that
    /// sends one takes precedence.
    pub fn new(billionths: u32, follows_client: bool) -> Self {
        let below = (u128::from(billionths) << ID_BITS) / BILLION;
        Self { below: u64::try_from(below).unwrap_or(u64::MAX), follows_client }
    }

    /// Returns true if a request of this trace is sampled; `client` is the client's decision.
    pub fn samples(self, trace: TraceId, client: Option<bool>) -> bool {
        match client.filter(|_| self.follows_client) {
            Some(is_sampled) => is_sampled,
            None => lower_bits(trace) < self.below,
        }
    }
}

/// Returns the bits of a trace ID that OpenTelemetry's own samplers compare, so that all services on the path of a trace
/// decide alike.
fn lower_bits(trace: TraceId) -> u64 {
    let [.., a, b, c, d, e, f, g, h] = trace.0.get().to_be_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1
}

/// Refusals take at most this part of the queue.
const REFUSALS_SHARE: usize = 4;
/// The number of bits that are compared.
const ID_BITS: u32 = 63;
const BILLION: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU64, NonZeroU128};

    use super::*;
    use crate::bounds::tests::passes;
    use crate::trace_context::SpanId;

    fn trace(number: u64) -> TraceId {
        TraceId(NonZeroU128::new(1 << 100 | u128::from(number)).unwrap())
    }

    /// Encodes each span as nothing.
    #[derive(Debug)]
    struct Counting;

    impl SpanEncoder for Counting {
        fn exchange(&self, _: &RequestSpan, _: &UsageEvent) -> EncodedSpans {
            EncodedSpans { bytes: Vec::new(), count: 1 }
        }

        fn refusal(&self, _: &TracedRefusal) -> EncodedSpans {
            EncodedSpans { bytes: Vec::new(), count: 1 }
        }
    }

    fn refusal() -> TracedRefusal {
        let (trace, span) = (trace(1), SpanId(NonZeroU64::MIN));
        TracedRefusal {
            span: RequestSpan { trace, span, parent: None, is_sampled: true, state: None },
            started_at_ms: 0,
            duration_us: 0,
            method: "POST",
            route: None,
            status: 401,
            error: ErrorKind::InvalidKey,
            request_id: "r".into(),
        }
    }

    #[test]
    fn refusals_fill_a_quarter_of_the_queue_at_most() {
        let traces = RequestTraces::new(Sampler::new(0, true), true, 16, Box::new(Counting));
        passes(&QUEUED_SPANS, || (0..10).for_each(|_| traces.refusal(&refusal())));
        assert_eq!(traces.dropped(), 6);
        assert!(traces.take().is_some());
        for _ in 0..2 {
            traces.refusal(&refusal());
        }
        assert_eq!(traces.dropped(), 7, "one place was free");
        assert_eq!(std::iter::from_fn(|| traces.take()).count(), 4);
    }

    #[test]
    fn a_sampler_takes_its_share_and_follows_clients_only_if_configured() {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        for (billionths, want) in
            [(0, 0), (100_000_000, 1_000), (500_000_000, 5_000), (1_000_000_000, 10_000)]
        {
            let sampler = Sampler::new(billionths, true);
            let sampled =
                (0..10_000_u64).filter(|n| sampler.samples(trace(n.wrapping_mul(STEP)), None)).count();
            assert!(sampled.abs_diff(want) <= 10, "{billionths}: {sampled}");
        }
        for is_sampled in [true, false] {
            let own = !is_sampled;
            let billionths = if own { 1_000_000_000 } else { 0 };
            let decides =
                |follows| Sampler::new(billionths, follows).samples(trace(u64::MAX), Some(is_sampled));
            assert_eq!((decides(true), decides(false)), (is_sampled, own));
        }
    }
}
