//! Quotas: how much of what a key, a project, a human, a provider instance or the whole gateway may use in which
//! time (ADM-4).
//!
//! An exchange reserves before anything goes upstream what it may come to use, and settles in the end what it
//! did use. A hard quota is therefore never overspent by more than an exchange can exceed its own reservation,
//! however many run at the same time. Nothing here waits or locks on the request path.

mod counter;
mod minute;
mod period;
mod reservation;
mod scope;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

pub use self::counter::{Counter, Hold, Reading};
pub use self::period::Period;
pub use self::reservation::{Claim, Exceeded, Reservation, Spent};
pub use self::scope::{Scope, Subject};

/// A limit, and what has been taken of it. It stands in the [`Access`](crate::access::Access) of every caller whose
/// requests it may count; the counter is shared by all of them and by all snapshots.
#[derive(Clone, Debug)]
pub struct Quota {
    /// The id of the limit.
    pub id: Box<str>,
    /// Its subject.
    pub subject: Subject,
    /// The requests of the subject that it counts.
    pub scope: Scope,
    /// The unit that is counted.
    pub metric: Metric,
    /// The window in which it is counted; none for concurrent requests.
    pub period: Option<Period>,
    /// The amount, in the API's unit of the metric.
    pub limit: u64,
    /// True if it refuses requests that do not fit; false if it only counts.
    pub is_hard: bool,
    /// The amounts in use.
    pub counter: Arc<Counter>,
}

/// The unit that a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Exchanges that a target served, or that their client left.
    Requests,
    /// Exchanges that run at the same time. A hold of one lasts until the exchange is recorded, and counts for
    /// nothing then.
    ConcurrentRequests,
    /// Input of every class.
    InputTokens,
    /// Output and reasoning.
    OutputTokens,
    /// Both.
    TotalTokens,
    /// Money; the limit is in micro-dollars, the count in nano-dollars.
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

    /// The name in the API.
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

    /// Units of the count in one of the limit.
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

    /// True if it counts tokens.
    pub fn is_tokens(self) -> bool {
        match self {
            Self::InputTokens | Self::OutputTokens | Self::TotalTokens => true,
            Self::Requests | Self::ConcurrentRequests | Self::CostMicroUsd => false,
        }
    }
}

impl Quota {
    /// The limit in units of the count.
    pub fn limit_in_units(&self) -> u64 {
        self.limit.saturating_mul(self.metric.units())
    }

    /// True if it refuses requests of unknown cost.
    pub fn bounds_cost(&self) -> bool {
        self.is_hard && self.metric == Metric::CostMicroUsd
    }
}

/// As in "50 requests a minute for this project".
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

/// A request for a part of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Less is no use.
    pub least: u64,
    /// More is not needed.
    pub wanted: u64,
    /// The limit; none where everybody gets what they want.
    pub limit: Option<u64>,
}

/// A limit does not leave what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Gives out parts of a limit and takes them back. One node counts in its own memory ([`Counter`]); several that
/// share their quotas would need another implementation (SCALE-1).
pub trait Ledger {
    /// A part that was given out. It must come back.
    type Hold;

    /// Gives out as much as is wanted and left.
    fn take(&self, ask: Ask, now_ms: u64) -> Result<Self::Hold, Full>;

    /// Takes a part back, of which `used` was used.
    fn settle(&self, hold: Self::Hold, used: u64);
}

/// All counters of the process, by the id of their quota. Access that is published anew takes its counters from
/// here, so that nothing is forgotten.
#[derive(Debug, Default)]
pub struct Counters(Mutex<HashMap<Box<str>, Arc<Counter>>>);

impl Counters {
    /// The counter of a quota. Never called on the request path.
    pub fn get(&self, id: &str) -> Option<Arc<Counter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Takes in a counter for a quota that has none.
    pub fn put(&self, id: &str, counter: Counter) -> Arc<Counter> {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(counters.entry(id.into()).or_insert_with(|| Arc::new(counter)))
    }

    /// Forgets the counter of a quota.
    pub fn remove(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Forgets the counters of all quotas but these.
    pub fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| is_kept(id));
    }
}

const NANO_IN_MICRO: u64 = 1_000;
