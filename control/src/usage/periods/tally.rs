//! Adds exchanges up to rows of the table, in memory.

use std::collections::{BTreeMap, HashSet};

use hashbrown::hash_map::{Entry, EntryRef};
use hashbrown::{Equivalent, HashMap};
use records::varint::{put, take};
use records::{Record, Trace};

use super::figures::{PeriodFigures, Target, each_part, target_of};
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
///
/// Most exchanges name the same as many others, so those are summed first: an exchange costs one look-up, and each section takes
/// the sums of all of them later.
#[derive(Debug, Default)]
pub(crate) struct PeriodTally {
    /// At most [`ALIKE_MAX`].
    alike: HashMap<Alike, AlikeSums>,
    rows: Rows,
    /// The number of exchanges.
    pub(super) exchanges: u64,
}

/// Names that exchanges have in common, and the minute of their start.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Alike {
    minute: u64,
    target: (Box<str>, Box<str>),
    /// The names of [`Section::NAMED`].
    names: [Box<str>; Section::NAMED.len()],
}

/// The same, borrowed from a record.
#[derive(Debug, Hash)]
struct AlikeRef<'a> {
    minute: u64,
    target: Target<'a>,
    names: [&'a str; Section::NAMED.len()],
}

/// The sums of exchanges that are alike.
#[derive(Debug)]
struct AlikeSums {
    /// The number of sums before this one: a name that comes first gets a place first.
    place: usize,
    /// The exchanges, and the attempts at their target.
    own: PeriodSums,
    /// The attempts at other targets.
    elsewhere: PeriodFigures,
}

/// Sums by section, start of the period and names.
#[derive(Debug, Default)]
struct Rows {
    rows: HashMap<(Section, u64), HashMap<String, HashMap<String, RowSums>>>,
    count: usize,
}

#[derive(Debug)]
struct RowSums {
    /// The number of rows before this one.
    place: usize,
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

impl Equivalent<Alike> for AlikeRef<'_> {
    fn equivalent(&self, key: &Alike) -> bool {
        self.minute == key.minute
            && self.target == (&*key.target.0, &*key.target.1)
            && self.names.iter().zip(&key.names).all(|(one, other)| **one == **other)
    }
}

impl From<&AlikeRef<'_>> for Alike {
    fn from(&AlikeRef { minute, target: (provider, model), names }: &AlikeRef<'_>) -> Self {
        Self { minute, target: (provider.into(), model.into()), names: names.map(Box::from) }
    }
}

impl AlikeSums {
    fn new(place: usize) -> Self {
        Self { place, own: PeriodSums::default(), elsewhere: PeriodFigures::default() }
    }
}

impl PeriodTally {
    /// Adds an exchange.
    pub(crate) fn add(&mut self, record: &Record<'_>, trace: Trace<'_>) {
        if self.alike.len() >= ALIKE_MAX {
            self.add_alike();
        }
        let (minute, own) = (record.started_at_ms / MINUTE_MS, target_of(record));
        let names = Section::NAMED.map(|section| section.name_of(record));
        let place = self.alike.len();
        let sums = match self.alike.entry_ref(&AlikeRef { minute, target: own, names }) {
            EntryRef::Occupied(known) => known.into_mut(),
            EntryRef::Vacant(free) => {
                let key = free.key().into();
                free.insert_with_key(key, AlikeSums::new(place))
            }
        };
        each_part(record, trace, |target, part| {
            if target == own {
                sums.own.figures.take(part);
            } else {
                sums.elsewhere.take(part);
                self.rows.at(Section::Target, minute, target).figures.take(part);
            }
        });
        sums.own.target.add_exchange(record);
        for step in trace {
            let target = (step.provider, step.model);
            let sums =
                if target == own { &mut sums.own } else { self.rows.at(Section::Target, minute, target) };
            sums.target.add_result(step.result);
        }
        self.exchanges += 1;
    }

    /// Adds the sums of exchanges that are alike to their rows.
    fn add_alike(&mut self) {
        let mut alike: Vec<_> = self.alike.drain().collect();
        alike.sort_unstable_by_key(|(_, sums)| sums.place);
        for (Alike { minute, target, names }, AlikeSums { own, mut elsewhere, .. }) in alike {
            self.rows.at(Section::Target, minute, (&target.0, &target.1)).add(&own);
            elsewhere.add(&own.figures);
            for (section, name) in Section::NAMED.into_iter().zip(&names) {
                self.rows.at(section, minute, (name, "")).figures.add(&elsewhere);
            }
        }
    }

    /// Returns the sums with those of the longer periods, and of all names, in the order of the table. `name` returns the
    /// names under which a section counts in a day.
    pub(crate) fn rolled_up(
        mut self,
        mut name: impl for<'n> FnMut((Section, u64), Target<'n>) -> DbResult<Target<'n>>,
    ) -> DbResult<BTreeMap<PeriodKey, PeriodSums>> {
        self.add_alike();
        let mut all = BTreeMap::<PeriodKey, PeriodSums>::new();
        for ((section, start), names, sums) in self.rows.in_order() {
            let day = start - start % DAY_MINUTES;
            let counted = name((section, day), (&names.0, &names.1))?;
            PeriodKey::new(section.shortest_grain(), section, start, counted).each_containing(|key| {
                let is_of_all = key.section == Section::All;
                let row = all.entry(key).or_default();
                if is_of_all { row.figures.add(&sums.figures) } else { row.add(&sums) }
            });
        }
        Ok(all)
    }
}

impl Rows {
    /// Returns the sums of the row that counts `names` in the shortest period of the section at `minute`.
    fn at(&mut self, section: Section, minute: u64, names: Target<'_>) -> &mut PeriodSums {
        let start = minute - minute % section.shortest_grain().minutes();
        let named = self.rows.entry((section, start)).or_default().entry_ref(names.0).or_default();
        let row = named.entry_ref(names.1).or_insert_with(|| {
            self.count += 1;
            RowSums { place: self.count, sums: PeriodSums::default() }
        });
        &mut row.sums
    }

    /// Returns the section, the start, the names and the sums of each row, in the order in which they came.
    fn in_order(self) -> impl Iterator<Item = ((Section, u64), (String, String), PeriodSums)> {
        let mut rows = Vec::with_capacity(self.count);
        for (of, by_name) in self.rows {
            for (name, by_model) in by_name {
                rows.extend(
                    by_model.into_iter().map(|(model, row)| (row.place, of, (name.clone(), model), row.sums)),
                );
            }
        }
        rows.sort_unstable_by_key(|(place, ..)| *place);
        rows.into_iter().map(|(_, of, names, sums)| (of, names, sums))
    }
}

impl Section {
    /// The shortest periods that have rows of the section by name.
    fn shortest_grain(self) -> Grain {
        if self == Self::Target { Grain::Minute } else { Grain::Hour }
    }
}

/// The maximum number of sums of exchanges that are alike, which bounds their memory where few are.
const ALIKE_MAX: usize = 4_096;
/// The version of the packed form.
const FORMAT: u64 = 1;
/// The maximum number of sections of days whose names are known.
const DAYS_KNOWN_MAX: usize = 512;
