//! The limits of a sequence: creation, change and removal, and the amount that an exchange adds to them.

use serde_json::{Value, json};

use super::plan::{Exchange, LINE, PROVIDERS};
use super::sequence::{Done, Sequence};
use crate::support::admin::Admin;

/// A limit without a time window.
#[derive(Clone)]
pub(super) struct Limit {
    pub(super) id: String,
    /// The family of a key; `None` for the project.
    pub(super) family: Option<u64>,
    pub(super) metric: &'static str,
    /// The only provider whose model counts. Such limits never reject.
    provider: Option<&'static str>,
    /// True if only the endpoint counts. Such limits never reject.
    is_lines: bool,
    /// True if it rejects requests; otherwise it only counts.
    is_hard: bool,
    /// In the unit of the metric; money in micro-dollars.
    limit: u64,
    /// The number of exchanges completed before it was created: their unknown costs do not count.
    since: usize,
}

/// The decision of the limits on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Granted,
    Refused,
    /// There is room for a small request, but possibly not for this one.
    Either,
}

impl Limit {
    fn binds(&self, family: u64) -> bool {
        self.family.is_none_or(|of| of == family)
    }

    fn covers(&self, is_line: bool, provider: &str) -> bool {
        self.provider.is_none_or(|only| only == provider) && (is_line || !self.is_lines)
    }

    fn is_of_cost(&self) -> bool {
        self.metric == "cost_micro_usd"
    }

    /// Returns the amount that an exchange adds; money in nano-dollars.
    pub(super) fn amount(&self, done: &Done) -> u64 {
        if !self.binds(done.family) {
            return 0;
        }
        let parts = done.parts.iter().enumerate();
        let parts = parts.filter(|(_, part)| self.covers(done.is_line, part.provider));
        let amounts = parts.map(|(at, part)| match self.metric {
            "requests" => u64::from(at == 0 && done.outcome != "failed"),
            "total_tokens" => part.tokens(),
            _ => part.cost.unwrap_or(if done.number >= self.since { part.counts_as } else { 0 }),
        });
        amounts.sum()
    }
}

impl Sequence {
    /// Returns the amount used so far; money in nano-dollars.
    pub(super) fn used(&self, limit: &Limit) -> u64 {
        self.done.iter().map(|done| limit.amount(done)).sum()
    }

    /// Returns whether the limits have room for a request of this family.
    pub(super) fn admission(&self, family: u64) -> Admission {
        let mut admission = Admission::Granted;
        for limit in self.limits.iter().filter(|limit| limit.is_hard && limit.binds(family)) {
            let used = self.used(limit);
            let (limit, least) = match limit.metric {
                "requests" => (limit.limit, 1),
                "total_tokens" => (limit.limit, LEAST_TOKENS_MAX),
                _ => (limit.limit * 1_000, LEAST_NANO_USD_MAX),
            };
            if used >= limit {
                return Admission::Refused;
            }
            if used + least > limit {
                admission = Admission::Either;
            }
        }
        admission
    }

    /// True if a hard limit on cost applies to the family, so that models without a price are skipped.
    pub(super) fn bounds_cost(&self, family: u64) -> bool {
        self.limits.iter().any(|limit| limit.is_hard && limit.is_of_cost() && limit.binds(family))
    }

    /// True if any hard limit applies to the family, so that each of its requests is recorded in advance.
    pub(super) fn bounds(&self, family: u64) -> bool {
        self.limits.iter().any(|limit| limit.is_hard && limit.binds(family))
    }

    /// Returns the cost that the next exchange reserves at `provider`, in nano-dollars: the largest under a hard limit,
    /// or otherwise the largest under one that only counts.
    pub(super) fn held(&self, family: u64, exchange: &Exchange, provider: &str) -> Option<u64> {
        let of_cost = || self.limits.iter().filter(move |limit| limit.is_of_cost() && limit.binds(family));
        let reserved = self.reserved.of(exchange.operation, &exchange.selector());
        let left = |limit: &Limit| (limit.limit * 1_000).saturating_sub(self.used(limit));
        let hard = of_cost().filter(|limit| limit.is_hard).map(|limit| reserved.min(left(limit)));
        let softly = of_cost().filter(|limit| limit.covers(exchange.is_line(), provider));
        let softly = softly.map(|limit| match limit.provider {
            Some(_) => self.reserved.of(exchange.operation, &format!("{provider}/m")),
            None => reserved,
        });
        hard.max().or_else(|| softly.max())
    }

    pub(super) async fn add_limit(&mut self) {
        let key = self.random.pick(&self.keys);
        let (family, subject) = if self.random.chance(50) {
            (Some(key.family), json!({"kind": "key", "id": key.issued.id}))
        } else {
            (None, json!({"kind": "project", "id": self.project}))
        };
        let metric = self.random.pick(&["requests", "total_tokens", "cost_micro_usd", "cost_micro_usd"]);
        let (provider, is_lines) = match self.random.below(10) {
            0 | 1 => (Some(self.random.pick(&PROVIDERS).id), false),
            2 => (Some(self.random.pick(&LINE).id), true),
            3 => (None, true),
            _ => (None, false),
        };
        let is_twin = |limit: &Limit| {
            (limit.family, limit.metric) == (family, metric)
                && (limit.provider, limit.is_lines) == (provider, is_lines)
        };
        if self.limits.iter().any(is_twin) {
            return;
        }
        let is_hard = provider.is_none() && !is_lines && self.random.chance(70);
        let limit = self.some_limit(metric);
        let mut quota = json!({"subject": subject, "metric": metric, "window": "total", "limit": limit});
        quota["enforcement"] = json!(enforcement(is_hard));
        if let Some(provider) = provider {
            quota["model"] = json!(format!("{provider}/m"));
        }
        if is_lines {
            quota["endpoint"] = json!("line");
        }
        let id = self.admin.create("quotas", quota).await;
        let since = self.done.len();
        self.limits.push(Limit { id, family, metric, provider, is_lines, is_hard, limit, since });
    }

    fn some_limit(&mut self, metric: &str) -> u64 {
        match metric {
            "requests" => 1 + self.random.below(8),
            "total_tokens" => 1_000 + self.random.below(200_000),
            _ => 100_000 + self.random.below(3_000_000),
        }
    }

    pub(super) async fn change_limit(&mut self) {
        if self.limits.is_empty() {
            return;
        }
        let at = usize::try_from(self.random.below(self.limits.len() as u64)).unwrap();
        let mut limit = self.limits[at].clone();
        limit.limit = self.some_limit(limit.metric);
        if limit.provider.is_none() && !limit.is_lines {
            limit.is_hard = self.random.chance(70);
        }
        let change = json!({"limit": limit.limit, "enforcement": enforcement(limit.is_hard)});
        self.admin.done("PATCH", &format!("quotas/{}", limit.id), change).await;
        self.limits[at] = limit;
    }

    pub(super) async fn drop_limit(&mut self) {
        if let Some(limit) = self.limits.pop() {
            self.admin.done("DELETE", &format!("quotas/{}", limit.id), Value::Null).await;
        }
    }

    /// Drops the limits that no longer exist. The limits of a family are deleted with its last key; those of a family
    /// that still has a key must exist.
    pub(super) async fn forget_dropped_limits(&mut self) {
        let mut kept = Vec::new();
        for limit in std::mem::take(&mut self.limits) {
            let found =
                self.admin.call("GET", &format!("quotas/{}", limit.id), Value::Null).await.status == 200;
            let is_alive = limit.family.is_none_or(|family| self.keys.iter().any(|key| key.family == family));
            assert!(found || !is_alive, "seed {}: a limit of a living family is gone", self.seed);
            if found {
                kept.push(limit);
            }
        }
        self.limits = kept;
    }

    /// Compares the counts of the limits with their expected values.
    pub(super) async fn check_limits(&self, admin: &Admin) {
        for limit in &self.limits {
            let shown = admin.done("GET", &format!("quotas/{}", limit.id), Value::Null).await;
            let used = self.used(limit);
            let used = if limit.is_of_cost() { used.div_ceil(1_000) } else { used };
            assert_eq!(shown["used"], used, "seed {}: {shown}", self.seed);
            assert_eq!(shown["reserved"], 0, "seed {}: {shown}", self.seed);
        }
    }
}

fn enforcement(is_hard: bool) -> &'static str {
    if is_hard { "hard" } else { "warn" }
}

/// An upper bound of the tokens that a request of the test reserves at least: its text, and `max_tokens` if it has one.
const LEAST_TOKENS_MAX: u64 = 200;
/// The same bound in nano-dollars: two pictures are the most expensive request of the test.
const LEAST_NANO_USD_MAX: u64 = 100_000_000;
