//! Recalculates the costs of recorded exchanges from other prices. The sums are corrected in the transaction that
//! changes the exchanges, so both always agree. Exchanges whose cost is already right are not changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use records::block::{self, Block};
use records::rare_fields::{lost, pack_lost};
use records::{Record, RecordName, Trace, bounded_cost};
use shared::operation::Operation;
use shared::prices::{Bill, Billed, VENDOR_LABEL, price};
use shared::quota::Counters;
use shared::usage::{Lost, Provenance};

use super::periods::{MoneyCorrections, MoneyGroup};
use super::recent::feed::RowPlace;
use super::rollup::{Difference, GROUPED, correct, grouped};
use crate::db::HOUR_MS;
use crate::db::engine::{Db, DbError, DbErrorKind, DbResult, named_params};
use crate::db::packed_row::{PackedRow, change, unless_damaged};
use crate::db::quota_corrections::{Corrections, Costs};
use crate::db::record_id::RecordId;
use crate::db::usage_effects;
use crate::routing::catalog::history::History;

/// A repricing job: the exchanges to reprice, and the prices.
#[derive(Clone, Debug)]
pub(crate) struct Repricing {
    pub(crate) from_ms: u64,
    /// The end of the time, exclusive.
    pub(crate) to_ms: u64,
    pub(crate) provider: Option<String>,
    pub(crate) model: Option<String>,
    /// The prices. An exchange without one keeps its cost.
    pub(crate) prices: Arc<History>,
    /// The counters of limits in memory.
    pub(crate) counters: Arc<Counters>,
    /// The last completed row.
    pub(crate) after: RowTime,
}

/// The place of a row in the order of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowTime {
    pub(crate) last_ms: u64,
    pub(crate) id: RecordId,
}

/// The corrections of the sums that one transaction changes.
struct SumCorrections {
    quotas: Corrections,
    periods: MoneyCorrections,
}

/// The changes of the sums by a row.
#[derive(Default)]
struct RowChanges<'a> {
    hours: HashMap<HourSum<'a>, Difference>,
    /// Those of exchanges that periods count.
    periods: Vec<(MoneyGroup<&'a str>, Difference)>,
    /// True if periods count the exchange that is repriced now.
    is_counted: bool,
}

/// The progress of a repricing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repriced {
    /// The number of examined exchanges.
    pub(crate) records: u64,
    /// The number of exchanges whose cost or price label changed.
    pub(crate) changed: u64,
    /// The number of exchanges whose cost is still unknown.
    pub(crate) unpriced: u64,
    pub(crate) cost_before: u64,
    pub(crate) cost_after: u64,
    /// The numbers of changed exchanges, by the labels of their price before and after.
    pub(crate) labels: BTreeMap<(String, String), u64>,
    /// The first changed exchanges, at most [`REQUESTS_MAX`].
    pub(crate) requests: Vec<RepricedRequest>,
}

/// An exchange whose cost or price label changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RepricedRequest {
    pub(crate) request_id: String,
    pub(crate) started_at_ms: u64,
    pub(crate) provider: String,
    pub(crate) model: String,
    /// The cost with that of its failed attempts, in billionths of a dollar; `None` if it was unknown.
    pub(crate) cost_before: Option<u64>,
    /// The cost with that of its failed attempts, in billionths of a dollar; `None` if it is unknown.
    pub(crate) cost_after: Option<u64>,
}

impl Repricing {
    /// Reprices rows until all are done or it is `until`, in one transaction. Returns true if all are done. Applies the
    /// changes to limits on cost, in the database and in memory. Changes nothing if another node changes one of the rows
    /// meanwhile.
    pub(crate) fn step(&mut self, db: &mut Db, done: &mut Repriced, until: Instant) -> DbResult<bool> {
        let tx = db.transaction()?;
        let (mut after, mut so_far) = (self.after, done.clone());
        let mut corrections =
            SumCorrections { quotas: Corrections::default(), periods: MoneyCorrections::begin(&tx)? };
        let finished = loop {
            let row = match self.block(&tx, after, &mut so_far, Some(&mut corrections)) {
                // Another node has changed the row since it was read. The next step starts from the same rows.
                Err(error) if error.kind() == DbErrorKind::Busy => return Ok(false),
                row => row?,
            };
            let Some(row) = row else { break true };
            after = row;
            if Instant::now() >= until {
                break false;
            }
        };
        let SumCorrections { mut quotas, periods } = corrections;
        quotas.store(&tx)?;
        periods.store(&tx)?;
        tx.commit()?;
        quotas.apply(&self.counters);
        (self.after, *done) = (after, so_far);
        usage_effects::deliver(db)?;
        Ok(finished)
    }

    /// Computes what `step` would do, and changes nothing. Returns true if all rows are done.
    pub(crate) fn preview(&mut self, db: &Db, done: &mut Repriced, until: Instant) -> DbResult<bool> {
        while let Some(row) = self.block(db, self.after, done, None)? {
            self.after = row;
            if Instant::now() >= until {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reprices the first row after `after`. Returns its place, or `None` if there is no such row. Without `corrections` nothing
    /// is stored.
    fn block(
        &self,
        tx: &Db,
        after: RowTime,
        done: &mut Repriced,
        mut corrections: Option<&mut SumCorrections>,
    ) -> DbResult<Option<RowTime>> {
        let signed = |moment: u64| i64::try_from(moment).unwrap_or(i64::MAX);
        let mut statement = tx.prepare(NEXT)?;
        let mut rows = statement.query(named_params! {
            ":from": signed(self.from_ms.max(after.last_ms)),
            ":after_ms": signed(after.last_ms),
            ":after": after.id,
            ":to": signed(self.to_ms),
        })?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let id: RecordId = row.get("id")?;
        let place = RowTime { last_ms: row.get("last_ms")?, id };
        let read = PackedRow::read(row).and_then(|row| Ok((row.rows()?, row.digest, row.names)));
        let Some((packed, digest, names)) = unless_damaged(read)? else { return Ok(Some(place)) };
        let Some(mut exchanges) = block::rows(packed, &names).collect::<Option<Vec<_>>>() else {
            tracing::warn!(row = %id, "a row of usage is not a valid record; its costs stay unchanged");
            return Ok(Some(place));
        };
        let mut changes = RowChanges::default();
        let before = done.changed;
        for (taken, (record, trace)) in (0..).zip(&mut exchanges) {
            let place = RowPlace { id, taken };
            changes.is_counted = corrections.as_ref().is_some_and(|all| all.periods.is_counted(place));
            let (costs, cost_before, changed) = (Costs::of(record), total(record), done.changed);
            if self.is_meant(record) {
                self.exchange(record, done, &mut changes);
            }
            self.failed_attempts(record, *trace, done, &mut changes);
            if done.changed > changed {
                done.note(record, cost_before);
                if let Some(corrections) = corrections.as_deref_mut() {
                    corrections.quotas.add(tx, &costs, record, *trace)?;
                }
            }
        }
        if let Some(corrections) = corrections.filter(|_| done.changed > before) {
            if change(tx, id, digest, &packed_again(&exchanges))?.is_none() {
                let reason = format!("the node of row {id} has added exchanges to it");
                return Err(DbError::new(DbErrorKind::Busy, reason));
            }
            for ((hour, names), difference) in changes.hours {
                correct(tx, hour, &names, difference)?;
            }
            for (group, difference) in changes.periods {
                corrections.periods.add(&group, difference);
            }
        }
        Ok(Some(place))
    }

    fn exchange<'a>(&'a self, record: &mut Record<'a>, done: &mut Repriced, changes: &mut RowChanges<'a>) {
        let (bill, label) = self.cost(record);
        let cost = bill.cost.map(bounded_cost);
        let (old, new) = (record.cost_nano_usd, cost.or(record.cost_nano_usd));
        let old_label = record.name(RecordName::Price);
        let new_label = if cost.is_some() { label } else { old_label };
        let unpriced = bill.unpriced.bits().filter(|_| new.is_none());
        done.records += 1;
        done.unpriced += u64::from(new.is_none());
        done.cost_before = done.cost_before.saturating_add(old.unwrap_or(0));
        done.cost_after = done.cost_after.saturating_add(new.unwrap_or(0));
        if (old, old_label, record.unpriced) == (new, new_label, unpriced) {
            return;
        }
        done.changed += 1;
        *done.labels.entry((old_label.to_owned(), new_label.to_owned())).or_default() += 1;
        changes.add(record, Difference { lost_nano_usd: 0, ..difference(old, new) });
        (record.cost_nano_usd, record.unpriced) = (new, unpriced);
        record.set_name(RecordName::Price, new_label);
    }

    /// Reprices the consumption of an exchange's failed attempts, each for its own target.
    fn failed_attempts<'a>(
        &'a self,
        record: &mut Record<'a>,
        trace: Trace<'a>,
        done: &mut Repriced,
        changes: &mut RowChanges<'a>,
    ) {
        let mut attempts: Vec<(usize, Lost)> = lost(&record.lost).collect();
        let mut is_changed = false;
        for (place, lost) in &mut attempts {
            let Some(step) = { trace }.nth(*place) else { continue };
            let mut attempt = record.clone();
            attempt.set_name(RecordName::Provider, step.provider);
            attempt.set_name(RecordName::Model, step.model);
            if !self.is_meant(&attempt) {
                continue;
            }
            let (old, new) = (lost.cost_nano_usd, self.cost_of_lost(&attempt, lost).or(lost.cost_nano_usd));
            done.cost_before = done.cost_before.saturating_add(old.unwrap_or(0));
            done.cost_after = done.cost_after.saturating_add(new.unwrap_or(0));
            done.unpriced += u64::from(new.is_none());
            if old == new {
                continue;
            }
            is_changed = true;
            lost.cost_nano_usd = new;
            changes.add(&attempt, difference(old, new));
        }
        if is_changed {
            done.changed += 1;
            record.lost = pack_lost(attempts.iter().map(|(place, lost)| (*place, lost))).into();
        }
    }

    /// True if the exchange started in the time, and its target matches the job.
    fn is_meant(&self, record: &Record<'_>) -> bool {
        let matches_name =
            |wanted: &Option<String>, name| wanted.as_ref().is_none_or(|w| w == record.name(name));
        (self.from_ms..self.to_ms).contains(&record.started_at_ms)
            && matches_name(&self.provider, RecordName::Provider)
            && matches_name(&self.model, RecordName::Model)
    }

    /// Returns the cost by the prices that applied when the exchange started, and their label.
    fn cost<'a>(&'a self, record: &Record<'_>) -> (Bill, &'a str) {
        let provenance =
            Provenance::named(record.name(RecordName::Provenance)).unwrap_or(Provenance::Estimated);
        self.bill(
            record,
            &Billed {
                operation: operation(record),
                provenance,
                tokens: &record.tokens,
                units: &record.units,
                tier: record.name_if_any(RecordName::Tier),
                picture: record.name_if_any(RecordName::Picture),
                vendor_cost: record.vendor_cost_nano_usd,
            },
        )
    }

    fn cost_of_lost(&self, attempt: &Record<'_>, lost: &Lost) -> Option<u64> {
        let billed = Billed {
            operation: operation(attempt),
            provenance: Provenance::Reported,
            tokens: &lost.tokens,
            units: &lost.units,
            tier: lost.tier.as_deref(),
            picture: lost.picture.as_deref(),
            vendor_cost: lost.vendor_cost_nano_usd,
        };
        self.bill(attempt, &billed).0.cost.map(bounded_cost)
    }

    /// Prices `billed` for the target of `record`.
    fn bill<'a>(&'a self, record: &Record<'_>, billed: &Billed<'_>) -> (Bill, &'a str) {
        let (provider, model) = (record.name(RecordName::Provider), record.name(RecordName::Model));
        let priced = self.prices.at(provider, model, record.started_at_ms);
        let bill = price(billed, priced.map(|(prices, _)| prices));
        let is_free = billed.tokens.total() == 0 && billed.units.is_empty();
        let label = match priced {
            _ if bill.by_vendor => VENDOR_LABEL,
            Some((_, label)) if !is_free => label,
            _ => "",
        };
        (bill, label)
    }
}

impl<'a> RowChanges<'a> {
    /// Adds the change of an attempt. The provider and model of `record` are those of the attempt.
    fn add(&mut self, record: &Record<'a>, difference: Difference) {
        if difference.is_zero() {
            return;
        }
        self.hours.entry((record.started_at_ms / HOUR_MS, grouped(record))).or_default().add(difference);
        if self.is_counted {
            self.periods.push((MoneyGroup::of(record), difference));
        }
    }
}

impl Repriced {
    fn note(&mut self, record: &Record<'_>, cost_before: Option<u64>) {
        if self.requests.len() < REQUESTS_MAX {
            self.requests.push(RepricedRequest {
                request_id: record.request_id.to_string(),
                started_at_ms: record.started_at_ms,
                provider: record.name(RecordName::Provider).to_owned(),
                model: record.name(RecordName::Model).to_owned(),
                cost_before,
                cost_after: total(record),
            });
        }
    }
}

/// Returns the cost of an exchange with that of its failed attempts, as far as that is known.
fn total(record: &Record<'_>) -> Option<u64> {
    let of_failed = lost(&record.lost).filter_map(|(_, lost)| lost.cost_nano_usd);
    record.cost_nano_usd.map(|cost| of_failed.fold(cost, u64::saturating_add))
}

fn operation(record: &Record<'_>) -> Operation {
    Operation::named(record.name(RecordName::Operation)).unwrap_or(Operation::ChatCompletions)
}

/// Returns the change of the cost of a failed attempt.
fn difference(old: Option<u64>, new: Option<u64>) -> Difference {
    let cost = signed(new) - signed(old);
    let unpriced = i64::from(new.is_none()) - i64::from(old.is_none());
    Difference { cost_nano_usd: cost, lost_nano_usd: cost, unpriced }
}

fn signed(cost: Option<u64>) -> i64 {
    i64::try_from(cost.unwrap_or(0)).unwrap_or(i64::MAX)
}

/// The hour and the names of a sum.
type HourSum<'a> = (u64, [&'a str; GROUPED.len()]);

fn packed_again(exchanges: &[(Record<'_>, Trace<'_>)]) -> Block {
    let mut block = Block::default();
    for (record, trace) in exchanges {
        block.push(record, *trace);
    }
    block
}

/// The most exchanges that a repricing names.
const REQUESTS_MAX: usize = 100;

const NEXT: &str = "SELECT * FROM usage \
     WHERE last_ms >= :from AND (last_ms > :after_ms OR id > :after) AND first_ms < :to ORDER BY last_ms, id LIMIT 1";
