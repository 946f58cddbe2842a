//! Turns finished requests into encoded spans: one of the request, and below it one for each attempt.
//!
//! Names and attributes follow OpenTelemetry's conventions for HTTP servers and for generative AI. Spans contain no text of
//! requests, answers or errors. Tokens are attributes of attempts only, so that a sum over spans counts each once.

use std::time::Duration;

use records::names;
use shared::request_traces::{EncodedSpans, SpanEncoder, TracedRefusal};
use shared::routing::{InstanceReach, ProviderInstance};
use shared::snapshot::SnapshotReader;
use shared::trace_context::{RequestSpan, SpanId};
use shared::usage::{Outcome, Provenance, StepResult, TokenCounts, TraceStep, UsageEvent};

use super::fields::{Attributes, Fields};

/// Encodes spans as the fields `spans` of `ScopeSpans`.
#[derive(Debug)]
pub(super) struct Encoder {
    /// Has the addresses of the providers, which records lack.
    pub(super) snapshot: SnapshotReader,
}

impl SpanEncoder for Encoder {
    fn exchange(&self, span: &RequestSpan, event: &UsageEvent) -> EncodedSpans {
        let snapshot = self.snapshot.load();
        encoded(|fields| {
            fields.message(scope_spans::SPANS, |fields| request_span(fields, span, event));
            let mut count = 1;
            for (place, step) in event.trace.iter().enumerate().filter(|(_, step)| step.result.is_attempt()) {
                let found = snapshot.providers.binary_search_by(|instance| instance.id.cmp(&step.provider));
                let provider = found.ok().and_then(|at| snapshot.providers.get(at));
                let attempt = AttemptSpan { span, event, place, step, provider: provider.map(AsRef::as_ref) };
                fields.message(scope_spans::SPANS, |fields| attempt.write(fields));
                count += 1;
            }
            count
        })
    }

    fn refusal(&self, refusal: &TracedRefusal) -> EncodedSpans {
        encoded(|fields| {
            fields.message(scope_spans::SPANS, |fields| refused_span(fields, refusal));
            1
        })
    }
}

/// Returns the spans that `write` writes and counts.
fn encoded(write: impl FnOnce(&mut Fields<'_>) -> u64) -> EncodedSpans {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    let count = write(&mut Fields::new(&mut bytes));
    EncodedSpans { bytes, count }
}

/// The fields of `Span`.
mod span {
    pub(super) const TRACE_ID: u8 = 1;
    pub(super) const SPAN_ID: u8 = 2;
    pub(super) const TRACE_STATE: u8 = 3;
    pub(super) const PARENT_SPAN_ID: u8 = 4;
    pub(super) const NAME: u8 = 5;
    pub(super) const KIND: u8 = 6;
    pub(super) const START_NS: u8 = 7;
    pub(super) const END_NS: u8 = 8;
    pub(super) const ATTRIBUTES: u8 = 9;
    pub(super) const EVENTS: u8 = 11;
    pub(super) const STATUS: u8 = 15;
    pub(super) const FLAGS: u8 = 16;
}

/// The fields of `Span.Event`.
mod span_event {
    pub(super) const AT_NS: u8 = 1;
    pub(super) const NAME: u8 = 2;
    pub(super) const ATTRIBUTES: u8 = 3;
}

mod scope_spans {
    pub(super) const SPANS: u8 = 2;
}

/// The values of `Span.kind`.
#[derive(Clone, Copy)]
enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// Writes the span of the request.
fn request_span(fields: &mut Fields<'_>, request: &RequestSpan, event: &UsageEvent) {
    let failed = event.status >= 500 || event.outcome == Outcome::Cut;
    let common = Common {
        request,
        id: request.span,
        parent: request.parent,
        kind: SpanKind::Server,
        times: Interval { start_us: 0, end_us: event.duration_us }.of(event),
        failed,
        flags: flags(request) | remote_parent(request),
    };
    common.write(fields, &[b"POST ", event.operation.path().as_bytes()], |fields| {
        request_attributes(&mut Attributes::new(fields, span::ATTRIBUTES), event);
        for step in event.trace.iter().filter(|step| !step.result.is_attempt()) {
            fields.message(span::EVENTS, |fields| skipped_target(fields, event, step));
        }
    });
}

/// Writes the span of a request that was refused before routing.
fn refused_span(fields: &mut Fields<'_>, refusal: &TracedRefusal) {
    let TracedRefusal { span: request, started_at_ms, duration_us, method, route, .. } = refusal;
    let began_ns = started_at_ms.saturating_mul(1_000_000);
    let common = Common {
        request,
        id: request.span,
        parent: request.parent,
        kind: SpanKind::Server,
        times: (began_ns, began_ns.saturating_add(duration_us.saturating_mul(1_000))),
        failed: refusal.status >= 500,
        flags: flags(request) | remote_parent(request),
    };
    // The conventions name the span of an unknown method "HTTP", and leave out a route that is not known.
    let verb = if *method == OTHER_METHOD { "HTTP" } else { method };
    let gap = if route.is_some() { " " } else { "" };
    let name = [verb, gap, route.unwrap_or_default()].map(str::as_bytes);
    common.write(fields, &name, |fields| {
        let mut attributes = Attributes::new(fields, span::ATTRIBUTES);
        attributes.text("http.request.method", method);
        attributes.optional_text("http.route", *route);
        attributes.text("error.type", names::error(refusal.error));
        attributes.text("llmgw.request.id", &refusal.request_id);
        attributes.number("http.response.status_code", u64::from(refusal.status));
    });
}

fn request_attributes(attributes: &mut Attributes<'_, '_>, event: &UsageEvent) {
    attributes.text("http.request.method", "POST");
    attributes.text("http.route", event.operation.path());
    attributes.optional_text("error.type", error_type(event));
    attributes.text("llmgw.request.id", &event.request_id);
    attributes.text("llmgw.operation", event.operation.name());
    attributes.text("llmgw.outcome", event.outcome.name());
    attributes.optional_text("llmgw.selector", Some(&*event.selector).filter(|text| !text.is_empty()));
    attributes.optional_text("llmgw.endpoint", event.endpoint.as_ref().map(|endpoint| endpoint.as_str()));
    attributes.text("llmgw.key.id", event.key.as_str());
    attributes.optional_text("llmgw.project.id", event.project.as_ref().map(|project| project.as_str()));
    if let Some(client) = event.details.client.as_deref() {
        let (name, version) = client.split_once('/').unwrap_or((client, ""));
        attributes.optional_text("user_agent.name", Some(name).filter(|text| !text.is_empty()));
        attributes.optional_text("user_agent.version", Some(version).filter(|text| !text.is_empty()));
    }
    attributes.number("http.response.status_code", u64::from(event.status));
    attributes.optional_number("http.request.body.size", event.details.bytes_in);
    attributes.optional_number("http.response.body.size", event.details.bytes_out);
    if let Some(us) = event.details.gateway_us {
        attributes.fraction("llmgw.gateway.duration", seconds(us));
    }
}

/// Returns the kind of the error, or the outcome of an exchange that was not completed.
fn error_type(event: &UsageEvent) -> Option<&'static str> {
    let outcome = Some(event.outcome).filter(|outcome| *outcome != Outcome::Completed);
    event.error.map(names::error).or_else(|| outcome.map(Outcome::name))
}

/// Writes the event of a target that was considered and skipped.
fn skipped_target(fields: &mut Fields<'_>, event: &UsageEvent, step: &TraceStep) {
    let start_us = step.start_us.unwrap_or(0);
    let has_waited = step.result == StepResult::Waited;
    fields.fixed64(span_event::AT_NS, Interval { start_us, end_us: start_us }.of(event).0);
    let name: &[u8] = if has_waited { b"llmgw.quota.waited" } else { b"llmgw.target.skipped" };
    fields.bytes(span_event::NAME, name);
    let mut attributes = Attributes::new(fields, span_event::ATTRIBUTES);
    attributes.text("llmgw.provider.id", step.provider.as_str());
    attributes.text("gen_ai.request.model", step.model.as_str());
    attributes.text("llmgw.result", step.result.name());
    if has_waited {
        attributes.optional_text("llmgw.quota.id", step.message.as_deref());
        attributes.optional_number("llmgw.quota.wait_us", step.spent_us);
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
    fn write(self, fields: &mut Fields<'_>) {
        let Self { span: request, event, step, .. } = self;
        let inside = self
            .provider
            .is_some_and(|provider| matches!(provider.reach, InstanceReach::Echo(_) | InstanceReach::Speech));
        let common = Common {
            request,
            id: request.attempt(self.place),
            parent: Some(request.span),
            kind: if inside { SpanKind::Internal } else { SpanKind::Client },
            times: self.interval().of(event),
            failed: self.has_failed(),
            flags: flags(request),
        };
        let name = [event.operation.genai_name().as_bytes(), b" ", step.model.as_str().as_bytes()];
        common.write(fields, &name, |fields| self.attributes(&mut Attributes::new(fields, span::ATTRIBUTES)));
    }

    /// The attempt that served lasts until the end of the exchange; `spent_us` ends with its first content.
    fn interval(self) -> Interval {
        let start_us = self.step.start_us.unwrap_or(0);
        let spent_us = self.step.spent_us.filter(|_| self.step.result != StepResult::Served);
        Interval { start_us, end_us: spent_us.map_or(self.event.duration_us, |spent| start_us + spent) }
    }

    fn attributes(self, attributes: &mut Attributes<'_, '_>) {
        let Self { event, step, provider, .. } = self;
        attributes.text("gen_ai.operation.name", event.operation.genai_name());
        attributes.text("gen_ai.request.model", step.model.as_str());
        attributes.text("llmgw.provider.id", step.provider.as_str());
        attributes.text("llmgw.result", step.result.name());
        if let Some(provider) = provider {
            attributes.text("gen_ai.provider.name", provider.genai_name);
            address(attributes, provider);
        }
        if event.stream {
            attributes.set("gen_ai.request.stream");
        }
        self.error_type(attributes);
        attributes.optional_number("http.response.status_code", step.status.map(u64::from));
        attributes.optional_text("gen_ai.conversation.id", event.details.session.as_deref());
        if let Some(lost) = &step.lost {
            usage(attributes, &lost.tokens, lost.cost_nano_usd);
        } else if self.place + 1 == event.trace.len() {
            self.answer(attributes);
        }
    }

    /// Adds the attributes of the attempt whose answer the client received, or would have received.
    fn answer(self, attributes: &mut Attributes<'_, '_>) {
        let Self { event, step, .. } = self;
        let served = step.result == StepResult::Served;
        if let Some(us) = step.spent_us.filter(|_| served && event.stream) {
            attributes.fraction("gen_ai.response.time_to_first_chunk", seconds(us));
        }
        if let Some(finish) = event.details.finish {
            attributes.list_of("gen_ai.response.finish_reasons", finish.name());
        }
        attributes.optional_text("llmgw.upstream.request_id", event.upstream_id.as_deref());
        if event.provenance != Provenance::None {
            usage(attributes, &event.tokens, event.cost_nano_usd);
            attributes.text("llmgw.usage.provenance", event.provenance.name());
        }
    }

    /// Adds the status of a failed attempt, or the reason of its failure.
    fn error_type(self, attributes: &mut Attributes<'_, '_>) {
        if !self.has_failed() {
            return;
        }
        match (self.step.result, self.step.status) {
            (StepResult::Served, _) => attributes.optional_text("error.type", error_type(self.event)),
            (StepResult::Status, Some(status)) => attributes.text("error.type", &status.to_string()),
            (result, _) => attributes.text("error.type", result.name()),
        }
    }

    /// Returns true if the attempt has failed. That includes the one that served, if its answer broke off.
    fn has_failed(self) -> bool {
        match self.step.result {
            StepResult::Served => self.event.outcome == Outcome::Cut,
            StepResult::Status => self.step.status.is_some(),
            _ => true,
        }
    }
}

/// Adds the address of a provider in the network.
fn address(attributes: &mut Attributes<'_, '_>, provider: &ProviderInstance) {
    match &provider.reach {
        InstanceReach::Network(origin) => match &origin.socket {
            Some(path) => attributes.text("server.address", path),
            None => {
                attributes.text("server.address", origin.host.as_str());
                attributes.number("server.port", u64::from(origin.port));
            }
        },
        InstanceReach::Echo(_) | InstanceReach::Speech => {}
    }
}

/// Adds the tokens, where cached and reasoning tokens are parts of input and output, and the cost.
fn usage(attributes: &mut Attributes<'_, '_>, tokens: &TokenCounts, cost_nano_usd: Option<u64>) {
    attributes.number("gen_ai.usage.input_tokens", tokens.input_total());
    attributes.number("gen_ai.usage.output_tokens", tokens.output_total());
    let written = tokens.cache_write.saturating_add(tokens.cache_write_1h);
    for (key, count) in [
        ("gen_ai.usage.cache_read.input_tokens", tokens.cache_read),
        ("gen_ai.usage.cache_creation.input_tokens", written),
        ("gen_ai.usage.reasoning.output_tokens", tokens.reasoning),
    ] {
        attributes.optional_number(key, Some(count).filter(|count| *count > 0));
    }
    if let Some(nano) = cost_nano_usd {
        // An amount in billionths of a dollar, as a duration in billionths of a second, becomes a fraction without loss.
        attributes.fraction("llmgw.cost", Duration::from_nanos(nano).as_secs_f64());
    }
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

/// The identity, times and status of a span.
struct Common<'a> {
    request: &'a RequestSpan,
    id: SpanId,
    parent: Option<SpanId>,
    kind: SpanKind,
    /// The begin and the end in nanoseconds since the Unix epoch.
    times: (u64, u64),
    failed: bool,
    flags: u32,
}

impl Common<'_> {
    /// Writes a span with its fields in the order of their numbers, as the official encoders do. `details` writes attributes
    /// and events.
    fn write(&self, fields: &mut Fields<'_>, name: &[&[u8]], details: impl FnOnce(&mut Fields<'_>)) {
        let (start_ns, end_ns) = self.times;
        fields.bytes(span::TRACE_ID, &self.request.trace.0.get().to_be_bytes());
        fields.bytes(span::SPAN_ID, &self.id.0.get().to_be_bytes());
        if let Some(state) = self.request.state.as_ref().and_then(|state| state.to_str().ok()) {
            fields.bytes(span::TRACE_STATE, state.as_bytes());
        }
        if let Some(parent) = self.parent {
            fields.bytes(span::PARENT_SPAN_ID, &parent.0.get().to_be_bytes());
        }
        fields.text_of(span::NAME, name);
        fields.varint_field(span::KIND, self.kind as u64);
        fields.fixed64(span::START_NS, start_ns);
        fields.fixed64(span::END_NS, end_ns);
        details(fields);
        let code = if self.failed { STATUS_ERROR } else { 0 };
        fields.message(span::STATUS, |status| status.varint_field(3, code));
        fields.fixed32(span::FLAGS, self.flags);
    }
}

fn remote_parent(request: &RequestSpan) -> u32 {
    if request.parent.is_some() { PARENT_IS_REMOTE } else { 0 }
}

fn flags(request: &RequestSpan) -> u32 {
    PARENT_IS_KNOWN | u32::from(request.is_sampled)
}

fn seconds(us: u64) -> f64 {
    Duration::from_micros(us).as_secs_f64()
}

/// The value of `http.request.method` of a method that the conventions do not know.
const OTHER_METHOD: &str = "_OTHER";
/// The value of `Status.code` of a failed span.
const STATUS_ERROR: u64 = 2;
/// The flag of a span that states if its parent is in another process, and the flag of one whose parent is.
const PARENT_IS_KNOWN: u32 = 0x100;
const PARENT_IS_REMOTE: u32 = 0x200;
/// The spans of most requests are shorter.
const USUAL_BYTES: usize = 1_536;
