//! Reads a database file that a [`ConsistentView`] keeps unchanged, without SQLite.
//!
//! Closing any descriptor of a file drops all POSIX locks that the process has on the file, also those of SQLite's connections
//! (<https://www.sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_>). Another process could
//! then take the write-ahead log for unused, and delete it. So the descriptor of a file that a gateway may have open is never
//! closed: the next backup uses it again.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::copy::ConsistentView;
use super::open::beside;
use crate::db::engine::DbResult;

/// A file whose content is of the moment of a view, as long as the view exists.
#[derive(Debug)]
pub(crate) struct MomentFile {
    path: PathBuf,
    file: Arc<File>,
    bytes: u64,
    is_database: bool,
}

/// The write-ahead logs that grow as long as a view exists, since no checkpoint can shorten them, and their bounds in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct GrowingLogs(Vec<(PathBuf, u64)>);

impl MomentFile {
    /// Opens a database of the state.
    pub(crate) fn of_state(path: &Path, bytes: u64) -> io::Result<Self> {
        Ok(Self { path: path.into(), file: opened_once(path)?, bytes, is_database: true })
    }

    /// Opens a file that only this backup has, and that is closed at its end.
    pub(crate) fn of_copy(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.into(), file: Arc::new(file), bytes, is_database: false })
    }

    /// The name of the file.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the piece of at most `bytes_max` bytes at a place; an empty one at the end.
    pub(crate) fn piece(&self, at: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
        let left = usize::try_from(self.bytes.saturating_sub(at)).unwrap_or(usize::MAX);
        let mut piece = vec![0; left.min(bytes_max)];
        self.file.read_exact_at(&mut piece, at)?;
        if at == 0 && self.is_database {
            // The file by itself is complete: it has no write-ahead log beside it, which these two numbers would announce
            // (<https://www.sqlite.org/fileformat2.html#file_format_version_numbers>).
            piece.iter_mut().skip(FORMAT_VERSIONS_AT).take(2).for_each(|version| *version = ROLLBACK_JOURNAL);
        }
        Ok(piece)
    }
}

impl GrowingLogs {
    /// Returns the logs of the databases of a view. Each may grow by as much as a copy of its database would take.
    pub(crate) fn of(view: &ConsistentView) -> DbResult<Self> {
        let bound = |(schema, path): (&str, &Path)| {
            let log = beside(path, "-wal");
            let now = fs::metadata(&log).map_or(0, |metadata| metadata.len());
            Ok((log, now.saturating_add(view.bytes(schema)?.max(GROWTH_ALWAYS))))
        };
        view.databases().map(bound).collect::<DbResult<_>>().map(Self)
    }

    /// Returns a log that is longer than its bound.
    pub(crate) fn over_bound(&self) -> Option<&Path> {
        let is_over =
            |(log, bound): &&(PathBuf, u64)| fs::metadata(log).is_ok_and(|found| found.len() > *bound);
        self.0.iter().find(is_over).map(|(log, _)| log.as_path())
    }
}

/// Returns the descriptor of a file that this process has opened, or opens it.
fn opened_once(path: &Path) -> io::Result<Arc<File>> {
    static OPENED: Mutex<Vec<OpenedFile>> = Mutex::new(Vec::new());
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let number = |found: fs::Metadata| (found.dev(), found.ino());
    let wanted = number(fs::metadata(path)?);
    if let Some((_, file)) = opened.iter().find(|(known, _)| *known == wanted) {
        return Ok(Arc::clone(file));
    }
    let file = Arc::new(File::open(path)?);
    opened.push((number(file.metadata()?), Arc::clone(&file)));
    Ok(file)
}

/// A device, the number of a file on it, and the descriptor.
type OpenedFile = ((u64, u64), Arc<File>);

const FORMAT_VERSIONS_AT: usize = 18;
const ROLLBACK_JOURNAL: u8 = 1;
/// The growth of a log that is allowed beside the smallest database.
const GROWTH_ALWAYS: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use shared::secret::Secret;
    use tempfile::TempDir;

    use super::*;
    use crate::db::engine::Db;
    use crate::db::engine::sqlite::schemas::{MAIN, SCHEMA};
    use crate::db::sqlite_state::open::open;
    use crate::db::sqlite_state::relocate::settle;

    const WRITE: [&str; 2] = [
        "INSERT INTO principals (id, name, disabled, version, created_at_ms, updated_at_ms) \
         VALUES ('p' || :number, 'a name', 0, 1, 0, 0)",
        "INSERT INTO usage_followed (node, place, exchanges, from_ms) VALUES (:number + 1000, 0, 0, 0)",
    ];

    /// Returns a state whose usage is in `usage.db`.
    fn apart() -> (TempDir, Db) {
        let dir = TempDir::new().unwrap();
        let mut db = open(dir.path(), &Secret::new([1; 32])).unwrap().writer;
        settle(dir.path(), &mut db, true).unwrap();
        (dir, db)
    }

    fn checkpoint(db: &Db) {
        for schema in [MAIN, SCHEMA] {
            let sql = format!("PRAGMA {schema}.wal_checkpoint(RESTART)");
            db.row(&sql, (), |row| row.get::<i64>(0)).unwrap();
        }
    }

    #[test]
    fn checkpoints_change_the_files_only_after_the_view_has_ended() {
        let (dir, db) = apart();
        // The second round begins with a log that is not empty.
        for round in 0..2 {
            let view = ConsistentView::of(dir.path()).unwrap();
            assert!(view.are_files_of_moment());
            let open = |(schema, path)| MomentFile::of_state(path, view.bytes(schema).unwrap()).unwrap();
            let files: Vec<MomentFile> = view.databases().map(open).collect();
            let content =
                || -> Vec<_> { files.iter().map(|file| file.piece(0, usize::MAX).unwrap()).collect() };
            let before = content();
            assert_eq!(before.len(), 2);
            db.set_pragma(None, "busy_timeout", 1).unwrap();
            for number in round * 100..(round + 1) * 100 {
                WRITE.iter().for_each(|write| assert_eq!(db.execute(write, [number]).unwrap(), 1));
                checkpoint(&db);
            }
            assert!(content() == before, "all of it stays in the logs");
            drop(view);
            checkpoint(&db);
            assert!(content() != before, "they are moved into the files");
        }
    }

    #[test]
    fn a_log_may_grow_by_64_mib_beside_a_small_database() {
        let (dir, db) = apart();
        db.set_pragma(None, "busy_timeout", 1).unwrap();
        let view = ConsistentView::of(dir.path()).unwrap();
        let logs = GrowingLogs::of(&view).unwrap();
        let write = "INSERT INTO principals (id, name, email, disabled, version, created_at_ms, updated_at_ms) \
                     VALUES ('p' || :number, 'a name', printf('%.*c', 8000000, 'x') || :number, 0, 1, 0, 0)";
        for number in 0..4 {
            db.execute(write, [number]).unwrap();
            assert_eq!(logs.over_bound(), None, "{number}");
        }
        db.execute(write, [4]).unwrap();
        assert_eq!(logs.over_bound(), Some(&*dir.path().join("gateway.db-wal")));
    }
}
