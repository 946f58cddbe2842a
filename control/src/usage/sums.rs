//! The sums of a set of exchanges: the figures of the tables `usage_hour` and `usage_day`.

use std::sync::LazyLock;

use records::{Record, RecordName, Trace, rare_fields};
use shared::usage::{Class, Lost, TokenCounts, Units, counted};

use crate::db::engine::{DbResult, Row};

/// The sums of a set of exchanges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageSums {
    pub(crate) requests: u64,
    /// Attempts with unknown cost: at most the serving one of each exchange, plus its failed attempts.
    pub(crate) unpriced: u64,
    /// The sum of the known costs, including those of failed attempts.
    pub(crate) cost_nano_usd: u64,
    /// The sum of the known costs of failed attempts.
    pub(crate) lost_nano_usd: u64,
    /// The sum of the costs that vendors reported.
    pub(crate) vendor_cost_nano_usd: u64,
    pub(crate) duration_us: u64,
    pub(crate) first_content_us: u64,
    /// The number of exchanges in `first_content_us`.
    pub(crate) first_contents: u64,
    pub(crate) tokens: TokenCounts,
    pub(crate) units: Units,
}

/// A figure by which groups can be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    Cost,
    /// The cost of failed attempts.
    Lost,
    Requests,
    Unpriced,
    /// The total of all token classes.
    Tokens,
    Of(Class),
}

impl UsageSums {
    /// The number of columns.
    pub(crate) const COUNT: usize = FIXED.len() + Class::COUNT;

    /// Returns the sums of one exchange without its failed attempts.
    pub(crate) fn of(record: &Record<'_>) -> Self {
        Self {
            requests: 1,
            unpriced: u64::from(record.cost_nano_usd.is_none()),
            cost_nano_usd: record.cost_nano_usd.unwrap_or(0),
            lost_nano_usd: 0,
            vendor_cost_nano_usd: record.vendor_cost_nano_usd.unwrap_or(0),
            duration_us: record.duration_us,
            first_content_us: record.first_content_us.unwrap_or(0),
            first_contents: u64::from(record.first_content_us.is_some()),
            tokens: record.tokens,
            units: record.units,
        }
    }

    /// Returns the sums of one failed attempt.
    pub(crate) fn of_lost(lost: &Lost) -> Self {
        let cost = lost.cost_nano_usd.unwrap_or(0);
        Self {
            unpriced: u64::from(lost.cost_nano_usd.is_none()),
            cost_nano_usd: cost,
            lost_nano_usd: cost,
            vendor_cost_nano_usd: lost.vendor_cost_nano_usd.unwrap_or(0),
            tokens: lost.tokens,
            units: lost.units,
            ..Self::default()
        }
    }

    /// Calls `each` with the exchange and its own sums. Then calls it for each failed attempt with consumption, with a
    /// record of the exchange that names that attempt's target as the one that served.
    pub(crate) fn of_attempts<'a>(
        record: &Record<'a>,
        trace: Trace<'a>,
        mut each: impl FnMut(&Record<'_>, &Self),
    ) {
        each(record, &Self::of(record));
        for (place, lost) in rare_fields::lost(&record.lost) {
            let Some(step) = trace.clone().nth(place) else { continue };
            let mut attempt = record.clone();
            attempt.set_name(RecordName::Provider, step.provider);
            attempt.set_name(RecordName::Model, step.model);
            each(&attempt, &Self::of_lost(&lost));
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        *self = Self {
            requests: self.requests.saturating_add(other.requests),
            unpriced: self.unpriced.saturating_add(other.unpriced),
            cost_nano_usd: self.cost_nano_usd.saturating_add(other.cost_nano_usd),
            lost_nano_usd: self.lost_nano_usd.saturating_add(other.lost_nano_usd),
            vendor_cost_nano_usd: self.vendor_cost_nano_usd.saturating_add(other.vendor_cost_nano_usd),
            duration_us: self.duration_us.saturating_add(other.duration_us),
            first_content_us: self.first_content_us.saturating_add(other.first_content_us),
            first_contents: self.first_contents.saturating_add(other.first_contents),
            tokens: self.tokens.plus(&other.tokens),
            units: self.units.plus(&other.units),
        };
    }

    pub(crate) fn figure(&self, figure: Figure) -> u64 {
        match figure {
            Figure::Cost => self.cost_nano_usd,
            Figure::Lost => self.lost_nano_usd,
            Figure::Requests => self.requests,
            Figure::Unpriced => self.unpriced,
            Figure::Tokens => self.tokens.total(),
            Figure::Of(class) => self.count(class),
        }
    }

    fn count(&self, class: Class) -> u64 {
        let mut counts = counted(&self.tokens, &self.units);
        counts.find(|(other, _)| *other == class).map_or(0, |(_, count)| count)
    }

    /// Returns the sums in the order of the columns: [`FIXED`], then the classes.
    pub(crate) fn list(&self) -> [u64; Self::COUNT] {
        let fixed = [
            self.requests,
            self.unpriced,
            self.cost_nano_usd,
            self.lost_nano_usd,
            self.vendor_cost_nano_usd,
            self.duration_us,
            self.first_content_us,
            self.first_contents,
        ];
        let mut list = [0; Self::COUNT];
        let classes = counted(&self.tokens, &self.units).map(|(_, count)| count);
        for (place, sum) in list.iter_mut().zip(fixed.into_iter().chain(classes)) {
            *place = sum;
        }
        list
    }

    fn of_list(list: [u64; Self::COUNT]) -> Self {
        let [
            requests,
            unpriced,
            cost_nano_usd,
            lost_nano_usd,
            vendor_cost_nano_usd,
            duration_us,
            first_content_us,
            first_contents,
            classes @ ..,
        ] = list;
        let (mut tokens, mut units) = (TokenCounts::ZERO.list(), Units::ZERO.list());
        tokens.iter_mut().chain(&mut units).zip(classes).for_each(|(place, sum)| *place = sum);
        Self {
            requests,
            unpriced,
            cost_nano_usd,
            lost_nano_usd,
            vendor_cost_nano_usd,
            duration_us,
            first_content_us,
            first_contents,
            tokens: TokenCounts::of_list(tokens),
            units: Units::of_list(units),
        }
    }

    /// The number of columns in [`SELECTED`].
    pub(crate) const SELECTED: usize = USUAL.len() + 1;

    /// Reads the first columns of a row, which are those of [`SELECTED`].
    pub(crate) fn read(row: Row<'_>) -> DbResult<Self> {
        let mut list = [0; Self::COUNT];
        let selected = &*SELECTED;
        for (at, place) in selected.usual.iter().enumerate() {
            if let Some(sum) = list.get_mut(*place) {
                *sum = row.get(at)?;
            }
        }
        if let Some(rare) = row.get::<Option<&str>>(selected.usual.len())? {
            for (place, sum) in selected.rare.iter().zip(rare.split(' ')) {
                if let Some(place) = list.get_mut(*place) {
                    *place = sum.parse().unwrap_or_default();
                }
            }
        }
        Ok(Self::of_list(list))
    }
}

/// The columns of the tables that contain sums, in the order of [`UsageSums::list`].
pub(crate) fn columns() -> impl Iterator<Item = &'static str> + Clone {
    FIXED.into_iter().chain(Class::ALL.into_iter().map(Class::column))
}

/// The columns of sums in the form that [`UsageSums::read`] expects. Columns that are zero in nearly every row are
/// combined into one text, which is NULL if all of them are zero: reading a column takes longer than testing it for
/// zero.
#[derive(Debug)]
pub(crate) struct Selected {
    pub(crate) sql: String,
    /// The positions in [`columns`] of the columns that are selected separately; `rare` has those in the text.
    usual: Vec<usize>,
    rare: Vec<usize>,
}

pub(crate) static SELECTED: LazyLock<Selected> = LazyLock::new(|| {
    let (usual, rare): (Vec<_>, Vec<_>) = columns().enumerate().partition(|(_, name)| USUAL.contains(name));
    let names = |some: &[(usize, &'static str)]| some.iter().map(|(_, name)| *name).collect::<Vec<_>>();
    let (any, text) = (names(&rare).join(" | "), names(&rare).join(" || ' ' || "));
    let sql = format!("{}, CASE WHEN ({any}) <> 0 THEN {text} END", names(&usual).join(", "));
    let places = |some: Vec<(usize, &str)>| some.into_iter().map(|(place, _)| place).collect();
    Selected { sql, usual: places(usual), rare: places(rare) }
});

/// The columns that are seldom zero.
const USUAL: [&str; 11] = [
    "requests",
    "unpriced",
    "cost_nano_usd",
    "duration_us",
    "first_content_us",
    "first_contents",
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
];
const FIXED: [&str; 8] = [
    "requests",
    "unpriced",
    "cost_nano_usd",
    "lost_nano_usd",
    "vendor_cost_nano_usd",
    "duration_us",
    "first_content_us",
    "first_contents",
];
