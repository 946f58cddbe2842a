//! The mean time for which requests held their amounts of a quota, over the last minute.

/// Sums by slots of ten seconds.
#[derive(Debug, Default)]
pub(super) struct ServiceTimes {
    slots: [Slot; SLOTS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    number: u64,
    count: u64,
    sum_ms: u64,
}

impl ServiceTimes {
    /// Adds a time that has just ended.
    pub(super) fn note(&mut self, ms: u64, now_ms: u64) {
        let number = now_ms / SLOT_MS;
        let place = usize::try_from(number).unwrap_or(usize::MAX) % SLOTS;
        if let Some(slot) = self.slots.get_mut(place) {
            if slot.number != number {
                *slot = Slot { number, ..Slot::default() };
            }
            slot.count += 1;
            slot.sum_ms = slot.sum_ms.saturating_add(ms);
        }
    }

    /// Returns the mean of the last minute; `None` if no time ended in it.
    pub(super) fn mean_ms(&self, now_ms: u64) -> Option<u64> {
        let oldest = (now_ms / SLOT_MS).saturating_sub(SLOTS as u64 - 1);
        let recent = || self.slots.iter().filter(|slot| slot.number >= oldest);
        let sum_ms = recent().fold(0_u64, |sum, slot| sum.saturating_add(slot.sum_ms));
        sum_ms.checked_div(recent().map(|slot| slot.count).sum())
    }
}

const SLOT_MS: u64 = 10_000;
const SLOTS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_forgets_what_ended_more_than_a_minute_ago() {
        let mut times = ServiceTimes::default();
        assert_eq!(times.mean_ms(1_000_000), None);
        times.note(100, 1_000_000);
        times.note(300, 1_000_000);
        times.note(800, 1_030_000);
        assert_eq!(times.mean_ms(1_030_000), Some(400));
        assert_eq!(times.mean_ms(1_059_999), Some(400));
        assert_eq!(times.mean_ms(1_060_000), Some(800));
        times.note(200, 1_060_000);
        assert_eq!(times.mean_ms(1_060_000), Some(500), "the slot is used again");
        assert_eq!(times.mean_ms(1_200_000), None);
    }
}
