//! The tracing of requests: the sampler, and the queue in which the data plane leaves finished exchanges for the control
//! service to export. No worker waits for the queue.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};

use crate::trace_context::{RequestSpan, TraceId};
use crate::usage::UsageEvent;

/// The tracing of requests. Both planes hold a reference to it; without one, requests are not traced.
#[derive(Debug)]
pub struct RequestTraces {
    /// Decides which requests are traced.
    pub sampler: Sampler,
    /// True if the trace context of clients is continued, and upstreams may receive it.
    pub propagates: bool,
    queue: SyncSender<TracedExchange>,
    queued: Mutex<Receiver<TracedExchange>>,
    dropped: AtomicU64,
}

/// A finished exchange that is to be exported.
#[derive(Debug)]
pub struct TracedExchange {
    /// The span of the request.
    pub span: Box<RequestSpan>,
    /// The record of the exchange.
    pub event: Box<UsageEvent>,
}

impl TracedExchange {
    /// Returns the number of its spans: one of the request, and one for each attempt.
    pub fn spans(&self) -> u64 {
        1 + self.event.trace.iter().filter(|step| step.result.is_attempt()).count() as u64
    }
}

impl RequestTraces {
    /// Creates the tracing with room for `exchanges_max` finished exchanges.
    pub fn new(sampler: Sampler, propagates: bool, exchanges_max: usize) -> Self {
        let (queue, queued) = sync_channel(exchanges_max);
        Self { sampler, propagates, queue, queued: Mutex::new(queued), dropped: AtomicU64::new(0) }
    }

    /// Queues an exchange. It is dropped and counted if the queue is full.
    pub fn finished(&self, exchange: TracedExchange) {
        if let Err(TrySendError::Full(exchange) | TrySendError::Disconnected(exchange)) =
            self.queue.try_send(exchange)
        {
            self.dropped.fetch_add(exchange.spans(), Ordering::Relaxed);
        }
    }

    /// Takes the oldest exchange.
    pub fn take(&self) -> Option<TracedExchange> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok()
    }

    /// Returns the number of spans that were dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
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

/// The number of bits that are compared.
const ID_BITS: u32 = 63;
const BILLION: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU128;

    use super::*;

    fn trace(number: u64) -> TraceId {
        TraceId(NonZeroU128::new(1 << 100 | u128::from(number)).unwrap())
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
