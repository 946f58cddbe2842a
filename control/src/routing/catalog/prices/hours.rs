//! Hours of the week with different prices.

use serde::Deserialize;

/// The hours in which a vendor's listed prices apply, in UTC. At all other times those of its `@off-peak` list apply.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeakHours {
    /// Days from 1 for Monday to 7 for Sunday.
    weekdays: Vec<u64>,
    /// Ranges of hours: the first peak hour, and the first hour after the range.
    hours: Vec<(u64, u64)>,
}

impl PeakHours {
    /// True if `at_ms`, in milliseconds since the Unix epoch, is within peak hours.
    pub(crate) fn contains(&self, at_ms: u64) -> bool {
        // The first day of the epoch was a Thursday.
        let weekday = (at_ms / DAY_MS + 3) % 7 + 1;
        let hour = at_ms % DAY_MS / HOUR_MS;
        self.weekdays.contains(&weekday) && self.hours.iter().any(|(from, to)| (*from..*to).contains(&hour))
    }

    /// Returns the next time at which peak hours start or end; `None` if they never do.
    pub(crate) fn next_change(&self, at_ms: u64) -> Option<u64> {
        let (now, hour) = (self.contains(at_ms), at_ms / HOUR_MS);
        let hours = (1..=WEEK_HOURS).map(|more| hour.saturating_add(more).saturating_mul(HOUR_MS));
        hours.into_iter().find(|at_ms| self.contains(*at_ms) != now)
    }
}

const HOUR_MS: u64 = 60 * 60 * 1_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const WEEK_HOURS: u64 = 7 * 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_hours_start_and_end_on_the_hour_in_utc() {
        let hours: PeakHours =
            serde_json::from_str(r#"{"weekdays":[1,2,3,4,5],"hours":[[1,4],[6,10]]}"#).unwrap();
        let ms =
            |text: &str| u64::try_from(text.parse::<jiff::Timestamp>().unwrap().as_millisecond()).unwrap();
        // 2026-11-20 is a Friday.
        for (at, is_peak, next) in [
            ("2026-11-20T00:59:59.999Z", false, "2026-11-20T01:00:00Z"),
            ("2026-11-20T01:00:00Z", true, "2026-11-20T04:00:00Z"),
            ("2026-11-20T05:00:00Z", false, "2026-11-20T06:00:00Z"),
            ("2026-11-20T09:59:59.999Z", true, "2026-11-20T10:00:00Z"),
            ("2026-11-20T10:00:00Z", false, "2026-11-23T01:00:00Z"),
            ("2026-11-22T07:00:00Z", false, "2026-11-23T01:00:00Z"),
        ] {
            assert_eq!(
                (hours.contains(ms(at)), hours.next_change(ms(at))),
                (is_peak, Some(ms(next))),
                "{at}"
            );
        }
        let always = PeakHours { weekdays: (1..=7).collect(), hours: vec![(0, 24)] };
        assert_eq!((always.contains(ms("2026-11-22T07:00:00Z")), always.next_change(7)), (true, None));
    }
}
