//! Corrects the money of periods when exchanges are repriced, in the transaction that changes the records. The changes of
//! all exchanges are summed first, so each row of the table is changed once.

use std::collections::{BTreeMap, HashMap};

use records::{Record, RecordName};

use super::figures::Target;
use super::table::{self, Followed, followed};
use super::tally::{DayNames, PeriodKey};
use super::{DAY_MINUTES, Grain, MINUTE_MS, Section};
use crate::db::engine::{Db, DbResult};
use crate::db::record_id::NodeId;
use crate::usage::recent::feed::RowPlace;
use crate::usage::rollup::Difference;

/// The corrections of one transaction.
#[derive(Debug, Default)]
pub(crate) struct MoneyCorrections {
    /// The end of the records of each node that are counted. Later ones will be counted with their new costs.
    counted: BTreeMap<NodeId, Followed>,
    names: KnownNames,
    changes: HashMap<MoneyGroup<NameNumber>, Difference>,
}

/// What decides which rows of the table the money of an attempt is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MoneyGroup<N> {
    /// The start, in minutes since the Unix epoch.
    minute: u64,
    /// Provider and model.
    target: (N, N),
    /// The names in [`Section::NAMED`].
    names: [N; Section::NAMED.len()],
}

/// Names by numbers, which take no memory of their own in each key.
#[derive(Debug, Default)]
struct KnownNames {
    numbers: HashMap<Box<str>, NameNumber>,
    names: Vec<Box<str>>,
}

type NameNumber = usize;

impl<'a> MoneyGroup<&'a str> {
    /// Returns the group of a record. Provider and model are those of the attempt.
    pub(crate) fn of(record: &Record<'a>) -> Self {
        Self {
            minute: record.started_at_ms / MINUTE_MS,
            target: (record.name(RecordName::Provider), record.name(RecordName::Model)),
            names: Section::NAMED.map(|section| section.name_of(record)),
        }
    }
}

impl MoneyCorrections {
    /// Begins the corrections of a transaction.
    pub(crate) fn begin(tx: &Db) -> DbResult<Self> {
        Ok(Self { counted: followed(tx)?, ..Self::default() })
    }

    /// True if the exchange at a place of the table is counted.
    pub(crate) fn is_counted(&self, place: RowPlace) -> bool {
        self.counted.get(&place.id.node()).is_some_and(|followed| place < followed.place)
    }

    /// Adds the change of an attempt of a counted exchange.
    pub(crate) fn add(&mut self, group: &MoneyGroup<&str>, change: Difference) {
        let Self { names, changes, .. } = self;
        let (provider, model) = group.target;
        let group = MoneyGroup {
            minute: group.minute,
            target: (names.number(provider), names.number(model)),
            names: group.names.map(|name| names.number(name)),
        };
        changes.entry(group).or_default().add(change);
    }

    /// Changes the rows.
    pub(crate) fn store(self, tx: &Db) -> DbResult<()> {
        let mut day_names = DayNames::default();
        let mut rows = BTreeMap::<PeriodKey, Difference>::new();
        for ((grain, section, start, (name, model)), change) in self.shortest_periods() {
            let day = start - start % DAY_MINUTES;
            let names = day_names.counted(tx, (section, day), (name, model), true)?;
            PeriodKey::new(grain, section, start, names)
                .each_containing(|key| rows.entry(key).or_default().add(change));
        }
        for (key, change) in rows.iter().filter(|(_, change)| !change.is_zero()) {
            table::correct(tx, key, change.cost_nano_usd, change.unpriced)?;
        }
        Ok(())
    }

    /// Returns the changes of the shortest periods of each section.
    fn shortest_periods(&self) -> HashMap<ShortestPeriod<'_>, Difference> {
        let mut sums = HashMap::<_, Difference>::new();
        for (group, change) in &self.changes {
            let MoneyGroup { minute, target: (provider, model), names } = *group;
            let target = (self.names.name(provider), self.names.name(model));
            sums.entry((Grain::Minute, Section::Target, minute, target)).or_default().add(*change);
            let hour = minute - minute % Grain::Hour.minutes();
            for (section, name) in Section::NAMED.into_iter().zip(names) {
                let names = (self.names.name(name), "");
                sums.entry((Grain::Hour, section, hour, names)).or_default().add(*change);
            }
        }
        sums.retain(|_, change| !change.is_zero());
        sums
    }
}

/// A period with its start in minutes and its names.
type ShortestPeriod<'a> = (Grain, Section, u64, Target<'a>);

impl KnownNames {
    fn number(&mut self, name: &str) -> NameNumber {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len();
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        number
    }

    fn name(&self, number: NameNumber) -> &str {
        self.names.get(number).map_or("", |name| name)
    }
}
