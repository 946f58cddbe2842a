//! Copies a state from files of SQLite into a database of PostgreSQL, and back: all rows of all tables that both engines
//! have. What belongs to files alone (sums of rows, the place of the usage) is as in a new state.
//!
//! ```text
//!  source: one moment       --- each table, row by row --->   destination: one transaction
//!                               count and digest           =  count and digest, the keys, the audit  -> commit
//! ```
//!
//! The destination is complete or empty at any time: a database of PostgreSQL by its transaction, a file by its name, which
//! it gets at the end.

mod error;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::{Duration, Instant};

use shared::clock::unix_ms;
use shared::secret::Secret;

pub use self::error::StateCopyError;
use super::chain::{self, ChainHolds};
use super::engine::postgres::{DatabaseAddress, partitions, schema};
use super::engine::sqlite::last_numbers;
use super::engine::sqlite::schemas::{SCHEMA, has_usage_apart};
use super::engine::table::{Table, TableSum};
use super::engine::{Db, DbError, DbErrorKind, DbResult};
use super::error::OpenError;
use super::key_check::{KeysError, open_keys, seal_in};
use super::packed_row;
use super::postgres_state::{self, database_error, model};
use super::signed;
use super::sqlite_state::files::Files;
use super::sqlite_state::migrate::newest;
use super::sqlite_state::open::{DATABASE, examine, keys_error, make_with, sql_error};
use super::usage_effects;
use super::vault::NEXT_DATA_KEY;
use crate::common::vault::VaultKeys;

/// A message of a copy while it runs.
#[derive(Clone, Copy, Debug)]
pub enum CopyNews<'a> {
    /// Something that an operator should know, and what to do.
    Warning(&'a str),
    /// All rows of a table were copied. They count once the copy has ended without an error.
    Table {
        /// The name of the table.
        name: &'a str,
        /// The number of its rows.
        rows: u64,
        /// The time that this took.
        time: Duration,
    },
}

/// What a copy contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateCopied {
    /// The number of tables.
    pub tables: usize,
    /// The number of rows of all tables.
    pub rows: u64,
    /// The number of usage records, many of which are packed in a row.
    pub records: u64,
    /// The verified audit.
    pub audit: ChainHolds,
}

/// Copies the state in `dir`, whose lock the caller holds, into the empty database at `address`.
pub(crate) fn to_postgres(
    dir: &Path,
    address: &DatabaseAddress,
    encryption_key: &Secret<[u8; 32]>,
    report: &mut dyn FnMut(CopyNews<'_>),
) -> Result<StateCopied, StateCopyError> {
    let source = open_files(dir, encryption_key)?;
    let mut db = address.connect(0).map_err(|source| database_error(address, &source))?;
    db.limit_time(Instant::now() + TIME_MAX)?;
    expect_empty(&db, address, report)?;
    let source = source.read_transaction()?;
    packed_row::check_all(&source)?;
    let model = model()?;
    let tx = db.transaction()?;
    tx.batch(UNLIMITED)?;
    schema::claim(&tx).map_err(|error| claim_error(address, &error))?;
    let mut copying = Copying { from: &source, to: &tx, report, done: Vec::new() };
    schema::create_with(&model, &tx, |table| match is_of_files(table) {
        true => Ok(table.copy(&model, &tx).map(drop)?),
        false => {
            if table.name == "usage" {
                make_days(&source, &tx)?;
            }
            copying.table(table)
        }
    })?;
    schema::go_on_behind(&tx, &last_numbers::read(&source)?)?;
    let keys = open_keys(&tx, encryption_key).map_err(|error| postgres_state::keys_error(address, error))?;
    let copied = copying.verified(&keys)?;
    tx.commit().map_err(|source| match source.kind() {
        DbErrorKind::Unreachable | DbErrorKind::TooSlow => {
            StateCopyError::Unconfirmed { place: address.to_string(), source }
        }
        _ => source.into(),
    })?;
    Ok(copied)
}

/// Copies the state in the database at `address` into a new `gateway.db` in `dir`, whose lock the caller holds.
pub(crate) fn from_postgres(
    dir: &Path,
    address: &DatabaseAddress,
    encryption_key: &Secret<[u8; 32]>,
    report: &mut dyn FnMut(CopyNews<'_>),
) -> Result<StateCopied, StateCopyError> {
    let (mut db, keys) = match postgres_state::open_to_read(address, encryption_key) {
        Err(OpenError::Absent { .. }) => return Err(StateCopyError::NoState(address.to_string())),
        opened => opened?,
    };
    if seal_in(&db, NEXT_DATA_KEY).map_err(|error| postgres_state::keys_error(address, error))?.is_some() {
        return Err(StateCopyError::RekeyUnfinished(address.to_string()));
    }
    db.limit_time(Instant::now() + TIME_MAX)?;
    let others: u64 = db.row(OTHERS, (), |row| row.get(0))?;
    if others > 0 {
        report(CopyNews::Warning(&format!(
            "{others} other sessions use the database {address}: if they are those of nodes, stop the nodes with SIGTERM and copy \
             again, because what they store from now on is not in the copy"
        )));
    }
    let source = db.read_transaction()?;
    source.batch(UNLIMITED)?;
    make_with(dir, |draft| {
        // A file that is not complete is deleted, so nothing in it needs to survive a crash.
        draft.set_pragma(None, "journal_mode", "OFF")?;
        draft.set_pragma(None, "synchronous", "OFF")?;
        draft.set_pragma(None, "cache_size", DRAFT_CACHE)?;
        draft.set_pragma(None, "foreign_keys", false)?;
        let copied = fill_draft(draft, &source, &keys, report)?;
        draft.forget_statements();
        draft.set_pragma(None, "journal_mode", "WAL")?;
        Ok(copied)
    })
}

fn fill_draft(
    draft: &mut Db,
    source: &Db,
    keys: &VaultKeys,
    report: &mut dyn FnMut(CopyNews<'_>),
) -> Result<StateCopied, StateCopyError> {
    let tx = draft.transaction()?;
    let mut copying = Copying { from: source, to: &tx, report, done: Vec::new() };
    for table in schema::tables(&tx)?.iter().filter(|table| !is_of_files(table)) {
        // The rows of a new state.
        tx.execute(&format!("DELETE FROM {}", table.quoted()), ())?;
        copying.table(table)?;
    }
    last_numbers::write(&tx, &schema::last_numbers(source)?)?;
    packed_row::check_all(&tx)?;
    let copied = copying.verified(keys)?;
    tx.commit()?;
    Ok(copied)
}

/// Creates the partitions of the newest days that have usage. Records of others, and those of a wrong clock, go to `usage_rest`:
/// each partition takes some locks of the server until the copy ends.
fn make_days(source: &Db, tx: &Db) -> DbResult<()> {
    let now_ms = unix_ms();
    let span = [now_ms.saturating_sub(COPIED_DAYS * DAY_MS), now_ms].map(signed);
    let days: Vec<u64> = source.rows(DAYS, span, |row| row.get("day"))?;
    days.into_iter().try_for_each(|day| partitions::make_day(tx, day))
}

/// Opens the databases in a directory, and checks them as a start does.
fn open_files(dir: &Path, encryption_key: &Secret<[u8; 32]>) -> Result<Db, StateCopyError> {
    let path = dir.join(DATABASE);
    let expect_newest = |path: &Path, found: i64| match found < newest() {
        true => Err(OpenError::Older { path: path.into(), found, known: newest() }),
        false => Ok(()),
    };
    expect_newest(&path, examine(dir, Some(encryption_key))?)?;
    let failed = |source| sql_error(&path, source);
    let files = Files::of(dir).map_err(failed)?;
    if let Some(usage) = files.usage.as_ref().filter(|usage| !usage.exists()) {
        return Err(OpenError::Missing { path: usage.clone(), beside: path }.into());
    }
    let db = files.reader().map_err(failed)?;
    open_keys(&db, encryption_key).map_err(|error: KeysError| keys_error(&path, error))?;
    if has_usage_apart(&db) {
        let version = db.pragma(Some(SCHEMA), "user_version").map_err(failed)?;
        expect_newest(files.of_usage(), version)?;
        if !usage_effects::is_settled(&db).map_err(failed)? {
            return Err(StateCopyError::Unstored { dir: dir.into(), records: 1 });
        }
    }
    Ok(db)
}

/// Fails unless a new state can be created in the database.
fn expect_empty(
    db: &Db,
    address: &DatabaseAddress,
    report: &mut dyn FnMut(CopyNews<'_>),
) -> Result<(), StateCopyError> {
    let failed = |source| database_error(address, &source);
    let place = address.to_string();
    let fitness = postgres_state::examine(db).map_err(failed)?;
    for (text, remedy) in fitness.warnings() {
        report(CopyNews::Warning(&format!("{text}; {remedy}")));
    }
    if let Some((detail, remedy)) = fitness.fault() {
        return Err(OpenError::Database { place, detail, remedy }.into());
    }
    let table: Option<String> = db.optional_row(FIRST_TABLE, (), |row| row.get("name")).map_err(failed)?;
    match table {
        None => Ok(()),
        Some(_) if schema::version(db).map_err(failed)?.is_some() => {
            Err(StateCopyError::DatabaseInUse { place, found: "it holds a state".to_owned() })
        }
        Some(table) => {
            Err(StateCopyError::DatabaseInUse { place, found: format!("it has the table {table}") })
        }
    }
}

fn claim_error(address: &DatabaseAddress, error: &DbError) -> StateCopyError {
    match error.kind() {
        // The other process has not committed, or has.
        DbErrorKind::Busy | DbErrorKind::BadRow => StateCopyError::Busy(address.to_string()),
        _ => database_error(address, error).into(),
    }
}

/// True if the rows of a table describe files of SQLite: a copy has those of a new state.
fn is_of_files(table: &Table) -> bool {
    ["usage_place", "usage_due"].contains(&table.name.as_str())
}

/// A copy in progress.
struct Copying<'a> {
    from: &'a Db,
    to: &'a Db,
    report: &'a mut dyn FnMut(CopyNews<'_>),
    /// The copied tables, with the sums of their rows as they were read.
    done: Vec<(Table, TableSum)>,
}

impl Copying<'_> {
    fn table(&mut self, table: &Table) -> Result<(), StateCopyError> {
        let began = Instant::now();
        let sum = table
            .copy(self.from, self.to)
            .map_err(|source| StateCopyError::Table { table: table.name.clone(), source })?;
        (self.report)(CopyNews::Table { name: &table.name, rows: sum.rows, time: began.elapsed() });
        self.done.push((table.clone(), sum));
        Ok(())
    }

    /// Compares the tables of the destination with what was read of the source, and verifies its audit.
    fn verified(&self, keys: &VaultKeys) -> Result<StateCopied, StateCopyError> {
        for (table, read) in &self.done {
            let written = table
                .sum(self.to)
                .map_err(|source| StateCopyError::Table { table: table.name.clone(), source })?;
            if written != *read {
                let detail = match read.rows == written.rows {
                    true => "the digests of the rows are not the same".to_owned(),
                    false => format!("it has {} rows instead of {}", written.rows, read.rows),
                };
                return Err(StateCopyError::Differs { table: table.name.clone(), detail });
            }
        }
        Ok(StateCopied {
            tables: self.done.len(),
            rows: self.done.iter().map(|(_, sum)| sum.rows).sum(),
            records: self.to.row(RECORDS, (), |row| row.get(0))?,
            audit: chain::verify(self.to, keys)?.map_err(StateCopyError::Audit)?,
        })
    }
}

/// The longest time of a copy.
const TIME_MAX: Duration = Duration::from_secs(24 * 3_600);
/// The cache of a file that is filled, in KiB, as SQLite takes it.
const DRAFT_CACHE: i64 = -16_384;
/// Limits of the server for the sessions of nodes, which a copy must exceed. It waits for no other copy.
const UNLIMITED: &str = "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; \
     SET LOCAL lock_timeout = '10s'";
const FIRST_TABLE: &str = "SELECT table_name AS name FROM information_schema.tables \
     WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' ORDER BY table_name LIMIT 1";
/// Sessions of this user, and so perhaps of nodes.
const OTHERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
     AND usename = current_user AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
/// The days before today whose usage gets partitions.
const COPIED_DAYS: u64 = 400;
const DAY_MS: u64 = 24 * 3_600_000;
const DAYS: &str = "SELECT DISTINCT last_ms / 86400000 AS day FROM usage WHERE last_ms >= :from AND last_ms < :to ORDER BY day";
const RECORDS: &str = "SELECT CAST(coalesce(sum(exchanges), 0) AS BIGINT) FROM usage";
