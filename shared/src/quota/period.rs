//! The periods of quotas. Calendar periods begin and end in UTC.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::Offset;
use serde::{Deserialize, Serialize};

/// The time for which used amounts count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// The last 60 seconds, as a sliding window.
    Minute,
    /// A clock hour.
    Hour,
    /// A calendar day.
    Day,
    /// An ISO week, which begins on Monday.
    Week,
    /// A calendar month.
    Month,
    /// Unlimited.
    Total,
}

impl Period {
    /// Every period.
    pub const ALL: [Self; 6] = [Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Total];

    /// Returns the window that contains `at_ms`: its start and the first moment after it. Returns `None` for the
    /// sliding minute, which has no fixed windows.
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

    /// Returns the name in the API.
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

/// Formats the period as in "50 requests a minute".
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

/// Returns the week that contains `at_ms`. The epoch was a Thursday, so the first week is shortened.
fn week(at_ms: u64) -> (u64, u64) {
    let since_monday = at_ms.saturating_add(3 * DAY_MS) % WEEK_MS;
    let start = at_ms.saturating_sub(since_monday);
    (start, at_ms.saturating_add(WEEK_MS - since_monday))
}

/// Returns the month that contains `at_ms`. From December 9999 on, where the calendar ends, there is only one.
fn month(at_ms: u64) -> (u64, u64) {
    calendar_month(at_ms).unwrap_or((LAST_MONTH_MS, u64::MAX))
}

fn calendar_month(at_ms: u64) -> Option<(u64, u64)> {
    let at = Timestamp::from_millisecond(i64::try_from(at_ms).ok()?).ok()?;
    let date = Offset::UTC.to_datetime(at).date();
    let next = date.last_of_month().tomorrow().ok()?;
    Some((midnight(date.first_of_month())?, midnight(next)?))
}

fn midnight(date: Date) -> Option<u64> {
    let at = Offset::UTC.to_timestamp(date.to_datetime(Time::midnight())).ok()?;
    u64::try_from(at.as_millisecond()).ok()
}

/// Milliseconds of an hour.
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const WEEK_MS: u64 = 7 * DAY_MS;
/// 1 December 9999.
const LAST_MONTH_MS: u64 = 253_399_622_400_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_start_and_end_as_in_the_calendar() {
        // (a moment, the start of its month, the start of the next month), in seconds, computed with
        // `date -u -d ... +%s`.
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
        assert_eq!(at / DAY_MS, 146_097, "four hundred years");
    }

    #[test]
    fn moments_after_the_calendar_are_in_its_last_month() {
        let november = month(LAST_MONTH_MS - 1);
        assert_eq!((november.1 - november.0, november.1), (30 * DAY_MS, LAST_MONTH_MS));
        for at in [LAST_MONTH_MS, 253_402_300_799_999, 1 << 48, u64::MAX - 1] {
            assert_eq!(month(at), (LAST_MONTH_MS, u64::MAX), "{at}");
        }
    }

    #[test]
    fn weeks_begin_on_monday() {
        // (a moment, its Monday, the next Monday), in seconds, computed with `date -u -d ... +%s`.
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
