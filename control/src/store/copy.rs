//! Copies of a database: made while others write, and found whole.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::migrate;
use super::open::{APPLICATION_ID, connect_reader};

/// Copies the database `from` as it is at this moment into the empty file `to`. Who writes to it goes on: it is
/// read in one transaction, in small steps.
pub(crate) fn copy(from: &Path, to: &Path) -> rusqlite::Result<()> {
    let mut source = connect_reader(from)?;
    // Without a transaction of its own the copy would begin anew with every commit of somebody else.
    let source = source.transaction()?;
    source.query_row(FIRST_READ, [], |_| Ok(()))?;
    let mut target = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    target.pragma_update(None, "synchronous", "OFF")?;
    let backup = Backup::new(&source, &mut target)?;
    loop {
        match backup.step(PAGES_A_STEP)? {
            StepResult::Done => break,
            _ => thread::yield_now(),
        }
    }
    drop(backup);
    // One file, with nothing beside it.
    target.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))?;
    target.close().map_err(|(_, error)| error)
}

/// The version of a copy, and how many rows each of its tables has.
pub(crate) fn describe(path: &Path) -> rusqlite::Result<(i64, BTreeMap<String, u64>)> {
    let db = connect_reader(path)?;
    let mut statement = db.prepare(TABLES)?;
    let tables: Vec<String> =
        statement.query_map([], |row| row.get("name"))?.collect::<rusqlite::Result<_>>()?;
    let mut rows = BTreeMap::new();
    for table in tables {
        let count = format!("SELECT count(*) FROM \"{}\"", table.replace('"', "\"\""));
        let count = db.query_row(&count, [], |row| row.get(0))?;
        rows.insert(table, count);
    }
    Ok((migrate::version(&db)?, rows))
}

/// Whether the copy at `path` is whole and, where it is the gateway's own database, one that this release can
/// open; its version, or what is wrong.
pub(crate) fn inspect(path: &Path, own: bool) -> Result<i64, String> {
    let look = || {
        let db = connect_reader(path)?;
        let ours: i64 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let finding: String = db.query_row(CHECK, [], |row| row.get(0))?;
        Ok((ours, migrate::version(&db)?, finding))
    };
    let (ours, version, finding) = look().map_err(|error: rusqlite::Error| error.to_string())?;
    if finding != "ok" {
        return Err(finding);
    }
    if own && ours != i64::from(APPLICATION_ID) {
        return Err("it does not belong to this gateway".to_owned());
    }
    let known = migrate::newest();
    if own && version > known {
        return Err(format!("it has version {version}, and this release knows versions up to {known}"));
    }
    Ok(version)
}

const PAGES_A_STEP: std::ffi::c_int = 128;
const FIRST_READ: &str = "SELECT count(*) FROM sqlite_schema";
const TABLES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
const CHECK: &str = "PRAGMA integrity_check(1)";
