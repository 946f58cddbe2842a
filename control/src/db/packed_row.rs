//! Rows of the table `usage`. Each contains a digest of its other columns, so that a row that a failing disk has changed
//! is detected when it is read: a start compares the rows with their sums (`db/engine/sqlite/row_sums.rs`) only in databases up to
//! a certain size. Rows of earlier releases have no digest.

use std::sync::atomic::{AtomicU64, Ordering};

use records::block::{self, Block};
use records::digest::{long_digest, wide_digest};

use super::record_id::RecordId;
use super::signed;
use crate::db::engine::{Db, DbError, DbErrorKind, DbResult, Row, ToValue, named_params};

/// A row of `SELECT * FROM usage`, all of whose columns but `rows` have been compared with the digest.
#[derive(Debug)]
pub(crate) struct PackedRow<'a> {
    pub(crate) id: RecordId,
    /// The texts of the records.
    pub(crate) names: Vec<&'a str>,
    /// The id as it is stored.
    number: i64,
    rows: &'a [u8],
    /// `None` in a row of an earlier release.
    pub(crate) digest: Option<u64>,
}

impl<'a> PackedRow<'a> {
    /// Reads a row. Returns an error that names the row if it is damaged.
    pub(crate) fn read(row: Row<'a>) -> DbResult<Self> {
        let numbers = [row.get("id")?, row.get("first_ms")?, row.get("last_ms")?, row.get("exchanges")?];
        let (requests, names) = (row.get::<&[u8]>("requests")?, row.get::<&[u8]>("names")?);
        let read = Self {
            id: row.get("id")?,
            number: row.get("id")?,
            names: block::names(names),
            rows: row.get::<&[u8]>("rows")?,
            digest: row.get::<Option<i64>>("digest")?.map(i64::cast_unsigned),
        };
        read.compare(|digest| digest >> 32 == u64::from(head_digest(numbers, requests, names)))?;
        Ok(read)
    }

    /// Returns the packed records, or an error that names the row if they are damaged.
    pub(crate) fn rows(&self) -> DbResult<&'a [u8]> {
        self.compare(|digest| digest & LOWER == u64::from(rows_digest(self.number, self.rows)))?;
        Ok(self.rows)
    }

    fn compare(&self, is_same: impl Fn(u64) -> bool) -> DbResult<()> {
        if self.digest.is_none_or(is_same) {
            return Ok(());
        }
        DAMAGED.fetch_add(1, Ordering::Relaxed);
        let text = format!("row {} of the table usage is damaged: it is not what the gateway wrote", self.id);
        Err(DbError::new(DbErrorKind::Damaged, text))
    }
}

/// Returns the result of reading a row for work that must not stop at a damaged one: logs the damage and returns `None`.
pub(crate) fn unless_damaged<T>(read: DbResult<T>) -> DbResult<Option<T>> {
    match read {
        Err(error) if error.kind() == DbErrorKind::Damaged => {
            tracing::error!("{error}");
            Ok(None)
        }
        read => read.map(Some),
    }
}

/// Compares each row with its digest, if the database has any. Returns an error that names the first damaged one.
pub(crate) fn check_all(db: &Db) -> DbResult<()> {
    if !db.exists(HAS_DIGESTS, ())? {
        return Ok(());
    }
    let mut statement = db.prepare(ALL)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        PackedRow::read(row)?.rows()?;
    }
    Ok(())
}

/// Writes a row with a new id. Returns its digest.
pub(crate) fn insert(tx: &Db, id: RecordId, block: &Block) -> DbResult<u64> {
    write(tx, INSERT, id, block, &[]).map(|(_, digest)| digest)
}

/// Writes a row again if its digest is still `read`. Returns its new digest, or `None` if another process has changed or deleted
/// the row. A row that was read without a digest is always written.
pub(crate) fn change(tx: &Db, id: RecordId, read: Option<u64>, block: &Block) -> DbResult<Option<u64>> {
    let read = read.map(u64::cast_signed);
    let (changed, digest) = write(tx, CHANGE, id, block, named_params! {":read": read})?;
    Ok((changed > 0).then_some(digest))
}

/// Writes a row, in place of an existing one with this id.
#[cfg(test)]
pub(crate) fn put(tx: &Db, id: RecordId, block: &Block) -> DbResult<()> {
    if change(tx, id, None, block)?.is_none() {
        insert(tx, id, block)?;
    }
    Ok(())
}

/// Returns the number of written rows, and the digest.
fn write(
    tx: &Db,
    sql: &str,
    id: RecordId,
    block: &Block,
    further: &[(&str, &dyn ToValue)],
) -> DbResult<(usize, u64)> {
    let number = id.stored()?;
    let (first_ms, last_ms) = (signed(block.first_ms), signed(block.last_ms));
    let names = &block.names().packed;
    let head = head_digest([number, first_ms, last_ms, block.exchanges.into()], &block.requests, names);
    let digest = u64::from(head) << 32 | u64::from(rows_digest(number, &block.rows));
    let values = named_params! {
        ":id": number,
        ":first_ms": first_ms,
        ":last_ms": last_ms,
        ":exchanges": block.exchanges,
        ":requests": block.requests,
        ":names": names,
        ":rows": block.rows,
        ":digest": digest.cast_signed(),
    };
    let written = tx.execute(sql, [values, further].concat().as_slice())?;
    Ok((written, digest))
}

/// Returns how often damaged rows have been read since the process started.
pub(crate) fn damaged_reads() -> u64 {
    DAMAGED.load(Ordering::Relaxed)
}

/// The upper half of the digest: all columns but `rows`, which queries that need none of a row's records do not read.
fn head_digest(numbers: [i64; 4], requests: &[u8], names: &[u8]) -> u32 {
    let numbers = numbers.iter().fold(0, |seed, number| long_digest(seed, &number.to_le_bytes()));
    wide_digest(long_digest(numbers, requests), names)
}

/// The lower half of the digest.
fn rows_digest(id: i64, rows: &[u8]) -> u32 {
    wide_digest(id.cast_unsigned(), rows)
}

static DAMAGED: AtomicU64 = AtomicU64::new(0);
const LOWER: u64 = 0xffff_ffff;
const HAS_DIGESTS: &str = "SELECT 1 FROM pragma_table_info('usage') WHERE name = 'digest'";
const ALL: &str = "SELECT * FROM usage";
const INSERT: &str = "INSERT INTO usage (id, first_ms, last_ms, exchanges, requests, names, rows, digest) \
     VALUES (:id, :first_ms, :last_ms, :exchanges, :requests, :names, :rows, :digest)";
/// The newest exchange of the row was among those that it has now, so only the partition of their day is searched.
const CHANGE: &str = "UPDATE usage SET first_ms = :first_ms, last_ms = :last_ms, exchanges = :exchanges, \
     requests = :requests, names = :names, rows = :rows, digest = :digest \
     WHERE id = :id AND last_ms >= :first_ms AND last_ms <= :last_ms AND (:read IS NULL OR digest = :read)";

#[cfg(test)]
mod tests {
    use records::varint::put_text;
    use records::{Record, Texts};

    use super::*;
    use crate::db::testing::in_memory;

    fn filled() -> Db {
        let db = in_memory();
        let mut bytes = Vec::new();
        let record = Record { request_id: "req", started_at_ms: 1_700_000_000_000, ..Record::default() };
        record.put(&mut bytes, |out, _, text| put_text(out, text));
        let (record, trace) = Record::take(&bytes, Texts::Inline).unwrap();
        for id in 1..=3 {
            let mut block = Block::default();
            (0..100).for_each(|_| drop(block.push(&record, trace)));
            put(&db, RecordId::here(id), &block).unwrap();
        }
        db
    }

    #[test]
    fn a_change_of_any_column_is_an_error_that_names_the_row() {
        for change in [
            "first_ms = first_ms - 1",
            "last_ms = last_ms + 1",
            "exchanges = exchanges + 1",
            "requests = CAST(requests || x'00' AS BLOB)",
            "names = CAST(names || x'00' AS BLOB)",
            "rows = CAST(substr(rows, 1, 50) || x'ff' || substr(rows, 52) AS BLOB)",
            "rows = zeroblob(length(rows))",
            "digest = digest + 1",
            "digest = digest + 0x100000000",
        ] {
            let db = filled();
            check_all(&db).unwrap();
            assert_eq!(db.execute(&format!("UPDATE usage SET {change} WHERE id = 2"), ()).unwrap(), 1);
            let before = damaged_reads();
            let error = check_all(&db).unwrap_err();
            assert!(error.to_string().contains("row 2 of the table usage is damaged"), "{change}: {error}");
            assert!(damaged_reads() > before);
            assert!(matches!(unless_damaged(check_all(&db)), Ok(None)));
        }
    }

    #[test]
    fn a_row_under_another_id_counts_as_damaged() {
        let db = filled();
        db.batch("DELETE FROM usage WHERE id = 3; UPDATE usage SET id = 3 WHERE id = 2").unwrap();
        assert!(check_all(&db).unwrap_err().to_string().contains("row 3 "));
    }

    #[test]
    fn rows_of_earlier_releases_are_read() {
        let db = filled();
        db.execute("UPDATE usage SET digest = NULL, first_ms = 0", ()).unwrap();
        check_all(&db).unwrap();
    }
}
