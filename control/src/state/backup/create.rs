//! Creates backups, while the gateway is running on the state or not.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use jiff::Timestamp;
use tar::{Builder, EntryType, Header};

use super::archive::{check, inspect_databases};
use super::directory::{Archive, BackupDirectory, archive_name};
use super::manifest::{DATABASE, FORMAT, MANIFEST, Manifest, ManifestFile, NAMES};
use super::{BackupError, at};
use crate::common::private_file;
use crate::db::engine::sqlite::schemas::{MAIN, SCHEMA};
use crate::db::error::OpenError;
use crate::db::sqlite_state::copy::{self, ConsistentView, Extent};
use crate::db::sqlite_state::files::USAGE;

/// Creates a backup of the state in `dir`, verifies it, and removes all but the newest `kept` intact archives.
pub fn create(dir: &Path, kept: u32) -> Result<Archive, BackupError> {
    if !dir.join(DATABASE).exists() {
        return Err(OpenError::Absent { path: dir.join(DATABASE) }.into());
    }
    let directory = BackupDirectory::take(dir)?;
    let draft = directory.draft()?;
    let now = Timestamp::from_millisecond(i64::try_from(shared::clock::unix_ms()).unwrap_or_default())
        .unwrap_or_default();
    let copies = Copies::of(dir, draft.path())?;
    let packed = draft.path().join("archive");
    let version = copies.database_version;
    thread::scope(|scope| {
        // The archive is compared with the copies by their digests, so the copies are what a restore unpacks.
        let inspect = || inspect_databases(&packed, draft.path(), &copies.names, version, Extent::Pages);
        let inspecting = thread::Builder::new().name("llmgw-backup-db".into()).spawn_scoped(scope, inspect);
        let inspecting = inspecting.map_err(at(&packed))?;
        let read_back = copies.pack(draft.path(), &packed, now);
        inspecting.join().unwrap_or_else(|panic| resume_unwind(panic)).and(read_back)
    })?;
    let archive = directory.keep(&packed, &archive_name(now))?;
    directory.prune(kept);
    Ok(archive)
}

/// Copies of the files of a state, of one moment.
struct Copies {
    names: Vec<&'static str>,
    database_version: i64,
    /// The number of rows in each table.
    rows: BTreeMap<String, u64>,
}

impl Copies {
    /// Copies every file of the state in `dir` into `draft`.
    fn of(dir: &Path, draft: &Path) -> Result<Self, BackupError> {
        let sql = |source| BackupError::Sql { path: dir.join(DATABASE), source };
        let moment = ConsistentView::of(dir).map_err(sql)?;
        let mut copies = Self { names: Vec::new(), database_version: 0, rows: BTreeMap::new() };
        for name in NAMES {
            let (from, to) = (dir.join(name), draft.join(name));
            let schema = match name {
                DATABASE => Some(MAIN),
                USAGE if moment.has_usage_apart() => Some(SCHEMA),
                // The file is not part of this state.
                USAGE => continue,
                _ if !from.exists() => continue,
                _ => None,
            };
            private_file::create_new(&to).map_err(at(&to))?;
            if let Some(schema) = schema {
                let copied = moment.copy(schema, &to).and_then(|()| copy::describe(&to));
                let (version, tables) = copied.map_err(|source| BackupError::Sql { path: from, source })?;
                copies.rows.extend(tables);
                if name == DATABASE {
                    copies.database_version = version;
                }
            } else {
                fs::copy(&from, &to).map_err(at(&from))?;
            }
            copies.names.push(name);
        }
        Ok(copies)
    }

    /// Packs the copies in `draft` into the archive `to`, and reads it back.
    fn pack(&self, draft: &Path, to: &Path, now: Timestamp) -> Result<(), BackupError> {
        let files = self.names.iter().map(|name| {
            let path = draft.join(name);
            ManifestFile::of(draft, name).map_err(at(&path))
        });
        let manifest = Manifest {
            format: FORMAT,
            created_at: now.to_string(),
            gateway_version: env!("CARGO_PKG_VERSION").to_owned(),
            database_version: self.database_version,
            files: files.collect::<Result<_, _>>()?,
            rows: self.rows.clone(),
        };
        pack(&manifest, draft, to, now).map_err(at(to))?;
        if check(to)? != manifest {
            return Err(BackupError::unsound(to, "reading it back returns different data"));
        }
        Ok(())
    }
}

fn pack(manifest: &Manifest, draft: &Path, to: &Path, now: Timestamp) -> io::Result<()> {
    let mut encoder = zstd::Encoder::new(private_file::create_new(to)?, LEVEL)?;
    encoder.include_checksum(true)?;
    let mut tar = Builder::new(encoder);
    let text = serde_json::to_vec_pretty(manifest)?;
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    tar.append_data(&mut header(bytes, now), MANIFEST, text.as_slice())?;
    for file in &manifest.files {
        let content = File::open(draft.join(&file.name))?;
        tar.append_data(&mut header(file.bytes, now), &file.name, content)?;
    }
    let mut out = tar.into_inner()?.finish()?;
    out.flush()?;
    out.sync_all()
}

fn header(bytes: u64, now: Timestamp) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o600);
    header.set_size(bytes);
    header.set_mtime(u64::try_from(now.as_second()).unwrap_or_default());
    header
}

const LEVEL: i32 = 3;
