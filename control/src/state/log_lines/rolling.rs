//! A file that is continued under another name every day, and whenever it has reached its size. The newest are kept.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::civil::Date;
use rustix::fs::OFlags;

/// The log files of a folder.
#[derive(Debug)]
pub(super) struct RollingFile {
    folder: PathBuf,
    open: Option<OpenFile>,
    /// True if the last write may have left a part of a line.
    is_torn: bool,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    name: FileName,
    bytes: u64,
}

/// The day of a file, and its number within that day, from 1. The later file is the greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileName {
    day: Date,
    part: u32,
}

/// The number of files that are kept.
const FILES_MAX: usize = 7;
/// The size at which a file is continued in another one.
const FILE_BYTES_MAX: u64 = 64 << 20;

impl RollingFile {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, open: None, is_torn: false }
    }

    /// Appends whole lines to the file of `day`. A file that was moved or deleted is created again.
    pub(super) fn write(&mut self, lines: &[u8], day: Date) -> io::Result<()> {
        let is_torn = self.is_torn;
        let open = self.opened(day)?;
        let written = if is_torn { open.file.write_all(b"\n") } else { Ok(()) };
        let written = written.and_then(|()| open.file.write_all(lines));
        open.bytes = open.bytes.saturating_add(u64::try_from(lines.len()).unwrap_or(u64::MAX));
        self.is_torn = written.is_err();
        if written.is_err() {
            self.open = None;
        }
        written
    }

    fn opened(&mut self, day: Date) -> io::Result<&mut OpenFile> {
        let folder = &self.folder;
        let usable =
            |open: &OpenFile| open.name.day == day && open.bytes < FILE_BYTES_MAX && open.is_in(folder);
        let open = match self.open.take().filter(usable) {
            Some(open) => open,
            None => open_next(folder, day)?,
        };
        Ok(self.open.insert(open))
    }
}

impl OpenFile {
    /// Returns true if the file still has its name in `folder`.
    fn is_in(&self, folder: &Path) -> bool {
        let (named, open) = (fs::symlink_metadata(folder.join(self.name.text())), self.file.metadata());
        matches!((named, open), (Ok(named), Ok(open)) if (named.dev(), named.ino()) == (open.dev(), open.ino()))
    }
}

impl FileName {
    fn text(self) -> String {
        let Self { day, part } = self;
        if part <= 1 { format!("{PREFIX}{day}{SUFFIX}") } else { format!("{PREFIX}{day}.{part}{SUFFIX}") }
    }

    fn of(text: &str) -> Option<Self> {
        let text = text.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        let (day, part) = text.split_once('.').unwrap_or((text, "1"));
        Some(Self { day: day.parse().ok()?, part: part.parse().ok()? })
    }
}

/// Opens the newest file of `day` that has room, or creates the next one, and removes the oldest beyond [`FILES_MAX`].
fn open_next(folder: &Path, day: Date) -> io::Result<OpenFile> {
    let mut names = names(folder)?;
    let newest = names.iter().rev().find(|name| name.day == day).copied();
    let mut name = newest.unwrap_or(FileName { day, part: 1 });
    let length = |name: FileName| fs::symlink_metadata(folder.join(name.text())).map_or(0, |meta| meta.len());
    if length(name) >= FILE_BYTES_MAX {
        name.part = name.part.saturating_add(1);
    }
    let file = File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(NO_WAIT_NOR_LINK)
        .open(folder.join(name.text()))
        .map_err(|error| unusable(&folder.join(name.text()), error))?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other(format!(
            "{} is not a regular file",
            folder.join(name.text()).display()
        )));
    }
    if !names.contains(&name) {
        names.push(name);
        names.sort();
    }
    let excess = names.len().saturating_sub(FILES_MAX);
    for old in names.iter().take(excess).filter(|old| **old != name) {
        fs::remove_file(folder.join(old.text()))?;
    }
    Ok(OpenFile { file, name, bytes: metadata.len() })
}

/// Names a link as the reason why a file could not be opened.
fn unusable(path: &Path, error: io::Error) -> io::Error {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_symlink() => {
            io::Error::other(format!("{} is a link; log files are not written through links", path.display()))
        }
        _ => error,
    }
}

/// Returns the log files in `folder`, oldest first. Other files are left alone.
fn names(folder: &Path) -> io::Result<Vec<FileName>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.extend(entry?.file_name().to_str().and_then(FileName::of));
    }
    names.sort();
    Ok(names)
}

const PREFIX: &str = "llmgw-";
const SUFFIX: &str = ".log";
/// Opening a FIFO under the name of a log file fails instead of waiting for a reader, and opening a link fails instead of
/// writing to or creating the file that it leads to.
const NO_WAIT_NOR_LINK: i32 = OFlags::NONBLOCK.union(OFlags::NOFOLLOW).bits().cast_signed();

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn day(text: &str) -> Date {
        text.parse().unwrap()
    }

    fn listed(folder: &Path) -> Vec<String> {
        names(folder).unwrap().into_iter().map(FileName::text).collect()
    }

    fn content(folder: &Path, name: &str) -> String {
        fs::read_to_string(folder.join(name)).unwrap()
    }

    #[test]
    fn each_day_has_a_file_and_seven_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("notes.txt"), "of the operator").unwrap();
        let mut file = RollingFile::new(folder.path().to_owned());
        for number in 1..=9 {
            file.write(b"a line\n", day(&format!("2026-03-0{number}"))).unwrap();
        }
        let names = listed(folder.path());
        assert_eq!(names.len(), 7);
        assert_eq!((names[0].as_str(), names[6].as_str()), ("llmgw-2026-03-03.log", "llmgw-2026-03-09.log"));
        let mode = fs::metadata(folder.path().join(&names[6])).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(folder.path().join("notes.txt").exists());
    }

    #[test]
    fn a_file_that_is_full_is_continued_in_another_one_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let today = day("2026-03-01");
        let full = |part: u32| {
            let name = FileName { day: today, part }.text();
            File::create(folder.path().join(name)).unwrap().set_len(FILE_BYTES_MAX).unwrap();
        };
        (1..=9).for_each(full);
        RollingFile::new(folder.path().to_owned()).write(b"one\n", today).unwrap();
        RollingFile::new(folder.path().to_owned()).write(b"two\n", today).unwrap();
        assert_eq!(content(folder.path(), "llmgw-2026-03-01.10.log"), "one\ntwo\n");
        let names = listed(folder.path());
        assert_eq!((names.len(), names[0].as_str()), (7, "llmgw-2026-03-01.4.log"), "10 comes after 9");
    }

    #[test]
    fn a_file_that_was_moved_away_is_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let (today, name) = (day("2026-03-01"), "llmgw-2026-03-01.log");
        let mut file = RollingFile::new(folder.path().to_owned());
        file.write(b"one\n", today).unwrap();
        fs::rename(folder.path().join(name), folder.path().join("moved")).unwrap();
        file.write(b"two\n", today).unwrap();
        assert_eq!(
            (content(folder.path(), "moved"), content(folder.path(), name)),
            ("one\n".into(), "two\n".into())
        );
    }

    #[test]
    fn a_fifo_in_the_place_of_a_log_file_is_an_error_and_blocks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let path = folder.path().join("llmgw-2026-03-01.log");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        RollingFile::new(folder.path().to_owned()).write(b"one\n", day("2026-03-01")).unwrap_err();
    }

    #[test]
    fn a_link_in_the_place_of_a_log_file_is_neither_followed_nor_created() {
        let folder = tempfile::tempdir().unwrap();
        let today = day("2026-03-01");
        let (link, target) = (folder.path().join("llmgw-2026-03-01.log"), folder.path().join("elsewhere"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let mut file = RollingFile::new(folder.path().to_owned());
        let error = file.write(b"one\n", today).unwrap_err().to_string();
        assert!(error.contains("is a link") && !target.exists(), "{error}");
        fs::write(&target, "kept").unwrap();
        file.write(b"two\n", today).unwrap_err();
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        fs::remove_file(&link).unwrap();
        file.write(b"three\n", today).unwrap();
        assert_eq!(content(folder.path(), "llmgw-2026-03-01.log"), "three\n");
        fs::rename(&link, folder.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("moved"), &link).unwrap();
        file.write(b"four\n", today).unwrap_err();
    }

    #[test]
    fn lines_after_a_torn_one_begin_on_a_line_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = RollingFile::new(folder.path().to_owned());
        file.is_torn = true;
        file.write(b"one\n", day("2026-03-01")).unwrap();
        file.write(b"two\n", day("2026-03-01")).unwrap();
        assert_eq!(content(folder.path(), "llmgw-2026-03-01.log"), "\none\ntwo\n");
    }
}
