//! The limits in a snapshot: each quota row with its counter. A counter outlives snapshots and starts with the usage
//! that the database records.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use shared::clock::unix_ms;
use shared::quota::{Counter, Counters, Period, Quota, Subject};

use crate::db::engine::{Db, DbResult};
use crate::db::quotas::{self, Of, QuotaRow, Rules};

/// Quotas by the subjects that they apply to.
pub(super) struct QuotasBySubject {
    rules: Rules,
    quotas: HashMap<String, Arc<Quota>>,
    /// Quotas that count the requests of every project key: those of the gateway and of provider instances.
    everywhere: Vec<Arc<Quota>>,
}

impl QuotasBySubject {
    /// Builds the quotas of `rules`. Creates missing counters and restores their usage, except of `new_keys`, which
    /// have none.
    pub(super) fn read(
        rules: Rules,
        db: &Db,
        (counters, new_keys): (&Counters, &BTreeSet<String>),
    ) -> DbResult<Self> {
        let mut quotas = HashMap::new();
        let mut sliding = HashSet::new();
        for row in rules.all() {
            let quota = match counters.get(&row.id) {
                Some(counter) => Arc::new(quota(row, counter)),
                None => {
                    let Of { kind, id } = &row.counted.subject;
                    let is_new = *kind == Subject::Key && new_keys.contains(id);
                    if row.period == Some(Period::Minute) && !is_new {
                        sliding.insert(row.id.as_str());
                    }
                    counters.put(quota(row, Arc::new(restored(db, row, counters)?)))
                }
            };
            quotas.insert(row.id.clone(), quota);
        }
        restore_minutes(db, &rules, &quotas, (&sliding, counters.node()))?;
        Ok(Self::of_quotas(rules, quotas))
    }

    /// Builds the quotas of `rules` with counters of their own that count nothing.
    pub(super) fn uncounted(rules: Rules) -> Self {
        let now_ms = unix_ms();
        let blank = |row: &QuotaRow| {
            let counter = row.period.map(|period| Counter::new(period, now_ms));
            Arc::new(counter.unwrap_or_else(|| Counter::of_holds(now_ms)))
        };
        let quotas = rules.all().map(|row| (row.id.clone(), Arc::new(quota(row, blank(row))))).collect();
        Self::of_quotas(rules, quotas)
    }

    fn of_quotas(rules: Rules, quotas: HashMap<String, Arc<Quota>>) -> Self {
        let is_everywhere =
            |row: &&Arc<QuotaRow>| matches!(row.counted.subject.kind, Subject::Provider | Subject::Gateway);
        let mut everywhere: Vec<&Arc<QuotaRow>> = rules.all().filter(is_everywhere).collect();
        everywhere.sort_by(|one, other| one.id.cmp(&other.id));
        let everywhere = everywhere.into_iter().filter_map(|row| quotas.get(&row.id).cloned()).collect();
        Self { rules, quotas, everywhere }
    }

    /// Returns the quotas of the gateway and of provider instances.
    pub(super) fn everywhere(&self) -> &[Arc<Quota>] {
        &self.everywhere
    }

    /// Makes these quotas the published ones, for those who watch how much of them is used.
    pub(super) fn replace_in(&self, counters: &Counters) {
        counters.replace(self.quotas.values().cloned());
    }

    /// Drops all other quotas.
    pub(super) fn keep_only_its(&self, counters: &Counters) {
        counters.retain(|id| self.quotas.contains_key(id));
    }

    /// Returns the quotas of a key in this project that acts as this human principal.
    pub(super) fn of(&self, key: &str, project: &str, principal: Option<&str>) -> Box<[Arc<Quota>]> {
        if self.quotas.is_empty() {
            return Box::default();
        }
        let principal = principal.unwrap_or_default();
        let subjects = [(Subject::Key, key), (Subject::Project, project), (Subject::Principal, principal)];
        let own = self.rules.of(subjects).filter_map(|row| self.quotas.get(&row.id));
        own.chain(&self.everywhere).cloned().collect()
    }

    /// Returns the quotas of provider instances for callers that no quota binds: they count, but reject nothing.
    pub(super) fn unbound(&self) -> Box<[Arc<Quota>]> {
        let counted = self.everywhere.iter().filter(|quota| quota.subject == Subject::Provider);
        counted.map(|quota| Arc::new(Quota { is_hard: false, wait_ms: 0, ..Quota::clone(quota) })).collect()
    }
}

fn quota(row: &QuotaRow, counter: Arc<Counter>) -> Quota {
    Quota {
        id: row.id.as_str().into(),
        subject: row.counted.subject.kind,
        scope: row.counted.scope(),
        metric: row.metric,
        period: row.period,
        limit: row.limit,
        is_hard: row.is_hard(),
        wait_ms: if row.is_hard() { row.wait_ms } else { 0 },
        counter,
    }
}

/// Creates a counter with the usage of the current window. A node that shares its limits counts what it has used itself.
fn restored(db: &Db, row: &QuotaRow, counters: &Counters) -> DbResult<Counter> {
    let now_ms = unix_ms();
    let counter = counters.create(row.period, now_ms);
    if let Some((start_ms, _)) = row.period.and_then(|period| period.window(now_ms)) {
        let all = quotas::used(db, &row.id, start_ms)?;
        let own = match counters.node() {
            None => all,
            Some(node) => quotas::used_by_node(db, (&row.id, start_ms), node)?,
        };
        counter.add(start_ms, own, now_ms);
        if let Some(share) = counter.share() {
            share.set_elsewhere(start_ms, all.saturating_sub(own));
        }
    }
    Ok(counter)
}

/// Adds the usage of the last minute to the counters of the quotas in `sliding`; only its own on a node that shares them.
fn restore_minutes(
    db: &Db,
    rules: &Rules,
    quotas: &HashMap<String, Arc<Quota>>,
    (sliding, node): (&HashSet<&str>, Option<u32>),
) -> DbResult<()> {
    if sliding.is_empty() {
        return Ok(());
    }
    let now_ms = unix_ms();
    quotas::recent(db, (now_ms.saturating_sub(MINUTE_MS), node), |record, trace| {
        rules.each_amount(record, trace, |row, amount| {
            if let Some(quota) = quotas.get(&row.id).filter(|_| sliding.contains(row.id.as_str())) {
                quota.counter.add(record.started_at_ms, amount, now_ms);
            }
        });
    })
}

/// The longest time that a sliding minute window can cover.
const MINUTE_MS: u64 = 61_000;
