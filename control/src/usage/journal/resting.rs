//! Journal files whose events are stored. They stay as they are for a minute: if the database forgets its last commits,
//! their events can be stored again. Then they are reused or deleted.
//!
//! They are no reason to refuse requests: at most [`RESTING_MAX`] files rest, or [`RESTING_AT_NODE_MAX`] at a node, the oldest
//! end early, and all do if the disk is full.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use records::frame::FileId;

use super::spare_files::SpareFiles;
use super::tracked::Tracked;

/// The files, the oldest first.
#[derive(Debug)]
pub(in crate::usage) struct RestingFiles {
    files: VecDeque<(Instant, Tracked)>,
    /// The time for which a file rests.
    time: Duration,
    /// The number of files beyond which the oldest one ends early.
    most: usize,
}

impl RestingFiles {
    pub(in crate::usage) fn new(time: Duration) -> Self {
        Self { files: VecDeque::new(), time, most: RESTING_MAX }
    }

    /// Returns the files of a node, whose database is a server's: a failover may lose commits.
    pub(in crate::usage) fn of_node() -> Self {
        Self { most: RESTING_AT_NODE_MAX, ..Self::new(REST) }
    }

    /// Adds a file all of whose events were stored at `now`.
    pub(in crate::usage) fn add(&mut self, mut tracked: Tracked, now: Instant) {
        tracked.close();
        self.files.push_back((now, tracked));
    }

    /// True if a file may be reused.
    pub(in crate::usage) fn is_due(&self, now: Instant) -> bool {
        self.files.front().is_some_and(|(since, _)| self.is_rested(*since, now))
    }

    /// Takes the files that `is_meant` names out.
    pub(in crate::usage) fn take_if(&mut self, is_meant: impl Fn(&Tracked) -> bool) -> Vec<Tracked> {
        let (taken, kept) = self.files.drain(..).partition(|(_, tracked)| is_meant(tracked));
        self.files = kept;
        taken.into_iter().map(|(_, tracked)| tracked).collect()
    }

    /// Reuses or deletes the files that have rested, and the oldest ones beyond the limit. Returns those that no longer
    /// exist under their name.
    pub(in crate::usage) fn leave(&mut self, spares: &mut SpareFiles, now: Instant) -> Vec<FileId> {
        self.end(
            now,
            |resting| resting.is_due(now) || resting.files.len() > resting.most,
            |tracked| tracked.leave(spares, now),
        )
    }

    /// Deletes all files. Returns those that no longer exist.
    pub(in crate::usage) fn remove_all(&mut self, now: Instant) -> Vec<FileId> {
        self.end(now, |_| true, |tracked| tracked.remove(now))
    }

    /// Ends the rest of files, from the oldest one on, while `is_over`. A file that cannot be left goes on resting.
    fn end(
        &mut self,
        now: Instant,
        is_over: impl Fn(&Self) -> bool,
        mut leave: impl FnMut(&mut Tracked) -> bool,
    ) -> Vec<FileId> {
        let mut left = Vec::new();
        for _ in 0..self.files.len() {
            if !is_over(self) {
                break;
            }
            let Some((_, mut tracked)) = self.files.pop_front() else { break };
            if leave(&mut tracked) {
                left.push(tracked.segment.id);
            } else {
                self.files.push_back((now, tracked));
            }
        }
        left
    }

    /// True if what was stored at `since` has rested.
    pub(in crate::usage) fn is_rested(&self, since: Instant, now: Instant) -> bool {
        now.saturating_duration_since(since) >= self.time
    }
}

/// The time for which a file rests.
pub(in crate::usage) const REST: Duration = Duration::from_secs(60);
/// Limit on the resting files, of 1 MiB each: the disk needs this much more under load.
pub(in crate::usage) const RESTING_MAX: usize = 64;
/// The same at a node, whose records of a minute rest up to some 30,000 a second.
const RESTING_AT_NODE_MAX: usize = 512;
