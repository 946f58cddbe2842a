//! The share of one exchange in all quotas that apply to it.

use std::sync::Arc;

use super::counter::AMOUNT_MAX;
use super::share::{GrantNeed, WindowKey};
use super::{Ask, Full, Hold, Metric, Period, Place, Quota};
use crate::usage::{Lost, Outcome, TokenCounts};

/// The amounts that an exchange may use. The `least` amounts are those it probably needs; the `wanted` amounts are
/// the most that it plausibly uses. Two amounts let the last request before a limit still run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The probable input.
    pub input_least: u64,
    /// The maximum plausible input.
    pub input_wanted: u64,
    /// The minimum output for which the exchange should start.
    pub output_least: u64,
    /// The maximum expected output.
    pub output_wanted: u64,
    /// The cost of the least amounts at the most expensive target, in nano-dollars.
    pub cost_least: u64,
    /// The cost of the wanted amounts at the most expensive target, in nano-dollars.
    pub cost_wanted: u64,
}

/// The amounts that an exchange used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// 1, or 0 if no target served the exchange.
    pub requests: u64,
    /// Input of every class.
    pub input_tokens: u64,
    /// Output and reasoning.
    pub output_tokens: u64,
    /// The cost in nano-dollars; `None` if unknown.
    pub cost_nano_usd: Option<u64>,
}

/// Held amounts of several quotas. It must be settled: the amounts of a dropped reservation stay taken.
#[derive(Debug, Default)]
#[must_use]
pub struct Reservation(Vec<Part>);

#[derive(Debug)]
struct Part {
    quota: Arc<Quota>,
    hold: Hold,
    /// True if the limit only counts, and would have rejected this amount.
    is_over: bool,
    taken_at_ms: u64,
}

/// A hard quota does not leave the amount that an exchange needs.
#[derive(Debug)]
pub struct Exceeded {
    /// The quota.
    pub quota: Arc<Quota>,
    /// The minimum amount that the exchange needs, in counted units.
    pub least: u64,
    /// The amount with which it can start in any case.
    wanted: u64,
    /// The time until that amount may be free, if ever; 0 if it depends only on the end of other exchanges.
    pub wait_ms: Option<u64>,
}

/// An amount of a shared quota that a request needs and that the share of its node does not leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareNeed {
    /// The quota and its current window.
    pub key: WindowKey,
    /// The period of the quota; `None` for concurrent requests.
    pub period: Option<Period>,
    /// The whole amounts that the request needs.
    pub need: GrantNeed,
}

impl Claim {
    /// Returns the least and the wanted amount of a metric.
    fn of(&self, metric: Metric) -> (u64, u64) {
        let Self { input_least, input_wanted, output_least, output_wanted, .. } = *self;
        match metric {
            Metric::Requests | Metric::ConcurrentRequests => (1, 1),
            Metric::InputTokens => (input_least, input_wanted),
            Metric::OutputTokens => (output_least, output_wanted),
            Metric::TotalTokens => {
                (input_least.saturating_add(output_least), input_wanted.saturating_add(output_wanted))
            }
            Metric::CostMicroUsd => (self.cost_least, self.cost_wanted),
        }
    }
}

impl Spent {
    /// Returns the amounts that count for an exchange. An exchange that no target served counts only with the tokens
    /// and the cost it used; one whose client left counts in full.
    pub fn of(outcome: Outcome, tokens: &TokenCounts, cost_nano_usd: Option<u64>) -> Self {
        Self {
            requests: u64::from(outcome != Outcome::Failed),
            input_tokens: tokens.input_total(),
            output_tokens: tokens.output_total(),
            cost_nano_usd,
        }
    }

    /// Returns the consumption of a failed attempt. An unknown cost counts as in [`Lost::quota_nano_usd`].
    pub fn of_lost(lost: &Lost) -> Self {
        let mut spent = Self { cost_nano_usd: Some(0), ..Self::default() };
        spent.add_lost(lost);
        spent
    }

    /// Adds the consumption of a failed attempt. An unknown cost counts as in [`Lost::quota_nano_usd`].
    pub fn add_lost(&mut self, lost: &Lost) {
        self.input_tokens = self.input_tokens.saturating_add(lost.tokens.input_total());
        self.output_tokens = self.output_tokens.saturating_add(lost.tokens.output_total());
        let lost = lost.cost_nano_usd.or(lost.quota_nano_usd).unwrap_or(0);
        self.cost_nano_usd = self.cost_nano_usd.map(|cost| cost.saturating_add(lost));
    }

    /// Returns the amount of a metric, in counted units; `None` if it is unknown.
    pub fn amount(&self, metric: Metric) -> Option<u64> {
        match metric {
            Metric::Requests => Some(self.requests),
            Metric::ConcurrentRequests => Some(0),
            Metric::InputTokens => Some(self.input_tokens),
            Metric::OutputTokens => Some(self.output_tokens),
            Metric::TotalTokens => Some(self.input_tokens.saturating_add(self.output_tokens)),
            Metric::CostMicroUsd => self.cost_nano_usd,
        }
    }
}

impl Reservation {
    /// Reserves `claim` in every quota, or nothing in any of them. Overtakes nobody who waits for one of them.
    pub fn take<'a>(
        quotas: impl IntoIterator<Item = &'a Arc<Quota>>,
        claim: &Claim,
        now_ms: u64,
    ) -> Result<Self, Box<Exceeded>> {
        Self::take_called(quotas, claim, (None, now_ms))
    }

    /// Like [`Self::take`], for a request that was called in the line of one of the quotas.
    pub fn take_called<'a>(
        quotas: impl IntoIterator<Item = &'a Arc<Quota>>,
        claim: &Claim,
        (called, now_ms): (Option<&Place>, u64),
    ) -> Result<Self, Box<Exceeded>> {
        let mut taken = Self::default();
        for quota in quotas {
            let (least, wanted) = claim.of(quota.metric);
            let is_over = !quota.is_hard && quota.exceeded_by(claim, now_ms).is_some();
            let (limit, must_wait) = match called.filter(|place| place.is_of(quota)) {
                Some(place) => (place.limit(), false),
                None => (quota.is_hard.then(|| quota.limit_in_units()), quota.has_waiting()),
            };
            let hold = match must_wait {
                true => Err(Full),
                false => quota.counter.take(Ask { least, wanted, limit }, now_ms),
            };
            match hold {
                Ok(hold) => {
                    taken.0.push(Part { quota: Arc::clone(quota), hold, is_over, taken_at_ms: now_ms });
                }
                Err(Full) => {
                    taken.release();
                    return Err(Exceeded::new(quota, (least, wanted), now_ms));
                }
            }
        }
        Ok(taken)
    }

    /// Returns true if any of the quotas is hard.
    pub fn is_hard(&self) -> bool {
        self.0.iter().any(|part| part.quota.is_hard)
    }

    /// Returns the largest amount of a metric that is held under a hard quota.
    pub fn held(&self, metric: Metric) -> Option<u64> {
        self.held_under(metric, |quota| quota.is_hard)
    }

    /// Returns the largest amount of a metric that is held under a quota that only counts.
    pub fn held_softly(&self, metric: Metric) -> Option<u64> {
        self.held_under(metric, |quota| !quota.is_hard)
    }

    fn held_under(&self, metric: Metric, is_meant: impl Fn(&Quota) -> bool) -> Option<u64> {
        let parts = self.0.iter().filter(|part| part.quota.metric == metric && is_meant(&part.quota));
        parts.map(|part| part.hold.amount()).max()
    }

    /// Returns the quotas that would have rejected the exchange if they were hard.
    pub fn warnings(&self) -> impl Iterator<Item = &Quota> {
        self.0.iter().filter(|part| part.is_over).map(|part| &*part.quota)
    }

    /// Replaces the reserved amounts with the used ones. An unknown amount counts as the reserved one.
    pub fn settle(self, spent: &Spent) {
        for Part { quota, hold, taken_at_ms, .. } in self.0 {
            if quota.metric == Metric::ConcurrentRequests {
                quota.counter.note_held(taken_at_ms);
            }
            let used = spent.amount(quota.metric).unwrap_or_else(|| hold.amount());
            quota.counter.settle(hold, used);
        }
    }

    /// Releases all amounts.
    pub fn release(self) {
        for Part { quota, hold, .. } in self.0 {
            quota.counter.settle(hold, 0);
        }
    }
}

impl Exceeded {
    fn new(quota: &Arc<Quota>, (least, wanted): (u64, u64), now_ms: u64) -> Box<Self> {
        let wait_ms = quota.counter.wait_ms(least, quota.limit_in_units(), now_ms);
        Box::new(Self { quota: Arc::clone(quota), least, wanted, wait_ms })
    }

    /// Returns true if the request may wait until the amount is left.
    pub fn may_wait(&self) -> bool {
        self.quota.has_line() && self.least <= self.quota.limit_in_units()
    }

    /// True if as much as the exchange needs is neither used nor reserved at any node, as far as this node knows: then it only
    /// lacks a share.
    pub fn is_left(&self, now_ms: u64) -> bool {
        let reading = self.quota.counter.read(now_ms);
        self.quota.limit_in_units().saturating_sub(reading.used).saturating_sub(reading.reserved)
            >= self.least
    }

    /// Returns what this node needs more of the quota, if it shares it with others, and if the quota is large enough.
    pub fn share_need(&self, now_ms: u64) -> Option<ShareNeed> {
        let Self { quota, least, wanted, .. } = self;
        if quota.counter.share().is_none() || *least > quota.limit_in_units() {
            return None;
        }
        let start_ms = quota.counter.window_start_ms(now_ms);
        let key = WindowKey { quota: (*quota.id).into(), start_ms };
        let need = GrantNeed { least: (*least).min(AMOUNT_MAX), wanted: (*wanted).min(AMOUNT_MAX) };
        Some(ShareNeed { key, period: quota.period, need })
    }
}

impl Quota {
    /// Returns the reason for rejecting a claim that does not fit under the limit now. Reserves nothing, so a
    /// concurrent exchange may change the result at any time.
    pub fn exceeded_by(self: &Arc<Self>, claim: &Claim, now_ms: u64) -> Option<Box<Exceeded>> {
        let (least, wanted) = claim.of(self.metric);
        let reading = self.counter.read(now_ms);
        let left = self.limit_in_units().saturating_sub(reading.used).saturating_sub(reading.reserved);
        (least > left || self.has_waiting()).then(|| Exceeded::new(self, (least, wanted), now_ms))
    }
}
