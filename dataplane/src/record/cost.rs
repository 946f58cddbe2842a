//! The cost of an exchange, and what it counts for in the quotas that it holds reservations of.

use shared::prices::{Bill, Billed, VENDOR_LABEL, price};
use shared::quota::{Metric, Quota, Reservation, Spent};
use shared::routing::Model;
use shared::usage::UsageEvent;

/// Quota reservations of one exchange; see [`Record::hold`](super::Record::hold).
#[derive(Debug)]
pub(super) struct HeldReservations {
    /// Reservation under the quotas that count the exchange regardless of its target.
    pub(super) reservation: Reservation,
    /// Reservation under the quotas that apply to the current target, or to the target that has served.
    pub(super) of_target: Reservation,
    /// Index of the first trace step of that target.
    pub(super) first_step: usize,
}

impl HeldReservations {
    pub(super) fn warnings(&self) -> impl Iterator<Item = &Quota> {
        self.reservation.warnings().chain(self.of_target.warnings())
    }

    pub(super) fn is_hard(&self) -> bool {
        self.reservation.is_hard() || self.of_target.is_hard()
    }

    /// Returns the largest reservation of `metric` under a hard quota.
    pub(super) fn most(&self, metric: Metric) -> Option<u64> {
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

    pub(super) fn leave_target(&mut self, event: &UsageEvent) {
        let nothing = Spent { cost_nano_usd: Some(0), ..Spent::default() };
        std::mem::take(&mut self.of_target).settle(&with_lost(nothing, event, self.first_step));
    }
}

/// Sets the cost of what the served attempt used, at the prices of `model`.
pub(super) fn set_cost(event: &mut UsageEvent, model: Option<&Model>) -> Bill {
    let bill = price(&billed(event), model.and_then(|model| model.prices.as_ref()));
    (event.cost_nano_usd, event.unpriced) = (bill.cost, bill.unpriced);
    let used = event.tokens.total() > 0 || !event.units.is_empty();
    let label =
        if bill.by_vendor { Some(VENDOR_LABEL.into()) } else { model.and_then(|m| m.price_label.clone()) };
    event.price = label.filter(|_| used && bill.cost.is_some());
    bill
}

/// Returns the amount to charge to cost quotas for an attempt whose cost is unknown: the larger of the reservation and
/// of the part that has a price, so that a token class without a price never frees quota.
pub(super) fn counts_as(held: Option<&HeldReservations>, bill: Bill) -> Option<u64> {
    if bill.cost.is_some() {
        return None;
    }
    Some(held?.cost()?.max(bill.known))
}

/// Returns what the exchange counts for in quotas, excluding failed attempts.
pub(super) fn spent(event: &UsageEvent) -> Spent {
    Spent::of(event.outcome, &event.tokens, event.cost_nano_usd.or(event.quota_nano_usd))
}

/// Adds the consumption of the failed attempts from trace step `first_step` on.
pub(super) fn with_lost(mut spent: Spent, event: &UsageEvent, first_step: usize) -> Spent {
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
