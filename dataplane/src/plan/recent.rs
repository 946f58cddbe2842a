//! Lock-free table of fixed size from hashes to small numbers; new entries replace the oldest. Its memory is allocated
//! at the first insertion.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries per bucket; an insertion evicts the oldest.
const WAYS: usize = 4;
/// Bits of a hash that select the bucket; an entry stores the others.
const PLACE_BITS: u32 = 18;

/// Set-associative table from hashes to numbers of `BITS` bits, at most 32: about a million entries in 8 MiB.
#[derive(Debug, Default)]
pub(super) struct Recent<const BITS: u32> {
    places: OnceLock<Box<[[AtomicU64; WAYS]]>>,
}

impl<const BITS: u32> Recent<BITS> {
    /// Stores the number, which has at most `BITS` bits, as the newest of its bucket.
    pub(super) fn put(&self, hash: u64, number: u32) {
        let Some(ways) = place(hash).and_then(|place| self.places().get(place)) else { return };
        let entry = (hash << BITS) | u64::from(number);
        if ways.first().is_some_and(|newest| newest.load(Ordering::Relaxed) == entry) {
            return;
        }
        // Concurrent insertions may lose an entry, which is then treated as evicted.
        let mut next = entry;
        for way in ways {
            next = way.swap(next, Ordering::Relaxed);
            if next == 0 || next >> BITS == entry >> BITS {
                // The slot was free, or had the earlier entry of this hash.
                return;
            }
        }
    }

    pub(super) fn get(&self, hash: u64) -> Option<u32> {
        let entries = self.places.get()?.get(place(hash)?)?.iter().map(|way| way.load(Ordering::Relaxed));
        let mut same = entries.filter(|entry| *entry != 0 && entry >> BITS == (hash << BITS) >> BITS);
        same.next().map(|entry| u32::try_from(entry & ((1 << BITS) - 1)).unwrap_or_default())
    }

    /// Returns every entry with its place.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, u64)> {
        let ways = self.places.get().into_iter().flatten().flatten();
        (0_u32..).zip(ways.map(|way| way.load(Ordering::Relaxed))).filter(|(_, entry)| *entry != 0)
    }

    /// Returns every number with its hash; of one bucket the oldest first, so that storing them in this order keeps it.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (u64, u32)> {
        let buckets = self.places.get().into_iter().flatten().zip(0_u64..);
        buckets.flat_map(|(ways, bucket)| {
            let entries =
                ways.iter().rev().map(|way| way.load(Ordering::Relaxed)).filter(|entry| *entry != 0);
            entries.map(move |entry| {
                let hash = (bucket << (u64::BITS - PLACE_BITS)) | (entry >> BITS);
                (hash, u32::try_from(entry & ((1 << BITS) - 1)).unwrap_or_default())
            })
        })
    }

    /// Stores an entry at its place.
    pub(super) fn restore(&self, place: u32, entry: u64) {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        let way = self.places().get(place / WAYS).and_then(|ways| ways.get(place % WAYS));
        if let Some(way) = way {
            way.store(entry, Ordering::Relaxed);
        }
    }

    fn places(&self) -> &[[AtomicU64; WAYS]] {
        self.places.get_or_init(|| (0..1 << PLACE_BITS).map(|_| Default::default()).collect())
    }
}

fn place(hash: u64) -> Option<usize> {
    usize::try_from(hash >> (u64::BITS - PLACE_BITS)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_entries_replace_the_oldest() {
        let table = Recent::<16>::default();
        let hash = |index: u64| (7 << (u64::BITS - PLACE_BITS)) | (index + 1);
        assert_eq!(table.get(hash(0)), None);
        for index in 0..6 {
            table.put(hash(index), index as u32);
        }
        let kept: Vec<_> = (0..6).map(|index| table.get(hash(index))).collect();
        assert_eq!(kept, [None, None, Some(2), Some(3), Some(4), Some(5)]);
        table.put(hash(3), 9);
        assert_eq!(table.get(hash(3)), Some(9));
        // A new number replaces the earlier one, and evicts nothing.
        (10..20).for_each(|number| table.put(hash(2), number));
        let kept: Vec<_> = (0..6).map(|index| table.get(hash(index))).collect();
        assert_eq!(kept, [None, None, Some(19), Some(9), Some(4), Some(5)]);
    }

    #[test]
    fn the_table_holds_a_hundred_thousand_entries() {
        use std::hash::BuildHasher as _;
        let (table, hasher) = (Recent::<16>::default(), std::hash::RandomState::new());
        for index in 0..100_000_u32 {
            table.put(hasher.hash_one(index), index & 0xffff);
        }
        let lost =
            (0..100_000_u32).filter(|index| table.get(hasher.hash_one(index)) != Some(*index & 0xffff));
        assert!(lost.count() < 100, "fewer than one in a thousand shares a place with four newer ones");
    }
}
