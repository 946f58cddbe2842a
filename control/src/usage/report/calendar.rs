//! The buckets of a report: hours, days, weeks and months in a time zone. Buckets are contiguous, so every moment is in
//! exactly one.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};

use crate::db::HOUR_MS;
use crate::usage::rollup::DAY_HOURS;

/// The length of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BucketLength {
    Hour,
    Day,
    /// Starts on Monday (ISO 8601).
    Week,
    Month,
}

/// The division of a report's time into buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Calendar {
    /// `None` means one bucket over the whole time.
    pub(crate) bucket: Option<BucketLength>,
    pub(crate) zone: TimeZone,
}

/// A span of time, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start_ms: u64,
    /// The first moment after the span.
    pub(crate) end_ms: u64,
}

impl Span {
    const ALL: Self = Self { start_ms: 0, end_ms: u64::MAX };

    pub(crate) fn contains(self, at_ms: u64) -> bool {
        self.start_ms <= at_ms && at_ms < self.end_ms
    }
}

impl Calendar {
    /// Returns a calendar with one bucket over the whole time.
    pub(crate) fn whole() -> Self {
        Self { bucket: None, zone: TimeZone::UTC }
    }

    /// True if the zone is UTC: all buckets except hours then start and end with days of UTC.
    pub(crate) fn is_utc(&self) -> bool {
        self.zone == TimeZone::UTC
    }

    /// Returns the bucket of a moment.
    pub(crate) fn span(&self, at_ms: u64) -> Span {
        let Some(bucket) = self.bucket else { return Span::ALL };
        let whole = |length: u64| {
            let start_ms = at_ms - at_ms % length;
            Span { start_ms, end_ms: start_ms.saturating_add(length) }
        };
        match bucket {
            BucketLength::Hour if self.is_utc() => whole(HOUR_MS),
            BucketLength::Day if self.is_utc() => whole(DAY_HOURS * HOUR_MS),
            BucketLength::Hour => self.hour(at_ms).unwrap_or_else(|| whole(HOUR_MS)),
            BucketLength::Day | BucketLength::Week | BucketLength::Month => {
                self.days(bucket, at_ms).unwrap_or_else(|| whole(DAY_HOURS * HOUR_MS))
            }
        }
    }

    /// Returns the hour of the local clock around a moment; shorter if the clock is changed within it.
    fn hour(&self, at_ms: u64) -> Option<Span> {
        let at = Timestamp::from_millisecond(i64::try_from(at_ms).ok()?).ok()?;
        let hour_ms = i64::try_from(HOUR_MS).ok()?;
        let offset_ms = i64::from(self.zone.to_offset(at).seconds()) * 1_000;
        let start = at.as_millisecond() - (at.as_millisecond() + offset_ms).rem_euclid(hour_ms);
        let next = at.checked_add(SignedDuration::from_millis(1)).ok()?;
        let set_before = self.zone.preceding(next).next().map(|change| change.timestamp().as_millisecond());
        let set_after = self.zone.following(at).next().map(|change| change.timestamp().as_millisecond());
        let start_ms = start.max(set_before.unwrap_or(i64::MIN));
        let end_ms = (start + hour_ms).min(set_after.unwrap_or(i64::MAX));
        Some(Span { start_ms: u64::try_from(start_ms).unwrap_or(0), end_ms: u64::try_from(end_ms).ok()? })
    }

    fn days(&self, bucket: BucketLength, at_ms: u64) -> Option<Span> {
        let at = Timestamp::from_millisecond(i64::try_from(at_ms).ok()?).ok()?;
        let date = at.to_zoned(self.zone.clone()).date();
        let (first, next) = match bucket {
            BucketLength::Hour | BucketLength::Day => (date, date.tomorrow().ok()?),
            BucketLength::Week => {
                let back = date.weekday().to_monday_zero_offset();
                let monday = date.checked_sub(i64::from(back).days()).ok()?;
                (monday, monday.checked_add(7.days()).ok()?)
            }
            BucketLength::Month => (date.first_of_month(), date.last_of_month().tomorrow().ok()?),
        };
        Some(Span { start_ms: self.midnight(first)?, end_ms: self.midnight(next)? })
    }

    /// Returns the first moment of a day; for a day that the zone skips, the first moment after it.
    fn midnight(&self, date: Date) -> Option<u64> {
        let zoned = date.to_zoned(self.zone.clone()).ok()?;
        let start = if zoned.date() == date { zoned.start_of_day().ok()? } else { zoned };
        Some(u64::try_from(start.timestamp().as_millisecond()).unwrap_or(0))
    }

    /// Formats the first moment of a bucket in the zone's local time (RFC 3339).
    pub(crate) fn shown(&self, at_ms: u64) -> Option<String> {
        let at = Timestamp::from_millisecond(i64::try_from(at_ms).ok()?).ok()?;
        Some(if self.is_utc() {
            at.to_string()
        } else {
            at.display_with_offset(self.zone.to_offset(at)).to_string()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> u64 {
        u64::try_from(text.parse::<Timestamp>().unwrap().as_millisecond()).unwrap()
    }

    fn calendar(bucket: BucketLength, zone: &str) -> Calendar {
        Calendar { bucket: Some(bucket), zone: TimeZone::get(zone).unwrap() }
    }

    /// Zone, bucket length, a moment, and the start and end of its bucket.
    type Row = (&'static str, BucketLength, &'static str, &'static str, &'static str);

    #[rustfmt::skip]
    const ROWS: &[Row] = &[
        ("UTC", BucketLength::Month, "2028-02-29T23:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
        ("UTC", BucketLength::Week, "2026-11-22T12:00:00Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"),
        // 25 hours: daylight saving time ends.
        ("Europe/Berlin", BucketLength::Day, "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
        // 23 hours: daylight saving time starts.
        ("Europe/Berlin", BucketLength::Day, "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
        ("Europe/Berlin", BucketLength::Month, "2026-03-01T00:00:00Z", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"),
        ("Europe/Berlin", BucketLength::Hour, "2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"),
        ("Asia/Kolkata", BucketLength::Day, "2026-01-01T18:30:00Z", "2026-01-01T18:30:00Z", "2026-01-02T18:30:00Z"),
        ("Asia/Kolkata", BucketLength::Hour, "2026-01-01T18:29:59Z", "2026-01-01T17:30:00Z", "2026-01-01T18:30:00Z"),
        // Clocks go back by half an hour at 2 o'clock.
        ("Australia/Lord_Howe", BucketLength::Hour, "2026-04-04T14:50:00Z", "2026-04-04T14:00:00Z", "2026-04-04T15:00:00Z"),
        ("Australia/Lord_Howe", BucketLength::Hour, "2026-04-04T15:10:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z"),
        // The clock goes from 23:59:59 to 01:00.
        ("America/Santiago", BucketLength::Day, "2026-09-06T12:00:00Z", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"),
        // The zone skipped 30 December.
        ("Pacific/Apia", BucketLength::Day, "2011-12-30T09:00:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"),
    ];

    #[test]
    fn buckets_start_and_end_in_the_report_time_zone() {
        for (zone, bucket, at, start, end) in ROWS {
            let span = calendar(*bucket, zone).span(ms(at));
            assert_eq!(span, Span { start_ms: ms(start), end_ms: ms(end) }, "{zone} {bucket:?} {at}");
        }
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        for zone in [
            "UTC",
            "Europe/Berlin",
            "Asia/Kolkata",
            "Australia/Lord_Howe",
            "Pacific/Apia",
            "America/Santiago",
        ] {
            for (bucket, from) in [
                (BucketLength::Hour, "2026-03-20T00:00:00Z"),
                (BucketLength::Day, "2011-12-20T00:00:00Z"),
                (BucketLength::Week, "2011-06-20T00:00:00Z"),
                (BucketLength::Month, "2026-01-20T00:00:00Z"),
            ] {
                let calendar = calendar(bucket, zone);
                let mut span = calendar.span(ms(from));
                for _ in 0..600 {
                    let next = calendar.span(span.end_ms);
                    assert_eq!(
                        next.start_ms,
                        span.end_ms,
                        "{zone} {bucket:?} {:?}",
                        calendar.shown(span.end_ms)
                    );
                    assert_eq!(calendar.span(span.end_ms - 1), span, "{zone} {bucket:?}");
                    span = next;
                }
            }
        }
    }
}
