//! Reads the files of a journal that no gateway uses, and counts what a start will find in them. Changes nothing.

use std::io;
use std::path::Path;

use records::frame::{self, Frame, JournalSpot};

use super::notes::{self, is_notes};
use super::segment::file_id;
use super::{LEFT_BYTES_MAX, left_over};
use crate::common::regular_file;

/// The content of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalContent {
    /// Files of records.
    pub(crate) files: u64,
    /// Complete records. The database may contain them already.
    pub(crate) records: u64,
    /// Bytes that are no record: the rest of a write that was cut off, or damage.
    pub(crate) unreadable_bytes: u64,
    /// Files with other names, which a start ignores.
    pub(crate) strangers: u64,
}

/// Returns the number of records, and of notes of running exchanges, that the database may not have; a missing directory has
/// none.
pub(crate) fn unstored(dir: &Path) -> io::Result<u64> {
    let files = match left_over(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        files => files?,
    };
    let mut count = examine(dir)?.records;
    for (path, _) in files.iter().filter(|(path, _)| is_notes(path)) {
        let notes = notes::records(path, &notes::read(path)?).count();
        count += u64::try_from(notes).unwrap_or(u64::MAX);
    }
    Ok(count)
}

/// Counts the content of the journal in `dir`; a missing directory is an empty journal.
pub(crate) fn examine(dir: &Path) -> io::Result<JournalContent> {
    let mut content = JournalContent::default();
    let files = match left_over(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(content),
        files => files?,
    };
    for (path, _) in files.into_iter().filter(|(path, _)| !is_notes(path)) {
        let Some(file) = file_id(&path) else {
            content.strangers += 1;
            continue;
        };
        content.files += 1;
        let bytes = regular_file::read(&path, LEFT_BYTES_MAX)?;
        let mut at = 0_usize;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let spot = JournalSpot { file, at: u64::try_from(at).unwrap_or(u64::MAX) };
            at += match frame::first(rest, Some(spot)) {
                Frame::Whole(_, length) => {
                    content.records += 1;
                    length
                }
                Frame::Blank(length) => length,
                Frame::Garbage(length) => {
                    content.unreadable_bytes += u64::try_from(length).unwrap_or(u64::MAX);
                    length
                }
                Frame::Part(_) => {
                    // Nothing completes it: look for the next frame behind its marker, as a start does.
                    let length = frame::after_marker(rest);
                    content.unreadable_bytes += u64::try_from(length).unwrap_or(u64::MAX);
                    length
                }
            };
        }
    }
    Ok(content)
}
