//! Splits a time by the tables that are read: whole days from one table of sums, whole hours from the other, and the
//! exchanges themselves for hours that the time cuts.

use crate::db::HOUR_MS;
use crate::usage::rollup::{DAY_HOURS, first_hour_of_day};

/// The parts of a time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReportWindow {
    /// The whole days, as a range of hours.
    pub(crate) days: (u64, u64),
    /// The whole hours before and after the days.
    pub(crate) hours: [(u64, u64); 2],
    /// The times before and after the whole hours, in milliseconds.
    pub(crate) edges: [(u64, u64); 2],
}

impl ReportWindow {
    /// Cuts the time from `from_ms` up to before `to_ms`.
    pub(crate) fn of(from_ms: u64, to_ms: u64) -> Self {
        let first = from_ms.div_ceil(HOUR_MS);
        let end = (to_ms / HOUR_MS).max(first);
        let inside = first.saturating_mul(HOUR_MS).min(to_ms);
        // Without a whole hour inside, the whole time is in the first edge.
        let after = if to_ms / HOUR_MS > first { end.saturating_mul(HOUR_MS) } else { inside };
        let edges = [(from_ms, inside), (after, to_ms)];
        let first_day = first.div_ceil(DAY_HOURS).saturating_mul(DAY_HOURS);
        let end_day = first_hour_of_day(end);
        if first_day >= end_day {
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
    fn the_parts_of_a_window_are_contiguous_and_cover_it() {
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
        for from in moments {
            for to in moments.into_iter().filter(|to| *to >= from) {
                let ReportWindow { days, hours, edges } = ReportWindow::of(from, to);
                let ms = |(start, end): (u64, u64)| (start * HOUR_MS, end * HOUR_MS);
                let parts = [edges[0], ms(hours[0]), ms(days), ms(hours[1]), edges[1]];
                let length: u64 = parts.iter().map(|(start, end)| end - start).sum();
                assert_eq!(length, to - from, "{from}..{to} {parts:?}");
                let filled: Vec<_> = parts.into_iter().filter(|(start, end)| start < end).collect();
                assert!(filled.windows(2).all(|pair| pair[0].1 == pair[1].0), "{from}..{to} {parts:?}");
                assert!(days.0 == days.1 || (days.0 % 24 == 0 && days.1 % 24 == 0));
            }
        }
    }
}
