//! A table of keys by hash that is cheap to copy: a snapshot with one key added or removed shares nearly the whole
//! table with the previous snapshot, regardless of the number of keys.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::access::Access;
use crate::key_hash::KeyHash;
use crate::quota::Quota;

/// Every key for the data plane.
#[derive(Debug, Default)]
pub struct AccessTable {
    /// The keys by hash. The lookup time does not depend on how much of a wrong key is correct.
    pub keys: KeyTable,
    /// The access of unauthenticated callers, if the local mode is enabled.
    pub anonymous: Option<Arc<Access>>,
    /// The limits that count the usage of administrators and of the local mode without rejecting their requests.
    pub unbound: Box<[Arc<Quota>]>,
}

/// Callers by the hash of their key.
///
/// A clone shares all shards with the original; a change copies only the affected shard.
#[derive(Clone)]
pub struct KeyTable {
    /// The shards, indexed by the last byte of the hash.
    shards: Box<[Arc<Shard>; SHARDS]>,
    len: usize,
}

type Shard = HashMap<KeyHash, Arc<Access>, BuildHasherDefault<Uniform>>;

impl KeyTable {
    /// Returns the caller whose key has this hash.
    pub fn get(&self, hash: &KeyHash) -> Option<&Arc<Access>> {
        self.shards.get(place(hash))?.get(hash)
    }

    /// Adds a caller. Replaces one with the same hash.
    pub fn insert(&mut self, hash: KeyHash, access: Arc<Access>) {
        let Some(shard) = self.shards.get_mut(place(&hash)) else { return };
        if Arc::make_mut(shard).insert(hash, access).is_none() {
            self.len += 1;
        }
    }

    /// Removes the caller whose key has this hash.
    pub fn remove(&mut self, hash: &KeyHash) {
        let Some(shard) = self.shards.get_mut(place(hash)) else { return };
        if shard.contains_key(hash) && Arc::make_mut(shard).remove(hash).is_some() {
            self.len -= 1;
        }
    }

    /// Returns an iterator over all callers.
    pub fn values(&self) -> impl Iterator<Item = &Arc<Access>> {
        self.shards.iter().flat_map(|shard| shard.values())
    }

    /// Returns the number of callers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the table has no keys.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

fn place(hash: &KeyHash) -> usize {
    let [.., last] = hash.0;
    usize::from(last)
}

impl Default for KeyTable {
    fn default() -> Self {
        let empty = Arc::new(Shard::default());
        Self { shards: Box::new(std::array::from_fn(|_| Arc::clone(&empty))), len: 0 }
    }
}

impl FromIterator<(KeyHash, Arc<Access>)> for KeyTable {
    fn from_iter<I: IntoIterator<Item = (KeyHash, Arc<Access>)>>(callers: I) -> Self {
        let mut table = Self::default();
        callers.into_iter().for_each(|(hash, access)| table.insert(hash, access));
        table
    }
}

impl fmt::Debug for KeyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyTable").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A hasher that uses the key hash unchanged.
#[derive(Debug, Default)]
struct Uniform(u64);

impl Hasher for Uniform {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// One shard per value of a byte.
const SHARDS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, Role};

    fn hash(n: u32) -> KeyHash {
        let digest = ring::digest::digest(&ring::digest::SHA256, &n.to_be_bytes());
        KeyHash(digest.as_ref().try_into().unwrap())
    }

    fn caller(n: u32) -> Arc<Access> {
        Arc::new(Access::new(&format!("key_{n}"), Role::Project))
    }

    fn shared_shards(one: &KeyTable, other: &KeyTable) -> usize {
        one.shards.iter().zip(&*other.shards).filter(|(one, other)| Arc::ptr_eq(one, other)).count()
    }

    #[test]
    fn a_copy_with_a_changed_key_shares_all_but_one_shard() {
        let before: KeyTable = (0..10_000).map(|n| (hash(n), caller(n))).collect();
        let mut after = before.clone();
        assert_eq!(shared_shards(&before, &after), SHARDS);
        after.insert(hash(10_000), caller(10_000));
        assert_eq!(shared_shards(&before, &after), SHARDS - 1);
        assert_eq!((before.len(), after.len(), after.values().count()), (10_000, 10_001, 10_001));
        assert!(before.get(&hash(10_000)).is_none());
        assert_eq!(after.get(&hash(10_000)).unwrap().key.as_str(), "key_10000");
        after.remove(&hash(10_000));
        after.remove(&hash(10_001));
        after.insert(hash(7), caller(8));
        assert_eq!((after.len(), after.get(&hash(7)).unwrap().key.as_str()), (10_000, "key_8"));
        assert_eq!(before.get(&hash(7)).unwrap().key.as_str(), "key_7");
        assert!((0..10_000).all(|n| before.get(&hash(n)).is_some()));
    }

    #[test]
    fn removing_an_unknown_key_changes_nothing() {
        let before: KeyTable = [(hash(1), caller(1))].into_iter().collect();
        let mut after = before.clone();
        after.remove(&hash(2));
        assert_eq!(shared_shards(&before, &after), SHARDS);
        assert!(!after.is_empty() && KeyTable::default().is_empty());
    }
}
