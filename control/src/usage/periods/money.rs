//! Corrects the money of periods when exchanges are repriced, in the transaction that changes the records.

use std::collections::BTreeMap;

use records::{Record, Trace};

use super::table::{self, Followed, followed};
use super::tally::{DayNames, PeriodKey, PeriodTally};
use crate::db::engine::{Db, DbResult};
use crate::db::record_id::NodeId;
use crate::db::signed;
use crate::usage::recent::feed::RowPlace;

/// The corrections of one transaction.
#[derive(Debug, Default)]
pub(crate) struct MoneyCorrections {
    /// The end of the records of each node that are counted. Later ones will be counted with their new costs.
    counted: BTreeMap<NodeId, Followed>,
    names: DayNames,
    /// What the exchanges of each node add to the sums, before and after the change.
    tallies: BTreeMap<NodeId, [PeriodTally; 2]>,
}

impl MoneyCorrections {
    /// Begins the corrections of a transaction.
    pub(crate) fn begin(tx: &Db) -> DbResult<Self> {
        Ok(Self { counted: followed(tx)?, ..Self::default() })
    }

    /// Adds a changed exchange at a place of the table.
    pub(crate) fn add(
        &mut self,
        tx: &Db,
        place: RowPlace,
        (before, after): (&Record<'_>, &Record<'_>),
        trace: Trace<'_>,
    ) -> DbResult<()> {
        let node = place.id.node();
        if self.counted.get(&node).is_none_or(|followed| place >= followed.place) {
            return Ok(());
        }
        let Self { names, tallies, .. } = self;
        for (tally, record) in tallies.entry(node).or_default().iter_mut().zip([before, after]) {
            tally.add(record, trace, |day, target| names.counted(tx, day, target, true))?;
        }
        Ok(())
    }

    /// Changes the rows.
    pub(crate) fn store(self, tx: &Db) -> DbResult<()> {
        for (node, [before, after]) in self.tallies {
            let mut changes = BTreeMap::<PeriodKey, (i64, i64)>::new();
            for (tally, sign) in [(before, -1), (after, 1)] {
                for (key, sums) in tally.rolled_up() {
                    let (cost, unpriced) = changes.entry(key).or_default();
                    *cost += sign * signed(sums.figures.cost_nano_usd);
                    *unpriced += sign * signed(sums.figures.unpriced);
                }
            }
            let changed = changes.iter().filter(|(_, change)| **change != (0, 0));
            for (key, (cost, unpriced)) in changed {
                table::correct(tx, node, key, *cost, *unpriced)?;
            }
        }
        Ok(())
    }
}
