//! `catalog.json` in the state directory, the copy of the catalog. A sync of the catalogs restores it at any time, so a
//! missing or broken file is treated as empty and never prevents the gateway from starting.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::entry::CatalogEntry;
use crate::common::{private_file, regular_file};

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct CatalogFileContent {
    /// The version of the file layout.
    version: u32,
    providers: CatalogEntries,
}

/// The entries of a catalog, by the names of their instances.
pub(super) type CatalogEntries = BTreeMap<String, Arc<CatalogEntry>>;

/// Loads the file at `path` and returns its bytes and its entries; `None` if it is missing or broken.
pub(super) fn load(path: &Path) -> Option<(Vec<u8>, CatalogEntries)> {
    let read = read_bounded(path, BYTES_MAX).map_err(|error| error.to_string());
    let loaded =
        read.and_then(|bytes| bytes.map(|bytes| parse(&bytes).map(|entries| (bytes, entries))).transpose());
    loaded.unwrap_or_else(|why| {
        tracing::warn!(
            "{} cannot be used ({why}); the next catalog sync replaces it: POST /admin/api/catalog/sync",
            path.display()
        );
        None
    })
}

/// Returns the entries of a catalog in this layout.
pub(super) fn parse(bytes: &[u8]) -> Result<CatalogEntries, String> {
    match serde_json::from_slice::<CatalogFileContent>(bytes) {
        Ok(content) if content.version == VERSION => Ok(content.providers),
        Ok(content) => Err(format!("it has version {}", content.version)),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns a catalog in this layout.
pub(super) fn encode(entries: CatalogEntries) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&CatalogFileContent { version: VERSION, providers: entries })?)
}

/// Replaces the file at `path` with `bytes`, atomically. Only the owner can read it.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("json.new");
    let mut file = private_file::create_fresh(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(path.parent().unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// Reads a whole file. Returns `None` if it does not exist, and an error if it is larger than `bytes_max`.
pub(super) fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    match regular_file::read_now(path, bytes_max) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The name of the file.
pub(super) const NAME: &str = "catalog.json";
pub(super) const BYTES_MAX: u64 = 256 << 20;
const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_saved_catalog_loads_again_and_has_mode_0600() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalog.json");
        assert!(load(&path).is_none(), "no file, no catalog");
        let entry = CatalogEntry { url: "http://a/models".into(), ..CatalogEntry::default() };
        for provider in ["one", "two"] {
            let entries = BTreeMap::from([(provider.to_owned(), Arc::new(entry.clone()))]);
            replace(&path, &encode(entries.clone()).unwrap()).unwrap();
            assert_eq!(load(&path).unwrap().1, entries);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft stays");
    }

    #[test]
    fn a_damaged_catalog_file_is_not_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalog.json");
        for text in [
            "",
            "{",
            "[]",
            r#"{"version":99,"providers":{}}"#,
            r#"{"version":1,"providers":{"a":7}}"#,
            "\0\0",
        ] {
            fs::write(&path, text).unwrap();
            assert!(load(&path).is_none(), "{text}");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(load(&path).is_none(), "not even a file");
        assert!(replace(&path, b"{}").is_err(), "and writing reports it");
    }

    #[test]
    fn a_file_is_read_up_to_a_bound() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), [b' '; 11]).unwrap();
        assert!(read_bounded(file.path(), 10).is_err());
        assert_eq!(read_bounded(file.path(), 11).unwrap().map(|bytes| bytes.len()), Some(11));
    }
}
