//! The table `documents`: texts that the gateway keeps as a whole, each compressed and with a digest. A text whose digest
//! does not match is never returned.

use std::fmt;
use std::io;

use ring::digest::{SHA256, digest};

use crate::db::engine::{Db, DbError, DbResult, Row, named_params};

/// A text to be stored, compressed.
#[derive(Clone)]
pub(crate) struct PackedDocument {
    name: &'static str,
    bytes: u64,
    digest: Vec<u8>,
    content: Vec<u8>,
}

impl fmt::Debug for PackedDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedDocument")
            .field("name", &self.name)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// Reason why there is no text to return although the table has a row for it.
#[derive(Debug)]
pub(crate) enum DocumentError {
    /// The content is not what its digest says.
    Damaged,
    /// The row could not be read.
    Sql(DbError),
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged => f.write_str("its row in the database is damaged"),
            Self::Sql(error) => error.fmt(f),
        }
    }
}

impl PackedDocument {
    /// Compresses `text`. Takes some milliseconds for each megabyte.
    pub(crate) fn new(name: &'static str, text: &[u8]) -> io::Result<Self> {
        let content = zstd::bulk::compress(text, LEVEL)?;
        let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        Ok(Self { name, bytes, digest: digest(&SHA256, text).as_ref().to_vec(), content })
    }
}

/// Stores a document in place of an earlier one of its name. Changes nothing, and returns false, if that has the same text.
pub(crate) fn put(tx: &Db, document: &PackedDocument, now_ms: u64) -> DbResult<bool> {
    let PackedDocument { name, bytes, digest, content } = document;
    let values = named_params! {
        ":name": name, ":now": now_ms, ":bytes": bytes, ":digest": digest, ":content": content,
    };
    Ok(tx.execute(PUT, values)? > 0)
}

/// Returns the text of a document of at most `bytes_max`; `None` if the table has none.
pub(crate) fn text(db: &Db, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, DocumentError> {
    let row = |row: Row<'_>| Ok((row.get("bytes")?, row.get("digest")?, row.get("content")?));
    let found: Option<(u64, Vec<u8>, Vec<u8>)> =
        db.optional_row(FIND, [name], row).map_err(DocumentError::Sql)?;
    let Some((bytes, known, content)) = found else { return Ok(None) };
    let bytes = usize::try_from(bytes.min(bytes_max)).map_err(|_| DocumentError::Damaged)?;
    let text = zstd::bulk::decompress(&content, bytes).map_err(|_| DocumentError::Damaged)?;
    if digest(&SHA256, &text).as_ref() == known { Ok(Some(text)) } else { Err(DocumentError::Damaged) }
}

const LEVEL: i32 = 3;
const PUT: &str = "INSERT INTO documents (name, version, updated_at_ms, bytes, digest, content) \
     VALUES (:name, 1, :now, :bytes, :digest, :content) ON CONFLICT (name) DO UPDATE SET \
     version = documents.version + 1, updated_at_ms = excluded.updated_at_ms, bytes = excluded.bytes, \
     digest = excluded.digest, content = excluded.content WHERE documents.digest <> excluded.digest";
const FIND: &str = "SELECT bytes, digest, content FROM documents WHERE name = :name";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::migrated;

    const ANY: u64 = 1 << 20;

    fn database() -> Db {
        migrated()
    }

    fn versions(db: &Db) -> Vec<(i64, i64)> {
        db.rows("SELECT version, updated_at_ms FROM documents", (), |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
    }

    #[test]
    fn a_document_is_replaced_and_its_version_grows_with_its_text_only() {
        let db = database();
        assert!(text(&db, "prices", ANY).unwrap().is_none());
        for (text_put, now_ms, version) in [("one", 1, 1), ("two", 2, 2), ("two", 3, 2), ("", 4, 3)] {
            put(&db, &PackedDocument::new("prices", text_put.as_bytes()).unwrap(), now_ms).unwrap();
            assert_eq!(text(&db, "prices", ANY).unwrap().unwrap(), text_put.as_bytes());
            let changed_at = if text_put == "two" { 2 } else { i64::try_from(now_ms).unwrap() };
            assert_eq!(versions(&db), [(version, changed_at)], "{text_put} at {now_ms}");
        }
        assert!(text(&db, "catalog", ANY).unwrap().is_none());
    }

    #[test]
    fn a_damaged_or_too_long_document_is_not_returned() {
        let db = database();
        let whole = "{\"providers\": 1}".repeat(500);
        put(&db, &PackedDocument::new("catalog", whole.as_bytes()).unwrap(), 1).unwrap();
        let bytes = u64::try_from(whole.len()).unwrap();
        assert!(text(&db, "catalog", bytes).unwrap().is_some());
        assert!(matches!(text(&db, "catalog", bytes - 1), Err(DocumentError::Damaged)), "one byte too long");
        let stored: Vec<u8> = db.row("SELECT content FROM documents", (), |row| row.get(0)).unwrap();
        assert!(stored.len() * 10 < whole.len(), "{}", stored.len());
        for at in 0..stored.len() {
            let mut damaged = stored.clone();
            damaged[at] ^= 1;
            db.execute("UPDATE documents SET content = :content", [damaged]).unwrap();
            // A bit that zstd does not use changes nothing.
            let read = text(&db, "catalog", ANY);
            assert!(
                matches!(&read, Err(DocumentError::Damaged))
                    || matches!(&read, Ok(Some(read)) if *read == whole.as_bytes()),
                "byte {at}"
            );
        }
        db.execute("UPDATE documents SET content = :content, digest = :digest", (&stored, &[0_u8; 32][..]))
            .unwrap();
        assert!(matches!(text(&db, "catalog", ANY), Err(DocumentError::Damaged)));
    }
}
