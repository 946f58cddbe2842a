//! The only place that reads wall time, and the process's one monotonic clock.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "this is the clock that everything else takes wall time from")]
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Year, month and day of a moment, in UTC.
pub fn date(unix_s: u64) -> (u64, u64, u64) {
    // The Gregorian calendar, counted in days from 1 March of the year 0, so that a leap day ends its year.
    let days = unix_s / 86_400 + DAYS_BEFORE_EPOCH;
    let (era, day_of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // March is 0.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year_of_era + era * 400 + next_year, month, day)
}

/// From 1 March of the year 0 to the Unix epoch.
pub(crate) const DAYS_BEFORE_EPOCH: u64 = 719_468;
/// Four hundred years.
pub(crate) const ERA_DAYS: u64 = 146_097;

/// Milliseconds on the process's monotonic clock; what circuits count in, in both planes.
pub fn monotonic_ms() -> u64 {
    u64::try_from(BEGAN.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A while before the first reading, so that no reading is 0.
static BEGAN: LazyLock<Instant> = LazyLock::new(|| {
    let now = Instant::now();
    now.checked_sub(std::time::Duration::from_secs(1)).unwrap_or(now)
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // As `date -u -d @N +%F` gives them.
        for (unix_s, want) in [
            (0, (1970, 1, 1)),
            (951_782_399, (2000, 2, 28)),
            (951_782_400, (2000, 2, 29)),
            (951_868_800, (2000, 3, 1)),
            (1_735_689_599, (2024, 12, 31)),
            (1_735_689_600, (2025, 1, 1)),
            (1_772_323_200, (2026, 3, 1)),
            (4_107_542_400, (2100, 3, 1)),
        ] {
            assert_eq!(date(unix_s), want, "{unix_s}");
        }
    }
}
