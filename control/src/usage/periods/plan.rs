//! Cuts a time into whole periods, of the longest that fit, and rests that only records can answer.

use std::ops::Range;

use super::Grain;

/// The parts of a time, in order and contiguous.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) spans: Vec<PlannedSpan>,
}

/// A part of a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedSpan {
    /// `None` if records have to be read.
    pub(crate) grain: Option<Grain>,
    /// In milliseconds since the Unix epoch.
    pub(crate) time_ms: Range<u64>,
}

impl Plan {
    /// Cuts a time, so that no period contains one of the `edges` inside. `grains` are those that are kept, the longest first,
    /// each with the first moment since which it is.
    pub(crate) fn of(edges: &[u64], grains: &[(Grain, u64)]) -> Self {
        let mut plan = Self::default();
        for pair in edges.windows(2) {
            if let [from, to] = pair {
                plan.cut(*from..*to, grains);
            }
        }
        plan
    }

    fn cut(&mut self, time: Range<u64>, grains: &[(Grain, u64)]) {
        let Some(((grain, since), shorter)) = grains.split_first() else { return self.push(None, time) };
        let first = time.start.max(*since).div_ceil(grain.ms()).saturating_mul(grain.ms());
        let end = time.end - time.end % grain.ms();
        if first >= end {
            return self.cut(time, shorter);
        }
        self.cut(time.start..first, shorter);
        self.push(Some(*grain), first..end);
        self.cut(end..time.end, shorter);
    }

    fn push(&mut self, grain: Option<Grain>, time: Range<u64>) {
        match self.spans.last_mut() {
            _ if time.is_empty() => {}
            Some(last) if last.grain == grain && last.time_ms.end == time.start => {
                last.time_ms.end = time.end
            }
            _ => self.spans.push(PlannedSpan { grain, time_ms: time }),
        }
    }

    /// Returns the times whose records are read, in order.
    pub(crate) fn of_records(&self) -> impl DoubleEndedIterator<Item = &Range<u64>> {
        self.spans.iter().filter(|span| span.grain.is_none()).map(|span| &span.time_ms)
    }

    /// True if records of this moment are read.
    pub(crate) fn reads_records_of(&self, at_ms: u64) -> bool {
        let place = self.spans.partition_point(|span| span.time_ms.end <= at_ms);
        self.spans.get(place).is_some_and(|span| span.grain.is_none() && span.time_ms.contains(&at_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;

    #[test]
    fn a_time_is_cut_into_the_longest_periods_without_a_gap() {
        let grains = [(Grain::Day, 0), (Grain::Hour, 0), (Grain::Minute, 0)];
        let spans = |edges: &[u64], grains: &[(Grain, u64)]| -> Vec<(Option<Grain>, u64, u64)> {
            let plan = Plan::of(edges, grains);
            plan.spans.iter().map(|span| (span.grain, span.time_ms.start, span.time_ms.end)).collect()
        };
        assert_eq!(spans(&[0, DAY, 3 * DAY], &grains), [(Some(Grain::Day), 0, 3 * DAY)]);
        assert_eq!(
            spans(&[DAY - HOUR, 2 * DAY - HOUR, 3 * DAY - HOUR], &grains),
            [(Some(Grain::Hour), DAY - HOUR, 3 * DAY - HOUR)],
            "days of another zone consist of hours"
        );
        let (from, to) = (DAY - HOUR - 2 * MINUTE - 7, 2 * DAY + MINUTE + 1);
        assert_eq!(
            spans(&[from, to], &grains),
            [
                (None, from, DAY - HOUR - 2 * MINUTE),
                (Some(Grain::Minute), DAY - HOUR - 2 * MINUTE, DAY - HOUR),
                (Some(Grain::Hour), DAY - HOUR, DAY),
                (Some(Grain::Day), DAY, 2 * DAY),
                (Some(Grain::Minute), 2 * DAY, 2 * DAY + MINUTE),
                (None, 2 * DAY + MINUTE, to),
            ]
        );
        let kept = [(Grain::Day, 0), (Grain::Hour, 5 * HOUR)];
        assert_eq!(
            spans(&[HOUR, 7 * HOUR], &kept),
            [(None, HOUR, 5 * HOUR), (Some(Grain::Hour), 5 * HOUR, 7 * HOUR)],
            "hours that are no longer kept"
        );
        let plan = Plan::of(&[HOUR, 7 * HOUR], &kept);
        let moments = [HOUR - 1, HOUR, 5 * HOUR - 1, 5 * HOUR];
        assert_eq!(moments.map(|at_ms| plan.reads_records_of(at_ms)), [false, true, true, false]);
    }
}
