//! The record of one exchange while it is being made. Whatever ends the exchange, and also if nothing does
//! but the client's leaving, exactly one usage event comes of it.

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
use shared::usage::{Note, Outcome, Provenance, StepResult, TokenCounts, TraceStep, Units, UsageEvent};
use wire::request::InputSize;

use crate::metrics::add;
use crate::worker::Worker;

/// See the module.
#[derive(Debug)]
pub(crate) struct Record {
    worker: Rc<Worker>,
    started: Instant,
    /// Taken when the event is sent.
    event: Option<Box<UsageEvent>>,
    /// The model that was tried last, whose prices hold.
    model: Option<Arc<Model>>,
    /// The gateway's own voice was asked, which nobody bills.
    free: bool,
    /// What the input is taken for where no upstream reports it.
    dialect: Dialect,
    input: InputSize,
    /// What the exchange holds of its caller's quotas, until it is recorded.
    held: Option<Held>,
}

/// See [`Record::hold`].
#[derive(Debug)]
struct Held {
    /// Under the quotas that count it whatever its target is.
    reservation: Reservation,
    /// Under those that count it because of the target that is being tried, or has served.
    of_target: Reservation,
    /// Where it is noted, under hard quotas.
    note: Option<Note>,
}

/// What a record begins with.
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
    pub(crate) input: &'a InputSize,
}

/// Bytes of a client's selector that are kept.
const SELECTOR_BYTES_MAX: usize = 256;
/// The status of an exchange whose client left before it got one, as nginx logs it.
const CLIENT_CLOSED: u16 = 499;

impl Record {
    pub(crate) fn open(worker: &Rc<Worker>, opening: &Opening<'_>) -> Self {
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
            tags: None,
            end_user: None,
            cost_nano_usd: None,
            price: None,
            quota_nano_usd: None,
            head_us: None,
            first_content_us: None,
            trace: Vec::new(),
        };
        Self {
            worker: Rc::clone(worker),
            started: opening.started,
            event: Some(Box::new(event)),
            model: None,
            free: false,
            dialect: opening.dialect,
            input: opening.input.clone(),
            held: None,
        }
    }

    /// Takes charge of what the exchange has reserved. Under a hard quota it is noted too, so that a kill of the
    /// process does not give it back; false if there is no room for that, and then nothing is held.
    pub(crate) fn hold(&mut self, reservation: Reservation) -> bool {
        let Some(event) = &self.event else {
            reservation.release();
            return true;
        };
        let mut held = Held { reservation, of_target: Reservation::default(), note: None };
        if held.reservation.is_hard() {
            let input = self.input.estimate(self.dialect, "");
            held.note = self.worker.note_usage(&held.interrupted(event, input));
            if held.note.is_none() {
                held.reservation.release();
                return false;
            }
        }
        self.held = Some(held);
        true
    }

    /// Takes charge of what the exchange has reserved under quotas that depend on `target`, which is tried next. False
    /// if it cannot be noted, and then nothing is held.
    pub(crate) fn hold_target(&mut self, reservation: Reservation, target: &Target) -> bool {
        let (Some(event), Some(held)) = (&self.event, &mut self.held) else {
            reservation.release();
            return true;
        };
        held.release_target();
        held.of_target = reservation;
        if !held.of_target.is_hard() {
            return true;
        }
        let pending = UsageEvent {
            provider: Some(target.provider.id.clone()),
            model: Some(target.model.id.clone()),
            ..held.interrupted(event, self.input.estimate(self.dialect, target.model.id.as_str()))
        };
        let is_noted = match &held.note {
            Some(note) => self.worker.replace_note(note, &pending),
            None => {
                held.note = self.worker.note_usage(&pending);
                held.note.is_some()
            }
        };
        if !is_noted {
            held.release_target();
        }
        is_noted
    }

    /// Gives back what is held because of a target that has not served.
    pub(crate) fn leave_target(&mut self) {
        if let Some(held) = &mut self.held {
            held.release_target();
        }
    }

    /// The quotas that only count, and would have refused the exchange otherwise.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &Quota> {
        self.held.iter().flat_map(Held::warnings)
    }

    /// Changes what is known so far.
    pub(crate) fn note(&mut self, change: impl FnOnce(&mut UsageEvent)) {
        if let Some(event) = &mut self.event {
            change(event);
        }
    }

    /// An attempt at `target` begins: from now on input counts as used. The step is corrected when it ends.
    pub(crate) fn begin_step(&mut self, target: &Target) {
        let input = self.input.estimate(self.dialect, target.model.id.as_str());
        let tokens = TokenCounts { input, ..TokenCounts::default() };
        self.model = Some(Arc::clone(&target.model));
        self.free = matches!(target.provider.reach, InstanceReach::Speech);
        self.note(|event| {
            event.provider = Some(target.provider.id.clone());
            event.model = Some(target.model.id.clone());
            event.tokens = tokens;
            event.provenance = Provenance::Estimated;
            event.trace.push(step(target, StepResult::Cancelled));
        });
    }

    /// The attempt that began last has ended.
    pub(crate) fn end_step(&mut self, result: StepResult, status: Option<u16>, spent: Duration) {
        let served = result == StepResult::Served;
        self.note(|event| {
            if !served {
                event.tokens = TokenCounts::default();
                event.provenance = Provenance::None;
            }
            if let Some(step) = event.trace.last_mut() {
                step.result = result;
                step.status = status.or(step.status);
                step.spent_us = Some(micros(spent));
            }
        });
    }

    /// The upstream's head has come `now`, in an attempt that began at `began`.
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

    /// The first content came `now`, in an attempt that began at `began`.
    pub(crate) fn served(&mut self, began: Instant, now: Instant) {
        self.end_step(StepResult::Served, None, now - began);
        let started = self.started;
        self.note(|event| event.first_content_us = Some(micros(now - started)));
    }

    /// When the request came.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// A target was passed over.
    pub(crate) fn skip(&mut self, target: &Target, result: StepResult) {
        self.note(|event| event.trace.push(step(target, result)));
    }

    /// The exchange failed with what the client reads.
    pub(crate) fn fail(&mut self, kind: ErrorKind, status: u16) {
        self.note(|event| {
            event.error = Some(kind);
            event.status = status;
        });
        self.close(Outcome::Failed);
    }

    /// Sends the event, and returns its cost in nano-dollars, where that is known. Called before the client has the last
    /// byte; later calls do nothing.
    pub(crate) fn close(&mut self, outcome: Outcome) -> Option<u64> {
        let mut event = self.event.take()?;
        event.outcome = outcome;
        if self.free {
            event.cost_nano_usd = Some(0);
        } else {
            let bill = set_cost(&mut event, self.model.as_deref());
            let held = self.held.as_ref();
            let held = held.and_then(|held| held.most(Metric::CostMicroUsd));
            // A class without a price never makes room: at least what is known of the cost counts.
            event.quota_nano_usd = held.filter(|_| bill.cost.is_none()).map(|held| held.max(bill.known));
        }
        event.duration_us = micros(self.started.elapsed());
        self.worker.counters.observe(&event);
        if self.worker.plane.settings.log_requests {
            log(&event);
        }
        let cost_nano_usd = event.cost_nano_usd;
        let spent = self.held.is_some().then(|| spent(&event));
        self.worker.log_usage(*event);
        if let (Some(held), Some(spent)) = (self.held.take(), spent) {
            add(&self.worker.counters.quota_warnings, u64::from(held.warnings().next().is_some()));
            held.reservation.settle(&spent);
            held.of_target.settle(&spent);
            if let Some(note) = held.note {
                self.worker.strike_note(note);
            }
        }
        cost_nano_usd
    }

    /// Whether the event has been sent.
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

    /// The most that is held of a metric under a hard quota.
    fn most(&self, metric: Metric) -> Option<u64> {
        self.reservation.held(metric).max(self.of_target.held(metric))
    }

    fn release_target(&mut self) {
        std::mem::take(&mut self.of_target).release();
    }

    /// The record of an exchange that the process does not outlive: what it had reserved, as used.
    fn interrupted(&self, event: &UsageEvent, input: u64) -> UsageEvent {
        let output = self.most(Metric::OutputTokens);
        let total = self.most(Metric::TotalTokens).map(|total| total.saturating_sub(input));
        let output = output.max(total).unwrap_or(0);
        UsageEvent {
            outcome: Outcome::Interrupted,
            error: Some(ErrorKind::Internal),
            tokens: TokenCounts { input, output, ..TokenCounts::default() },
            provenance: Provenance::Estimated,
            cost_nano_usd: self.most(Metric::CostMicroUsd),
            trace: Vec::new(),
            ..event.clone()
        }
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

/// Returns what the exchange counts for in quotas, failed attempts included.
fn spent(event: &UsageEvent) -> Spent {
    let cost = event.cost_nano_usd.or(event.quota_nano_usd);
    let mut spent = Spent::of(event.outcome, &event.tokens, cost);
    event.trace.iter().filter_map(|step| step.lost.as_deref()).for_each(|lost| spent.add_lost(lost));
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

/// One line of metadata; never a body, a key or a prompt (CFG-7).
fn log(event: &UsageEvent) {
    tracing::info!(
        request.id = %event.request_id,
        operation = event.operation.name(),
        key.id = %event.key,
        selector = %event.selector,
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
