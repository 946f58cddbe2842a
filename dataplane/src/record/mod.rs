//! The record of one exchange in progress. Every exchange produces exactly one usage event, however it ends; if the
//! client just disconnects, dropping the record sends the event.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::access::Access;
use shared::error_kind::ErrorKind;
use shared::health::InFlight;
use shared::id::{ModelId, ProviderId};
use shared::operation::{Dialect, Operation};
use shared::quota::{Quota, Reservation};
use shared::routing::Model;
use shared::trace_context::RequestSpan;
use shared::usage::{
    Details, Finish, Note, Outcome, Provenance, StepResult, TokenCounts, Units, Unpriced, UsageEvent,
};
use wire::envelope::EnvelopeFamily;
use wire::extras::Extras;
use wire::request::{BYTES_PER_TOKEN, InputSize, MediaWish};

pub(crate) use self::attempts::{FailedStep, Used};
use self::cost::{HeldReservations, counts_as, set_cost, spent, with_lost};
pub(crate) use self::recorder::UsageRecorder;
use crate::error::Fault;
use crate::metrics::add;
use crate::running::RunningEntry;

mod attempts;
mod cost;
mod recorder;

/// The time that an exchange has waited in lines of quotas.
#[derive(Debug, Default)]
struct QueueTime {
    /// The start of the current wait.
    since: Option<Instant>,
    /// The waits that have ended, in microseconds.
    us: u64,
}

/// Collects the usage event of one exchange and sends it when the exchange ends.
#[derive(Debug)]
pub(crate) struct Record {
    recorder: Rc<UsageRecorder>,
    started: Instant,
    /// The time so far that was not the gateway's own, in microseconds: waiting for the request body, attempts that have
    /// ended, and pauses.
    outside_us: u64,
    /// The waits in lines of quotas, if there was any.
    queued: Option<Box<QueueTime>>,
    /// The start of the current pause before an attempt.
    paused_at: Option<Instant>,
    /// `None` once the event has been sent.
    event: Option<Box<UsageEvent>>,
    /// The model of the latest attempt; its prices apply.
    model: Option<Arc<Model>>,
    /// True if the latest attempt costs nothing: it uses the built-in voice, or state that a provider stores.
    free: bool,
    /// The dialect of the request. With `input`, it determines the estimated tokens if the upstream reports none.
    dialect: Dialect,
    input: Rc<InputSize>,
    /// The pictures or videos that the request asks for.
    media: Option<Box<MediaWish>>,
    /// Quota reservations of the exchange, held until it is recorded.
    held: Option<HeldReservations>,
    /// The attempt in flight, until the last byte of its answer, if its target is measured.
    in_flight: Option<InFlight>,
    /// The same, of its key, if the provider has several.
    lane_in_flight: Option<InFlight>,
    /// The exchange's note in the usage log, if one has been written.
    note: Option<Note>,
    running: Rc<RunningEntry>,
    /// The span of the request, if it has one.
    span: Option<Box<RequestSpan>>,
}

/// Consumption that an answer reports.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    pub(crate) tokens: Option<TokenCounts>,
    /// Tokens reported for the input alone.
    pub(crate) input: Option<TokenCounts>,
    pub(crate) extras: Extras,
    pub(crate) finish: Option<Finish>,
    /// Bytes of output text.
    pub(crate) output_bytes: u64,
}

/// Result of closing a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    /// The cost of the exchange; `None` if it is unknown or the record was closed before.
    pub(crate) cost_nano_usd: Option<u64>,
    /// False if no usage log accepted the record: the client must not get a complete answer.
    pub(crate) is_recorded: bool,
}

/// Initial values of a record.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) started: Instant,
    pub(crate) started_at_ms: u64,
    pub(crate) operation: Operation,
    pub(crate) access: &'a Access,
    pub(crate) stream: bool,
    pub(crate) dialect: Dialect,
    pub(crate) input: &'a Rc<InputSize>,
    pub(crate) tags: Option<Box<str>>,
    pub(crate) end_user: Option<Box<str>>,
    pub(crate) session: Option<Box<str>>,
    /// The length of the request body.
    pub(crate) body_bytes: u64,
    /// The time for which the request body was waited for, in microseconds.
    pub(crate) body_wait_us: u64,
    pub(crate) media: Option<&'a MediaWish>,
    pub(crate) running: &'a Rc<RunningEntry>,
    pub(crate) span: Option<Box<RequestSpan>>,
}

/// Initial capacity of a trace, in steps.
const STEPS_USUAL: usize = 2;
/// Status recorded if the client disconnects before it gets one, as in nginx's log.
const CLIENT_CLOSED: u16 = 499;

impl Record {
    pub(crate) fn open(recorder: &Rc<UsageRecorder>, opening: Opening<'_>) -> Self {
        let event = UsageEvent {
            request_id: Arc::clone(opening.running.request_id()),
            started_at_ms: opening.started_at_ms,
            duration_us: 0,
            operation: opening.operation,
            key: opening.access.key.clone(),
            project: opening.access.project.clone(),
            principal: opening.access.acts_as.clone(),
            selector: opening.running.selector(),
            endpoint: None,
            provider: None,
            model: None,
            stream: opening.stream,
            status: CLIENT_CLOSED,
            outcome: Outcome::Cancelled,
            error: None,
            tokens: TokenCounts::ZERO,
            units: Units::ZERO,
            provenance: Provenance::None,
            tier: None,
            picture: None,
            vendor_cost_nano_usd: None,
            upstream_id: None,
            tags: opening.tags,
            end_user: opening.end_user,
            cost_nano_usd: None,
            price: None,
            unpriced: Unpriced::NOTHING,
            quota_nano_usd: None,
            head_us: None,
            first_content_us: None,
            details: Details {
                client: opening.running.client(),
                session: opening.session,
                bytes_in: Some(opening.body_bytes),
                ..Details::default()
            },
            trace: Vec::with_capacity(STEPS_USUAL),
        };
        Self {
            recorder: Rc::clone(recorder),
            started: opening.started,
            outside_us: opening.body_wait_us,
            queued: None,
            paused_at: None,
            event: Some(Box::new(event)),
            model: None,
            free: false,
            dialect: opening.dialect,
            input: Rc::clone(opening.input),
            media: opening.media.cloned().map(Box::new),
            held: None,
            in_flight: None,
            lane_in_flight: None,
            note: None,
            running: Rc::clone(opening.running),
            span: opening.span,
        }
    }

    /// Moves the exchange into a new record and leaves this one closed.
    pub(crate) fn take(&mut self) -> Self {
        Self {
            recorder: Rc::clone(&self.recorder),
            started: self.started,
            outside_us: self.outside_us,
            queued: self.queued.take(),
            paused_at: self.paused_at.take(),
            event: self.event.take(),
            model: self.model.take(),
            free: self.free,
            dialect: self.dialect,
            input: std::mem::take(&mut self.input),
            media: self.media.take(),
            held: self.held.take(),
            in_flight: self.in_flight.take(),
            lane_in_flight: self.lane_in_flight.take(),
            note: self.note.take(),
            running: Rc::clone(&self.running),
            span: self.span.take(),
        }
    }

    /// Takes ownership of the exchange's quota reservation.
    pub(crate) fn hold(&mut self, reservation: Reservation) {
        if self.event.is_some() {
            self.held =
                Some(HeldReservations { reservation, of_target: Reservation::default(), first_step: 0 });
        } else {
            reservation.release();
        }
    }

    /// Takes ownership of the reservation under quotas that depend on the next target to be tried.
    pub(crate) fn hold_target(&mut self, reservation: Reservation) {
        if let (Some(event), Some(held)) = (&self.event, &mut self.held) {
            held.leave_target(event);
            held.of_target = reservation;
            held.first_step = event.trace.len();
        } else {
            reservation.release();
        }
    }

    /// Settles the reservation of a target that did not serve, charging only what its failed attempts used.
    pub(crate) fn leave_target(&mut self) {
        if let (Some(event), Some(held)) = (&self.event, &mut self.held) {
            held.leave_target(event);
        }
    }

    /// Returns the warn-only quotas that would otherwise have refused the exchange.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &Quota> {
        self.held.iter().flat_map(HeldReservations::warnings)
    }

    /// Returns the exchange's entry in the list of running exchanges.
    pub(crate) fn running(&self) -> &Rc<RunningEntry> {
        &self.running
    }

    /// Applies `change` to the event unless it has been sent.
    pub(crate) fn note(&mut self, change: impl FnOnce(&mut UsageEvent)) {
        if let Some(event) = &mut self.event {
            change(event);
        }
    }

    /// Records the consumption that the served attempt's answer reports. Tokens it does not report are estimated.
    pub(crate) fn report(&mut self, reported: Reported) {
        if self.event.as_ref().is_some_and(|event| event.operation == Operation::StoredResponses) {
            // A stored response repeats its usage, which the exchange that made it has recorded.
            return;
        }
        let characters = self.input.characters;
        let Extras { mut units, tier, picture, vendor_cost_nano_usd } = reported.extras;
        let picture = picture.or_else(|| self.asked_picture());
        let seconds = self.media.as_ref().and_then(|media| media.seconds).unwrap_or(0);
        if reported.tokens.is_none() && units.audio_ms == 0 && self.dialect == Dialect::Transcription {
            // Applies to an upload whose format states its duration.
            units.audio_ms = self.input.audio_ms;
        }
        if units.video_ms == 0 {
            units.video_ms = u64::from(seconds).saturating_mul(1_000);
        }
        self.note(|event| {
            match reported.tokens {
                Some(tokens) => (event.tokens, event.provenance) = (tokens, Provenance::Reported),
                None => {
                    let input = reported.input.unwrap_or(event.tokens);
                    let output = reported.output_bytes.div_ceil(BYTES_PER_TOKEN);
                    event.tokens = TokenCounts { output, reasoning: 0, ..input };
                    event.provenance = Provenance::Estimated;
                }
            }
            event.units = Units { characters, ..units };
            event.details.finish = reported.finish;
            (event.tier, event.picture, event.vendor_cost_nano_usd) = (tier, picture, vendor_cost_nano_usd);
        });
    }

    /// Returns the picture type, or else the size, that the request asks for.
    fn asked_picture(&self) -> Option<Box<str>> {
        let media = self.media.as_ref()?;
        media.picture.clone().or_else(|| media.size.clone())
    }

    /// Returns the time at which the request arrived.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Records the error sent to the client, and closes the record as failed.
    pub(crate) fn fail(&mut self, fault: &Fault) {
        let family = EnvelopeFamily::of(self.dialect);
        self.note(|event| {
            event.error = Some(fault.kind);
            event.status = fault.status();
            event.details.set_message(fault.text());
            event.details.bytes_out = Some(fault.answer_body(family, &event.request_id).len() as u64);
        });
        self.close(Outcome::Failed);
    }

    /// Sends the event. It is called before the client gets the last byte; later calls do nothing.
    pub(crate) fn close(&mut self, outcome: Outcome) -> Closed {
        self.end_wait(None);
        let Some(mut event) = self.event.take() else {
            return Closed { cost_nano_usd: None, is_recorded: true };
        };
        event.outcome = outcome;
        self.running.end();
        if outcome == Outcome::Cancelled && self.running.is_cancelled() {
            event.error = Some(ErrorKind::Cancelled);
            if event.first_content_us.is_none() {
                event.details.set_message(Fault::cancelled().text());
            }
        }
        if self.free {
            event.cost_nano_usd = Some(0);
        } else {
            let bill = set_cost(&mut event, self.model.as_deref());
            event.quota_nano_usd = counts_as(self.held.as_ref(), bill);
        }
        if event.error != Some(ErrorKind::QuotaExceeded) {
            // Another target was tried.
            event.details.refused_by = None;
        }
        event.duration_us = micros(self.started.elapsed());
        self.resume();
        if event.details.gateway_us.is_none() {
            event.details.gateway_us = Some(own_time(&event, self.outside_us));
        }
        self.recorder.counters.observe(&event);
        if let Some(queued) = &self.queued {
            self.recorder.counters.queue.observe(queued.us);
        }
        if self.recorder.logs_requests {
            log(&event);
        }
        let cost_nano_usd = event.cost_nano_usd;
        let spent = self.held.as_ref().map(|held| {
            let spent = spent(&event);
            (with_lost(spent, &event, 0), with_lost(spent, &event, held.first_step))
        });
        let is_recorded = self.recorder.append(&event);
        if let (Some(held), Some((spent, at_target))) = (self.held.take(), spent) {
            add(&self.recorder.counters.quota_warnings, u64::from(held.warnings().next().is_some()));
            held.reservation.settle(&spent);
            held.of_target.settle(&at_target);
        }
        // The note of an exchange without a record stays in the log: the next start turns it into a record.
        if let Some(note) = self.note.take().filter(|_| is_recorded) {
            self.recorder.strike(note);
        }
        self.recorder.export(self.span.as_deref(), &event);
        Closed { cost_nano_usd, is_recorded }
    }

    /// Returns true if the event has been sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.event.is_none()
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.close(Outcome::Cancelled);
    }
}

/// Returns the gateway's own time of an exchange that ended without content; `outside_us` does not contain the attempt
/// that was in progress.
fn own_time(event: &UsageEvent, outside_us: u64) -> u64 {
    let running = event.trace.last().filter(|step| step.result == StepResult::Cancelled);
    let began_us = running.filter(|step| step.spent_us.is_none()).and_then(|step| step.start_us);
    let until_us = began_us.unwrap_or(event.duration_us);
    until_us.saturating_sub(outside_us)
}

/// Logs one line of metadata, never a body, a key or a prompt (CFG-7).
fn log(event: &UsageEvent) {
    tracing::info!(
        request.id = %event.request_id,
        operation = event.operation.name(),
        key.id = %event.key,
        selector = &*event.selector,
        provider.id = event.provider.as_ref().map(ProviderId::as_str),
        model = event.model.as_ref().map(ModelId::as_str),
        status = event.status,
        outcome = event.outcome.name(),
        attempts = event.trace.len(),
        duration_us = event.duration_us,
        tokens = event.tokens.total(),
        "request"
    );
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
