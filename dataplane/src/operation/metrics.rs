//! `GET /metrics` in Prometheus text format (ROUTE-5): the counters of the data plane, then the part of the control service.
//! It is written by hand: the counters are per-worker atomics, and a metrics registry would need locks.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use shared::port::{MetricsReader, full};

use crate::caller::Exchange;
use crate::metrics::{BOUNDS_US, Counters, Histogram};
use crate::process::Process;
use crate::relay::ResponseBody;

/// Serves the metrics of the whole process.
pub(crate) async fn serve(exchange: &Exchange) -> Response<ResponseBody> {
    let process = &exchange.worker().process;
    let mut page = render(process);
    match control_metrics(exchange).await {
        Some(of_control) => page.push_str(&of_control),
        None => page.push_str("# TYPE llmgw_metrics_complete gauge\nllmgw_metrics_complete 0\n"),
    }
    let mut response = Response::new(ResponseBody::full(Bytes::from(page)));
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Returns the control service's part; `None` if it does not answer.
async fn control_metrics(exchange: &Exchange) -> Option<String> {
    let control = exchange.worker().process.fallback.get()?;
    let mut request = Request::new(full(""));
    request.extensions_mut().insert(MetricsReader);
    let answer = Arc::clone(control).handle(request, exchange.caller.peer).await;
    if answer.status() != StatusCode::OK {
        return None;
    }
    let body = answer.into_body().collect().await.ok()?;
    String::from_utf8(body.to_bytes().into()).ok()
}

/// Renders the sums over all workers.
fn render(process: &Process) -> String {
    let mut text = Text { out: String::with_capacity(4096), process };
    text.counter("llmgw_requests_total", "Requests received.", |c| &c.requests);
    text.counter("llmgw_requests_refused_total", "Requests answered with an error.", |c| &c.refused);
    text.counter("llmgw_exchanges_completed_total", "Exchanges whose response was sent completely.", |c| {
        &c.completed
    });
    text.counter("llmgw_exchanges_failed_total", "Exchanges that no target answered.", |c| &c.failed);
    text.counter("llmgw_exchanges_cancelled_total", "Exchanges that the client cancelled.", |c| &c.cancelled);
    text.counter("llmgw_exchanges_cut_total", "Exchanges whose upstream broke its response off.", |c| &c.cut);
    text.counter(
        "llmgw_exchanges_unnoted_total",
        "Exchanges without a note on disk: killing the process would have lost their usage.",
        |c| &c.unnoted,
    );
    text.counter("llmgw_attempts_total", "Requests sent to upstreams.", |c| &c.attempts);
    text.counter("llmgw_attempt_failures_total", "Attempts that failed.", |c| &c.attempt_failures);
    text.counter("llmgw_quota_warnings_total", "Exchanges that exceeded a warning-only quota.", |c| {
        &c.quota_warnings
    });
    text.counter("llmgw_input_tokens_total", "Input tokens.", |c| &c.input_tokens);
    text.counter("llmgw_output_tokens_total", "Output tokens.", |c| &c.output_tokens);
    text.histogram("llmgw_first_content_seconds", "Time from the request to the first content.", |c| {
        &c.first_content
    });
    text.histogram("llmgw_exchange_seconds", "Time from the request to the end of the response.", |c| {
        &c.duration
    });
    text.histogram(
        "llmgw_queue_seconds",
        "Time that requests waited in lines of quotas, of those that did.",
        |c| &c.queue,
    );
    text.counter(
        "llmgw_connections_moved_total",
        "Connections whose clients were asked to open new ones, for a worker that is less busy.",
        |c| &c.connections_moved,
    );
    text.gauge(
        "llmgw_connections",
        "Open client connections.",
        process.connections.load(Ordering::Relaxed) as u64,
    );
    text.gauge(
        "llmgw_held_body_bytes",
        "Memory held by bodies of requests and of long responses.",
        process.memory.reserved(),
    );
    text.gauge(
        "llmgw_snapshot_generation",
        "Generation of the routing snapshot.",
        process.snapshots.load().generation,
    );
    text.out
}

struct Text<'a> {
    out: String,
    process: &'a Process,
}

impl Text<'_> {
    fn sum(&self, pick: impl Fn(&Counters) -> &AtomicU64) -> u64 {
        self.process.counters.iter().map(|counters| pick(counters).load(Ordering::Relaxed)).sum()
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a String cannot fail.
        writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}").ok();
    }

    fn counter(&mut self, name: &str, help: &str, pick: impl Fn(&Counters) -> &AtomicU64) {
        self.head(name, help, "counter");
        let value = self.sum(pick);
        writeln!(self.out, "{name} {value}").ok();
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "gauge");
        writeln!(self.out, "{name} {value}").ok();
    }

    fn histogram(&mut self, name: &str, help: &str, pick: impl Fn(&Counters) -> &Histogram) {
        self.head(name, help, "histogram");
        let mut cumulative = 0;
        for (index, bound) in BOUNDS_US.iter().enumerate() {
            let bucket = |counters: &Counters| {
                pick(counters).buckets.get(index).map_or(0, |bucket| bucket.load(Ordering::Relaxed))
            };
            cumulative += self.process.counters.iter().map(|counters| bucket(counters)).sum::<u64>();
            let seconds = seconds(*bound);
            writeln!(self.out, "{name}_bucket{{le=\"{seconds}\"}} {cumulative}").ok();
        }
        let count = self.sum(|counters| &pick(counters).count);
        let sum = seconds(self.sum(|counters| &pick(counters).sum_us));
        writeln!(self.out, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}")
            .ok();
    }
}

fn seconds(us: u64) -> f64 {
    std::time::Duration::from_micros(us).as_secs_f64()
}
