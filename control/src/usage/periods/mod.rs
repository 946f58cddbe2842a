//! Figures of exchanges by the minute, the hour and the UTC day in which they started: the table `usage_period`, from which
//! charts of any length and the figures of targets are read.
//!
//! ```text
//!  usage         1 ... 900 | 901 ... 907 |          rows, by their ids
//!  usage_period  <- counted | not yet: `followed` has the place, and readers read the rest from the records
//! ```
//!
//! The table follows the records. One transaction adds those behind a place in `usage` and moves the place, so each record
//! counts once, whatever ends the process in between, and records of earlier releases are added in the same way. The rows of
//! a minute belong to the node whose records they sum.
//!
//! A figure is kept by each [`Section`] alone, not by combinations, of which there may be as many as records: minutes by
//! target, hours and days by each of the others, too. The number of names of a day is bounded ([`PERIOD_NAMES`](crate::common::bounds::PERIOD_NAMES)).

mod figures;
mod follower;
mod money;
mod plan;
mod rest;
mod table;
mod tally;
mod target;

use records::{Record, RecordName};

pub(crate) use self::figures::{Attempt, Part, PeriodFigures, each_part, lost_attempts};
pub(crate) use self::follower::{Follower, RecordCounting};
pub(crate) use self::money::{MoneyCorrections, MoneyGroup};
pub(crate) use self::plan::{Plan, PlannedSpan};
pub(crate) use self::rest::RecordReading;
pub(crate) use self::table::{
    Followed, PeriodRow, PeriodSpan, first_period, followed, followed_of, merge_next, prune, rows,
};
pub(crate) use self::tally::PeriodTally;
pub(crate) use self::target::{TargetSums, TargetTime};
use crate::db::HOUR_MS;
use crate::usage::dimension::Dimension;
use crate::usage::requests::Column;

/// The length of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Grain {
    Minute,
    Hour,
    Day,
}

impl Grain {
    /// The length in minutes, which is the value of the column.
    pub(crate) fn minutes(self) -> u64 {
        match self {
            Self::Minute => 1,
            Self::Hour => 60,
            Self::Day => 1_440,
        }
    }

    /// The length in milliseconds.
    pub(crate) fn ms(self) -> u64 {
        self.minutes() * MINUTE_MS
    }

    /// Returns the first minute of the periods that are kept at `now_ms`. Whole days expire, so that what is kept of a grain is
    /// all of its periods since a moment. `None` for days, which are kept as long as the sums of usage.
    pub(crate) fn kept_from(self, now_ms: u64) -> Option<u64> {
        let days = match self {
            Self::Minute => 14,
            Self::Hour => 100,
            Self::Day => return None,
        };
        Some(first_minute(now_ms, days))
    }
}

/// What the figures of a period are kept by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Section {
    /// Nothing: the figures of all exchanges.
    All = 0,
    /// Provider and model. Attempts count for their own target.
    Target = 1,
    Project = 2,
    Endpoint = 3,
    Operation = 4,
    Outcome = 5,
    Client = 6,
}

impl Section {
    const EVERY: [Self; 7] = [
        Self::All,
        Self::Target,
        Self::Project,
        Self::Endpoint,
        Self::Operation,
        Self::Outcome,
        Self::Client,
    ];
    /// Those with one name, which minutes do not have.
    const NAMED: [Self; 5] = [Self::Project, Self::Endpoint, Self::Operation, Self::Outcome, Self::Client];

    /// The value of the column.
    pub(crate) fn number(self) -> u64 {
        u64::from(self as u8)
    }

    /// Returns the section with this number.
    fn of_number(number: u64) -> Option<Self> {
        Self::EVERY.into_iter().find(|section| section.number() == number)
    }

    /// Returns the smallest section that has all these dimensions; `None` if there is none.
    pub(crate) fn with<'a>(dimensions: impl IntoIterator<Item = &'a Dimension>) -> Option<Self> {
        dimensions.into_iter().try_fold(Self::All, |found, dimension| {
            let one = match dimension {
                Dimension::Column(Column::Provider | Column::Model) => Self::Target,
                Dimension::Column(Column::Project) => Self::Project,
                Dimension::Column(Column::Endpoint) => Self::Endpoint,
                Dimension::Column(Column::Operation) => Self::Operation,
                Dimension::Column(Column::Outcome) => Self::Outcome,
                Dimension::Client => Self::Client,
                Dimension::Column(Column::Key | Column::Principal)
                | Dimension::Tag(_)
                | Dimension::EndUser => {
                    return None;
                }
            };
            (found == Self::All || found == one).then_some(one)
        })
    }

    /// Returns the exchange's name in a section with one.
    fn name_of<'a>(self, record: &Record<'a>) -> &'a str {
        record.name(match self {
            Self::All | Self::Target => return "",
            Self::Project => RecordName::Project,
            Self::Endpoint => RecordName::Endpoint,
            Self::Operation => RecordName::Operation,
            Self::Outcome => RecordName::Outcome,
            Self::Client => RecordName::Client,
        })
    }
}

/// Returns the first minute of the UTC day that is `days` before `now_ms`.
fn first_minute(now_ms: u64, days: u64) -> u64 {
    let before = (now_ms / MINUTE_MS).saturating_sub(days * DAY_MINUTES);
    before - before % DAY_MINUTES
}

/// The length of a minute in milliseconds.
pub(crate) const MINUTE_MS: u64 = 60_000;
/// The minutes of a day.
const DAY_MINUTES: u64 = 24 * HOUR_MS / MINUTE_MS;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use self::tests::follow;
