//! Lock-free table of fixed size from hashes to small numbers; new entries replace the oldest. Its memory is allocated
//! at the first insertion.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries per bucket; an insertion evicts the oldest.
const WAYS: usize = 4;
/// Bits of a hash that select the bucket; an entry stores the others.
const PLACE_BITS: u32 = 18;
/// Bits of an entry that store the number.
pub(super) const NUMBER_BITS: u32 = 16;

/// Set-associative table from hashes to 16-bit numbers: about a million entries in 8 MiB.
#[derive(Debug, Default)]
pub(super) struct Recent {
    places: OnceLock<Box<[[AtomicU64; WAYS]]>>,
}

impl Recent {
    pub(super) fn put(&self, hash: u64, number: u16) {
        let Some(ways) = place(hash).and_then(|place| self.places().get(place)) else { return };
        if find(ways, hash) == Some(number) {
            return;
        }
        // Concurrent insertions may lose an entry, which is then treated as evicted.
        let mut next = (hash << NUMBER_BITS) | u64::from(number);
        for way in ways {
            next = way.swap(next, Ordering::Relaxed);
        }
    }

    pub(super) fn get(&self, hash: u64) -> Option<u16> {
        find(self.places.get()?.get(place(hash)?)?, hash)
    }
}

impl Recent {
    /// Returns every entry with its place.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, u64)> {
        let ways = self.places.get().into_iter().flatten().flatten();
        (0_u32..).zip(ways.map(|way| way.load(Ordering::Relaxed))).filter(|(_, entry)| *entry != 0)
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

/// Returns the number of the newest entry with this hash.
fn find(ways: &[AtomicU64; WAYS], hash: u64) -> Option<u16> {
    let entries = ways.iter().map(|way| way.load(Ordering::Relaxed));
    let mut same =
        entries.filter(|entry| *entry != 0 && entry >> NUMBER_BITS == (hash << NUMBER_BITS) >> NUMBER_BITS);
    same.next().map(|entry| u16::try_from(entry & u64::from(u16::MAX)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_entries_replace_the_oldest() {
        let table = Recent::default();
        let hash = |index: u64| (7 << (u64::BITS - PLACE_BITS)) | (index + 1);
        assert_eq!(table.get(hash(0)), None);
        for index in 0..6 {
            table.put(hash(index), index as u16);
        }
        let kept: Vec<_> = (0..6).map(|index| table.get(hash(index))).collect();
        assert_eq!(kept, [None, None, Some(2), Some(3), Some(4), Some(5)]);
        table.put(hash(3), 9);
        assert_eq!(table.get(hash(3)), Some(9));
    }

    #[test]
    fn the_table_holds_a_hundred_thousand_entries() {
        use std::hash::BuildHasher as _;
        let (table, hasher) = (Recent::default(), std::hash::RandomState::new());
        for index in 0..100_000_u32 {
            table.put(hasher.hash_one(index), index as u16);
        }
        let lost = (0..100_000_u32).filter(|index| table.get(hasher.hash_one(index)) != Some(*index as u16));
        assert!(lost.count() < 100, "fewer than one in a thousand shares a place with four newer ones");
    }
}
