//! One exchange's part of all quotas that bind it.

use std::sync::Arc;

use super::{Ask, Hold, Ledger as _, Metric, Quota};
use crate::usage::{Lost, Outcome, TokenCounts};

/// What an exchange may come to use. The least is what it probably needs, and what is wanted is the most that it
/// plausibly uses, so that the last request before a limit can run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The input that is probable.
    pub input_least: u64,
    /// The most input that is plausible.
    pub input_wanted: u64,
    /// The least output that is worth beginning for.
    pub output_least: u64,
    /// The most output that is expected.
    pub output_wanted: u64,
    /// What the least costs at the dearest target, in nano-dollars.
    pub cost_least: u64,
    /// What all of it costs there.
    pub cost_wanted: u64,
}

/// What an exchange did use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// 1, or 0 for one that no target served.
    pub requests: u64,
    /// Input of every class.
    pub input_tokens: u64,
    /// Output and reasoning.
    pub output_tokens: u64,
    /// In nano-dollars; none where it is not known.
    pub cost_nano_usd: Option<u64>,
}

/// Held parts. It has to be settled: what is dropped stays taken.
#[derive(Debug, Default)]
#[must_use]
pub struct Reservation(Vec<Part>);

#[derive(Debug)]
struct Part {
    quota: Arc<Quota>,
    hold: Hold,
    /// The limit only counts, and would have refused this part.
    is_over: bool,
}

/// A hard quota does not leave what an exchange needs.
#[derive(Debug)]
pub struct Exceeded {
    /// Which one.
    pub quota: Arc<Quota>,
    /// The least that the exchange needs of it, in units of the count.
    pub least: u64,
    /// How long until there may be as much, if ever; 0: at any moment, as exchanges end.
    pub wait_ms: Option<u64>,
}

impl Claim {
    /// The least and the most of a metric.
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
    /// What an exchange counts for. One that no target served counts for nothing but the tokens it used; one
    /// whose client left counts.
    pub fn of(outcome: Outcome, tokens: &TokenCounts, cost_nano_usd: Option<u64>) -> Self {
        Self {
            requests: u64::from(outcome != Outcome::Failed),
            input_tokens: tokens.input_total(),
            output_tokens: tokens.output_total(),
            cost_nano_usd,
        }
    }

    /// The consumption of a failed attempt. An unknown cost counts as in [`Lost::quota_nano_usd`].
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

    /// How much of a metric, in units of the count; none where it is not known.
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
    /// Takes what `claim` needs of every quota, or nothing of any.
    pub fn take<'a>(
        quotas: impl IntoIterator<Item = &'a Arc<Quota>>,
        claim: &Claim,
        now_ms: u64,
    ) -> Result<Self, Box<Exceeded>> {
        let mut taken = Self::default();
        for quota in quotas {
            let (least, wanted) = claim.of(quota.metric);
            let is_over = !quota.is_hard && quota.exceeded_by(claim, now_ms).is_some();
            let limit = quota.is_hard.then(|| quota.limit_in_units());
            match quota.counter.take(Ask { least, wanted, limit }, now_ms) {
                Ok(hold) => taken.0.push(Part { quota: Arc::clone(quota), hold, is_over }),
                Err(_) => {
                    taken.release();
                    return Err(Exceeded::new(quota, least, now_ms));
                }
            }
        }
        Ok(taken)
    }

    /// True if a hard quota is among them.
    pub fn is_hard(&self) -> bool {
        self.0.iter().any(|part| part.quota.is_hard)
    }

    /// The most that is held of a metric under a hard quota.
    pub fn held(&self, metric: Metric) -> Option<u64> {
        self.held_under(metric, |quota| quota.is_hard)
    }

    /// The most that is held of a metric under a quota that only counts.
    pub fn held_softly(&self, metric: Metric) -> Option<u64> {
        self.held_under(metric, |quota| !quota.is_hard)
    }

    fn held_under(&self, metric: Metric, is_meant: impl Fn(&Quota) -> bool) -> Option<u64> {
        let parts = self.0.iter().filter(|part| part.quota.metric == metric && is_meant(&part.quota));
        parts.map(|part| part.hold.amount()).max()
    }

    /// The quotas that would have refused the exchange if they were hard.
    pub fn warnings(&self) -> impl Iterator<Item = &Quota> {
        self.0.iter().filter(|part| part.is_over).map(|part| &*part.quota)
    }

    /// Puts what was used in the place of what was reserved. An unknown amount is taken for what was reserved.
    pub fn settle(self, spent: &Spent) {
        for Part { quota, hold, .. } in self.0 {
            let used = spent.amount(quota.metric).unwrap_or_else(|| hold.amount());
            quota.counter.settle(hold, used);
        }
    }

    /// Gives everything back.
    pub fn release(self) {
        for Part { quota, hold, .. } in self.0 {
            quota.counter.settle(hold, 0);
        }
    }
}

impl Exceeded {
    fn new(quota: &Arc<Quota>, least: u64, now_ms: u64) -> Box<Self> {
        let wait_ms = quota.counter.wait_ms(least, quota.limit_in_units(), now_ms);
        Box::new(Self { quota: Arc::clone(quota), least, wait_ms })
    }
}

impl Quota {
    /// The refusal of a claim that does not fit under the limit now. It takes nothing, so another exchange may
    /// change the answer at any moment.
    pub fn exceeded_by(self: &Arc<Self>, claim: &Claim, now_ms: u64) -> Option<Box<Exceeded>> {
        let (least, _) = claim.of(self.metric);
        let reading = self.counter.read(now_ms);
        let left = self.limit_in_units().saturating_sub(reading.used).saturating_sub(reading.reserved);
        (least > left).then(|| Exceeded::new(self, least, now_ms))
    }
}
