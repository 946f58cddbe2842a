//! Quotas: limits on the usage of a key, a project, a human, a provider instance or the whole gateway within a period (ADM-4).
//!
//! Before an exchange goes upstream, it reserves the amounts that it may use; at its end it settles the amounts that
//! it used. So a hard quota is never overspent by more than an exchange can exceed its own reservation, regardless of
//! concurrency. Nothing here blocks or locks on the request path.

mod allowance;
mod counter;
mod counter_share;
mod line;
mod minute;
mod period;
mod reservation;
mod scope;
pub mod share;
mod spend;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

pub use self::counter::{Counter, Hold, Reading};
pub use self::counter_share::CounterShare;
pub use self::line::{LineRefusal, LineRequest, PLACES_MAX, Payer, Place};
pub use self::period::Period;
pub use self::reservation::{Claim, Exceeded, Reservation, ShareNeed, Spent};
pub use self::scope::{Scope, Subject};
pub use self::spend::SpendCap;

/// A limit and the counter of its usage. It is part of the [`Access`](crate::access::Access) of every caller whose
/// requests it may count; all of them and all snapshots share the counter.
#[derive(Clone, Debug)]
pub struct Quota {
    /// The limit's ID.
    pub id: Box<str>,
    /// The limit's subject.
    pub subject: Subject,
    /// The requests of the subject that the limit counts.
    pub scope: Scope,
    /// The unit that is counted.
    pub metric: Metric,
    /// The period in which it is counted; `None` for concurrent requests.
    pub period: Option<Period>,
    /// The limit, in the API's unit of the metric.
    pub limit: u64,
    /// True if the limit rejects requests that do not fit; false if it only counts.
    pub is_hard: bool,
    /// The longest time that a request waits until it fits, in milliseconds; 0 if it is rejected at once, and for a limit
    /// that only counts.
    pub wait_ms: u64,
    /// The counter of used and reserved amounts.
    pub counter: Arc<Counter>,
}

/// The unit that a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Exchanges that a target served, or whose client left.
    Requests,
    /// Exchanges in progress. A hold of one lasts until the exchange is recorded, and counts for nothing then.
    ConcurrentRequests,
    /// Input of every class.
    InputTokens,
    /// Output and reasoning.
    OutputTokens,
    /// Input and output tokens.
    TotalTokens,
    /// Cost; the limit is in micro-dollars, the count in nano-dollars.
    CostMicroUsd,
}

impl Metric {
    /// Every metric.
    pub const ALL: [Self; 6] = [
        Self::Requests,
        Self::ConcurrentRequests,
        Self::InputTokens,
        Self::OutputTokens,
        Self::TotalTokens,
        Self::CostMicroUsd,
    ];

    /// Returns the name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::ConcurrentRequests => "concurrent_requests",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::TotalTokens => "total_tokens",
            Self::CostMicroUsd => "cost_micro_usd",
        }
    }

    /// Returns the number of counted units in one unit of the limit.
    pub fn units(self) -> u64 {
        match self {
            Self::CostMicroUsd => NANO_IN_MICRO,
            Self::Requests
            | Self::ConcurrentRequests
            | Self::InputTokens
            | Self::OutputTokens
            | Self::TotalTokens => 1,
        }
    }

    /// Returns true if the metric counts tokens.
    pub fn is_tokens(self) -> bool {
        match self {
            Self::InputTokens | Self::OutputTokens | Self::TotalTokens => true,
            Self::Requests | Self::ConcurrentRequests | Self::CostMicroUsd => false,
        }
    }
}

impl Quota {
    /// Returns the limit in counted units.
    pub fn limit_in_units(&self) -> u64 {
        self.limit.saturating_mul(self.metric.units())
    }

    /// Opens the line if requests may wait, and lets those who wait fit under this limit.
    fn prepare_line(&self) {
        let limit = if self.is_hard { self.limit_in_units() } else { u64::MAX };
        if self.has_line() {
            self.counter.open_line(limit);
        }
        self.counter.set_line_limit(limit);
    }

    /// Returns true if the quota rejects requests of unknown cost.
    pub fn bounds_cost(&self) -> bool {
        self.is_hard && self.metric == Metric::CostMicroUsd
    }
}

/// Formats the quota as in "50 requests a minute for this project".
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, period, .. } = self;
        match self.metric {
            Metric::Requests => write!(f, "{limit} requests")?,
            Metric::ConcurrentRequests => write!(f, "{limit} concurrent requests")?,
            Metric::InputTokens => write!(f, "{limit} input tokens")?,
            Metric::OutputTokens => write!(f, "{limit} output tokens")?,
            Metric::TotalTokens => write!(f, "{limit} tokens")?,
            Metric::CostMicroUsd => write!(f, "{}.{:06} dollars", limit / 1_000_000, limit % 1_000_000)?,
        }
        if let Some(period) = period {
            write!(f, " {period}")?;
        }
        match (self.subject, &self.scope.provider) {
            (Subject::Provider, Some(provider)) => write!(f, " for the provider {provider}")?,
            (Subject::Gateway, _) => f.write_str(" for the whole gateway")?,
            (subject, _) => write!(f, " for this {}", subject.name())?,
        }
        self.scope.fmt(f)
    }
}

/// A request for an amount under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The minimum amount; less is of no use.
    pub least: u64,
    /// The maximum amount needed.
    pub wanted: u64,
    /// The limit; `None` if every request is granted in full.
    pub limit: Option<u64>,
}

/// The limit does not leave the requested amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The limits of the process with their counters, by the ID of the limit. Newly published access takes its counters from
/// here, so that counts survive a publication.
#[derive(Debug, Default)]
pub struct Counters {
    known: Mutex<KnownQuotas>,
    /// The node that this process is; `None` if it alone uses its limits.
    node: Option<u32>,
}

#[derive(Debug, Default)]
struct KnownQuotas {
    by_id: HashMap<Box<str>, Arc<Quota>>,
    /// The counters that no snapshot contains yet.
    unpublished: Vec<Arc<Counter>>,
}

impl Counters {
    /// Creates the counters of a node that shares its limits with others.
    pub fn of_node(node: u32) -> Self {
        Self { known: Mutex::default(), node: Some(node) }
    }

    /// Returns the node that this process is; `None` if it alone uses its limits.
    pub fn node(&self) -> Option<u32> {
        self.node
    }

    /// Creates an empty counter for a quota with this period.
    pub fn create(&self, period: Option<Period>, now_ms: u64) -> Counter {
        match (self.node, period) {
            (Some(_), _) => Counter::of_shared(period, now_ms),
            (None, Some(period)) => Counter::new(period, now_ms),
            (None, None) => Counter::of_holds(now_ms),
        }
    }

    /// Returns the counter of a quota. Never called on the request path.
    pub fn get(&self, id: &str) -> Option<Arc<Counter>> {
        self.lock().by_id.get(id).map(|quota| Arc::clone(&quota.counter))
    }

    /// Returns a quota, as published last.
    pub fn quota(&self, id: &str) -> Option<Arc<Quota>> {
        self.lock().by_id.get(id).map(Arc::clone)
    }

    /// Returns every quota, as published last.
    pub fn all(&self) -> Vec<Arc<Quota>> {
        self.lock().by_id.values().cloned().collect()
    }

    /// Adds a quota unless one with its ID is known, and returns the known one. No exchange holds an amount of a new one
    /// until [`Self::published`].
    pub fn put(&self, quota: Quota) -> Arc<Quota> {
        let KnownQuotas { by_id, unpublished } = &mut *self.lock();
        let known = by_id.entry(quota.id.clone()).or_insert_with(|| {
            quota.counter.held_since(u64::MAX);
            unpublished.push(Arc::clone(&quota.counter));
            quota.prepare_line();
            Arc::new(quota)
        });
        Arc::clone(known)
    }

    /// Records that a snapshot with the quotas that were added was published at `now_ms`: exchanges that begin later hold
    /// amounts of them.
    pub fn published(&self, now_ms: u64) {
        self.lock().unpublished.drain(..).for_each(|counter| counter.held_since(now_ms));
    }

    /// Replaces quotas that were published with another limit or enforcement. They have the counters of the former ones.
    pub fn replace(&self, quotas: impl Iterator<Item = Arc<Quota>>) {
        let mut known = self.lock();
        quotas.for_each(|quota| {
            quota.prepare_line();
            known.by_id.insert(quota.id.clone(), quota);
        });
    }

    /// Removes a quota.
    pub fn remove(&self, id: &str) {
        if let Some(quota) = self.lock().by_id.remove(id) {
            quota.counter.set_line_limit(u64::MAX);
        }
    }

    /// Removes all quotas for which `is_kept` returns false.
    pub fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        self.lock().by_id.retain(|id, quota| {
            let stays = is_kept(id);
            if !stays {
                quota.counter.set_line_limit(u64::MAX);
            }
            stays
        });
    }

    fn lock(&self) -> MutexGuard<'_, KnownQuotas> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const NANO_IN_MICRO: u64 = 1_000;
