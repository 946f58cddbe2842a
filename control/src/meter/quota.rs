//! What stored usage counts for: it is added to the windows of the quotas that bound it, in the transaction that
//! stores it (or is due from then on, `store/dues.rs`), so that what was settled is never lost and never counted
//! twice.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::Connection;
use shared::clock::unix_ms;
use shared::quota::{Counter, Counters, Spent};
use shared::usage::Outcome;

use crate::store::dues;
use crate::store::more;
use crate::store::quotas::Rules;
use crate::store::record::{Name, Record};

/// See the module.
#[derive(Debug)]
pub(crate) struct Charges {
    counters: Arc<Counters>,
    /// Read when it is first needed, and again after every change.
    rules: Option<Rules>,
    /// To be written: by limit and window.
    sums: HashMap<(String, u64), u64>,
    /// To be counted in memory too once it is stored: usage of exchanges that held nothing of a quota, because
    /// it did not bind them yet when they began, or because they ran in an earlier process.
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
        Self { counters, rules: None, sums: HashMap::new(), late: Vec::new() }
    }

    /// Limits may have changed.
    pub(crate) fn forget_rules(&mut self) {
        self.rules = None;
    }

    /// Counts an exchange that is being stored.
    pub(super) fn count(&mut self, db: &Connection, record: &Record<'_>) -> rusqlite::Result<()> {
        let rules = match &self.rules {
            Some(rules) => rules,
            None => self.rules.insert(Rules::load(db)?),
        };
        if rules.all.is_empty() {
            return Ok(());
        }
        let spent = spent(record);
        let at_ms = record.started_at_ms;
        for rule in rules.of_record(record) {
            let amount = spent.amount(rule.metric).unwrap_or(0);
            if amount == 0 {
                continue;
            }
            if let Some((start_ms, _)) = rule.period.and_then(|period| period.window(at_ms)) {
                let sum = self.sums.entry((rule.id.clone(), start_ms)).or_default();
                *sum = sum.saturating_add(amount);
            }
            if let Some(counter) = self.counters.get(&rule.id)
                && at_ms < counter.since_ms()
            {
                self.late.push(Late { counter, at_ms, amount });
            }
        }
        Ok(())
    }

    /// Writes what was counted. To be called before the commit.
    pub(super) fn store(&mut self, tx: &Connection) -> rusqlite::Result<()> {
        self.sums.drain().try_for_each(|((id, start_ms), amount)| dues::quota_used(tx, &id, start_ms, amount))
    }

    /// It is stored.
    pub(super) fn committed(&mut self) {
        let now_ms = unix_ms();
        for Late { counter, at_ms, amount } in self.late.drain(..) {
            counter.add(at_ms, amount, now_ms);
        }
    }

    /// Forgets what was counted: the transaction failed.
    pub(super) fn abandon(&mut self) {
        self.sums.clear();
        self.late.clear();
        self.rules = None;
    }
}

/// What an exchange counts for; the rule is that of [`Spent::of`].
pub(crate) fn spent(record: &Record<'_>) -> Spent {
    let failed = record.name(Name::Outcome) == Outcome::Failed.name();
    let outcome = if failed { Outcome::Failed } else { Outcome::Completed };
    let mut spent = Spent::of(outcome, &record.tokens, record.cost_nano_usd.or(record.quota_nano_usd));
    for (_, lost) in more::lost(&record.lost) {
        spent.add_lost(&lost);
    }
    spent
}
