//! The record of one exchange in progress. Every exchange produces exactly one usage event, however it ends; if the
//! client just disconnects, dropping the record sends the event.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::access::Access;
use shared::error_kind::ErrorKind;
use shared::id::{ModelId, ProviderId};
use shared::operation::{Dialect, Operation};
use shared::prices::{Bill, Billed, VENDOR_LABEL, price};
use shared::quota::{Metric, Quota, Reservation, Spent};
use shared::routing::{InstanceReach, Model, Target};
use shared::usage::{Lost, Note, Outcome, Provenance, StepResult, TokenCounts, TraceStep, Units, UsageEvent};
use wire::extras::Extras;
use wire::request::{BYTES_PER_TOKEN, InputSize, MediaWish};

use crate::attempt::{Failure, Used};
use crate::metrics::add;
use crate::worker::Worker;

/// Collects the usage event of one exchange and sends it when the exchange ends.
#[derive(Debug)]
pub(crate) struct Record {
    worker: Rc<Worker>,
    started: Instant,
    /// `None` once the event has been sent.
    event: Option<Box<UsageEvent>>,
    /// The model of the latest attempt; its prices apply.
    model: Option<Arc<Model>>,
    /// True if the latest attempt uses the built-in voice, which costs nothing.
    free: bool,
    /// The dialect of the request. With `input`, it determines the estimated tokens if the upstream reports none.
    dialect: Dialect,
    input: Rc<InputSize>,
    /// The pictures or videos that the request asks for.
    media: Option<Box<MediaWish>>,
    /// Quota reservations of the exchange, held until it is recorded.
    held: Option<Held>,
    /// The exchange's note in the usage log, if one has been written.
    note: Option<Note>,
}

/// Quota reservations of one exchange; see [`Record::hold`].
#[derive(Debug)]
struct Held {
    /// Reservation under the quotas that count the exchange regardless of its target.
    reservation: Reservation,
    /// Reservation under the quotas that apply to the current target, or to the target that has served.
    of_target: Reservation,
    /// Index of the first trace step of that target.
    first_step: usize,
}

/// Consumption that an answer reports.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    pub(crate) tokens: Option<TokenCounts>,
    /// Tokens reported for the input alone.
    pub(crate) input: Option<TokenCounts>,
    pub(crate) extras: Extras,
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
    pub(crate) request_id: &'a str,
    pub(crate) operation: Operation,
    pub(crate) access: &'a Access,
    pub(crate) selector: &'a str,
    pub(crate) stream: bool,
    pub(crate) dialect: Dialect,
    pub(crate) input: &'a Rc<InputSize>,
    pub(crate) tags: Option<Box<str>>,
    pub(crate) end_user: Option<Box<str>>,
    pub(crate) media: Option<&'a MediaWish>,
}

/// Maximum bytes of a client's selector that are recorded.
const SELECTOR_BYTES_MAX: usize = 256;
/// Initial capacity of a trace, in steps.
const STEPS_USUAL: usize = 2;
/// Status recorded if the client disconnects before it gets one, as in nginx's log.
const CLIENT_CLOSED: u16 = 499;

impl Record {
    pub(crate) fn open(worker: &Rc<Worker>, opening: Opening<'_>) -> Self {
        let selector = opening.selector;
        let cut = selector.floor_char_boundary(SELECTOR_BYTES_MAX);
        let event = UsageEvent {
            request_id: opening.request_id.into(),
            started_at_ms: opening.started_at_ms,
            duration_us: 0,
            operation: opening.operation,
            key: opening.access.key.clone(),
            project: opening.access.project.clone(),
            principal: opening.access.acts_as.clone(),
            selector: selector.get(..cut).unwrap_or_default().into(),
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
            quota_nano_usd: None,
            head_us: None,
            first_content_us: None,
            trace: Vec::with_capacity(STEPS_USUAL),
        };
        Self {
            worker: Rc::clone(worker),
            started: opening.started,
            event: Some(Box::new(event)),
            model: None,
            free: false,
            dialect: opening.dialect,
            input: Rc::clone(opening.input),
            media: opening.media.cloned().map(Box::new),
            held: None,
            note: None,
        }
    }

    /// Moves the exchange into a new record and leaves this one closed.
    pub(crate) fn take(&mut self) -> Self {
        Self {
            worker: Rc::clone(&self.worker),
            started: self.started,
            event: self.event.take(),
            model: self.model.take(),
            free: self.free,
            dialect: self.dialect,
            input: std::mem::take(&mut self.input),
            media: self.media.take(),
            held: self.held.take(),
            note: self.note.take(),
        }
    }

    /// Takes ownership of the exchange's quota reservation.
    pub(crate) fn hold(&mut self, reservation: Reservation) {
        if self.event.is_some() {
            self.held = Some(Held { reservation, of_target: Reservation::default(), first_step: 0 });
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
        self.held.iter().flat_map(Held::warnings)
    }

    /// Applies `change` to the event unless it has been sent.
    pub(crate) fn note(&mut self, change: impl FnOnce(&mut UsageEvent)) {
        if let Some(event) = &mut self.event {
            change(event);
        }
    }

    /// Records the consumption that the served attempt's answer reports. Tokens it does not report are estimated.
    pub(crate) fn report(&mut self, reported: Reported) {
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
            (event.tier, event.picture, event.vendor_cost_nano_usd) = (tier, picture, vendor_cost_nano_usd);
        });
    }

    /// Returns the picture type, or else the size, that the request asks for.
    fn asked_picture(&self) -> Option<Box<str>> {
        let media = self.media.as_ref()?;
        media.picture.clone().or_else(|| media.size.clone())
    }

    /// Records the start of an attempt at `target`: from now on its input counts as used. The step is corrected when
    /// the attempt ends. Returns false if a hard quota applies to the exchange and the note cannot be written; then
    /// nothing may go upstream.
    pub(crate) fn begin_step(&mut self, target: &Target) -> bool {
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
        let may_go = self.note_running();
        self.note(|event| {
            if may_go {
                event.trace.push(step(target, StepResult::Cancelled));
            } else {
                (event.tokens, event.provenance) = (TokenCounts::ZERO, Provenance::None);
            }
        });
        may_go
    }

    /// Writes a note of the exchange as it is to be recorded if the process dies before it ends, with its reservations
    /// counted as used. The note replaces the exchange's earlier one. Only streams and exchanges that hold a
    /// reservation under a hard quota are noted: for a short whole answer a note would cost as much as the record
    /// itself. Returns false if a note is required and cannot be written.
    fn note_running(&mut self) -> bool {
        let Some(event) = &mut self.event else { return true };
        let has_to_be = self.held.as_ref().is_some_and(Held::is_hard);
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
        let note = self.worker.note_usage(event);
        event.tokens.output = 0;
        (event.cost_nano_usd, event.price, event.quota_nano_usd) = (None, None, None);
        let is_noted = note.is_some();
        match note.and_then(|note| self.note.replace(note)) {
            Some(earlier) => self.worker.strike_note(earlier),
            None if !is_noted && !has_to_be => add(&self.worker.counters.unnoted, 1),
            None => {}
        }
        is_noted || !has_to_be
    }

    /// Records that the latest attempt failed after `spent`. Usage reported by its upstream is recorded as lost.
    pub(crate) fn end_step(&mut self, failure: &Failure, spent: Duration) {
        let lost = failure.used.as_deref().map(|used| Box::new(self.lost(used)));
        self.note(|event| {
            event.tokens = TokenCounts::ZERO;
            event.provenance = Provenance::None;
            if let Some(step) = event.trace.last_mut() {
                step.result = failure.result;
                step.status = failure.status.or(step.status);
                step.spent_us = Some(micros(spent));
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

    /// Records that the upstream's head arrived at `now`, in an attempt that began at `began`.
    pub(crate) fn head(&mut self, status: u16, began: Instant, now: Instant) {
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
        let started = self.started;
        self.note(|event| {
            event.first_content_us = Some(micros(now - started));
            if let Some(step) = event.trace.last_mut() {
                step.result = StepResult::Served;
                step.spent_us = Some(micros(now - began));
            }
        });
    }

    /// Returns the time at which the request arrived.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Records that a target was skipped.
    pub(crate) fn skip(&mut self, target: &Target, result: StepResult) {
        self.note(|event| event.trace.push(step(target, result)));
    }

    /// Records the error kind and status sent to the client, and closes the record as failed.
    pub(crate) fn fail(&mut self, kind: ErrorKind, status: u16) {
        self.note(|event| {
            event.error = Some(kind);
            event.status = status;
        });
        self.close(Outcome::Failed);
    }

    /// Sends the event. It is called before the client gets the last byte; later calls do nothing.
    pub(crate) fn close(&mut self, outcome: Outcome) -> Closed {
        let Some(mut event) = self.event.take() else {
            return Closed { cost_nano_usd: None, is_recorded: true };
        };
        event.outcome = outcome;
        if self.free {
            event.cost_nano_usd = Some(0);
        } else {
            let bill = set_cost(&mut event, self.model.as_deref());
            event.quota_nano_usd = counts_as(self.held.as_ref(), bill);
        }
        event.duration_us = micros(self.started.elapsed());
        self.worker.counters.observe(&event);
        if self.worker.plane.settings.log_requests {
            log(&event);
        }
        let cost_nano_usd = event.cost_nano_usd;
        let spent = self.held.as_ref().map(|held| {
            let spent = spent(&event);
            (with_lost(spent, &event, 0), with_lost(spent, &event, held.first_step))
        });
        let is_recorded = self.worker.log_usage(&event);
        if let (Some(held), Some((spent, at_target))) = (self.held.take(), spent) {
            add(&self.worker.counters.quota_warnings, u64::from(held.warnings().next().is_some()));
            held.reservation.settle(&spent);
            held.of_target.settle(&at_target);
        }
        // The note of an exchange without a record stays in the log: the next start turns it into a record.
        if let Some(note) = self.note.take().filter(|_| is_recorded) {
            self.worker.strike_note(note);
        }
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

impl Held {
    fn warnings(&self) -> impl Iterator<Item = &Quota> {
        self.reservation.warnings().chain(self.of_target.warnings())
    }

    fn is_hard(&self) -> bool {
        self.reservation.is_hard() || self.of_target.is_hard()
    }

    /// Returns the largest reservation of `metric` under a hard quota.
    fn most(&self, metric: Metric) -> Option<u64> {
        self.reservation.held(metric).max(self.of_target.held(metric))
    }

    /// Returns the reserved cost. Warn-only quotas count only if there is no reservation under a hard one.
    fn cost(&self) -> Option<u64> {
        let softly = || {
            let [all, target] =
                [&self.reservation, &self.of_target].map(|part| part.held_softly(Metric::CostMicroUsd));
            all.max(target)
        };
        self.most(Metric::CostMicroUsd).or_else(softly)
    }

    fn leave_target(&mut self, event: &UsageEvent) {
        let nothing = Spent { cost_nano_usd: Some(0), ..Spent::default() };
        std::mem::take(&mut self.of_target).settle(&with_lost(nothing, event, self.first_step));
    }
}

/// Sets the cost of what the served attempt used, at the prices of `model`.
fn set_cost(event: &mut UsageEvent, model: Option<&Model>) -> Bill {
    let bill = price(&billed(event), model.and_then(|model| model.prices.as_ref()));
    event.cost_nano_usd = bill.cost;
    let used = event.tokens.total() > 0 || !event.units.is_empty();
    let label =
        if bill.by_vendor { Some(VENDOR_LABEL.into()) } else { model.and_then(|m| m.price_label.clone()) };
    event.price = label.filter(|_| used && bill.cost.is_some());
    bill
}

/// Returns the amount to charge to cost quotas for an attempt whose cost is unknown: the larger of the reservation and
/// of the part that has a price, so that a token class without a price never frees quota.
fn counts_as(held: Option<&Held>, bill: Bill) -> Option<u64> {
    if bill.cost.is_some() {
        return None;
    }
    Some(held?.cost()?.max(bill.known))
}

/// Returns what the exchange counts for in quotas, excluding failed attempts.
fn spent(event: &UsageEvent) -> Spent {
    Spent::of(event.outcome, &event.tokens, event.cost_nano_usd.or(event.quota_nano_usd))
}

/// Adds the consumption of the failed attempts from trace step `first_step` on.
fn with_lost(mut spent: Spent, event: &UsageEvent, first_step: usize) -> Spent {
    let lost = event.trace.iter().skip(first_step).filter_map(|step| step.lost.as_deref());
    lost.for_each(|lost| spent.add_lost(lost));
    spent
}

fn billed(event: &UsageEvent) -> Billed<'_> {
    Billed {
        operation: event.operation,
        provenance: event.provenance,
        tokens: &event.tokens,
        units: &event.units,
        tier: event.tier.as_deref(),
        picture: event.picture.as_deref(),
        vendor_cost: event.vendor_cost_nano_usd,
    }
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

fn step(target: &Target, result: StepResult) -> TraceStep {
    TraceStep {
        provider: target.provider.id.clone(),
        model: target.model.id.clone(),
        result,
        status: None,
        head_us: None,
        spent_us: None,
        lost: None,
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
