//! `affinity` in the state directory: the tables of the data plane that know which account created a stored response or
//! encrypted reasoning. A start reads it, a job writes it once a minute if the tables have changed, and the stop writes
//! it last. It may be lost: then the tables are empty, and clients send whole conversations.
//!
//! ```text
//!  header   the name and version of the layout
//!  content  what the tables returned
//!  sum      32, an HMAC-SHA256 of both by a key of the database: the file fits no other one
//! ```

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ring::hmac;
use shared::clock::unix_ms;
use shared::port::KeptTables;

use crate::common::background::Job;
use crate::common::{private_file, regular_file};

/// The file of one state, and the tables that it keeps.
pub struct AffinityFile {
    path: PathBuf,
    key: hmac::Key,
    tables: Arc<dyn KeptTables>,
    /// The number of changes that the file contains; locked while it is written.
    saved: Mutex<u64>,
}

impl fmt::Debug for AffinityFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AffinityFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl AffinityFile {
    /// Reads the file in `dir` into `tables`. Logs a file that cannot be used and leaves the tables empty.
    pub(crate) fn load(dir: &Path, key: hmac::Key, tables: Arc<dyn KeptTables>) -> Self {
        let file = Self { path: dir.join(NAME), key, tables, saved: Mutex::new(0) };
        if let Err(why) = file.restore() {
            tracing::warn!(
                "{} cannot be used ({why}): stored responses and encrypted reasoning of earlier conversations are unknown",
                file.path.display()
            );
        }
        *file.saved.lock().unwrap_or_else(PoisonError::into_inner) = file.tables.changes();
        file
    }

    fn restore(&self) -> Result<(), String> {
        let bytes = match regular_file::read_now(&self.path, BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        let content = bytes.strip_prefix(HEADER).ok_or("it has another layout")?;
        let at = content.len().checked_sub(SUM_BYTES).ok_or("it is cut off")?;
        let (content, sum) = content.split_at_checked(at).ok_or("it is cut off")?;
        let signed = [HEADER, content].concat();
        hmac::verify(&self.key, &signed, sum).map_err(|_| "it is damaged, or belongs to another database")?;
        if self.tables.restore(content) { Ok(()) } else { Err("it has another layout".to_owned()) }
    }

    /// Writes the file if the tables have changed since it was written.
    pub fn save(&self) -> io::Result<()> {
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = self.tables.changes();
        if changes == *saved {
            return Ok(());
        }
        let mut bytes = [HEADER, &self.tables.content()].concat();
        let sum = hmac::sign(&self.key, &bytes);
        bytes.extend_from_slice(sum.as_ref());
        let draft = self.path.with_extension("new");
        let mut file = private_file::create_fresh(&draft)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&draft, &self.path)?;
        File::open(self.path.parent().unwrap_or_else(|| Path::new(".")))?.sync_all()?;
        *saved = changes;
        Ok(())
    }

    /// Writes the file for the last time, and logs a failure.
    pub fn end(&self) {
        if let Err(error) = self.save() {
            tracing::warn!("{} cannot be written: {error}", self.path.display());
        }
    }
}

/// Writes the file once a minute, for as long as the future is polled.
pub(crate) async fn keep(file: Arc<AffinityFile>, job: Job) {
    loop {
        let saving = async {
            let file = Arc::clone(&file);
            let saved = tokio::task::spawn_blocking(move || file.save()).await;
            saved.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(|error| error.to_string())
        };
        job.run_at(unix_ms().saturating_add(PAUSE_MS), saving).await;
    }
}

const NAME: &str = "affinity";
const HEADER: &[u8] = b"llmgw affinity 1\n";
const SUM_BYTES: usize = 32;
const PAUSE_MS: u64 = 60_000;
/// More than the bytes of full tables.
const BYTES_MAX: u64 = 48 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Tables that contain a text.
    #[derive(Debug, Default)]
    struct Tables {
        text: Mutex<Vec<u8>>,
        changes: AtomicU64,
    }

    impl Tables {
        fn with(text: &str) -> Arc<Self> {
            let tables = Arc::new(Self::default());
            tables.put(text);
            tables
        }

        fn put(&self, text: &str) {
            *self.text.lock().unwrap() = text.into();
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl KeptTables for Tables {
        fn changes(&self) -> u64 {
            self.changes.load(Ordering::Relaxed)
        }

        fn content(&self) -> Vec<u8> {
            self.text.lock().unwrap().clone()
        }

        fn restore(&self, content: &[u8]) -> bool {
            *self.text.lock().unwrap() = content.into();
            content != b"of another layout"
        }
    }

    fn key(byte: u8) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &[byte; 32])
    }

    #[test]
    fn changed_tables_are_written_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let tables = Arc::new(Tables::default());
        let file = AffinityFile::load(folder.path(), key(1), Arc::clone(&tables) as _);
        file.save().unwrap();
        assert!(!folder.path().join(NAME).exists(), "nothing has changed");
        tables.put("resp_1");
        file.save().unwrap();
        let path = folder.path().join(NAME);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [NAME]);
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        file.end();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written, "nothing has changed since");
        let next = Arc::new(Tables::default());
        AffinityFile::load(folder.path(), key(1), Arc::clone(&next) as _);
        assert_eq!(next.content(), b"resp_1");
    }

    #[test]
    fn damage_another_version_and_another_database_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        AffinityFile {
            path: path.clone(),
            key: key(1),
            tables: Tables::with("resp_1"),
            saved: Mutex::new(0),
        }
        .save()
        .unwrap();
        let whole = fs::read(&path).unwrap();
        let fault = |bytes: &[u8], by: u8| {
            fs::write(&path, bytes).unwrap();
            let tables: Arc<dyn KeptTables> = Arc::new(Tables::default());
            let file = AffinityFile { path: path.clone(), key: key(by), tables, saved: Mutex::new(0) };
            let outcome = file.restore();
            assert!(outcome.is_ok() || file.tables.content().is_empty());
            outcome.err().unwrap_or_default()
        };
        assert_eq!(fault(&whole, 1), "");
        assert_eq!(fault(&whole, 2), "it is damaged, or belongs to another database");
        for end in 0..whole.len() {
            assert!(!fault(&whole[..end], 1).is_empty(), "cut at {end}");
            let mut flipped = whole.clone();
            flipped[end] ^= 4;
            assert!(!fault(&flipped, 1).is_empty(), "a bit of byte {end}");
        }
        let other = [b"llmgw affinity 2\n", &whole[HEADER.len()..]].concat();
        assert_eq!(fault(&other, 1), "it has another layout");
    }
}
