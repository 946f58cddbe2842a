//! The tables as bytes, which the next process takes: hashes, account hashes and token counts, which mean nothing
//! without the key.
//!
//! ```text
//!  check   8   the hash of a fixed text: another key, or another hash function, has another one
//!  then for the slots of reasoning, of stored responses and of token counts:
//!  count   4   the number of entries
//!  entries     place 4, value 8
//! ```

use std::hash::{BuildHasher, DefaultHasher, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};

use shared::port::KeptTables;
use shared::secret::Secret;

use super::ResponseAffinity;

/// Hashes with a key. The standard library's hasher has no parameter for one, so the key is hashed first; the state
/// after it is as secret as the key.
#[derive(Clone)]
pub(super) struct KeyedHasher(DefaultHasher);

impl KeyedHasher {
    pub(super) fn new(key: &Secret<[u8; 32]>) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(key.expose());
        Self(hasher)
    }
}

impl BuildHasher for KeyedHasher {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        self.0.clone()
    }
}

impl KeptTables for ResponseAffinity {
    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    fn content(&self) -> Vec<u8> {
        let mut content = self.check().to_le_bytes().to_vec();
        put(&mut content, &entries(&self.slots).collect::<Vec<_>>());
        put(&mut content, &self.stored.entries().collect::<Vec<_>>());
        put(&mut content, &entries(&self.tokens).collect::<Vec<_>>());
        content
    }

    fn restore(&self, content: &[u8]) -> bool {
        let Some((slots, stored, tokens)) = self.parse(content) else { return false };
        for (place, value) in stored {
            self.stored.restore(place, value);
        }
        for (table, entries) in [(&self.slots, slots), (&self.tokens, tokens)] {
            for (place, value) in entries {
                if let Some(slot) = usize::try_from(place).ok().and_then(|place| table.get(place)) {
                    slot.store(value, Ordering::Relaxed);
                }
            }
        }
        true
    }
}

impl ResponseAffinity {
    fn check(&self) -> u64 {
        self.hasher.hash_one((true, "the layout of these tables"))
    }

    fn parse(&self, content: &[u8]) -> Option<(Vec<Entry>, Vec<Entry>, Vec<Entry>)> {
        let (check, mut rest) = content.split_first_chunk()?;
        if u64::from_le_bytes(*check) != self.check() {
            return None;
        }
        let tables = (take(&mut rest)?, take(&mut rest)?, take(&mut rest)?);
        rest.is_empty().then_some(tables)
    }
}

/// The place of an entry in its table, and its value.
type Entry = (u32, u64);

fn entries(table: &[AtomicU64]) -> impl Iterator<Item = Entry> {
    let values = table.iter().map(|slot| slot.load(Ordering::Relaxed));
    (0_u32..).zip(values).filter(|(_, value)| *value != 0)
}

fn put(content: &mut Vec<u8>, entries: &[Entry]) {
    content.extend(u32::try_from(entries.len()).unwrap_or(u32::MAX).to_le_bytes());
    for (place, value) in entries {
        content.extend(place.to_le_bytes());
        content.extend(value.to_le_bytes());
    }
}

fn take(rest: &mut &[u8]) -> Option<Vec<Entry>> {
    let (count, entries) = rest.split_first_chunk()?;
    let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
    let (entries, after) = entries.split_at_checked(count.checked_mul(ENTRY_BYTES)?)?;
    *rest = after;
    let entry = |bytes: &[u8]| {
        let (place, value) = bytes.split_first_chunk()?;
        Some((u32::from_le_bytes(*place), u64::from_le_bytes(value.try_into().ok()?)))
    };
    entries.chunks_exact(ENTRY_BYTES).map(entry).collect()
}

const ENTRY_BYTES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::response_affinity::AccountHash;

    fn tables(key: u8) -> ResponseAffinity {
        ResponseAffinity::new(&Secret::new([key; 32]))
    }

    #[test]
    fn restored_tables_know_what_was_stored() {
        let before = tables(1);
        let (empty, none) = (before.content(), before.changes());
        let answer = format!(r#"{{"encrypted_content":"{}"}}"#, "gAAAAABh".repeat(20));
        before.note_reasoning(answer.as_bytes(), AccountHash(7));
        before.stored.put(before.hasher.hash_one("resp_1"), 9);
        assert_ne!(before.changes(), none);
        let content = before.content();
        let after = tables(1);
        assert!(after.restore(&content));
        assert_eq!(after.content(), content);
        assert_eq!(after.stored.get(after.hasher.hash_one("resp_1")), Some(9));
        assert!(after.changes() == 0 && content.len() == empty.len() + 2 * ENTRY_BYTES);
    }

    #[test]
    fn another_key_and_cut_content_restore_nothing() {
        let before = tables(1);
        before.stored.put(before.hasher.hash_one("resp_1"), 9);
        let content = before.content();
        assert!(!tables(2).restore(&content), "another key");
        for end in 0..content.len() {
            let after = tables(1);
            assert!(!after.restore(&content[..end]), "cut at {end}");
            assert_eq!(after.content(), tables(1).content());
        }
        assert!(!tables(1).restore(&[&content[..], &[0]].concat()), "longer than its tables");
        let mut beyond = content;
        let place = beyond.len() - 4 - ENTRY_BYTES;
        beyond[place..place + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(tables(1).restore(&beyond), "a place that no table has is left out");
    }
}
