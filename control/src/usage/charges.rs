//! Charges stored usage to quotas: adds it to the windows of the quotas that bound it, in the transaction that stores
//! it (or queues it there, see `db/usage_effects.rs`). Settled usage is therefore never lost and never counted twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use records::{Record, Trace};
use shared::clock::unix_ms;
use shared::quota::{Counter, Counters};

use crate::db::engine::{Db, DbResult};
use crate::db::quotas::Rules;
use crate::db::usage_effects;
use crate::routing::publish::TouchedAccess;

/// The charges of the batch that is being stored.
#[derive(Debug)]
pub(crate) struct Charges {
    counters: Arc<Counters>,
    /// The limits. Loaded on first use, and again after every change.
    rules: Option<Rules>,
    /// The amounts to be written, by limit and window: in the order in which the session of the shares locks them.
    sums: BTreeMap<(String, u64), u64>,
    /// Amounts to be added to the counters in memory after the commit: usage of exchanges that held no reservation of
    /// the quota, because it did not bind them when they started, or because they ran in an earlier process.
    late: Vec<Late>,
}

#[derive(Debug)]
struct Late {
    counter: Arc<Counter>,
    at_ms: u64,
    amount: u64,
}

impl Charges {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self { counters, rules: None, sums: BTreeMap::new(), late: Vec::new() }
    }

    /// Updates the limits after the access of keys, and perhaps their limits, changed.
    pub(crate) fn access_changed(&mut self, db: &Db, access: &TouchedAccess) {
        let is_current = match (&mut self.rules, access) {
            (None, _) | (_, TouchedAccess::Nothing) => true,
            (Some(rules), TouchedAccess::Some(changed)) if changed.limits_gone.is_empty() => {
                changed.keys.iter().all(|key| rules.refresh_key(db, key).is_ok())
                    && changed.groups.iter().all(|group| rules.refresh(db, &group.subject()).is_ok())
            }
            (Some(_), TouchedAccess::Some(_) | TouchedAccess::All) => false,
        };
        if !is_current {
            self.rules = None;
        }
    }

    /// Adds the usage of an exchange that waits to the counters in memory, which nothing else has added it to.
    pub(super) fn count_ahead(&mut self, db: &Db, record: &Record<'_>, trace: Trace<'_>) -> DbResult<()> {
        let (rules, now_ms) = (Rules::loaded(&mut self.rules, db)?, unix_ms());
        rules.each_amount(record, trace, |rule, amount| {
            if let Some(counter) = self.counters.get(&rule.id) {
                counter.add(record.started_at_ms, amount, now_ms);
            }
        });
        Ok(())
    }

    /// Adds the usage of an exchange that is being stored. `counted_at_ms` is the time at which it was counted ahead, or the
    /// end of time if this process has counted it.
    pub(super) fn count(
        &mut self,
        db: &Db,
        record: &Record<'_>,
        trace: Trace<'_>,
        counted_at_ms: Option<u64>,
    ) -> DbResult<()> {
        let Self { counters, rules, sums, late } = self;
        let at_ms = record.started_at_ms;
        Rules::loaded(rules, db)?.each_amount(record, trace, |rule, amount| {
            if let Some((start_ms, _)) = rule.period.and_then(|period| period.window(at_ms)) {
                let sum = sums.entry((rule.id.clone(), start_ms)).or_default();
                *sum = sum.saturating_add(amount);
            }
            if let Some(counter) = counters.get(&rule.id)
                && at_ms < counter.since_ms()
                && counted_at_ms.is_none_or(|counted| counted < counter.since_ms())
            {
                late.push(Late { counter, at_ms, amount });
            }
        });
        Ok(())
    }

    /// Writes the amounts. Must be called before the commit.
    pub(super) fn store(&mut self, tx: &Db) -> DbResult<()> {
        let amounts: Vec<_> = std::mem::take(&mut self.sums).into_iter().collect();
        usage_effects::quotas_used(tx, &amounts)
    }

    /// Updates the counters in memory. Must be called after the commit.
    pub(super) fn committed(&mut self) {
        let now_ms = unix_ms();
        for Late { counter, at_ms, amount } in self.late.drain(..) {
            counter.add(at_ms, amount, now_ms);
        }
    }

    /// Discards the amounts after the transaction failed.
    pub(super) fn abandon(&mut self) {
        self.sums.clear();
        self.late.clear();
        self.rules = None;
    }
}

#[cfg(test)]
mod tests {
    use shared::id::{EndpointName, ModelId, PrincipalId, ProjectId, ProviderId};
    use shared::usage::{Lost, StepResult, TokenCounts, TraceStep, UsageEvent, UsageLog as _};
    use tempfile::TempDir;

    use crate::usage::tests::{Process, event};

    fn step(provider: &str, result: StepResult, lost: Option<Lost>) -> TraceStep {
        let step = TraceStep::new(ProviderId::new(provider), ModelId::new("m"), result);
        TraceStep { lost: lost.map(Box::new), ..step }
    }

    #[test]
    fn usage_of_a_failed_attempt_counts_at_its_provider_and_once_elsewhere() {
        let home = TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        for (id, kind, subject, model, endpoint) in [
            ("of a", "provider", "a", None, None),
            ("of p", "provider", "p", None, None),
            ("of p's m", "gateway", "", Some("p/m"), None),
            ("of a's m", "project", "prj", Some("a/m"), Some("line")),
            ("of a's n", "project", "prj", Some("a/n"), None),
            ("of another endpoint", "project", "prj", None, Some("other")),
            ("of the gateway", "gateway", "", None, None),
            ("of a human", "principal", "ada", None, None),
        ] {
            let row = "INSERT INTO quotas (id, kind, subject, model, endpoint, metric, period, amount, hard, version, \
                       created_at_ms, updated_at_ms) VALUES (:id, :kind, :subject, :model, :endpoint, 'total_tokens', 'total', 9, 1, 1, 0, 0)";
            process.meter.db_mut().execute(row, (id, kind, subject, model, endpoint)).unwrap();
        }
        let tokens = TokenCounts { input: 5, cache_write_1h: 2, ..TokenCounts::default() };
        let lost = Lost { tokens, ..Lost::default() };
        let mut log = process.journal.log().unwrap();
        log.append(&UsageEvent {
            project: Some(ProjectId::new("prj")),
            principal: Some(PrincipalId::new("ada")),
            endpoint: Some(EndpointName::new("line")),
            trace: vec![step("a", StepResult::StreamError, Some(lost)), step("p", StepResult::Served, None)],
            ..event(0)
        });
        // The exchange of an administrator acting as a human: 30 tokens at `p`.
        log.append(&UsageEvent { principal: Some(PrincipalId::new("ada")), ..event(1) });
        process.settle();
        let sql = "SELECT quota, used FROM quota_share";
        let mut used: Vec<(String, u64)> =
            process.meter.db_mut().rows(sql, (), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        used.sort();
        let want = [
            ("of a", 7),
            ("of a human", 37),
            ("of a's m", 7),
            ("of p", 60),
            ("of p's m", 30),
            ("of the gateway", 37),
        ];
        assert_eq!(used, want.map(|(quota, used)| (quota.to_owned(), used)));
    }

    /// The sum of a new limit is read before the snapshot that contains it is published.
    #[test]
    fn an_exchange_between_the_reading_of_a_limit_and_its_publication_counts() {
        let home = TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let counter = process.limit_gateway();
        let (before, after) = (event(0), event(2));
        assert!(before.started_at_ms < after.started_at_ms);
        let mut log = process.journal.log().unwrap();
        for (event, published_at_ms) in [(before, None), (after.clone(), Some(after.started_at_ms))] {
            published_at_ms.into_iter().for_each(|at_ms| process.counters.published(at_ms));
            log.append(&UsageEvent { project: Some(ProjectId::new("prj")), ..event });
            process.settle();
            assert_eq!(
                counter.read(after.started_at_ms).used,
                1,
                "later exchanges hold an amount themselves"
            );
        }
        assert_eq!(process.sql("SELECT used FROM quota_share"), 2);
    }
}
