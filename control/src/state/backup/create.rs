//! Creates backups, while the gateway is running on the state or not. The files are read once: what is packed is hashed and
//! checked at the same time, and the archive read back. The manifest comes first in the archive, but is known last, so room is left for it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::bounded;
use jiff::Timestamp;
use tar::{EntryType, Header};

use super::archive::{SKIPPABLE, SKIPPABLE_HEAD_BYTES, application_id, manifest};
use super::directory::{Archive, BackupDirectory, archive_name};
use super::manifest::{DATABASE, FORMAT, MANIFEST, Manifest, ManifestFile, NAMES};
use super::read_back::{Progress, ReportingWriter, read_back};
use super::{BackupError, at};
use crate::common::digest::Hasher;
use crate::common::private_file;
use crate::db::error::OpenError;
use crate::db::sqlite_state::copy::{ConsistentView, Extent};
use crate::db::sqlite_state::moment_file::{GrowingLogs, MomentFile};

/// Creates a backup of the state in `dir`, verifies it, and removes all but the newest `kept` intact archives.
pub fn create(dir: &Path, kept: u32) -> Result<Archive, BackupError> {
    if !dir.join(DATABASE).exists() {
        return Err(OpenError::Absent { path: dir.join(DATABASE) }.into());
    }
    let directory = BackupDirectory::take(dir)?;
    let draft = directory.draft()?;
    let now = Timestamp::from_millisecond(i64::try_from(shared::clock::unix_ms()).unwrap_or_default())
        .unwrap_or_default();
    let sources = Sources::of(dir, draft.path())?;
    let packed = draft.path().join("archive");
    sources.pack(&packed, now)?;
    let archive = directory.keep(&packed, &archive_name(now))?;
    directory.prune(kept);
    Ok(archive)
}

/// The files of a state, of one moment.
struct Sources {
    view: ConsistentView,
    /// In the order of [`NAMES`].
    files: Vec<MomentFile>,
    logs: GrowingLogs,
}

impl Sources {
    /// Takes the files of the state in `dir`. Those that may change meanwhile are copied into `draft`.
    fn of(dir: &Path, draft: &Path) -> Result<Self, BackupError> {
        let sql = |source| BackupError::Sql { path: dir.join(DATABASE), source };
        let mut view = ConsistentView::of(dir).map_err(sql)?;
        let is_copied = !view.are_files_of_moment();
        if is_copied {
            tracing::debug!("the write-ahead log is in use; the databases are copied first");
            for (_, path) in view.databases() {
                let to = draft.join(path.file_name().unwrap_or_default());
                private_file::create_new(&to).map_err(at(&to))?;
            }
            view = view.copied(draft).map_err(sql)?;
        }
        let mut files = Vec::new();
        for (schema, path) in view.databases() {
            let open = || {
                if is_copied {
                    return MomentFile::of_copy(path);
                }
                MomentFile::of_state(path, view.bytes(schema).map_err(io::Error::other)?)
            };
            files.push(open().map_err(at(path))?);
        }
        for name in NAMES.iter().filter(|name| !name.ends_with(".db")) {
            let (from, to) = (dir.join(name), draft.join(name));
            if from.exists() {
                private_file::create_new(&to).map_err(at(&to))?;
                fs::copy(&from, &to).map_err(at(&from))?;
                files.push(MomentFile::of_copy(&to).map_err(at(&to))?);
            }
        }
        let logs = GrowingLogs::of(&view).map_err(sql)?;
        let watched = logs.clone();
        view.end_when(move || watched.over_bound().is_some()).map_err(sql)?;
        Ok(Self { view, files, logs })
    }

    /// Packs the files into the archive `to`. Reads it back, and checks the databases, meanwhile.
    fn pack(self, to: &Path, now: Timestamp) -> Result<(), BackupError> {
        let Self { view, files, logs } = self;
        let file = private_file::create_new(to).map_err(at(to))?;
        let progress = Progress::from(MANIFEST_ROOM);
        let (checked, packed, read, long_log) = thread::scope(|scope| {
            let check = || (inspect(&view, to), view);
            let checking = thread::Builder::new().name("llmgw-backup-db".into()).spawn_scoped(scope, check);
            // From here on, each way out ends the writing, and with it the reading.
            let writer = ReportingWriter(&file, &progress);
            let read = || read_back(&file, (MANIFEST_ROOM, &progress), &files, now);
            let reading = thread::Builder::new().name("llmgw-backup-read".into()).spawn_scoped(scope, read);
            let (checking, reading) = (checking.map_err(at(to))?, reading.map_err(at(to))?);
            let packed = pack(&files, &logs, writer, now);
            let read = reading.join().unwrap_or_else(|panic| resume_unwind(panic));
            // The view, which keeps the files as they are, ends after all.
            let (checked, _view) = checking.join().unwrap_or_else(|panic| resume_unwind(panic));
            // As long as it exists, no log becomes shorter.
            Ok::<_, BackupError>((checked, packed, read, logs.over_bound().map(Path::to_owned)))
        })?;
        if let Some(log) = long_log {
            return Err(BackupError::LogTooLong(log));
        }
        let (database_version, rows) = checked?;
        let packed = packed.map_err(at(to))?;
        let read = read.map_err(|error| BackupError::unsound(to, error.to_string()))?;
        let wanted = Manifest {
            format: FORMAT,
            created_at: now.to_string(),
            gateway_version: env!("CARGO_PKG_VERSION").to_owned(),
            database_version,
            files: packed,
            rows,
        };
        put_manifest(&wanted, &file, now).and_then(|()| file.sync_all()).map_err(at(to))?;
        if read != wanted.files || manifest(to)? != wanted {
            return Err(BackupError::unsound(to, "reading it back returns different data"));
        }
        Ok(())
    }
}

/// Checks the databases of a view. Returns the version of the gateway's, and the number of rows in each table.
fn inspect(view: &ConsistentView, archive: &Path) -> Result<(i64, BTreeMap<String, u64>), BackupError> {
    let (mut database_version, mut rows) = (0, BTreeMap::new());
    for (schema, path) in view.databases() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let inspected = view.inspect(schema, application_id(&name), Extent::Pages);
        let (version, tables) =
            inspected.map_err(|what| BackupError::unsound(archive, format!("{name}: {what}")))?;
        rows.extend(tables);
        if name == DATABASE {
            database_version = version;
        }
    }
    Ok((database_version, rows))
}

/// Packs the files behind the room for the manifest. Returns their entries in it. Stops early once a log is over its bound.
fn pack(
    files: &[MomentFile],
    logs: &GrowingLogs,
    to: ReportingWriter<'_>,
    now: Timestamp,
) -> io::Result<Vec<ManifestFile>> {
    let mut encoder = zstd::Encoder::new(to, LEVEL)?;
    encoder.include_checksum(true)?;
    let mut entries = Vec::new();
    for file in files {
        let name = file.name();
        encoder.write_all(header(&name, file.bytes(), now)?.as_bytes())?;
        let sha256 = write_hashed(file, logs, &mut encoder)?;
        encoder.write_all(padding(file.bytes()))?;
        entries.push(ManifestFile { name, bytes: file.bytes(), sha256 });
    }
    encoder.write_all(&[0; END_BYTES])?;
    encoder.finish()?.flush()?;
    Ok(entries)
}

/// Writes a file to `to`, and returns its digest, which another thread computes.
fn write_hashed(file: &MomentFile, logs: &GrowingLogs, to: &mut impl Write) -> io::Result<String> {
    let (sender, pieces) = bounded::<Arc<[u8]>>(PIECES_AHEAD);
    thread::scope(|scope| {
        let hash = move || {
            let mut hasher = Hasher::default();
            pieces.iter().for_each(|piece| hasher.update(&piece));
            hasher.hex()
        };
        let hashing = thread::Builder::new().name("llmgw-backup-sum".into()).spawn_scoped(scope, hash)?;
        let mut at = 0;
        while at < file.bytes() {
            if let Some(log) = logs.over_bound() {
                return Err(io::Error::other(format!("{} is too long", log.display())));
            }
            let piece: Arc<[u8]> = file.piece(at, PIECE_BYTES)?.into();
            at += piece.len() as u64;
            let _ = sender.send(Arc::clone(&piece));
            to.write_all(&piece)?;
        }
        drop(sender);
        Ok(hashing.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Writes the manifest into its room: a frame of zeros that decompression skips, and the frame of its entry.
fn put_manifest(manifest: &Manifest, to: &File, now: Timestamp) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(manifest)?;
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.write_all(header(MANIFEST, bytes, now)?.as_bytes())?;
    encoder.write_all(&text)?;
    encoder.write_all(padding(bytes))?;
    let frame = encoder.finish()?;
    let begin = MANIFEST_ROOM.checked_sub(frame.len() as u64);
    let skipped = begin.and_then(|begin| u32::try_from(begin.checked_sub(SKIPPABLE_HEAD_BYTES)?).ok());
    let (Some(begin), Some(skipped)) = (begin, skipped) else {
        return Err(io::Error::other("the manifest is too long"));
    };
    to.write_all_at(&[SKIPPABLE, skipped.to_le_bytes()].concat(), 0)?;
    to.write_all_at(&frame, begin)
}

pub(super) fn header(name: &str, bytes: u64, now: Timestamp) -> io::Result<Header> {
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o600);
    header.set_size(bytes);
    header.set_mtime(u64::try_from(now.as_second()).unwrap_or_default());
    header.set_cksum();
    Ok(header)
}

/// Returns the zeros behind the content of an entry with this length.
pub(super) fn padding(bytes: u64) -> &'static [u8] {
    let beyond = usize::try_from(bytes % BLOCK_BYTES as u64).unwrap_or_default();
    let missing = if beyond == 0 { 0 } else { BLOCK_BYTES - beyond };
    [0; BLOCK_BYTES].split_at(missing).0
}

const LEVEL: i32 = 3;
/// The length of a block of a tar file.
const BLOCK_BYTES: usize = 512;
/// The length of the zeros at the end of a tar file.
pub(super) const END_BYTES: usize = 2 * BLOCK_BYTES;
const PIECE_BYTES: usize = 1 << 20;
/// The pieces that wait for their hashing.
const PIECES_AHEAD: usize = 4;
/// The room for the manifest at the start of an archive. Its length depends on the number of tables only.
const MANIFEST_ROOM: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use shared::secret::Secret;

    use super::*;
    use crate::db::sqlite_state::open::open;

    #[test]
    fn a_backup_ends_when_a_write_ahead_log_grows_too_long() {
        let dir = tempfile::TempDir::new().unwrap();
        let db = open(dir.path(), &Secret::new([1; 32])).unwrap().writer;
        db.set_pragma(None, "busy_timeout", 1).unwrap();
        let draft = dir.path().join("draft");
        fs::create_dir(&draft).unwrap();
        let begin = || Sources::of(dir.path(), &draft).unwrap();
        let now = Timestamp::UNIX_EPOCH;
        assert!(begin().pack(&draft.join("archive"), now).is_ok());
        let sources = begin();
        let write = "INSERT INTO principals (id, name, email, disabled, version, created_at_ms, updated_at_ms) \
                     VALUES ('p', 'a name', printf('%.*c', 70000000, 'x'), 0, 1, 0, 0)";
        db.execute(write, ()).unwrap();
        let ended = sources.pack(&draft.join("other"), now);
        assert!(matches!(ended, Err(BackupError::LogTooLong(_))), "{ended:?}");
    }
}
