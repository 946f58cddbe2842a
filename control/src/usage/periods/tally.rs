//! Adds exchanges up to rows of the table, in memory.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;

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
/// the sums of all of them at the end.
#[derive(Debug, Default)]
pub(crate) struct PeriodTally {
    alike: HashMap<Alike, AlikeSums>,
    /// What other targets did for exchanges before their own one.
    elsewhere: TargetTally,
    /// The number of exchanges.
    pub(super) exchanges: u64,
}

/// Sums by target and minute.
#[derive(Debug, Default)]
struct TargetTally(HashMap<TargetMinute, PeriodSums>);

/// What all exchanges of a sum have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Alike {
    target: TargetMinute,
    /// The names of [`Section::NAMED`].
    names: [Box<str>; Section::NAMED.len()],
}

/// The same, of an exchange.
#[derive(Debug, Hash)]
struct AlikeRef<'a> {
    target: TargetMinuteRef<'a>,
    names: [&'a str; Section::NAMED.len()],
}

/// A target and a minute.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct TargetMinute {
    minute: u64,
    provider: Box<str>,
    model: Box<str>,
}

/// The same, of an exchange.
#[derive(Clone, Copy, Debug, Hash)]
struct TargetMinuteRef<'a> {
    minute: u64,
    target: Target<'a>,
}

/// The sums of exchanges that are alike.
#[derive(Debug)]
struct AlikeSums {
    /// The number of sums before this one: a name that comes first gets a place first.
    place: usize,
    /// What their own target did.
    own: PeriodSums,
    /// What other targets did for them.
    elsewhere: PeriodFigures,
}

/// Rows while sums are added to them.
#[derive(Debug, Default)]
struct Rows(
    /// By section, start of the period and names.
    HashMap<(Section, u64), HashMap<String, HashMap<String, Counted>>>,
);

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

impl Equivalent<Alike> for AlikeRef<'_> {
    fn equivalent(&self, key: &Alike) -> bool {
        self.target.equivalent(&key.target)
            && self.names.iter().zip(&key.names).all(|(one, other)| **one == **other)
    }
}

impl From<&AlikeRef<'_>> for Alike {
    fn from(exchange: &AlikeRef<'_>) -> Self {
        Self { target: (&exchange.target).into(), names: exchange.names.map(Box::from) }
    }
}

impl Equivalent<TargetMinute> for TargetMinuteRef<'_> {
    fn equivalent(&self, key: &TargetMinute) -> bool {
        self.minute == key.minute && self.target == key.target()
    }
}

impl From<&TargetMinuteRef<'_>> for TargetMinute {
    fn from(&TargetMinuteRef { minute, target: (provider, model) }: &TargetMinuteRef<'_>) -> Self {
        Self { minute, provider: provider.into(), model: model.into() }
    }
}

impl TargetMinute {
    fn target(&self) -> Target<'_> {
        (&self.provider, &self.model)
    }
}

impl TargetTally {
    fn at(&mut self, minute: u64, target: Target<'_>) -> &mut PeriodSums {
        known_or(&mut self.0, &TargetMinuteRef { minute, target }, PeriodSums::default)
    }
}

impl PeriodTally {
    /// Adds an exchange.
    pub(crate) fn add(&mut self, record: &Record<'_>, trace: Trace<'_>) {
        let minute = record.started_at_ms / MINUTE_MS;
        let own = TargetMinuteRef { minute, target: target_of(record) };
        let names = Section::NAMED.map(|section| section.name_of(record));
        let place = self.alike.len();
        let sums = known_or(&mut self.alike, &AlikeRef { target: own, names }, || AlikeSums {
            place,
            own: PeriodSums::default(),
            elsewhere: PeriodFigures::default(),
        });
        each_part(record, trace, |target, part| {
            if target == own.target {
                sums.own.figures.take(part);
            } else {
                sums.elsewhere.take(part);
                self.elsewhere.at(minute, target).figures.take(part);
            }
        });
        sums.own.target.add_exchange(record);
        for step in trace {
            let target = (step.provider, step.model);
            let sums = if target == own.target { &mut sums.own } else { self.elsewhere.at(minute, target) };
            sums.target.add_result(step.result);
        }
        self.exchanges += 1;
    }

    /// Returns the sums with those of the longer periods, and of all names, in the order of the table. `name` returns the
    /// names under which a section counts in a day.
    pub(crate) fn rolled_up(
        self,
        mut name: impl for<'n> FnMut((Section, u64), Target<'n>) -> DbResult<Target<'n>>,
    ) -> DbResult<BTreeMap<PeriodKey, PeriodSums>> {
        let mut rows = Rows::default();
        let mut alike: Vec<_> = self.alike.into_iter().collect();
        alike.sort_unstable_by_key(|(_, sums)| sums.place);
        for (Alike { target, names }, AlikeSums { own, mut elsewhere, .. }) in alike {
            rows.row(Section::Target, target.minute, target.target(), &mut name)?.add(&own);
            elsewhere.add(&own.figures);
            for (section, of_section) in Section::NAMED.into_iter().zip(&names) {
                rows.row(section, target.minute, (of_section, ""), &mut name)?.figures.add(&elsewhere);
            }
        }
        let mut elsewhere: Vec<_> = self.elsewhere.0.into_iter().collect();
        elsewhere.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for (target, sums) in elsewhere {
            rows.row(Section::Target, target.minute, target.target(), &mut name)?.add(&sums);
        }
        Ok(rows.rolled_up())
    }
}

impl Rows {
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
        let named = self.0.entry((section, start)).or_default().entry_ref(names.0).or_default();
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

    fn rolled_up(self) -> BTreeMap<PeriodKey, PeriodSums> {
        let mut all = BTreeMap::<PeriodKey, PeriodSums>::new();
        let rows = self.0.into_values().flat_map(HashMap::into_values).flat_map(HashMap::into_values);
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

/// Returns the value of a key. A new one gets the key as its own and a `new` value.
fn known_or<'m, K, Q, V>(map: &'m mut HashMap<K, V>, key: &Q, new: impl FnOnce() -> V) -> &'m mut V
where
    K: Eq + Hash + for<'q> From<&'q Q>,
    Q: Equivalent<K> + Hash,
{
    match map.entry_ref(key) {
        EntryRef::Occupied(known) => known.into_mut(),
        EntryRef::Vacant(place) => place.insert_with_key(key.into(), new()),
    }
}

/// The version of the packed form.
const FORMAT: u64 = 1;
/// The maximum number of sections of days whose names are known.
const DAYS_KNOWN_MAX: usize = 512;
