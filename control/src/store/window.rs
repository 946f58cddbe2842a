//! A time, cut where sums can be taken from: whole days from one table, whole hours from another, and of the
//! hours that the time cuts, the exchanges themselves. And the buckets that an answer is cut into.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::rollup::{DAY_HOURS, HOUR_MS, first_hour_of_day};

/// A part of the time that is summed apart, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bucket {
    Hour,
    Day,
    Month,
}

/// The first hour of the bucket of `hour`, counted like that from the Unix epoch; 0 without buckets.
pub(crate) fn first_hour(bucket: Option<Bucket>, hour: u64) -> u64 {
    match bucket {
        None => 0,
        Some(Bucket::Hour) => hour,
        Some(Bucket::Day) => first_hour_of_day(hour),
        Some(Bucket::Month) => month(hour).map_or(0, |date| hour_of(date.first_of_month())),
    }
}

/// `start` to `end`, cut where months begin.
pub(crate) fn months((start, end): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    let mut at = start;
    std::iter::from_fn(move || {
        let from = at;
        let next = month(from).and_then(|date| date.last_of_month().tomorrow().ok()).map_or(end, hour_of);
        at = next.clamp(from + 1, end.max(from + 1));
        (from < end).then_some((from, at))
    })
}

fn month(hour: u64) -> Option<Date> {
    let seconds = i64::try_from(hour.checked_mul(HOUR_MS / 1_000)?).ok()?;
    Some(Timestamp::from_second(seconds).ok()?.to_zoned(TimeZone::UTC).date())
}

fn hour_of(date: Date) -> u64 {
    let midnight = date.to_zoned(TimeZone::UTC).map_or(0, |midnight| midnight.timestamp().as_second());
    u64::try_from(midnight).unwrap_or(0) / (HOUR_MS / 1_000)
}

/// See the module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Whole days inside, in hours.
    pub(crate) days: (u64, u64),
    /// Whole hours before and after them.
    pub(crate) hours: [(u64, u64); 2],
    /// The milliseconds before and after those.
    pub(crate) edges: [(u64, u64); 2],
}

impl Window {
    /// The parts of the time from `from_ms` up to before `to_ms`; sums by the hour cannot come from days.
    pub(crate) fn of(from_ms: u64, to_ms: u64, bucket: Option<Bucket>) -> Self {
        let first = from_ms.div_ceil(HOUR_MS);
        let end = (to_ms / HOUR_MS).max(first);
        let inside = first.saturating_mul(HOUR_MS).min(to_ms);
        // Without a whole hour inside, everything is before.
        let after = if to_ms / HOUR_MS > first { end.saturating_mul(HOUR_MS) } else { inside };
        let edges = [(from_ms, inside), (after, to_ms)];
        let first_day = first.div_ceil(DAY_HOURS).saturating_mul(DAY_HOURS);
        let end_day = first_hour_of_day(end);
        if bucket == Some(Bucket::Hour) || first_day >= end_day {
            return Self { days: (end, end), hours: [(first, end), (end, end)], edges };
        }
        Self { days: (first_day, end_day), hours: [(first, first_day), (end_day, end)], edges }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = DAY_HOURS * HOUR_MS;

    #[test]
    fn the_parts_of_a_window_follow_each_other_and_are_all_of_it() {
        let moments = [
            0,
            1,
            HOUR_MS - 1,
            HOUR_MS,
            5 * HOUR_MS + 7,
            DAY - 1,
            DAY,
            DAY + 1,
            2 * DAY,
            3 * DAY + HOUR_MS + 9,
        ];
        for bucket in [None, Some(Bucket::Hour), Some(Bucket::Day), Some(Bucket::Month)] {
            for from in moments {
                for to in moments.into_iter().filter(|to| *to >= from) {
                    let Window { days, hours, edges } = Window::of(from, to, bucket);
                    let ms = |(start, end): (u64, u64)| (start * HOUR_MS, end * HOUR_MS);
                    let parts = [edges[0], ms(hours[0]), ms(days), ms(hours[1]), edges[1]];
                    let length: u64 = parts.iter().map(|(start, end)| end - start).sum();
                    assert_eq!(length, to - from, "{from}..{to} {bucket:?} {parts:?}");
                    let filled: Vec<_> = parts.into_iter().filter(|(start, end)| start < end).collect();
                    assert!(filled.windows(2).all(|pair| pair[0].1 == pair[1].0), "{from}..{to} {parts:?}");
                    assert!(days.0 == days.1 || (days.0 % 24 == 0 && days.1 % 24 == 0));
                    assert!(bucket != Some(Bucket::Hour) || days.0 == days.1);
                }
            }
        }
    }

    #[test]
    fn months_begin_where_the_calendar_says() {
        let hour = |text: &str| hour_of(text.parse().unwrap());
        let (start, end) = (hour("2027-12-30"), hour("2028-03-02"));
        let cuts: Vec<_> = months((start, end)).collect();
        let firsts = ["2027-12-30", "2028-01-01", "2028-02-01", "2028-03-01", "2028-03-02"].map(hour);
        assert_eq!(cuts, firsts.windows(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>());
        assert_eq!(months((start, start)).count(), 0);
        assert_eq!(first_hour(Some(Bucket::Month), hour("2028-02-29") + 23), hour("2028-02-01"));
        assert_eq!(first_hour(Some(Bucket::Day), hour("2028-02-29") + 23), hour("2028-02-29"));
    }
}
