//! Spare journal files, so that a data-plane thread neither creates a file nor waits for one: the writer thread creates
//! them ahead of time, and recycles those whose events are stored. Their blocks are allocated and their pages are in
//! the page cache, so a full disk refuses no write and a write is only a copy.
//!
//! ```text
//!  writer thread  -- ready -->  data-plane thread
//!                 <-- full ---
//! ```

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use records::frame::FileId;

use super::resting::RESTING_MAX;
use super::segment::{SEGMENT_BYTES, Segment, Spare, create, file_name, write_zeros};

/// A file to which nothing more is appended.
#[derive(Debug)]
struct Full {
    file: File,
    id: FileId,
}

/// The data-plane thread's end.
#[derive(Clone, Debug)]
pub(in crate::usage) struct SpareExchange {
    ready: Receiver<Spare>,
    full: Sender<Full>,
}

/// The writer thread's end.
#[derive(Debug)]
pub(crate) struct SpareFiles {
    dir: PathBuf,
    next: FileId,
    ready: Sender<Spare>,
    /// The receiving side of `ready`, to take back unused files.
    unused: Receiver<Spare>,
    full: Receiver<Full>,
    /// Files that cannot be reused yet: their events are not all stored, or have been for a short time only.
    kept: Vec<Full>,
    /// The time of the next try after a file could not be created.
    retry_at: Option<Instant>,
}

/// Creates the two ends, for files in `dir` that are named after `origin`.
pub(in crate::usage) fn exchange(dir: PathBuf, origin: u64) -> (SpareExchange, SpareFiles) {
    let (ready, unused) = bounded(SPARES_MAX);
    let (given, full) = bounded(SPARES_MAX);
    let ours = SpareExchange { ready: unused.clone(), full: given };
    let next = FileId { origin, number: 0 };
    (ours, SpareFiles { dir, next, ready, unused, full, kept: Vec::new(), retry_at: None })
}

impl SpareExchange {
    pub(in crate::usage) fn take(&self) -> Option<Spare> {
        self.ready.try_recv().ok()
    }

    /// Offers a full file of [`SEGMENT_BYTES`] for reuse. Closes it if enough files wait already.
    pub(in crate::usage) fn give(&self, file: File, id: FileId) {
        let _ = self.full.try_send(Full { file, id });
    }
}

impl SpareFiles {
    /// Creates files until enough are ready. After a failure it creates none for [`MAKE_PAUSE`].
    pub(in crate::usage) fn refill(&mut self) {
        self.collect();
        while self.ready.len() < AHEAD && self.retry_at.is_none_or(|retry_at| retry_at <= Instant::now()) {
            match create(&self.dir, self.next.take(), SEGMENT_BYTES) {
                Ok(spare) => {
                    let _ = self.ready.try_send(spare);
                    self.retry_at = None;
                }
                Err(error) => {
                    tracing::debug!("cannot preallocate a file of the usage journal: {error}");
                    self.retry_at = Some(Instant::now() + MAKE_PAUSE);
                }
            }
        }
    }

    /// True if the last try to create a file failed.
    pub(in crate::usage) fn is_short(&self) -> bool {
        self.retry_at.is_some()
    }

    /// Recycles the file of `segment`, all of which is stored, under a new name. Returns false if the file still exists
    /// under its old name.
    pub(in crate::usage) fn renew(&mut self, segment: &Segment) -> bool {
        self.collect();
        let Some(at) = self.kept.iter().position(|full| full.id == segment.id) else { return false };
        let Full { file, .. } = self.kept.swap_remove(at);
        if self.ready.is_full() {
            return false;
        }
        let id = self.next.take();
        let path = self.dir.join(file_name(id));
        // If only the zeros reach the disk, the read position of the old name is still correct.
        let renewed = write_zeros(&file, segment.bytes()).and_then(|()| fs::rename(&segment.path, &path));
        if let Err(error) = renewed {
            tracing::debug!("cannot reuse {}: {error}", segment.path.display());
            return false;
        }
        let segment = Arc::new(Segment::fresh(path, id));
        let spare = Spare { file, bytes_max: SEGMENT_BYTES, segment };
        if let Err(refused) = self.ready.try_send(spare) {
            refused.into_inner().remove();
        }
        true
    }

    /// Deletes one of the files that only load requires.
    pub(in crate::usage) fn shrink(&mut self) {
        if self.ready.len() > AHEAD {
            self.unused.try_iter().take(1).for_each(|spare| spare.remove());
        }
    }

    /// Deletes all unused files. Called at the end of the process.
    pub(in crate::usage) fn remove_all(&mut self) {
        self.unused.try_iter().for_each(|spare| spare.remove());
    }

    /// Takes the files that will be reused, and closes the others.
    fn collect(&mut self) {
        for full in self.full.try_iter() {
            if self.kept.len() < KEPT_MAX {
                self.kept.push(full);
            }
        }
    }
}

/// Number of files that are always kept ready.
pub(in crate::usage) const AHEAD: usize = 2;
/// Limit on the files that are ready.
const SPARES_MAX: usize = 8;
/// Limit on the files that wait to be recycled.
const KEPT_MAX: usize = RESTING_MAX + SPARES_MAX;
/// Bounds the time until free room on the disk is noticed.
const MAKE_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use shared::usage::{UsageEvent, UsageLog as _};
    use tempfile::TempDir;

    use super::*;
    use crate::usage::gauge::read;
    use crate::usage::tests::{Process, append, event, frames, large, only_file, paths};

    /// More events than fit into one file.
    const FILEFUL: u64 = 17;

    #[test]
    fn journal_files_are_reused_under_load() {
        let home = TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        process.settle();
        let mut log = process.journal.log().unwrap();
        let ready = paths(&home.path().join("journal")).len();
        assert_eq!(ready, 2 + AHEAD, "the log's own, its reserve, and two that are unused");
        for n in 0..10 * FILEFUL {
            log.append(&large(n));
            process.settle();
        }
        let made = paths(&home.path().join("journal")).len();
        assert!(made <= 2 + AHEAD + 1, "{made}");
        assert_eq!(process.stored(), [170; 3]);
        assert_eq!((read(&process.gauge().segments), read(&process.gauge().sealed_bytes)), (1, 0));
        drop(log);
        process.settle();
        process.meter.end();
        assert_eq!(paths(&home.path().join("journal")).len(), 0, "nothing is left of an end in good order");
    }

    #[test]
    fn frames_of_a_renamed_file_are_not_stored_again() {
        let home = TempDir::new().unwrap();
        let process = Process::start(home.path());
        let mut log = process.journal.log().unwrap();
        append(&mut log, 0..10);
        std::mem::forget(log);
        let journal = home.path().join("journal");
        drop(process);
        let path = only_file(&journal);
        let before = frames(&path);
        // The state after a power failure if the rename reached the disk, but the zeros did not.
        fs::rename(&path, journal.join(file_name(FileId { origin: 5, number: 7 }))).unwrap();
        let mut process = Process::start(home.path());
        process.settle();
        assert_eq!((process.stored(), process.files()), ([0; 3], 0));
        drop(process);
        // Under their own file name, the same frames are records.
        fs::write(&path, before.concat()).unwrap();
        let mut process = Process::start(home.path());
        process.settle();
        assert_eq!((process.stored(), process.files()), ([10; 3], 0));
    }

    #[test]
    fn a_kill_with_files_in_every_state_stores_every_record_once() {
        let home = TempDir::new().unwrap();
        for round in 0..3_u64 {
            let mut process = Process::start(home.path());
            process.settle();
            let mut log = process.journal.log().unwrap();
            let start = round * 1_000;
            for n in start..start + 5 * FILEFUL {
                log.append(&large(n));
                if n % 30 == 0 {
                    process.settle();
                }
            }
            std::mem::forget(log);
        }
        let mut process = Process::start(home.path());
        process.settle();
        assert_eq!((process.stored(), process.files()), ([3 * 85; 3], 0));
        assert_eq!(read(&process.gauge().garbage_lines), 0);
        assert_eq!(read(&process.gauge().sealed_bytes), 0);
    }

    #[test]
    fn a_record_larger_than_a_journal_file_gets_its_own_file() {
        let home = TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        process.settle();
        let mut log = process.journal.log().unwrap();
        log.append(&event(0));
        log.append(&UsageEvent { selector: "x".repeat(SEGMENT_BYTES as usize).into(), ..event(1) });
        append(&mut log, 2..4);
        assert_eq!(process.files(), 3);
        assert_eq!(read(&process.gauge().lost), 0);
        process.settle();
        assert_eq!((process.stored(), process.files()), ([4; 3], 1));
    }

    #[test]
    fn surplus_spare_files_are_removed_one_by_one() {
        let home = TempDir::new().unwrap();
        let (exchange, mut spares) = exchange(home.path().to_owned(), 3);
        let mut taken = Vec::new();
        while taken.len() < SPARES_MAX + 3 {
            spares.refill();
            taken.extend(exchange.take());
        }
        let mut others = 0;
        for Spare { file, segment, .. } in taken {
            exchange.give(file, segment.id);
            let is_renewed = spares.renew(&segment);
            assert_eq!(is_renewed, !segment.path.exists());
            others += usize::from(!is_renewed);
        }
        assert_eq!(spares.ready.len(), SPARES_MAX);
        (0..20).for_each(|_| spares.shrink());
        assert_eq!(spares.ready.len(), AHEAD);
        spares.remove_all();
        assert!(others >= 3);
        assert_eq!(paths(home.path()).len(), others, "what was not taken back is its owner's to delete");
    }
}
