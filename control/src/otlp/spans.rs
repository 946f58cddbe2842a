//! Turns finished exchanges into spans: one of the request, and below it one for each attempt.
//!
//! Names and attributes follow OpenTelemetry's conventions for HTTP servers and for generative AI. Spans contain no text of
//! requests, answers or errors. Tokens are attributes of attempts only, so that a sum over spans counts each once.

use std::time::Duration;

use records::names;
use shared::request_traces::TracedExchange;
use shared::routing::{InstanceReach, ProviderInstance};
use shared::snapshot::Snapshot;
use shared::trace_context::{RequestSpan, SpanId};
use shared::usage::{Lost, Outcome, Provenance, StepResult, TokenCounts, TraceStep, UsageEvent};

use super::message::{Attribute, AttributeValue, Span, SpanEvent, SpanKind, SpanStatus, StatusCode};

/// Adds the spans of an exchange. The snapshot has the addresses of the providers, which records lack.
pub(super) fn add_spans(exchange: &TracedExchange, snapshot: &Snapshot, spans: &mut Vec<Span>) {
    let TracedExchange { span, event } = exchange;
    spans.push(request_span(span, event));
    for (place, step) in event.trace.iter().enumerate().filter(|(_, step)| step.result.is_attempt()) {
        let found = snapshot.providers.binary_search_by(|instance| instance.id.cmp(&step.provider));
        let provider = found.ok().and_then(|at| snapshot.providers.get(at));
        let attempt = AttemptSpan { span, event, place, step, provider: provider.map(AsRef::as_ref) };
        spans.push(attempt.span());
    }
}

/// Returns the span of the request.
fn request_span(span: &RequestSpan, event: &UsageEvent) -> Span {
    let failed = event.status >= 500 || event.outcome == Outcome::Cut;
    let skipped = event.trace.iter().filter(|step| !step.result.is_attempt());
    Span {
        name: format!("POST {}", event.operation.path()),
        kind: SpanKind::Server.into(),
        parent_span_id: span.parent.map(bytes_of).unwrap_or_default(),
        flags: flags(span) | if span.parent.is_some() { PARENT_IS_REMOTE } else { 0 },
        attributes: request_attributes(event),
        events: skipped.map(|step| skipped_target(event, step)).collect(),
        ..timed(span, span.span, Interval { start_us: 0, end_us: event.duration_us }.of(event), failed)
    }
}

fn request_attributes(event: &UsageEvent) -> Vec<Attribute> {
    let texts = [
        ("http.request.method", Some("POST")),
        ("http.route", Some(event.operation.path())),
        ("error.type", error_type(event)),
        ("llmgw.request.id", Some(&*event.request_id)),
        ("llmgw.operation", Some(event.operation.name())),
        ("llmgw.outcome", Some(event.outcome.name())),
        ("llmgw.selector", Some(&*event.selector)),
        ("llmgw.endpoint", event.endpoint.as_ref().map(|endpoint| endpoint.as_str())),
        ("llmgw.key.id", Some(event.key.as_str())),
        ("llmgw.project.id", event.project.as_ref().map(|project| project.as_str())),
    ];
    let client = event.details.client.as_deref().map(|client| client.split_once('/').unwrap_or((client, "")));
    let client = client.map(|(name, version)| [("user_agent.name", name), ("user_agent.version", version)]);
    let texts = texts.into_iter().filter_map(|(key, text)| Some((key, text?)));
    let texts = texts.chain(client.into_iter().flatten()).filter(|(_, text)| !text.is_empty());
    let numbers = [
        ("http.response.status_code", Some(u64::from(event.status))),
        ("http.request.body.size", event.details.bytes_in),
        ("http.response.body.size", event.details.bytes_out),
    ];
    let numbers = numbers.into_iter().filter_map(|(key, number)| Some(Attribute::number(key, number?)));
    let overhead = event.details.gateway_us.map(|us| fraction("llmgw.gateway.duration", seconds(us)));
    texts.map(|(key, text)| Attribute::text(key, text)).chain(numbers).chain(overhead).collect()
}

/// Returns the kind of the error, or the outcome of an exchange that was not completed.
fn error_type(event: &UsageEvent) -> Option<&'static str> {
    let outcome = Some(event.outcome).filter(|outcome| *outcome != Outcome::Completed);
    event.error.map(names::error).or_else(|| outcome.map(Outcome::name))
}

/// Returns the event of a target that was considered and skipped.
fn skipped_target(event: &UsageEvent, step: &TraceStep) -> SpanEvent {
    SpanEvent {
        at_ns: Interval { start_us: 0, end_us: 0 }.of(event).0,
        name: "llmgw.target.skipped".to_owned(),
        attributes: vec![
            Attribute::text("llmgw.provider.id", step.provider.as_str()),
            Attribute::text("gen_ai.request.model", step.model.as_str()),
            Attribute::text("llmgw.result", step.result.name()),
        ],
    }
}

/// One attempt of an exchange.
#[derive(Clone, Copy)]
struct AttemptSpan<'a> {
    span: &'a RequestSpan,
    event: &'a UsageEvent,
    /// The place of the attempt in the route trace.
    place: usize,
    step: &'a TraceStep,
    /// `None` if the provider has been removed since.
    provider: Option<&'a ProviderInstance>,
}

impl AttemptSpan<'_> {
    fn span(self) -> Span {
        let Self { span, event, step, .. } = self;
        let inside = self
            .provider
            .is_some_and(|provider| matches!(provider.reach, InstanceReach::Echo(_) | InstanceReach::Speech));
        let failed = self.error_type().is_some();
        Span {
            name: format!("{} {}", event.operation.genai_name(), step.model),
            kind: if inside { SpanKind::Internal } else { SpanKind::Client }.into(),
            parent_span_id: bytes_of(span.span),
            attributes: self.attributes(),
            ..timed(span, span.attempt(self.place), self.interval().of(event), failed)
        }
    }

    /// The attempt that served lasts until the end of the exchange; `spent_us` ends with its first content.
    fn interval(self) -> Interval {
        let start_us = self.step.start_us.unwrap_or(0);
        let spent_us = self.step.spent_us.filter(|_| self.step.result != StepResult::Served);
        Interval { start_us, end_us: spent_us.map_or(self.event.duration_us, |spent| start_us + spent) }
    }

    fn attributes(self) -> Vec<Attribute> {
        let Self { event, step, provider, .. } = self;
        let mut attributes = vec![
            Attribute::text("gen_ai.operation.name", event.operation.genai_name()),
            Attribute::text("gen_ai.request.model", step.model.as_str()),
            Attribute::text("llmgw.provider.id", step.provider.as_str()),
            Attribute::text("llmgw.result", step.result.name()),
        ];
        if let Some(provider) = provider {
            attributes.push(Attribute::text("gen_ai.provider.name", provider.genai_name));
            attributes.extend(address(provider));
        }
        if event.stream {
            attributes.push(Attribute::new("gen_ai.request.stream", AttributeValue::Flag(true)));
        }
        let error = self.error_type().map(|text| Attribute::text("error.type", text));
        let status =
            step.status.map(|status| Attribute::number("http.response.status_code", u64::from(status)));
        let session = event
            .details
            .session
            .as_deref()
            .map(|session| Attribute::text("gen_ai.conversation.id", session));
        attributes.extend(error.into_iter().chain(status).chain(session));
        if let Some(lost) = &step.lost {
            attributes.extend(usage_of_lost(lost));
        } else if self.place + 1 == event.trace.len() {
            attributes.extend(self.answer());
        }
        attributes
    }

    /// Returns the attributes of the attempt whose answer the client received, or would have received.
    fn answer(self) -> impl Iterator<Item = Attribute> {
        let Self { event, step, .. } = self;
        let served = step.result == StepResult::Served;
        let first = step.spent_us.filter(|_| served && event.stream);
        let first = first.map(|us| fraction("gen_ai.response.time_to_first_chunk", seconds(us)));
        let finish = event.details.finish;
        let finish =
            finish.map(|finish| Attribute::texts("gen_ai.response.finish_reasons", &[finish.name()]));
        let upstream =
            event.upstream_id.as_deref().map(|id| Attribute::text("llmgw.upstream.request_id", id));
        let used = event.provenance != Provenance::None;
        let usage = used.then(|| usage(&event.tokens, event.cost_nano_usd)).into_iter().flatten();
        let source = used.then(|| Attribute::text("llmgw.usage.provenance", event.provenance.name()));
        first.into_iter().chain(finish).chain(upstream).chain(usage).chain(source)
    }

    /// Returns the status of a failed attempt, or the reason of its failure. The attempt that served has failed if its
    /// answer broke off.
    fn error_type(self) -> Option<String> {
        let Self { event, step, .. } = self;
        match step.result {
            StepResult::Served if event.outcome == Outcome::Cut => error_type(event).map(str::to_owned),
            StepResult::Served => None,
            StepResult::Status => step.status.map(|status| status.to_string()),
            result => Some(result.name().to_owned()),
        }
    }
}

/// Returns the address of a provider in the network.
fn address(provider: &ProviderInstance) -> Vec<Attribute> {
    match &provider.reach {
        InstanceReach::Network(origin) => match &origin.socket {
            Some(path) => vec![Attribute::text("server.address", &**path)],
            None => vec![
                Attribute::text("server.address", origin.host.as_str()),
                Attribute::number("server.port", u64::from(origin.port)),
            ],
        },
        InstanceReach::Echo(_) | InstanceReach::Speech => Vec::new(),
    }
}

fn usage_of_lost(lost: &Lost) -> impl Iterator<Item = Attribute> + use<> {
    usage(&lost.tokens, lost.cost_nano_usd)
}

/// Returns the tokens, where cached and reasoning tokens are parts of input and output, and the cost.
fn usage(tokens: &TokenCounts, cost_nano_usd: Option<u64>) -> impl Iterator<Item = Attribute> + use<> {
    let written = tokens.cache_write.saturating_add(tokens.cache_write_1h);
    let parts = [
        ("gen_ai.usage.cache_read.input_tokens", tokens.cache_read),
        ("gen_ai.usage.cache_creation.input_tokens", written),
        ("gen_ai.usage.reasoning.output_tokens", tokens.reasoning),
    ];
    let totals = [
        ("gen_ai.usage.input_tokens", tokens.input_total()),
        ("gen_ai.usage.output_tokens", tokens.output_total()),
    ];
    let counts = totals.into_iter().chain(parts.into_iter().filter(|(_, count)| *count > 0));
    // An amount in billionths of a dollar, as a duration in billionths of a second, becomes a fraction without loss.
    let cost = cost_nano_usd.map(|nano| fraction("llmgw.cost", Duration::from_nanos(nano).as_secs_f64()));
    counts.map(|(key, count)| Attribute::number(key, count)).chain(cost)
}

/// A part of an exchange, in microseconds from the request head.
#[derive(Clone, Copy)]
struct Interval {
    start_us: u64,
    end_us: u64,
}

impl Interval {
    /// Returns the begin and the end in nanoseconds since the Unix epoch.
    fn of(self, event: &UsageEvent) -> (u64, u64) {
        let began_ns = event.started_at_ms.saturating_mul(1_000_000);
        let at = |us: u64| began_ns.saturating_add(us.saturating_mul(1_000));
        (at(self.start_us), at(self.end_us.max(self.start_us)))
    }
}

/// Returns a span with its identity, times and status.
fn timed(request: &RequestSpan, id: SpanId, (start_ns, end_ns): (u64, u64), failed: bool) -> Span {
    let code = if failed { StatusCode::Error } else { StatusCode::Unset };
    Span {
        trace_id: request.trace.0.get().to_be_bytes().into(),
        span_id: bytes_of(id),
        trace_state: request.state.as_ref().and_then(|state| state.to_str().ok()).unwrap_or_default().into(),
        start_ns,
        end_ns,
        status: Some(SpanStatus { code: code.into() }),
        flags: flags(request),
        ..Span::default()
    }
}

fn flags(request: &RequestSpan) -> u32 {
    PARENT_IS_KNOWN | u32::from(request.is_sampled)
}

fn bytes_of(id: SpanId) -> Vec<u8> {
    id.0.get().to_be_bytes().into()
}

fn seconds(us: u64) -> f64 {
    Duration::from_micros(us).as_secs_f64()
}

fn fraction(key: &str, number: f64) -> Attribute {
    Attribute::new(key, AttributeValue::Fraction(number))
}

/// The flag of a span that states if its parent is in another process, and the flag of one whose parent is.
const PARENT_IS_KNOWN: u32 = 0x100;
const PARENT_IS_REMOTE: u32 = 0x200;
