//! The attempts of an exchange in progress, as its record shows them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use shared::clock::monotonic_ms;
use shared::error_rule::AppliedRule;
use shared::id::ProviderId;
use shared::operation::Dialect;
use shared::prices::{Bill, Billed, price};
use shared::quota::{Metric, Quota};
use shared::routing::{InstanceReach, Target};
use shared::running::Stage;
use shared::sanitize::without_quoted_text;
use shared::trace_context::RequestSpan;
use shared::usage::{Details, Lost, Provenance, StepResult, TokenCounts, TraceStep};
use wire::extras::Extras;

use super::cost::{HeldReservations, counts_as, set_cost};
use super::{Record, micros};
use crate::metrics::add;

/// The end of an attempt without an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedStep<'a> {
    pub(crate) result: StepResult,
    pub(crate) status: Option<u16>,
    /// The error, sanitized.
    pub(crate) message: &'a str,
    /// The wait that the upstream asked for.
    pub(crate) retry_after: Option<Duration>,
    /// The consumption that the upstream reported despite the failure.
    pub(crate) used: Option<&'a Used>,
    /// The rule of the provider instance that decided the next step.
    pub(crate) rule: Option<AppliedRule>,
    /// True if the attempt was given up because it was too slow: what it consumed without a report is unknown.
    pub(crate) is_slow: bool,
    /// True if the target is to blame, not the request.
    pub(crate) is_of_target: bool,
}

/// Consumption that an upstream reported for a failed attempt.
#[derive(Debug)]
pub(crate) struct Used {
    pub(crate) tokens: TokenCounts,
    pub(crate) extras: Extras,
}

impl Record {
    /// Records the start of an attempt at `target`: from now on its input counts as used. The step is corrected when
    /// the attempt ends. Returns the time of the start, or `None` if a hard quota applies to the exchange and the note
    /// cannot be written; then nothing may go upstream.
    pub(crate) fn begin_step(&mut self, target: &Target) -> Option<Instant> {
        let input = self.input.estimate(self.dialect, target.model.id.as_str());
        let tokens = TokenCounts { input, ..TokenCounts::default() };
        self.model = Some(Arc::clone(&target.model));
        self.free = matches!(target.provider.reach, InstanceReach::Speech);
        self.note(|event| {
            event.provider = Some(target.provider.id.clone());
            event.model = Some(target.model.id.clone());
            event.upstream_id = None;
            event.tokens = tokens;
            event.provenance = Provenance::Estimated;
        });
        if !self.note_running() {
            self.note(|event| (event.tokens, event.provenance) = (TokenCounts::ZERO, Provenance::None));
            return None;
        }
        self.running.begin_attempt(target);
        // The attempt before it, if any, is no longer in flight.
        let lane = target.provider.lane.as_ref();
        let of_instance = lane.map_or(&target.provider.circuits, |lane| &lane.of_instance);
        self.in_flight = of_instance.loads().of(&target.model.id).map(|load| load.begin());
        self.lane_in_flight = lane.map(|_| target.provider.circuits.load().begin());
        let began = Instant::now();
        let start_us = Some(micros(began - self.started));
        let credential = lane.map(|lane| lane.number);
        let step = step(target, StepResult::Cancelled);
        self.note(|event| event.trace.push(TraceStep { start_us, credential, ..step }));
        Some(began)
    }

    /// Records the start of an operation on state that `provider` stores, which uses no model and costs nothing. The time
    /// until its end is not the gateway's own. Returns the time of the start, or `None` if a hard quota applies to the exchange
    /// and the note cannot be written; then nothing may go upstream.
    pub(crate) fn begin_on_stored(&mut self, provider: &ProviderId) -> Option<Instant> {
        self.free = true;
        self.note(|event| event.provider = Some(provider.clone()));
        if !self.note_running() {
            return None;
        }
        self.running.enter(Stage::Waiting);
        self.pause();
        Some(Instant::now())
    }

    /// Returns the span of the request, and the place of the latest attempt in the route trace.
    pub(crate) fn span(&self) -> (Option<&RequestSpan>, usize) {
        let steps = self.event.as_ref().map_or(0, |event| event.trace.len());
        (self.span.as_deref(), steps.saturating_sub(1))
    }

    /// Records the translation of the request for the target that is tried next: its dialect, if it differs from the
    /// client's, the names of the fields that were left out or changed, and the members that settings have changed.
    pub(crate) fn adapted(
        &mut self,
        target: Option<Dialect>,
        fields: [Option<&HeaderValue>; 2],
        members: &[String],
    ) {
        let names = fields.into_iter().flatten().filter_map(|names| names.to_str().ok());
        let names: Vec<_> = names.chain(members.iter().map(String::as_str)).collect();
        let dropped = (!names.is_empty()).then(|| {
            let names = names.join(", ");
            let end = names.floor_char_boundary(Details::DROPPED_BYTES_MAX);
            names.split_at(end).0.into()
        });
        self.note(|event| (event.details.adapted, event.details.dropped) = (target, dropped));
    }

    /// Records that the exchange waits in the line of a quota before `target` is tried.
    pub(crate) fn begin_wait(&mut self, target: &Target, quota: &Quota) {
        self.pause();
        self.running.enter(Stage::Queued);
        let now = Instant::now();
        self.queued.get_or_insert_default().since = Some(now);
        let start_us = Some(micros(now - self.started));
        let message = Some(quota.id.clone());
        let step = TraceStep { start_us, message, ..step(target, StepResult::Waited) };
        self.note(|event| event.trace.push(step));
    }

    /// Records the end of the wait, and, if it was for another one than at first, the target and the quota.
    pub(crate) fn end_wait(&mut self, called: Option<(&Target, &Quota)>) {
        let Some(since) = self.queued.as_mut().and_then(|queued| queued.since.take()) else { return };
        self.resume();
        self.running.enter(Stage::Paused);
        let spent_us = micros(since.elapsed());
        if let Some(queued) = &mut self.queued {
            queued.us = queued.us.saturating_add(spent_us);
        }
        self.note(|event| {
            let mut steps = event.trace.iter_mut().rev();
            let Some(step) = steps.find(|step| step.result == StepResult::Waited) else { return };
            step.spent_us = Some(spent_us);
            if let Some((target, quota)) = called {
                step.provider = target.provider.id.clone();
                step.model = target.model.id.clone();
                step.message = Some(quota.id.clone());
            }
        });
    }

    /// Records the start of a pause before an attempt.
    pub(crate) fn pause(&mut self) {
        self.paused_at = Some(Instant::now());
    }

    /// Records the end of a pause.
    pub(crate) fn resume(&mut self) {
        if let Some(paused_at) = self.paused_at.take() {
            self.outside_us = self.outside_us.saturating_add(micros(paused_at.elapsed()));
        }
    }

    /// Writes a note of the exchange as it is to be recorded if the process dies before it ends, with its reservations
    /// counted as used. The note replaces the exchange's earlier one. Only streams and exchanges that hold a
    /// reservation under a hard quota are noted: for a short whole answer a note would cost as much as the record
    /// itself. Returns false if a note is required and cannot be written.
    fn note_running(&mut self) -> bool {
        let Some(event) = &mut self.event else { return true };
        let has_to_be = self.held.as_ref().is_some_and(HeldReservations::is_hard);
        if !has_to_be && !event.stream {
            return true;
        }
        let held = |metric| self.held.as_ref().and_then(|held| held.most(metric));
        let total = held(Metric::TotalTokens).map(|total| total.saturating_sub(event.tokens.input));
        event.tokens.output = held(Metric::OutputTokens).max(total).unwrap_or(0);
        match held(Metric::CostMicroUsd) {
            _ if self.free => event.cost_nano_usd = Some(0),
            Some(reserved) => event.cost_nano_usd = Some(reserved),
            None => {
                let bill = set_cost(event, self.model.as_deref());
                event.quota_nano_usd = counts_as(self.held.as_ref(), bill);
            }
        }
        let note = self.recorder.note(event);
        event.tokens.output = 0;
        (event.cost_nano_usd, event.price, event.quota_nano_usd) = (None, None, None);
        let is_noted = note.is_some();
        match note.and_then(|note| self.note.replace(note)) {
            Some(earlier) => self.recorder.strike(earlier),
            None if !is_noted && !has_to_be => add(&self.recorder.counters.unnoted, 1),
            None => {}
        }
        is_noted || !has_to_be
    }

    /// Records that the latest attempt failed after `spent`. Usage reported by its upstream is recorded as lost.
    pub(crate) fn end_step(&mut self, failed: FailedStep<'_>, spent: Duration) {
        self.running.enter(Stage::Paused);
        self.lane_in_flight = None;
        if let Some(in_flight) = self.in_flight.take().filter(|_| failed.is_of_target) {
            in_flight.failed(micros(spent), monotonic_ms());
        }
        let lost = match failed.used {
            Some(used) => Some(Box::new(self.lost(used))),
            None if failed.is_slow => Some(Box::new(self.lost_unreported())),
            None => None,
        };
        self.outside_us = self.outside_us.saturating_add(micros(spent));
        self.note(|event| {
            event.tokens = TokenCounts::ZERO;
            event.provenance = Provenance::None;
            if let Some(step) = event.trace.last_mut() {
                step.result = failed.result;
                step.status = failed.status.or(step.status);
                step.spent_us = Some(micros(spent));
                // Cut after the quotations are removed: a cut one would have no end.
                let message = without_quoted_text(failed.message);
                let rule = failed.rule.map(|rule| format!("{rule}; ")).unwrap_or_default();
                let shown = rule.chars().chain(message.chars());
                step.message = Some(shown.take(TraceStep::MESSAGE_CHARS_MAX).collect());
                step.retry_after_ms = failed.retry_after.map(millis);
                step.lost = lost;
            }
        });
    }

    /// Returns what the latest attempt used, and its cost at the prices of its target.
    fn lost(&self, Used { tokens, extras }: &Used) -> Lost {
        let picture = extras.picture.clone().or_else(|| self.asked_picture());
        let bill = match (&self.event, &self.model) {
            _ if self.free => Bill::FREE,
            (Some(event), Some(model)) => {
                let billed = Billed {
                    operation: event.operation,
                    provenance: Provenance::Reported,
                    tokens,
                    units: &extras.units,
                    tier: extras.tier.as_deref(),
                    picture: picture.as_deref(),
                    vendor_cost: extras.vendor_cost_nano_usd,
                };
                price(&billed, model.prices.as_ref())
            }
            (None, _) | (_, None) => Bill::UNKNOWN,
        };
        Lost {
            tokens: *tokens,
            units: extras.units,
            cost_nano_usd: bill.cost,
            tier: extras.tier.clone(),
            picture,
            vendor_cost_nano_usd: extras.vendor_cost_nano_usd,
            quota_nano_usd: counts_as(self.held.as_ref(), bill),
        }
    }

    /// Returns what the latest attempt probably used, if its upstream has not reported it: the input, at an unknown cost.
    fn lost_unreported(&self) -> Lost {
        let bill = if self.free { Bill::FREE } else { Bill::UNKNOWN };
        Lost {
            tokens: self.event.as_ref().map_or(TokenCounts::ZERO, |event| event.tokens),
            cost_nano_usd: bill.cost,
            quota_nano_usd: counts_as(self.held.as_ref(), bill),
            ..Lost::default()
        }
    }

    /// Records that the upstream's head arrived at `now`, in an attempt that began at `began`.
    pub(crate) fn head(&mut self, status: u16, began: Instant, now: Instant) {
        self.running.enter(Stage::Held);
        let started = self.started;
        self.note(|event| {
            event.head_us = Some(micros(now - started));
            if let Some(step) = event.trace.last_mut() {
                step.status = Some(status);
                step.head_us = Some(micros(now - began));
            }
        });
    }

    /// Records that the first content arrived at `now`, in an attempt that began at `began`.
    pub(crate) fn served(&mut self, began: Instant, now: Instant) {
        let (spent_us, first_content_us) = (micros(now - began), micros(now - self.started));
        let outside_us = self.outside_us.saturating_add(spent_us);
        let is_stream = self.event.as_ref().is_some_and(|event| event.stream);
        if let Some(in_flight) = self.in_flight.as_ref().filter(|_| is_stream) {
            in_flight.first_content(spent_us, monotonic_ms());
        }
        self.note(|event| {
            event.first_content_us = Some(first_content_us);
            event.details.gateway_us = Some(first_content_us.saturating_sub(outside_us));
            if let Some(step) = event.trace.last_mut() {
                step.result = StepResult::Served;
                step.spent_us = Some(spent_us);
            }
        });
    }

    /// Records that a target was skipped.
    pub(crate) fn skip(&mut self, target: &Target, result: StepResult) {
        self.note(|event| event.trace.push(step(target, result)));
    }

    /// Records that a target was skipped because its circuit is open for another `wait_ms`.
    pub(crate) fn skip_open(&mut self, target: &Target, wait_ms: u64) {
        self.skip_for(target, StepResult::CircuitOpen, wait_ms);
    }

    /// Records that a target was skipped because it rests for another `wait_ms`.
    pub(crate) fn skip_resting(&mut self, target: &Target, wait_ms: u64) {
        self.skip_for(target, StepResult::Resting, wait_ms);
    }

    fn skip_for(&mut self, target: &Target, result: StepResult, wait_ms: u64) {
        // A target whose provider has several keys is skipped with one of them, or with all.
        let credential = target.provider.lane.as_ref().map(|lane| lane.number);
        let step = TraceStep { skip_wait_ms: Some(wait_ms), credential, ..step(target, result) };
        self.note(|event| event.trace.push(step));
    }
}

fn step(target: &Target, result: StepResult) -> TraceStep {
    TraceStep::new(target.provider.id.clone(), target.model.id.clone(), result)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
