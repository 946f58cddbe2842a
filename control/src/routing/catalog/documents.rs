//! The lists of models and the price list in the table `documents`, and their copies `catalog.json` and `prices.json` in the
//! state directory.
//!
//! The table is the truth. A start reads `catalog.json` only if the table has no usable document: in a state of an earlier
//! release, or if its row is damaged. `prices.json` is also the way by which an operator supplies a newer list. A copy that
//! is missing, damaged or old is written again.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use shared::clock::unix_ms;
use shared::port::BoxFuture;

use super::file::{self, CatalogEntries, read_bounded, replace};
use super::prices::PriceList;
use crate::db::documents::{self, PackedDocument};
use crate::db::engine::Db;
use crate::db::error::QueryError;

/// Stores documents, on the writer thread.
pub(crate) struct DocumentStore(
    Box<dyn Fn(PackedDocument) -> BoxFuture<Result<(), QueryError>> + Send + Sync>,
);

impl fmt::Debug for DocumentStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentStore").finish_non_exhaustive()
    }
}

impl DocumentStore {
    /// Creates it from a function that stores one document in a transaction.
    pub(crate) fn new(
        put: impl Fn(PackedDocument) -> BoxFuture<Result<(), QueryError>> + Send + Sync + 'static,
    ) -> Self {
        Self(Box::new(put))
    }

    /// Stores a document, again while the writer's queue is full.
    pub(super) async fn put(&self, document: &PackedDocument) -> Result<(), String> {
        loop {
            match (self.0)(document.clone()).await {
                Err(QueryError::Busy) => tokio::time::sleep(QUEUE_FULL).await,
                Ok(()) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

/// Returns the lists of models of the state in `dir`.
pub(super) fn open_catalog(db: &mut Db, dir: &Path) -> CatalogEntries {
    let path = dir.join(file::NAME);
    let kept = stored(db, CATALOG, file::BYTES_MAX).and_then(|bytes| match file::parse(&bytes) {
        Ok(entries) => Some((bytes, entries)),
        Err(why) => unusable(CATALOG, &why),
    });
    if let Some((bytes, entries)) = kept {
        restore(&path, &bytes, file::BYTES_MAX);
        return entries;
    }
    let Some((bytes, entries)) = file::load(&path) else { return CatalogEntries::new() };
    import(db, CATALOG, &bytes, &path);
    entries
}

/// Returns the newest of the embedded price list, the one of the table and the one in `dir`. A newer list in `dir` becomes
/// the one of the table.
pub(super) fn open_prices(db: &mut Db, dir: &Path) -> PriceList {
    let path = dir.join(PRICES_FILE);
    let embedded = PriceList::embedded();
    let stored = stored(db, PRICES, PriceList::BYTES_MAX);
    let kept = stored.and_then(|bytes| match PriceList::read(&bytes) {
        Ok(list) => Some((bytes, list)),
        Err(why) => unusable(PRICES, &why),
    });
    let kept = kept.filter(|(_, list)| list.as_of > embedded.as_of);
    let in_use = kept.as_ref().map_or(&embedded, |(_, list)| list);
    match PriceList::of_file(&path) {
        Ok(Some((bytes, list))) if list.as_of > in_use.as_of => {
            import(db, PRICES, &bytes, &path);
            return list;
        }
        Ok(Some((bytes, list))) => {
            let is_copy = kept.as_ref().is_some_and(|(kept, _)| *kept == bytes);
            if !is_copy && (kept.is_none() || list.as_of == in_use.as_of) {
                tracing::warn!(
                    "{} is of {}; the list of {} stays in use, because the file is not newer",
                    path.display(),
                    list.as_of,
                    in_use.as_of
                );
                return kept.map_or(embedded, |(_, list)| list);
            }
        }
        Ok(None) => {}
        Err(why) => tracing::warn!("{why}; the price list of {} applies", in_use.as_of),
    }
    match kept {
        Some((bytes, list)) => {
            restore(&path, &bytes, PriceList::BYTES_MAX);
            list
        }
        None => embedded,
    }
}

/// Returns the lists of models and the price list of the table, as far as they can be used.
pub(super) fn reread(db: &Db) -> (Option<CatalogEntries>, Option<PriceList>) {
    let entries = stored(db, CATALOG, file::BYTES_MAX)
        .and_then(|bytes| file::parse(&bytes).map_or_else(|why| unusable(CATALOG, &why), Some));
    let list = stored(db, PRICES, PriceList::BYTES_MAX)
        .and_then(|bytes| PriceList::read(&bytes).map_or_else(|why| unusable(PRICES, &why), Some));
    (entries, list)
}

/// Returns the text of a document; `None` if the table has none, or none that can be used.
fn stored(db: &Db, name: &str, bytes_max: u64) -> Option<Vec<u8>> {
    documents::text(db, name, bytes_max).unwrap_or_else(|error| unusable(name, &error))
}

fn unusable<T>(name: &str, why: &dyn fmt::Display) -> Option<T> {
    tracing::warn!("the document '{name}' of the database cannot be used ({why}); its copy is read instead");
    None
}

/// Stores the content of a file in the table. A failure only means that the next start reads the file again.
fn import(db: &mut Db, name: &'static str, bytes: &[u8], path: &Path) {
    match put(db, name, bytes) {
        Ok(()) => tracing::info!("the content of {} is in the database now", path.display()),
        Err(error) => tracing::warn!("the content of {} cannot be stored: {error}", path.display()),
    }
}

fn put(db: &mut Db, name: &'static str, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let document = PackedDocument::new(name, bytes)?;
    let tx = db.transaction()?;
    documents::put(&tx, &document, unix_ms())?;
    Ok(tx.commit()?)
}

/// Writes the copy at `path` again if it has another content.
fn restore(path: &Path, bytes: &[u8], bytes_max: u64) {
    if read_bounded(path, bytes_max).is_ok_and(|found| found.is_some_and(|found| found == bytes)) {
        return;
    }
    write_copy(path, bytes);
}

/// Writes the copy at `path`. A failure is logged and changes nothing, because the table has the content.
pub(super) fn write_copy(path: &Path, bytes: &[u8]) {
    if let Err(error) = replace(path, bytes) {
        tracing::warn!("{} cannot be written; the database has its content: {error}", path.display());
    }
}

/// The documents' names in the table.
pub(super) const CATALOG: &str = "catalog";
pub(super) const PRICES: &str = "prices";
/// The name of the price list's copy.
pub(super) const PRICES_FILE: &str = "prices.json";
/// The pause before another attempt to queue a document.
const QUEUE_FULL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use tempfile::TempDir;

    use super::*;
    use crate::db::testing::migrated;
    use crate::routing::catalog::entry::CatalogEntry;

    fn database() -> Db {
        migrated()
    }

    fn of(provider: &str) -> CatalogEntries {
        let entry = CatalogEntry { url: "http://a/models".into(), ..CatalogEntry::default() };
        CatalogEntries::from([(provider.to_owned(), Arc::new(entry))])
    }

    fn prices(as_of: &str, input: u32) -> String {
        format!(r#"{{"as_of":"{as_of}","lists":{{"compatible":{{"m":{{"prices":{{"input":{input}}}}}}}}}}}"#)
    }

    fn version(db: &Db, name: &str) -> Option<i64> {
        let sql = "SELECT version FROM documents WHERE name = :name";
        db.optional_row(sql, [name], |row| row.get(0)).unwrap()
    }

    #[test]
    fn the_catalog_is_imported_once_and_then_the_table_is_the_truth() {
        let (folder, mut db) = (TempDir::new().unwrap(), database());
        let path = folder.path().join("catalog.json");
        let open = |db: &mut Db| open_catalog(db, folder.path());
        assert!(open(&mut db).is_empty() && version(&db, CATALOG).is_none() && !path.exists());
        let written = file::encode(of("one")).unwrap();
        fs::write(&path, &written).unwrap();
        assert_eq!((open(&mut db), version(&db, CATALOG)), (of("one"), Some(1)));
        for content in [None, Some("{"), Some(r#"{"version":1,"providers":{}}"#), Some("")] {
            match content {
                Some(content) => fs::write(&path, content).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            assert_eq!((open(&mut db), version(&db, CATALOG)), (of("one"), Some(1)), "{content:?}");
            assert_eq!(fs::read(&path).unwrap(), written, "the copy is written again");
        }
        // The copy serves if the row is damaged.
        db.execute("UPDATE documents SET content = :none", [&b""[..]]).unwrap();
        assert_eq!(open(&mut db), of("one"));
        fs::remove_file(&path).unwrap();
        db.execute("UPDATE documents SET content = :none", [&b""[..]]).unwrap();
        assert!(open(&mut db).is_empty(), "nothing is left");
    }

    #[test]
    fn the_newest_price_list_applies_and_stays() {
        let (folder, mut db) = (TempDir::new().unwrap(), database());
        let path = folder.path().join("prices.json");
        let open = |db: &mut Db| open_prices(db, folder.path()).as_of;
        let embedded = PriceList::embedded().as_of;
        let (older, old, new) = (prices("1999-01-01", 1), prices("2999-01-01", 1), prices("2999-01-02", 1));
        fs::write(&path, &older).unwrap();
        assert_eq!((open(&mut db), version(&db, PRICES)), (embedded, None));
        assert_eq!(fs::read_to_string(&path).unwrap(), older, "no list of the table takes its place");
        fs::write(&path, &old).unwrap();
        assert_eq!((open(&mut db), version(&db, PRICES)), ("2999-01-01".to_owned(), Some(1)));
        for content in [None, Some("{"), Some(&*older)] {
            match content {
                Some(content) => fs::write(&path, content).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            assert_eq!(
                (open(&mut db), version(&db, PRICES)),
                ("2999-01-01".to_owned(), Some(1)),
                "{content:?}"
            );
            assert_eq!(fs::read_to_string(&path).unwrap(), old, "the copy is written again");
        }
        let edited = prices("2999-01-01", 2);
        fs::write(&path, &edited).unwrap();
        assert_eq!(open(&mut db), "2999-01-01");
        assert_eq!(fs::read_to_string(&path).unwrap(), edited, "an operator's file of the same day is kept");
        fs::write(&path, &new).unwrap();
        assert_eq!((open(&mut db), version(&db, PRICES)), ("2999-01-02".to_owned(), Some(2)));
    }
}
