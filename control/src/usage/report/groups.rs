//! The groups of a page while it is read.

use std::collections::BTreeMap;

use super::{ReportCursor, ReportGroup};
use crate::usage::sums::UsageSums;

/// The first groups after a cursor, ordered by the start of the bucket and then by the names.
pub(super) struct Groups {
    map: BTreeMap<GroupKey, UsageSums>,
    after: Option<ReportCursor>,
    most: usize,
}

/// The first moment of a bucket, and the names of a group.
pub(super) type GroupKey = (u64, Vec<Option<String>>);

impl Groups {
    /// Keeps up to `most` groups after a cursor.
    pub(super) fn new(after: Option<ReportCursor>, most: usize) -> Self {
        Self { map: BTreeMap::new(), after, most }
    }

    pub(super) fn after(&self) -> Option<&ReportCursor> {
        self.after.as_ref()
    }

    /// True if groups of later buckets cannot be added.
    pub(super) fn is_full(&self) -> bool {
        self.map.len() >= self.most
    }

    /// Adds to a group. A group that was dropped is never added again: only groups that sort before it displaced it.
    pub(super) fn add(&mut self, key: GroupKey, sums: &UsageSums) {
        if self.after.as_ref().is_some_and(|after| !after.is_before(&key)) {
            return;
        }
        if self.is_full() && self.map.last_key_value().is_some_and(|(last, _)| *last < key) {
            return;
        }
        self.map.entry(key).or_default().add(sums);
        if self.map.len() > self.most {
            self.map.pop_last();
        }
    }

    pub(super) fn into_groups(self) -> impl Iterator<Item = ReportGroup> {
        self.map.into_iter().map(|((bucket_ms, names), sums)| ReportGroup { bucket_ms, names, sums })
    }
}

/// Converts a name from the tables, where an empty text means that the exchange has none.
pub(super) fn named(name: String) -> Option<String> {
    Some(name).filter(|name| !name.is_empty())
}
