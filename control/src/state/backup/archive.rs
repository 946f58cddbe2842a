//! Reads a backup archive. The reader trusts nothing in it: the first entry must be the manifest, and the others must
//! be exactly the files that it lists, in that order, with those lengths and digests. An entry's name is therefore
//! never used as a path, and links, devices and all other tar entry types are rejected.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use tar::{Entry, EntryType};

use super::manifest::{BUFFER_BYTES, DATABASE, MANIFEST, Manifest, ManifestFile};
use super::temporary_directory::TemporaryDirectory;
use super::{BackupError, at};
use crate::common::digest::Hasher;
use crate::common::{private_file, regular_file};
use crate::db::sqlite_state::copy::{self as stored, Extent};
use crate::db::sqlite_state::open::{APPLICATION_ID, USAGE_APPLICATION_ID};

/// Reads `archive` as a restore would, and returns its manifest. Fails if the archive is damaged.
pub fn verify(archive: &Path) -> Result<Manifest, BackupError> {
    let scratch = TemporaryDirectory::somewhere().map_err(at(&std::env::temp_dir()))?;
    let manifest = unpack(archive, scratch.path(), BYTES_MAX)?;
    inspect(archive, scratch.path(), &manifest)?;
    Ok(manifest)
}

/// Checks fully that the databases unpacked into `dir` are intact and of a known version.
pub(super) fn inspect(archive: &Path, dir: &Path, manifest: &Manifest) -> Result<(), BackupError> {
    for name in manifest.files.iter().map(|file| &file.name).filter(|name| name.ends_with(".db")) {
        let found = stored::inspect(&dir.join(name), application_id(name), Extent::Full)
            .map_err(|what| BackupError::unsound(archive, format!("{name}: {what}")))?;
        if name == DATABASE && found != manifest.database_version {
            return Err(BackupError::unsound(
                archive,
                "the version of its database differs from its manifest",
            ));
        }
    }
    Ok(())
}

/// Returns the application id that the database file of this name has.
pub(super) fn application_id(name: &str) -> i32 {
    if name == DATABASE { APPLICATION_ID } else { USAGE_APPLICATION_ID }
}

/// Reads only the manifest of `archive`.
pub(super) fn manifest(archive: &Path) -> Result<Manifest, BackupError> {
    let mut tar = open(archive, MANIFEST_BYTES_MAX + TAR_BYTES)?;
    let mut entries = tar.entries().map_err(at(archive))?.raw(true);
    manifest_of(archive, entries.next(), u64::MAX)
}

/// Unpacks `archive` into the empty directory `dir`. Fails if the contents exceed `bytes_max`.
pub(crate) fn unpack(archive: &Path, dir: &Path, bytes_max: u64) -> Result<Manifest, BackupError> {
    read(archive, bytes_max, |entry, file| write(archive, entry, file, dir))
}

/// Reads all of `archive` and compares each file with the manifest's checksum, without writing anything to disk.
pub(crate) fn check(archive: &Path) -> Result<Manifest, BackupError> {
    read(archive, BYTES_MAX, |entry, file| copy(archive, entry, file, &mut io::sink()))
}

/// Reads `archive` to its end and calls `take` to read each file.
fn read(
    archive: &Path,
    bytes_max: u64,
    mut take: impl FnMut(&mut Entry<'_, Packed>, &ManifestFile) -> Result<(), BackupError>,
) -> Result<Manifest, BackupError> {
    let packed = regular_file::open(archive).and_then(|file| file.metadata()).map_err(at(archive))?.len();
    let bytes_max = bytes_max.min(packed.saturating_mul(RATIO_MAX).max(BYTES_ALWAYS));
    let mut tar = open(archive, bytes_max.saturating_add(MANIFEST_BYTES_MAX + TAR_BYTES))?;
    let mut entries = tar.entries().map_err(broken(archive))?.raw(true);
    let manifest = manifest_of(archive, entries.next(), bytes_max)?;
    for file in &manifest.files {
        let mut entry = named(archive, entries.next(), &file.name)?;
        if entry.size() != file.bytes {
            return Err(BackupError::unsound(
                archive,
                format!("the length of {} differs from the manifest", file.name),
            ));
        }
        take(&mut entry, file)?;
    }
    if let Some(entry) = entries.next() {
        let entry = entry.map_err(broken(archive))?;
        return Err(stranger(archive, &entry));
    }
    end(archive, tar.into_inner())?;
    Ok(manifest)
}

type Packed = io::Take<zstd::Decoder<'static, io::BufReader<File>>>;

fn open(archive: &Path, bytes_max: u64) -> Result<tar::Archive<Packed>, BackupError> {
    let file = regular_file::open(archive).map_err(at(archive))?;
    if !has_whole_room(&file).map_err(broken(archive))? {
        return Err(BackupError::unsound(archive, "it cannot be decompressed: its start is damaged"));
    }
    let mut decoder = zstd::Decoder::new(file).map_err(at(archive))?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(at(archive))?;
    Ok(tar::Archive::new(decoder.take(bytes_max)))
}

/// Checks the zeros before the manifest, which decompression skips: they have no checksum. Archives of earlier releases have
/// none.
fn has_whole_room(file: &File) -> io::Result<bool> {
    let mut head = [0; 8];
    if file.read_at(&mut head, 0)? < head.len() {
        return Ok(true);
    }
    let [a, b, c, d, size @ ..] = head;
    if [a, b, c, d] != SKIPPABLE {
        // The first digit of such a frame may have any value.
        return Ok([a & 0xf0, b, c, d] != SKIPPABLE);
    }
    let size = u64::from(u32::from_le_bytes(size));
    if size > MANIFEST_BYTES_MAX {
        return Ok(false);
    }
    let mut zeros = vec![0; usize::try_from(size).unwrap_or_default()];
    file.read_exact_at(&mut zeros, SKIPPABLE_HEAD_BYTES)?;
    Ok(zeros.iter().all(|byte| *byte == 0))
}

type NextEntry<'a> = Option<io::Result<Entry<'a, Packed>>>;

fn manifest_of(archive: &Path, next: NextEntry<'_>, bytes_max: u64) -> Result<Manifest, BackupError> {
    let entry = named(archive, next, MANIFEST)?;
    if entry.size() > MANIFEST_BYTES_MAX {
        return Err(BackupError::unsound(archive, "its manifest is too long"));
    }
    let mut text = Vec::new();
    entry.take(MANIFEST_BYTES_MAX).read_to_end(&mut text).map_err(broken(archive))?;
    let manifest: Manifest = serde_json::from_slice(&text)
        .map_err(|error| BackupError::unsound(archive, format!("its manifest cannot be read: {error}")))?;
    match manifest.fault(bytes_max) {
        Some(what) => Err(BackupError::unsound(archive, what)),
        None => Ok(manifest),
    }
}

/// Returns the next entry, which must be a regular file called `name`.
fn named<'a>(archive: &Path, next: NextEntry<'a>, name: &str) -> Result<Entry<'a, Packed>, BackupError> {
    let entry = match next {
        Some(entry) => entry.map_err(broken(archive))?,
        None => return Err(BackupError::unsound(archive, format!("{name} is missing"))),
    };
    if entry.header().entry_type() != EntryType::Regular || *entry.path_bytes() != *name.as_bytes() {
        return Err(stranger(archive, &entry));
    }
    Ok(entry)
}

fn stranger(archive: &Path, entry: &Entry<'_, Packed>) -> BackupError {
    let kind = match entry.header().entry_type() {
        EntryType::Regular => "a file",
        EntryType::Link | EntryType::Symlink => "a link",
        EntryType::Char | EntryType::Block | EntryType::Fifo => "a device",
        EntryType::Directory => "a directory",
        _ => "an entry",
    };
    let name = String::from_utf8_lossy(&entry.path_bytes()).chars().take(80).collect::<String>();
    BackupError::unsound(archive, format!("it contains {kind} {name:?}, which is not part of a backup"))
}

fn write(
    archive: &Path,
    entry: &mut Entry<'_, Packed>,
    file: &ManifestFile,
    dir: &Path,
) -> Result<(), BackupError> {
    let path = dir.join(&file.name);
    let mut out = private_file::create_new(&path).map_err(at(&path))?;
    copy(archive, entry, file, &mut out)?;
    out.sync_all().map_err(at(&path))
}

/// Copies an entry to `out` and compares it with the manifest's length and checksum.
fn copy(
    archive: &Path,
    entry: &mut Entry<'_, Packed>,
    file: &ManifestFile,
    out: &mut impl io::Write,
) -> Result<(), BackupError> {
    let mut hasher = Hasher::default();
    let (mut buffer, mut bytes) = (vec![0; BUFFER_BYTES], 0_u64);
    loop {
        let read = entry.read(&mut buffer).map_err(broken(archive))?;
        let piece = buffer.split_at(read).0;
        if piece.is_empty() {
            break;
        }
        hasher.update(piece);
        bytes += read as u64;
        out.write_all(piece).map_err(at(Path::new(&file.name)))?;
    }
    if bytes != file.bytes || hasher.hex() != file.sha256 {
        return Err(BackupError::unsound(archive, format!("{} does not match its checksum", file.name)));
    }
    Ok(())
}

/// Reads the rest of the archive after the last entry, which must be zeros. Reading to the end also verifies the
/// checksum of the compressed stream.
fn end(archive: &Path, mut rest: Packed) -> Result<(), BackupError> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = rest.read(&mut buffer).map_err(broken(archive))?;
        let piece = buffer.split_at(read).0;
        if piece.is_empty() {
            return Ok(());
        }
        if piece.iter().any(|byte| *byte != 0) {
            return Err(BackupError::unsound(archive, "it has data after the last entry"));
        }
    }
}

fn broken(archive: &Path) -> impl Fn(io::Error) -> BackupError + '_ {
    |error| BackupError::unsound(archive, format!("it cannot be decompressed: {error}"))
}

/// Default limit on the unpacked size of an archive.
pub const BYTES_MAX: u64 = 64 << 30;
/// Highest ratio of unpacked to packed size; far above that of any real archive.
const RATIO_MAX: u64 = 1_000;
/// Unpacked size that is allowed whatever the ratio.
const BYTES_ALWAYS: u64 = 64 << 20;
/// The start of a frame that decompression skips (RFC 8878, 3.1.2); its size in four bytes follows.
pub(super) const SKIPPABLE: [u8; 4] = [0x50, 0x2a, 0x4d, 0x18];
pub(super) const SKIPPABLE_HEAD_BYTES: u64 = 8;
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Upper bound for the headers, padding and end marker of a tar file with the few entries of a backup.
const TAR_BYTES: u64 = 64 << 10;
/// Log2 of the decompression window: at most 128 MiB of memory.
const WINDOW_LOG_MAX: u32 = 27;
