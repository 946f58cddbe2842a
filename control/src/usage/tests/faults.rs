//! Full and failing disks, and journal files with contents that the gateway did not write.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use records::digest::wide_digest;
use records::frame::{self, FileId};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use shared::usage::UsageLog as _;
use tempfile::TempDir;

use super::{Process, append, event, frames, large, only_file, paths};
use crate::common::bounds::JOURNAL_BYTES;
use crate::usage::gauge::read;
use crate::usage::journal::segment::file_name;
use crate::usage::journal::spare_files::AHEAD as SPARES_AHEAD;

/// Simulates a disk that takes no new files: moves the journal's directory away until it is dropped.
struct NoFolder {
    journal: PathBuf,
    away: PathBuf,
}

impl NoFolder {
    fn under(home: &Path) -> Self {
        let (journal, away) = (home.join("journal"), home.join("away"));
        fs::rename(&journal, &away).unwrap();
        Self { journal, away }
    }
}

impl Drop for NoFolder {
    fn drop(&mut self) {
        fs::rename(&self.away, &self.journal).unwrap();
    }
}

#[test]
fn without_a_spare_file_no_exchange_starts_and_running_ones_are_recorded() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    let other = process.journal.log().unwrap();
    let gone = NoFolder::under(home.path());
    let mut appended = 0;
    while log.has_room() {
        assert!(log.append(&large(appended)));
        appended += 1;
    }
    assert!(!other.has_room(), "all threads stop at once");
    assert_eq!(appended, 16, "15 fill a file");
    while log.append(&large(appended)) {
        appended += 1;
    }
    assert_eq!(appended, 30, "the reserve is as large as a file");
    assert_eq!(read(&process.gauge().lost), 1);
    drop(gone);
    std::mem::forget(log);
    drop(process);
    process = Process::start(home.path());
    process.settle();
    assert_eq!(process.stored(), [30; 3], "what was taken outlives the process");
}

#[test]
fn exchanges_start_again_once_a_file_could_be_created() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    let gone = NoFolder::under(home.path());
    (0..16).for_each(|n| assert!(log.append(&large(n))));
    log.tend();
    assert!(!log.has_room(), "there is still no file");
    drop(gone);
    process.settle();
    log.tend();
    assert!(log.has_room());
    append(&mut log, 16..20);
    drop(log);
    process.settle();
    assert_eq!((process.stored(), process.files()), ([20; 3], 0));
}

#[test]
fn a_record_that_cannot_be_written_stops_admission() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    log.go_on_in(File::options().write(true).open("/dev/full").unwrap());
    assert!(log.append(&event(0)), "another file takes it");
    log.go_on_in(File::options().write(true).open("/dev/full").unwrap());
    let gone = NoFolder::under(home.path());
    assert!(log.append(&event(1)), "the reserve takes it");
    assert!(!log.has_room());
    drop(gone);
    drop(log);
    process.settle();
    assert_eq!((process.stored(), process.files()), ([2; 3], 0));
    assert_eq!(read(&process.gauge().logs_stuck), 0, "a log that has ended blocks no exchange");
}

#[test]
fn no_record_is_appended_after_a_torn_write() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    log.append(&event(0));
    let path = only_file(&process.dir);
    let frame = frames(&path).remove(0);
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&frame[..frame.len() - 3], frame.len() as u64).unwrap();
    log.tear();
    process.settle();
    assert_eq!(process.stored(), [1; 3], "what is torn is not read");
    append(&mut log, 1..2);
    assert_eq!(process.files(), 2, "another file is begun");
    drop(log);
    process.settle();
    assert_eq!((process.stored(), process.files()), ([2; 3], 0));
    assert_eq!(read(&process.gauge().garbage_lines), 0);
}

/// A frame that a disk or a repair wrote twice counts once.
#[test]
fn a_duplicate_frame_in_a_file_counts_once() {
    let home = TempDir::new().unwrap();
    let process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    append(&mut log, 0..10);
    std::mem::forget(log);
    let path = only_file(&process.dir);
    drop(process);
    let mut frames = frames(&path);
    frames.extend(frames.clone());
    frames.push(frames[3].clone());
    fs::write(&path, frames.concat()).unwrap();
    let mut process = Process::start(home.path());
    process.settle();
    assert_eq!((process.stored(), process.files()), ([10; 3], 0));
    assert!(read(&process.gauge().garbage_lines) > 0);
}

/// Writes the header of a frame like an earlier release, which did not bind frames to their position.
fn close_as_before(frame: &mut [u8], file: FileId) {
    let (header, record) = frame.split_at_mut(frame::HEADER);
    let length = record.len() as u32;
    let sum = wide_digest(file.origin ^ (file.number << 24) ^ u64::from(length), record);
    header.copy_from_slice(&[&b"\xff\xfe\xffv"[..], &length.to_le_bytes(), &sum.to_le_bytes()].concat());
}

/// Earlier releases bound frames to their file, but not to their position.
#[test]
fn frames_of_an_earlier_release_are_read() {
    let home = TempDir::new().unwrap();
    let dir = home.path().join("journal");
    fs::create_dir(&dir).unwrap();
    let file = FileId { origin: 7, number: 1 };
    let mut bytes = Vec::new();
    for n in 0..3 {
        let mut frame = Vec::new();
        frame::put(&mut frame, &event(n));
        close_as_before(&mut frame, file);
        bytes.extend(frame);
    }
    fs::write(dir.join(file_name(file)), bytes).unwrap();
    let mut process = Process::start(home.path());
    process.settle();
    assert_eq!((process.stored(), process.files()), ([3; 3], 0));
}

/// The gateway never writes such a long file, and reading 64 GiB of zeros would take minutes.
#[test]
fn an_oversized_journal_file_is_read_up_to_the_written_length() {
    let home = TempDir::new().unwrap();
    let process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    append(&mut log, 0..10);
    std::mem::forget(log);
    let path = only_file(&process.dir);
    let sparse =
        |path: &Path| File::options().create(true).append(true).open(path).unwrap().set_len(64 << 30);
    sparse(&path).unwrap();
    sparse(&path.with_extension("short-notes")).unwrap();
    drop(process);
    let mut process = Process::start(home.path());
    process.meter.begin();
    assert!(read(&process.gauge().sealed_bytes) < JOURNAL_BYTES.max() as u64);
    assert_eq!((process.stored(), process.files()), ([10; 3], 0));
}

#[test]
fn a_fifo_in_the_journal_is_ignored_and_kept() {
    let home = TempDir::new().unwrap();
    let dir = home.path().join("journal");
    fs::create_dir(&dir).unwrap();
    for name in [file_name(FileId { origin: 7, number: 1 }), "0000000000000007-000.short-notes".to_owned()] {
        let path = dir.join(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }
    let mut process = Process::start(home.path());
    process.meter.begin();
    assert_eq!(process.stored(), [0; 3]);
    assert_eq!(paths(&dir).len(), 2 + SPARES_AHEAD);
}
