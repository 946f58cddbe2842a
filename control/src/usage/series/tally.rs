//! The groups of a series while it is read.

use std::collections::{HashMap, HashSet};

use super::{GROUPS_COUNTED_MAX, GROUPS_MAX, POINTS_MAX, SeriesGroup, SeriesQuestion};
use crate::usage::dimension::NameKey;
use crate::usage::periods::{Part, PeriodFigures};

/// Collects the figures of the groups.
pub(super) struct GroupTally<'a> {
    question: &'a SeriesQuestion,
    points: usize,
    /// The groups that count; `None` if all do.
    wanted: Option<HashSet<NameKey>>,
    groups: HashMap<NameKey, Vec<PeriodFigures>>,
    /// True if there are more groups than are returned.
    pub(super) is_full: bool,
}

impl<'a> GroupTally<'a> {
    pub(super) fn new(question: &'a SeriesQuestion, wanted: Option<HashSet<NameKey>>) -> Self {
        let most = usize::try_from(POINTS_MAX).unwrap_or(usize::MAX);
        let points = question.edges.len().saturating_sub(1).min(most);
        let mut groups = HashMap::new();
        if question.group_by.is_empty() {
            groups.insert(NameKey::default(), vec![PeriodFigures::default(); points]);
        }
        Self { question, points, wanted, groups, is_full: false }
    }

    /// Adds a part of an exchange, or sums, of a group. Returns false if there is no room for the group.
    pub(super) fn add(&mut self, key: &NameKey, at_ms: u64, part: &Part<'_>) -> bool {
        if self.wanted.as_ref().is_some_and(|wanted| !wanted.contains(key)) {
            return true;
        }
        if !self.groups.contains_key(key) {
            if self.groups.len() >= GROUPS_MAX {
                self.is_full = true;
                return false;
            }
            self.groups.insert(key.clone(), vec![PeriodFigures::default(); self.points]);
        }
        let point = self.question.edges.partition_point(|edge| *edge <= at_ms).checked_sub(1);
        let points = self.groups.get_mut(key);
        if let Some(figures) = points.and_then(|points| points.get_mut(point?)) {
            figures.take(part);
        }
        true
    }

    pub(super) fn finish(self) -> Vec<SeriesGroup> {
        let groups = self.groups.into_iter();
        let mut groups: Vec<SeriesGroup> =
            groups.map(|(key, points)| SeriesGroup { names: key.names(), points }).collect();
        groups.sort_by(|a, b| b.requests().cmp(&a.requests()).then_with(|| a.names.cmp(&b.names)));
        groups
    }
}

/// The number of exchanges and attempts of each group, to find the largest groups.
#[derive(Default)]
pub(super) struct GroupSizes {
    counts: HashMap<NameKey, u64>,
    pub(super) is_full: bool,
}

impl GroupSizes {
    /// Counts a part. Returns false if there are too many groups.
    pub(super) fn add(&mut self, key: &NameKey, part: &Part<'_>) -> bool {
        if let Some(count) = self.counts.get_mut(key) {
            *count += part.size();
        } else if self.counts.len() < GROUPS_COUNTED_MAX {
            self.counts.insert(key.clone(), part.size());
        } else {
            self.is_full = true;
        }
        !self.is_full
    }

    /// Returns the number of groups beyond the largest.
    pub(super) fn omitted(&self) -> usize {
        self.counts.len().saturating_sub(GROUPS_MAX)
    }

    pub(super) fn largest(self) -> HashSet<NameKey> {
        let mut counts: Vec<(NameKey, u64)> = self.counts.into_iter().collect();
        counts.sort_unstable_by(|(a, many), (b, more)| more.cmp(many).then_with(|| a.cmp(b)));
        counts.into_iter().take(GROUPS_MAX).map(|(key, _)| key).collect()
    }
}
