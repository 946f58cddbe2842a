//! Unusual spending: the cost of the current hour compared with the upper bound of what is usual at this hour of the week.

/// The hours before the current one that the band is computed from: the same hour of the week, and the hours beside it,
/// in the four weeks before; and the last week.
pub(crate) fn hours_of_band(hour: u64) -> Vec<u64> {
    let mut hours: Vec<u64> = (1..=WEEKS).flat_map(|week| same_hours(hour, week)).collect();
    hours.extend(hour.saturating_sub(WEEK_HOURS)..hour);
    hours.sort_unstable();
    hours.dedup();
    hours
}

/// The usual spending of a key or project in one hour, in micro-dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SpendBand {
    /// The mean of the same hours of the week in the four weeks before.
    pub(crate) mean: f64,
    /// The upper bound of what is usual: two standard deviations above that mean, but at least the mean of the hours of the
    /// last week in which anything was spent.
    pub(crate) upper: f64,
}

/// The spending of a key or project in the hours of a band, added hour by hour.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BandSums {
    samples: f64,
    squares: f64,
    active: f64,
    active_hours: f64,
}

impl BandSums {
    /// Adds what was spent in the hour `at`, for the band of `hour`.
    pub(crate) fn add(&mut self, hour: u64, at: u64, spent: f64) {
        if (1..=WEEKS).any(|week| same_hours(hour, week).any(|same| same == at)) {
            self.samples += spent;
            self.squares += spent * spent;
        }
        if spent > 0.0 && (hour.saturating_sub(WEEK_HOURS)..hour).contains(&at) {
            self.active += spent;
            self.active_hours += 1.0;
        }
    }

    /// Returns the band of the hours that were added; in the others nothing was spent.
    pub(crate) fn band(self) -> SpendBand {
        let mean = self.samples / SAMPLES;
        let variance = (self.squares / SAMPLES - mean * mean).max(0.0);
        let active = if self.active_hours > 0.0 { self.active / self.active_hours } else { 0.0 };
        SpendBand { mean, upper: (mean + 2.0 * variance.sqrt()).max(active) }
    }
}

/// Returns the hour that is `week` weeks before `hour`, and those beside it.
fn same_hours(hour: u64, week: u64) -> impl Iterator<Item = u64> {
    let same = hour.saturating_sub(week * WEEK_HOURS);
    same.saturating_sub(1)..=same + 1
}

const WEEKS: u64 = 4;
const WEEK_HOURS: u64 = 168;
/// The hours of the weeks before that are compared.
const SAMPLES: f64 = 12.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn band(hour: u64, spent: impl Fn(u64) -> f64) -> SpendBand {
        let mut sums = BandSums::default();
        hours_of_band(hour).into_iter().for_each(|at| sums.add(hour, at, spent(at)));
        sums.band()
    }

    #[test]
    fn the_band_of_an_hour_follows_the_same_hour_of_the_week() {
        let hour = 500_000;
        // Each week the same: a batch of 40 units at this hour and the ones beside it, one unit in the others.
        let weekly =
            |at: u64| if (at + 1_000 * WEEK_HOURS + 1 - hour) % WEEK_HOURS <= 2 { 40.0 } else { 1.0 };
        let busy = band(hour, weekly);
        assert!((busy.mean - 40.0).abs() < 0.001 && (busy.upper - 40.0).abs() < 0.001, "{busy:?}");
        let quiet = band(hour + 50, weekly);
        assert!(quiet.upper < 3.0, "{quiet:?}");
        assert_eq!(band(hour, |_| 0.0), SpendBand::default());
    }

    #[test]
    fn a_key_without_weeks_of_history_is_compared_with_its_last_days() {
        let hour = 500_000;
        let new = |at: u64| if hour - at < 60 && at % 24 < 8 { 6.0 } else { 0.0 };
        let found = band(hour, new);
        assert!((found.mean, (found.upper - 6.0).abs() < 0.001) == (0.0, true), "{found:?}");
    }

    #[test]
    fn the_hours_of_a_band_are_bounded() {
        let hours = hours_of_band(500_000);
        assert!(hours.len() <= 168 + 12 && hours.is_sorted() && hours.iter().all(|hour| *hour < 500_000));
        assert!(hours_of_band(3).iter().all(|hour| *hour <= 4));
    }
}
