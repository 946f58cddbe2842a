//! Journal files whose events are stored. They stay as they are for a minute: if the database forgets its last commits,
//! their events can be stored again. Then they are reused or deleted.
//!
//! They are no reason to refuse requests: at most [`RESTING_MAX`] files rest, the oldest end early, and all do if the disk is
//! full.

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
}

impl RestingFiles {
    pub(in crate::usage) fn new(time: Duration) -> Self {
        Self { files: VecDeque::new(), time }
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

    /// Reuses or deletes the files that have rested, and the oldest ones beyond the limit. Returns those that no longer
    /// exist under their name.
    pub(in crate::usage) fn leave(&mut self, spares: &mut SpareFiles, now: Instant) -> Vec<FileId> {
        self.end(
            now,
            |resting| resting.is_due(now) || resting.files.len() > RESTING_MAX,
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

    fn is_rested(&self, since: Instant, now: Instant) -> bool {
        now.saturating_duration_since(since) >= self.time
    }
}

/// The time for which a file rests.
pub(in crate::usage) const REST: Duration = Duration::from_secs(60);
/// Limit on the resting files, of 1 MiB each: the disk needs this much more under load.
pub(in crate::usage) const RESTING_MAX: usize = 64;
