//! The stretches of time that quotas are counted in. Calendar ones begin and end in UTC.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::clock::{DAYS_BEFORE_EPOCH, ERA_DAYS, date};

/// For how long what was used counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// The last 60 seconds, at any moment.
    Minute,
    /// A full hour.
    Hour,
    /// A day.
    Day,
    /// An ISO week, which begins on Monday.
    Week,
    /// A month.
    Month,
    /// For good.
    Total,
}

impl Period {
    /// Every period.
    pub const ALL: [Self; 6] = [Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Total];

    /// The window around `at_ms`: when it began, and the first moment after it. Nothing for the sliding minute,
    /// which has no fixed windows.
    pub fn window(self, at_ms: u64) -> Option<(u64, u64)> {
        match self {
            Self::Minute => None,
            Self::Hour => Some(aligned(at_ms, HOUR_MS)),
            Self::Day => Some(aligned(at_ms, DAY_MS)),
            Self::Week => Some(week(at_ms)),
            Self::Month => Some(month(at_ms)),
            Self::Total => Some((0, u64::MAX)),
        }
    }

    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Total => "total",
        }
    }
}

/// As in "50 requests a minute".
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Total => f.write_str("in total"),
            Self::Hour => f.write_str("an hour"),
            Self::Minute | Self::Day | Self::Week | Self::Month => write!(f, "a {}", self.name()),
        }
    }
}

fn aligned(at_ms: u64, length_ms: u64) -> (u64, u64) {
    let start = at_ms - at_ms % length_ms;
    (start, start.saturating_add(length_ms))
}

/// The week around a moment. The epoch was a Thursday, so the first week is cut short.
fn week(at_ms: u64) -> (u64, u64) {
    let since_monday = at_ms.saturating_add(3 * DAY_MS) % WEEK_MS;
    let start = at_ms.saturating_sub(since_monday);
    (start, at_ms.saturating_add(WEEK_MS - since_monday))
}

/// Months counted from March, so that a leap day ends its year.
fn month(at_ms: u64) -> (u64, u64) {
    let (year, month, _) = date(at_ms / 1_000);
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let next = if month == 11 { (year + 1, 0) } else { (year, month + 1) };
    (first_of(year, month), first_of(next.0, next.1))
}

/// When a month began, its year beginning in March.
fn first_of(year: u64, month: u64) -> u64 {
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * month + 2) / 5;
    (era * ERA_DAYS + day_of_era).saturating_sub(DAYS_BEFORE_EPOCH).saturating_mul(DAY_MS)
}

/// Milliseconds of an hour.
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const WEEK_MS: u64 = 7 * DAY_MS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_begin_and_end_as_in_the_calendar() {
        // (a moment, its month's first moment, the next month's), in seconds, as `date -u -d ... +%s` gives them.
        for (name, at, start, end) in [
            ("the epoch", 0, 0, 2_678_400),
            ("February of a leap year", 1_709_210_096, 1_706_745_600, 1_709_251_200),
            ("February of no leap year", 1_740_700_800, 1_738_368_000, 1_740_787_200),
            ("the last second of a year", 1_767_225_599, 1_764_547_200, 1_767_225_600),
            ("the first second of a year", 1_767_225_600, 1_767_225_600, 1_769_904_000),
            ("February of 2000", 951_782_400, 949_363_200, 951_868_800),
            ("February of 2100, which is no leap year", 4_107_500_000, 4_105_123_200, 4_107_542_400),
        ] {
            assert_eq!(Period::Month.window(at * 1_000), Some((start * 1_000, end * 1_000)), "{name}");
        }
    }

    #[test]
    fn months_follow_each_other_without_a_gap() {
        let mut at = 0;
        for count in 0..12 * 400 {
            let (start, end) = month(at);
            assert_eq!(start, at, "month {count}");
            assert!((28..=31).contains(&((end - start) / DAY_MS)), "month {count}");
            assert_eq!(month(end - 1), (start, end));
            at = end;
        }
        assert_eq!(at / DAY_MS, ERA_DAYS, "four hundred years");
    }

    #[test]
    fn weeks_begin_on_monday() {
        // (a moment, its Monday, the next Monday), in seconds, as `date -u -d ... +%s` gives them.
        for (name, at, start, end) in [
            ("the epoch, a Thursday", 0, 0, 345_600),
            ("the first Monday", 345_600, 345_600, 950_400),
            ("a Sunday's last second", 1_795_391_999, 1_794_787_200, 1_795_392_000),
            ("a Monday's first second", 1_795_392_000, 1_795_392_000, 1_795_996_800),
            ("a week of two years", 1_767_225_600, 1_766_966_400, 1_767_571_200),
            ("a leap day", 1_709_210_096, 1_708_905_600, 1_709_510_400),
        ] {
            assert_eq!(Period::Week.window(at * 1_000), Some((start * 1_000, end * 1_000)), "{name}");
        }
    }

    #[test]
    fn hours_and_days_are_utc() {
        let at = 1_795_244_521_234;
        assert_eq!(Period::Hour.window(at), Some((1_795_244_400_000, 1_795_248_000_000)));
        assert_eq!(Period::Day.window(at), Some((1_795_219_200_000, 1_795_305_600_000)));
        assert_eq!(Period::Total.window(at), Some((0, u64::MAX)));
    }
}
