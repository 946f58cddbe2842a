//! Adds exchanges up to rows of the table, in memory.

use std::collections::{BTreeMap, HashSet};

use hashbrown::HashMap;
use hashbrown::hash_map::{Entry, EntryRef};
use records::varint::{put, take};
use records::{Record, Trace};

use super::figures::{Part, PeriodFigures, Target, each_part};
use super::target::TargetSums;
use super::{DAY_MINUTES, Grain, MINUTE_MS, Section, table};
use crate::common::bounds::PERIOD_NAMES;
use crate::db::engine::{Db, DbResult};
use crate::usage::metrics::OTHER;

/// The key of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PeriodKey {
    pub(crate) grain: Grain,
    pub(crate) section: Section,
    /// The start of the period, in minutes since the Unix epoch.
    pub(crate) start: u64,
    /// Empty in [`Section::All`], and for exchanges without a name.
    pub(crate) name: Box<str>,
    /// The model of a target.
    pub(crate) model: Box<str>,
}

/// The sums of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeriodSums {
    pub(crate) figures: PeriodFigures,
    /// Empty in other sections than [`Section::Target`].
    pub(crate) target: TargetSums,
}

/// The names of a section in a day.
pub(super) type NameSet = HashSet<(Box<str>, Box<str>)>;

/// The names that the days have.
#[derive(Debug, Default)]
pub(super) struct DayNames(HashMap<(Section, u64), NameSet>);

/// Sums of exchanges: minutes by target, and hours by the names of other sections.
#[derive(Debug, Default)]
pub(crate) struct PeriodTally {
    /// The sums of the exchanges that name the same, by section, start of the period and names. An exchange finds them without a
    /// copy of its names.
    rows: HashMap<(Section, u64), HashMap<String, HashMap<String, Counted>>>,
    /// The number of exchanges.
    pub(super) exchanges: u64,
}

/// Sums, and the row that counts them.
#[derive(Debug)]
struct Counted {
    key: PeriodKey,
    sums: PeriodSums,
}

impl PeriodKey {
    pub(super) fn new(grain: Grain, section: Section, minute: u64, (name, model): Target<'_>) -> Self {
        let start = minute - minute % grain.minutes();
        Self { grain, section, start, name: name.into(), model: model.into() }
    }

    /// The start of the period, in milliseconds since the Unix epoch.
    pub(crate) fn start_ms(&self) -> u64 {
        self.start.saturating_mul(MINUTE_MS)
    }

    /// Returns the key of the longer period, or of another section, that contains this one.
    fn within(&self, grain: Grain, section: Section) -> Self {
        let names = if section == self.section { (&*self.name, &*self.model) } else { ("", "") };
        Self::new(grain, section, self.start, names)
    }

    /// Passes the keys of all rows that contain this one of a tally to `each`, and the key itself.
    pub(super) fn each_containing(self, mut each: impl FnMut(Self)) {
        if self.grain == Grain::Minute {
            each(self.within(Grain::Hour, Section::Target));
            each(self.within(Grain::Hour, Section::All));
            each(self.within(Grain::Day, Section::All));
        }
        each(self.within(Grain::Day, self.section));
        each(self);
    }
}

impl PeriodSums {
    /// Adds other sums.
    pub(crate) fn add(&mut self, other: &Self) {
        self.figures.add(&other.figures);
        self.target.merge(&other.target);
    }

    /// Returns the packed form, without the money.
    pub(super) fn pack(&self, section: Section) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        put(&mut out, FORMAT);
        self.figures.pack(&mut out);
        if section == Section::Target {
            self.target.pack(&mut out);
        }
        out
    }

    /// Returns packed sums; `None` if they are malformed or of another release's format.
    pub(super) fn unpack(mut bytes: &[u8]) -> Option<Self> {
        let mut sums = Self { figures: unpack_figures(&mut bytes)?, target: TargetSums::default() };
        if !bytes.is_empty() {
            sums.target = TargetSums::unpack(&mut bytes)?;
        }
        bytes.is_empty().then_some(sums)
    }
}

/// Takes the figures off the front of packed sums.
pub(super) fn unpack_figures(bytes: &mut &[u8]) -> Option<PeriodFigures> {
    if take(bytes)? != FORMAT {
        return None;
    }
    PeriodFigures::unpack(bytes)
}

impl DayNames {
    /// Returns the name under which a day counts `names`. A new one takes a free place, unless `is_fixed`.
    pub(super) fn counted<'a>(
        &mut self,
        db: &Db,
        (section, day): (Section, u64),
        names: Target<'a>,
        is_fixed: bool,
    ) -> DbResult<Target<'a>> {
        let known = match self.0.entry((section, day)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(table::names(db, section, day)?),
        };
        let key = (Box::from(names.0), Box::from(names.1));
        if known.contains(&key) {
            return Ok(names);
        }
        if is_fixed || PERIOD_NAMES.is_full(known.len()) {
            return Ok(others(section));
        }
        known.insert(key);
        Ok(names)
    }

    /// Forgets the names, after a failure or once there are many days.
    pub(super) fn forget(&mut self, is_necessary: bool) {
        if is_necessary || self.0.len() > DAYS_KNOWN_MAX {
            self.0.clear();
        }
    }
}

/// Returns the names of what is counted together.
pub(super) fn others(section: Section) -> Target<'static> {
    (OTHER, if section == Section::Target { OTHER } else { "" })
}

impl PeriodTally {
    /// Adds an exchange. `name` returns the names under which a section counts in a day.
    pub(crate) fn add(
        &mut self,
        record: &Record<'_>,
        trace: Trace<'_>,
        mut name: impl for<'n> FnMut((Section, u64), Target<'n>) -> DbResult<Target<'n>>,
    ) -> DbResult<()> {
        let minute = record.started_at_ms / MINUTE_MS;
        let mut own = PeriodFigures::default();
        let mut found = Ok(());
        each_part(record, trace, |target, part| {
            own.take(part);
            match self.row(Section::Target, minute, target, &mut name) {
                Ok(sums) => {
                    sums.figures.take(part);
                    if let Part::Exchange { record, .. } = part {
                        sums.target.add_exchange(record);
                    }
                }
                Err(error) => found = Err(error),
            }
        });
        found?;
        for step in trace {
            let sums = self.row(Section::Target, minute, (step.provider, step.model), &mut name)?;
            sums.target.add_result(step.result);
        }
        for section in Section::NAMED {
            self.row(section, minute, (section.name_of(record), ""), &mut name)?.figures.add(&own);
        }
        self.exchanges += 1;
        Ok(())
    }

    /// Returns the sums of the row that counts `names` in the shortest period of the section at `minute`.
    fn row(
        &mut self,
        section: Section,
        minute: u64,
        names: Target<'_>,
        counted: &mut impl for<'n> FnMut((Section, u64), Target<'n>) -> DbResult<Target<'n>>,
    ) -> DbResult<&mut PeriodSums> {
        let grain = if section == Section::Target { Grain::Minute } else { Grain::Hour };
        let start = minute - minute % grain.minutes();
        let named = self.rows.entry((section, start)).or_default().entry_ref(names.0).or_default();
        let row = match named.entry_ref(names.1) {
            EntryRef::Occupied(known) => known.into_mut(),
            EntryRef::Vacant(place) => {
                let day = minute - minute % DAY_MINUTES;
                let key = PeriodKey::new(grain, section, minute, counted((section, day), names)?);
                place.insert(Counted { key, sums: PeriodSums::default() })
            }
        };
        Ok(&mut row.sums)
    }

    /// Returns the sums with those of the longer periods, and of all names, in the order of the table.
    pub(crate) fn rolled_up(self) -> BTreeMap<PeriodKey, PeriodSums> {
        let mut all = BTreeMap::<PeriodKey, PeriodSums>::new();
        let rows = self.rows.into_values().flat_map(HashMap::into_values).flat_map(HashMap::into_values);
        for Counted { key, sums } in rows {
            key.each_containing(|key| {
                let is_of_all = key.section == Section::All;
                let row = all.entry(key).or_default();
                if is_of_all { row.figures.add(&sums.figures) } else { row.add(&sums) }
            });
        }
        all
    }
}

/// The version of the packed form.
const FORMAT: u64 = 1;
/// The maximum number of sections of days whose names are known.
const DAYS_KNOWN_MAX: usize = 512;
