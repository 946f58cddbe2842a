//! `catalog.json` in the state directory. A sync of the catalogs restores it at any time, so a missing or broken file
//! is treated as empty and never prevents the gateway from starting.

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
    providers: BTreeMap<String, Arc<CatalogEntry>>,
}

/// Loads the file at `path`. Returns an empty map if it is missing or broken.
pub(crate) fn load(path: &Path) -> BTreeMap<String, Arc<CatalogEntry>> {
    match read_bounded(path, BYTES_MAX) {
        Ok(None) => BTreeMap::new(),
        Ok(Some(bytes)) => match serde_json::from_slice::<CatalogFileContent>(&bytes) {
            Ok(content) if content.version == VERSION => content.providers,
            Ok(content) => broken(path, &format!("it has version {}", content.version)),
            Err(error) => broken(path, &error.to_string()),
        },
        Err(error) => broken(path, &error.to_string()),
    }
}

fn broken(path: &Path, why: &str) -> BTreeMap<String, Arc<CatalogEntry>> {
    tracing::warn!(
        "{} cannot be used ({why}); the next catalog sync replaces it: POST /admin/api/catalog/sync",
        path.display()
    );
    BTreeMap::new()
}

/// Replaces the content of the file with `entries`, atomically.
pub(crate) fn save(path: &Path, entries: BTreeMap<String, Arc<CatalogEntry>>) -> io::Result<()> {
    replace(path, &serde_json::to_vec(&CatalogFileContent { version: VERSION, providers: entries })?)
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

const VERSION: u32 = 1;
const BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_saved_catalog_loads_again_and_has_mode_0600() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalog.json");
        assert!(load(&path).is_empty(), "no file, no catalog");
        let entry = CatalogEntry { url: "http://a/models".into(), ..CatalogEntry::default() };
        for provider in ["one", "two"] {
            let entries = BTreeMap::from([(provider.to_owned(), Arc::new(entry.clone()))]);
            save(&path, entries.clone()).unwrap();
            assert_eq!(load(&path), entries);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft stays");
    }

    #[test]
    fn a_damaged_catalog_file_loads_as_an_empty_catalog() {
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
            assert!(load(&path).is_empty(), "{text}");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(load(&path).is_empty(), "not even a file");
        assert!(save(&path, BTreeMap::new()).is_err(), "and saving reports it");
    }

    #[test]
    fn a_file_is_read_up_to_a_bound() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), [b' '; 11]).unwrap();
        assert!(read_bounded(file.path(), 10).is_err());
        assert_eq!(read_bounded(file.path(), 11).unwrap().map(|bytes| bytes.len()), Some(11));
    }
}
