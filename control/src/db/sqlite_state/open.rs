//! Opens the database. Everything is checked before anything is written.
//!
//! ```text
//!  directory -> lock -> is there a database?
//!    no:  create it under a temporary name, with all tables and keys, then rename it
//!    yes: read-only: check owner, version, integrity and key; a snapshot if it is older; then read-write: migrate
//! ```
//!
//! A file called `gateway.db` is therefore always complete. An empty or foreign one is reported as damaged and not
//! changed.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use shared::secret::Secret;

use super::files::{Files, USAGE};
use super::lock::StateLock;
use super::migrate;
use super::upgrade_snapshot;
use crate::common::private_file;
use crate::common::vault::VaultKeys;
use crate::db::chain;
use crate::db::engine::sqlite::connect::Access;
use crate::db::engine::sqlite::row_sums;
use crate::db::engine::sqlite::schemas::MAIN;
use crate::db::engine::{Db, DbError, DbErrorKind, DbResult};
use crate::db::error::OpenError;
use crate::db::key_check::{KeysError, make_keys, open_keys};

/// An opened state directory.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) lock: StateLock,
    /// The only connection that writes.
    pub(crate) writer: Db,
    /// The path of the database file.
    pub(crate) path: PathBuf,
    pub(crate) keys: VaultKeys,
}

/// Opens the state in `dir`. Creates it if it does not exist.
pub(crate) fn open(dir: &Path, encryption_key: &Secret<[u8; 32]>) -> Result<Opened, OpenError> {
    make_directory(dir)?;
    let lock = StateLock::take(dir)?;
    let path = dir.join(DATABASE);
    expect_no_rollback(dir)?;
    if path.try_exists().map_err(|source| OpenError::Io { path: path.clone(), source })? {
        let version = examine(dir, Some(encryption_key))?;
        upgrade_snapshot::make(dir, version)?;
    } else {
        nothing_left_over(dir, &path)?;
        make(dir, &path, encryption_key)?;
    }
    let sql = |source| OpenError::Sql { path: path.clone(), source };
    let mut writer = connect_writer(&path).map_err(sql)?;
    let keys = open_keys(&writer, encryption_key).map_err(|error| keys_error(&path, error))?;
    if migrate::version(&writer).map_err(sql)? < VERSION_WITH_AUDIT {
        chain::begin(&writer, &keys, shared::clock::unix_ms()).map_err(sql)?;
    }
    migrate::migrate(&mut writer).and_then(|()| row_sums::keep(&mut writer, MAIN)).map_err(sql)?;
    close_to_others(dir, 0o700);
    close_to_others(&path, 0o600);
    Ok(Opened { lock, writer, path, keys })
}

/// Fails if a rollback was interrupted, whose files belong to two states.
pub(crate) fn expect_no_rollback(dir: &Path) -> Result<(), OpenError> {
    if dir.join(upgrade_snapshot::ROLLING_BACK).exists() {
        return Err(OpenError::RollbackUnfinished { dir: dir.into() });
    }
    Ok(())
}

/// Checks the databases in `dir` as a start does, and returns the schema version. Nothing is written, so a gateway may run
/// on them. Without a key, the secrets are not checked.
pub(crate) fn examine(dir: &Path, encryption_key: Option<&Secret<[u8; 32]>>) -> Result<i64, OpenError> {
    expect_no_rollback(dir)?;
    let path = dir.join(DATABASE);
    let db = match encryption_key {
        Some(key) => check(&path, key)?,
        None => check_file(&path, APPLICATION_ID, CHECK_KEYS)?,
    };
    check_rows(&path, &db)?;
    check_usage(dir)?;
    migrate::version(&db).map_err(|source| sql_error(&path, source))
}

/// Opens the database in `dir` for reading, in a process that does not hold the lock of the directory.
pub(crate) fn open_to_read(
    dir: &Path,
    encryption_key: &Secret<[u8; 32]>,
) -> Result<(Db, VaultKeys), OpenError> {
    let path = dir.join(DATABASE);
    match path.try_exists() {
        Ok(true) => {}
        Ok(false) => return Err(OpenError::Absent { path }),
        Err(source) => return Err(OpenError::Io { path, source }),
    }
    check(&path, encryption_key)?;
    let db = connect_reader(&path).map_err(|source| sql_error(&path, source))?;
    let (found, known) =
        (migrate::version(&db).map_err(|source| sql_error(&path, source))?, migrate::newest());
    if found < known {
        return Err(OpenError::Older { path, found, known });
    }
    let keys = open_keys(&db, encryption_key).map_err(|error| keys_error(&path, error))?;
    Ok((db, keys))
}

/// Opens a read-only connection with its own small cache.
pub(crate) fn connect_reader(path: &Path) -> DbResult<Db> {
    let db = Db::open(path, Access::Read)?;
    db.set_pragma(None, "query_only", true)?;
    db.set_pragma(None, "cache_size", -1_024)?;
    Ok(db)
}

/// True if `encryption_key` is the key of the database at `path`.
pub(crate) fn opens_with(path: &Path, encryption_key: &Secret<[u8; 32]>) -> bool {
    connect_reader(path).is_ok_and(|db| open_keys(&db, encryption_key).is_ok())
}

/// Opens the connection that writes; only one may exist at a time.
pub(crate) fn connect_writer(path: &Path) -> DbResult<Db> {
    let db = Db::open(path, Access::Write)?;
    tune_writer(&db, MAIN)?;
    db.set_pragma(None, "foreign_keys", true)?;
    db.set_pragma(None, "trusted_schema", false)?;
    db.set_pragma(None, "wal_autocheckpoint", WAL_PAGES_MAX)?;
    db.cache_statements(32);
    Ok(db)
}

/// Configures how a writing connection writes to one of its files.
pub(crate) fn tune_writer(db: &Db, schema: &str) -> DbResult<()> {
    let schema = Some(schema);
    db.set_pragma(schema, "journal_mode", "WAL")?;
    db.set_pragma(schema, "synchronous", "FULL")?;
    db.set_pragma(schema, "cache_size", -2_048)?;
    db.set_pragma(schema, "journal_size_limit", WAL_BYTES_KEPT)
}

/// Checks an existing database and its keys without writing to it.
pub(crate) fn check(path: &Path, encryption_key: &Secret<[u8; 32]>) -> Result<Db, OpenError> {
    let db = check_file(path, APPLICATION_ID, CHECK_KEYS)?;
    open_keys(&db, encryption_key).map_err(|error| keys_error(path, error))?;
    Ok(db)
}

/// Compares the rows of an intact database with their stored sums.
fn check_rows(path: &Path, db: &Db) -> Result<(), OpenError> {
    let bytes = fs::metadata(path).map_err(|source| OpenError::Io { path: path.into(), source })?.len();
    let skipped = if is_large(bytes) { LARGE_TABLES } else { &[][..] };
    // One read transaction: a running gateway may change rows and their sums meanwhile.
    let changed = db.read_transaction().and_then(|moment| row_sums::changed(&moment, MAIN, skipped));
    match changed.map_err(|source| sql_error(path, source))? {
        Some(table) => Err(OpenError::Damaged {
            path: path.into(),
            detail: format!("rows of the table {table} were changed outside the gateway"),
        }),
        None => Ok(()),
    }
}

/// Checks `usage.db`, if the usage is in it. A missing file is not an error.
fn check_usage(dir: &Path) -> Result<(), OpenError> {
    let main = dir.join(DATABASE);
    let files = Files::of(dir).map_err(|source| sql_error(&main, source))?;
    match &files.usage {
        Some(path) if path.exists() => {
            let checked = check_file(path, USAGE_APPLICATION_ID, CHECK_MARKS);
            match checked.and_then(|db| check_rows(path, &db)) {
                Err(OpenError::Damaged { path, detail }) => Err(OpenError::UsageDamaged { path, detail }),
                checked => checked,
            }
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks that the file is an intact database with this application id and of a known version. For a large file, runs
/// only the partial check `check_some`.
fn check_file(path: &Path, application_id: i32, check_some: &str) -> Result<Db, OpenError> {
    let damaged = |detail: &str| OpenError::Damaged { path: path.into(), detail: detail.into() };
    let io = |source| OpenError::Io { path: path.into(), source };
    let mut magic = [0; MAGIC.len()];
    let mut file = File::open(path).map_err(io)?;
    let bytes = file.metadata().map_err(io)?.len();
    if file.read_exact(&mut magic).is_err() || &magic != MAGIC {
        return Err(damaged(if bytes == 0 { "it is empty" } else { "it is not an SQLite database" }));
    }
    drop(file);
    let sql = |source: DbError| sql_error(path, source);
    let db = connect_reader(path).map_err(sql)?;
    let ours: i64 = db.pragma(None, "application_id").map_err(sql)?;
    if ours != i64::from(application_id) {
        return Err(damaged("it does not belong to this gateway"));
    }
    let (found, known) = (migrate::version(&db).map_err(sql)?, migrate::newest());
    if found > known {
        return Err(OpenError::Newer { path: path.into(), found, known });
    }
    // Checking all of a large file would take too long for a start.
    let check = if is_large(bytes) { check_some } else { CHECK_ALL };
    let finding: String = db.row(check, (), |row| row.get(0)).map_err(sql)?;
    if finding != "ok" {
        return Err(damaged(finding.lines().next().unwrap_or_default()));
    }
    Ok(db)
}

/// True for a database file of this length if a full check of it takes too long for work that must not take long.
pub(crate) fn is_large(bytes: u64) -> bool {
    bytes > CHECKED_BYTES_MAX
}

/// Creates the database of a new state.
fn make(dir: &Path, path: &Path, encryption_key: &Secret<[u8; 32]>) -> Result<(), OpenError> {
    make_with(dir, |db| {
        let sql = |source| OpenError::Sql { path: path.into(), source };
        let tx = db.transaction().map_err(sql)?;
        make_keys(&tx, encryption_key).map_err(|error| keys_error(path, error))?;
        let keys = open_keys(&tx, encryption_key).map_err(|error| keys_error(path, error))?;
        chain::begin(&tx, &keys, shared::clock::unix_ms()).map_err(sql)?;
        tx.commit().map_err(sql)
    })
}

/// Creates a database with all tables under a temporary name, lets `fill` write its rows, and gives it its name. If the
/// process is killed before that, `dir` has no database.
pub(crate) fn make_with<T, E: From<OpenError>>(
    dir: &Path,
    fill: impl FnOnce(&mut Db) -> Result<T, E>,
) -> Result<T, E> {
    let (path, draft) = (dir.join(DATABASE), dir.join(DRAFT));
    let io = |source| OpenError::Io { path: draft.clone(), source };
    let sql = |source| OpenError::Sql { path: path.clone(), source };
    new_file(&draft).map_err(io)?;
    let mut db = connect_writer(&draft).map_err(sql)?;
    db.set_pragma(None, "application_id", APPLICATION_ID).map_err(sql)?;
    migrate::migrate(&mut db).map_err(sql)?;
    let filled = match fill(&mut db) {
        Ok(filled) => filled,
        Err(error) => {
            drop(db);
            if let Err(error) = remove(&draft) {
                tracing::debug!("cannot delete {}: {error}", draft.display());
            }
            return Err(error);
        }
    };
    db.close().map_err(sql)?;
    File::open(&draft).and_then(|file| file.sync_all()).map_err(io)?;
    put_in_place(&draft, &path).map_err(io)?;
    Ok(filled)
}

/// Creates an empty file for a database, accessible only to this user, and removes all files of an earlier one of the
/// same name.
pub(crate) fn new_file(path: &Path) -> io::Result<()> {
    remove(path)?;
    private_file::create_new(path).map(drop)
}

/// Removes a database and SQLite's files beside it, if they exist.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    for file in [path, &beside(path, "-wal"), &beside(path, "-shm"), &beside(path, "-journal")] {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Renames a database that no connection has open, and syncs the directory.
pub(crate) fn put_in_place(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    match to.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

/// Fails if files of an earlier database exist, so that no new one is created beside them.
pub(crate) fn nothing_left_over(dir: &Path, path: &Path) -> Result<(), OpenError> {
    let missing = |beside: &Path| OpenError::Missing { path: path.into(), beside: beside.into() };
    for file in [beside(path, "-wal"), dir.join(USAGE)] {
        if file.exists() {
            return Err(missing(&file));
        }
    }
    let journal = dir.join(JOURNAL);
    let holds_something = fs::read_dir(&journal).is_ok_and(|mut entries| entries.next().is_some());
    if holds_something { Err(missing(&journal)) } else { Ok(()) }
}

/// Creates the directory, accessible only to this user, if it does not exist.
pub(crate) fn make_directory(dir: &Path) -> Result<(), OpenError> {
    private_file::create_directories(dir).map_err(|source| OpenError::Io { path: dir.into(), source })
}

/// Removes the permissions of other users. Only logs a warning on failure, because a file system may not support
/// permissions.
pub(crate) fn close_to_others(path: &Path, mode: u32) {
    let open = fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0);
    if !open {
        return;
    }
    if let Err(error) = fs::set_permissions(path, Permissions::from_mode(mode)) {
        tracing::warn!("other users can read {}, and its mode cannot be changed: {error}", path.display());
    }
}

/// Classifies an error of SQLite on opening the file.
pub(crate) fn sql_error(path: &Path, source: DbError) -> OpenError {
    if source.kind() == DbErrorKind::Damaged {
        return OpenError::Damaged { path: path.into(), detail: source.to_string() };
    }
    OpenError::Sql { path: path.into(), source }
}

pub(crate) fn keys_error(path: &Path, error: KeysError) -> OpenError {
    match error {
        KeysError::WrongKey => OpenError::WrongKey { path: path.into() },
        KeysError::NoRandom => OpenError::NoRandom,
        KeysError::Sql(source) => sql_error(path, source),
        KeysError::Unreadable(_) | KeysError::Seal(_) => {
            OpenError::Damaged { path: path.into(), detail: error.to_string() }
        }
    }
}

pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The name of the database in the state directory.
pub(crate) const DATABASE: &str = "gateway.db";
/// The name of the usage journal's folder in the state directory.
pub(crate) const JOURNAL: &str = "journal";
const DRAFT: &str = "gateway.db.new";
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// `llmg` in ASCII: marks the databases of the gateway.
pub(crate) const APPLICATION_ID: i32 = 0x6c6c_6d67;
/// `llmu`: marks a `usage.db`.
pub(crate) const USAGE_APPLICATION_ID: i32 = 0x6c6c_6d75;
/// The first version with an audit. The chain is created before that migration, so that a chain without ends is never
/// mistaken for a new one.
const VERSION_WITH_AUDIT: i64 = 3;
const WAL_BYTES_KEPT: i64 = 16 << 20;
/// The write-ahead log's length, in pages of 4 KiB, at which a commit moves the log into the database. Usually
/// `checkpoints.rs` has moved it long before.
const WAL_PAGES_MAX: i64 = 4_096;
const CHECKED_BYTES_MAX: u64 = 256 << 20;
/// Tables that grow with traffic and time. Their rows are not compared with their sums in a database larger than
/// `CHECKED_BYTES_MAX`, so that a start does not grow with them.
const LARGE_TABLES: &[&str] = &[
    "alerts",
    "audit",
    "events",
    "idempotency",
    "outbox",
    "response_origins",
    "usage",
    "usage_day",
    "usage_hour",
    "usage_period",
    "usage_requests",
];
/// Compares also the entries of the indexes with the rows.
pub(crate) const CHECK_ALL: &str = "PRAGMA integrity_check(1)";
const CHECK_KEYS: &str = "PRAGMA quick_check('vault')";
const CHECK_MARKS: &str = "PRAGMA quick_check('usage_journal')";
