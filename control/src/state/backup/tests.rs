//! Backups of a real state, and invalid archives.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use shared::secret::Secret;
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

use super::manifest::{DATABASE, MANIFEST};
use super::*;
use crate::common::digest::Hasher;
use crate::db::engine::Db;
use crate::db::sqlite_state::copy::ConsistentView;
use crate::db::sqlite_state::open::open;

static KEY: std::sync::LazyLock<Secret<[u8; 32]>> = std::sync::LazyLock::new(|| Secret::new([1; 32]));

/// Creates a state with some data in it.
fn state() -> (TempDir, PathBuf) {
    let home = TempDir::new().unwrap();
    let dir = home.path().join("state");
    let opened = open(&dir, &KEY).unwrap();
    let sql = "INSERT INTO principals (id, name, email, disabled, version, created_at_ms, updated_at_ms)
               VALUES ('prn_1', 'Ada', NULL, 0, 1, 0, 0)";
    opened.writer.execute(sql, ()).unwrap();
    fs::write(dir.join("catalog.json"), "{}").unwrap();
    fs::write(dir.join("secrets.json"), r#"{"groq": "planted-plain-secret"}"#).unwrap();
    (home, dir)
}

fn path_of(dir: &Path, archive: &Archive) -> PathBuf {
    dir.join("backups").join(&archive.name)
}

fn restore_to(archive: &Path, dir: &Path) -> Result<Restored, BackupError> {
    restore(RestoreParams { archive, dir, bytes_max: BYTES_MAX, encryption_key: Some(&KEY) })
}

#[test]
fn a_backup_restores_completely_and_opens_with_the_same_key() {
    let (home, dir) = state();
    let archive = create(&dir, 7).unwrap();
    let manifest = archive.manifest.clone().unwrap();
    let names: Vec<&str> = manifest.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["gateway.db", "catalog.json"]);
    assert_eq!(manifest.rows["principals"], 1);
    assert_eq!(verify(&path_of(&dir, &archive)).unwrap(), manifest);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path_of(&dir, &archive)), 0o600);

    let to = home.path().join("a/restored");
    let restored = restore_to(&path_of(&dir, &archive), &to).unwrap();
    assert_eq!(restored, Restored { manifest, opens: Some(true) });
    assert_eq!((mode(&to), mode(&to.join(DATABASE))), (0o700, 0o600));
    let opened = open(&to, &KEY).unwrap();
    let name: String = opened.writer.row("SELECT name FROM principals", (), |row| row.get(0)).unwrap();
    assert_eq!(name, "Ada");
    assert!(crate::db::chain::verify(&opened.writer, &opened.keys).unwrap().is_ok());
    drop(opened);
    assert!(matches!(restore_to(&path_of(&dir, &archive), &to), Err(BackupError::NotEmpty(_))));
    let other = Secret::new([2; 32]);
    let elsewhere = home.path().join("other");
    let params = RestoreParams {
        archive: &path_of(&dir, &archive),
        dir: &elsewhere,
        bytes_max: BYTES_MAX,
        encryption_key: Some(&other),
    };
    assert_eq!(restore(params).unwrap().opens, Some(false));
}

#[test]
fn a_backup_during_writes_holds_one_consistent_state() {
    let (_home, dir) = state();
    let path = dir.join(DATABASE);
    let mut db = Db::create(&path).unwrap();
    let fill = "WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < :last) \
                INSERT INTO principals (id, name, email, disabled, version, created_at_ms, updated_at_ms) \
                SELECT 'p' || value, printf('%0800d', value), NULL, 0, 1, 0, 0 FROM n";
    db.execute(fill, [20_000]).unwrap();
    let mut other = Db::create(&path).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut writes = 0_u32;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                // Each copy must contain both rows or neither; a copy that is not of one moment would break this.
                let tx = db.transaction().unwrap();
                tx.execute("UPDATE principals SET version = version + 1 WHERE id = 'p1'", ()).unwrap();
                tx.execute("UPDATE principals SET version = version + 1 WHERE id = 'p9999'", ()).unwrap();
                tx.commit().unwrap();
                writes += 1;
                // The archive must not contain what a checkpoint moves into the file meanwhile.
                let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
                let other = &mut other;
                other.row(checkpoint, (), |row| row.get::<i64>(0)).unwrap();
            }
            writes
        });
        let archive = create(&dir, 7).unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(writing.join().unwrap() > 0, "writers were not blocked");
        let to = dir.join("restored");
        restore_to(&path_of(&dir, &archive), &to).unwrap();
        let copy = Db::create(to.join(DATABASE)).unwrap();
        let sql = "SELECT count(DISTINCT version) FROM principals WHERE id IN ('p1', 'p9999')";
        assert_eq!(copy.row(sql, (), |row| row.get::<i64>(0)).unwrap(), 1);
    });
}

#[test]
fn a_moment_that_a_reader_keeps_in_the_write_ahead_log_is_copied_first() {
    let (_home, dir) = state();
    let reader = Db::create(dir.join(DATABASE)).unwrap();
    reader.batch("BEGIN").unwrap();
    let name = |db: &Db| -> String { db.row("SELECT name FROM principals", (), |row| row.get(0)).unwrap() };
    assert_eq!(name(&reader), "Ada");
    Db::create(dir.join(DATABASE)).unwrap().execute("UPDATE principals SET name = 'Eve'", ()).unwrap();
    assert!(!ConsistentView::of(&dir).unwrap().are_files_of_moment());
    let archive = create(&dir, 7).unwrap();
    assert_eq!(name(&reader), "Ada", "it still reads its own moment");
    let to = dir.join("restored");
    restore_to(&path_of(&dir, &archive), &to).unwrap();
    assert_eq!(name(&Db::create(to.join(DATABASE)).unwrap()), "Eve");
}

#[test]
fn a_damaged_database_becomes_no_archive() {
    let (_home, dir) = state();
    let sound = create(&dir, 7).unwrap();
    let db = Db::create(dir.join(DATABASE)).unwrap();
    let damage = "INSERT INTO usage (id, first_ms, last_ms, exchanges, requests, names, rows, digest) \
                  VALUES (1, 0, 0, 1, x'', x'', x'', 1)";
    db.execute(damage, ()).unwrap();
    let refused = create(&dir, 7).unwrap_err().to_string();
    assert!(refused.contains("gateway.db: row 1 of the table usage is damaged"), "{refused}");
    assert_eq!(list(&dir).unwrap(), [sound]);
    assert!(!dir.join("backups/.draft").exists());
}

#[test]
fn pruning_keeps_the_configured_number_of_newest_archives() {
    let (_home, dir) = state();
    let foreign = dir.join("backups/somebody-elses-file");
    let made: Vec<Archive> = (0..4).map(|_| create(&dir, 3).unwrap()).collect();
    fs::write(&foreign, "x").unwrap();
    let names = |dir: &Path| list(dir).unwrap().into_iter().map(|archive| archive.name).collect::<Vec<_>>();
    assert_eq!(names(&dir), [&made[3].name, &made[2].name, &made[1].name].map(String::clone));
    // An unreadable archive neither counts as a backup nor is removed.
    fs::write(path_of(&dir, &made[2]), "damaged").unwrap();
    let fifth = create(&dir, 2).unwrap();
    assert_eq!(names(&dir), [&fifth.name, &made[3].name, &made[2].name].map(String::clone));
    assert!(foreign.exists() && !dir.join("backups/.draft").exists());
    let held = directory::BackupDirectory::take(&dir).unwrap();
    assert!(matches!(create(&dir, 2), Err(BackupError::Busy(_))));
    drop(held);
}

/// M-227.
#[test]
fn a_damaged_archive_does_not_count_towards_the_kept_ones() {
    let (_home, dir) = state();
    let made: Vec<Archive> = (0..3).map(|_| create(&dir, 3).unwrap()).collect();
    // The manifest is readable, but the files that it lists are cut.
    let damaged = path_of(&dir, &made[2]);
    let bytes = fs::read(&damaged).unwrap();
    fs::write(&damaged, &bytes[..bytes.len() - 20]).unwrap();
    // Not the name of an archive, but it sorts before all of them.
    fs::write(dir.join("backups/llmgw-backup-zzz.tar.zst"), &bytes).unwrap();
    let fourth = create(&dir, 2).unwrap();
    let names: Vec<String> = list(&dir).unwrap().into_iter().map(|archive| archive.name).collect();
    assert_eq!(names, [&fourth.name, &made[2].name, &made[1].name].map(String::clone));
    assert!(verify(&path_of(&dir, &made[1])).is_ok(), "the newest whole one but the last is kept");
}

#[test]
fn the_list_shows_an_archive_damaged_after_its_manifest_as_faulty() {
    let (_home, dir) = state();
    let made: Vec<Archive> = (0..2).map(|_| create(&dir, 3).unwrap()).collect();
    assert_eq!(made[1].fault, None);
    assert!(made[1].checked_at_ms.is_some(), "it was read back when it was made");
    let listed = |dir: &Path| {
        let archives = list(dir).unwrap();
        archives.into_iter().map(|archive| (archive.manifest.is_some(), archive.fault)).collect::<Vec<_>>()
    };
    assert_eq!(listed(&dir), [(true, None), (true, None)]);
    let damaged = path_of(&dir, &made[0]);
    let whole = fs::read(&damaged).unwrap();
    let mut bytes = whole.clone();
    let place = bytes.len() - 3;
    bytes[place] ^= 1;
    fs::write(&damaged, &bytes).unwrap();
    assert_eq!(list(&dir).unwrap()[1].checked_at_ms, None, "it has changed since");
    check_unchecked(&dir).unwrap();
    let fault = listed(&dir)[1].1.clone().unwrap();
    assert!(fault.contains("it cannot be decompressed"), "{fault}");
    assert_eq!(listed(&dir), [(true, None), (true, Some(fault))]);
    fs::write(&damaged, &whole).unwrap();
    check_unchecked(&dir).unwrap();
    assert_eq!(listed(&dir), [(true, None), (true, None)]);
}

/// Decompression skips the zeros before the manifest.
#[test]
fn each_byte_of_the_start_of_an_archive_counts() {
    let (home, dir) = state();
    let packed = fs::read(path_of(&dir, &create(&dir, 3).unwrap())).unwrap();
    let archive = home.path().join("damaged");
    for place in (0..16).chain((16..17_000).step_by(61)) {
        let mut damaged = packed.clone();
        damaged[place] ^= 1;
        fs::write(&archive, damaged).unwrap();
        assert!(check(&archive).is_err(), "{place}");
    }
    fs::write(&archive, packed).unwrap();
    check(&archive).unwrap();
}

#[test]
fn an_archive_that_has_not_changed_is_read_once() {
    let (_home, dir) = state();
    let first = create(&dir, 3).unwrap();
    create(&dir, 3).unwrap();
    assert_eq!(list(&dir).unwrap()[1], first, "the next backup does not read it again");
    fs::remove_file(path_of(&dir, &list(&dir).unwrap()[0])).unwrap();
    let name = first.name;
    let checks = dir.join("backups/checks.json");
    let noted: serde_json::Value = serde_json::from_slice(&fs::read(&checks).unwrap()).unwrap();
    let with = |member: &str, value: serde_json::Value| {
        let mut noted = noted.clone();
        noted[&name]["fault"] = "seen before".into();
        noted[&name][member] = value;
        noted.to_string()
    };
    fs::write(&checks, with("fault", "seen before".into())).unwrap();
    check_unchecked(&dir).unwrap();
    assert_eq!(list(&dir).unwrap()[0].fault.as_deref(), Some("seen before"));
    let (lost, long_ago, longer) =
        ("\0".to_owned(), with("checked_at_ms", 0.into()), with("bytes", 1.into()));
    for before in [lost, long_ago, longer] {
        fs::write(&checks, &before).unwrap();
        check_unchecked(&dir).unwrap();
        assert_eq!(list(&dir).unwrap()[0].fault, None, "it is read again after {before}");
    }
}

#[test]
fn plain_secrets_and_drafts_are_in_no_archive() {
    let (home, dir) = state();
    let archive = create(&dir, 1).unwrap();
    let to = home.path().join("restored");
    restore_to(&path_of(&dir, &archive), &to).unwrap();
    let mut names: Vec<_> =
        fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["catalog.json", "gateway.db", "lock"]);
}

/// An archive with these entries after the manifest.
struct Forged {
    manifest: serde_json::Value,
    entries: Vec<(EntryType, String, Vec<u8>)>,
}

impl Forged {
    /// Returns a valid archive that the test then damages.
    fn new() -> Self {
        let (_home, dir) = state();
        let opened = open(&dir, &KEY).unwrap();
        drop(opened);
        let copy = dir.join("copy");
        fs::write(&copy, "").unwrap();
        ConsistentView::of(&dir).unwrap().copy("main", &copy).unwrap();
        let database = fs::read(copy).unwrap();
        let manifest = serde_json::json!({
            "format": 1, "created_at": "now", "gateway_version": "x",
            "database_version": crate::db::sqlite_state::migrate::newest(), "rows": {},
            "files": [{"name": DATABASE, "bytes": database.len(), "sha256": sha256(&database)}],
        });
        Self { manifest, entries: vec![(EntryType::Regular, DATABASE.into(), database)] }
    }

    fn with(mut self, kind: EntryType, name: &str, bytes: &[u8]) -> Self {
        self.entries.push((kind, name.into(), bytes.into()));
        self
    }

    fn listed(mut self, name: &str, bytes: u64, sha256: &str) -> Self {
        let file = serde_json::json!({"name": name, "bytes": bytes, "sha256": sha256});
        self.manifest["files"].as_array_mut().unwrap().push(file);
        self
    }

    fn tar(&self) -> Vec<u8> {
        let mut tar = Builder::new(Vec::new());
        let manifest = (EntryType::Regular, MANIFEST.to_owned(), self.manifest.to_string().into_bytes());
        for (kind, name, bytes) in std::iter::once(&manifest).chain(&self.entries) {
            let mut header = Header::new_ustar();
            header.set_entry_type(*kind);
            header.set_mode(0o600);
            header.set_size(bytes.len() as u64);
            // Write the name directly, as a hostile tool would: the library rejects such names.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            if matches!(kind, EntryType::Symlink | EntryType::Link) {
                header.set_link_name("/etc/passwd").unwrap();
            }
            header.set_cksum();
            tar.append(&header, bytes.as_slice()).unwrap();
        }
        tar.into_inner().unwrap()
    }

    fn refused(&self) -> String {
        refused(&zstd::encode_all(self.tar().as_slice(), 1).unwrap())
    }
}

fn sha256(bytes: &[u8]) -> String {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    hasher.hex()
}

/// Returns the error of restoring `packed`, and checks that nothing is left behind.
fn refused(packed: &[u8]) -> String {
    let home = TempDir::new().unwrap();
    let archive = home.path().join("archive.tar.zst");
    fs::write(&archive, packed).unwrap();
    let to = home.path().join("to");
    let error = restore_to(&archive, &to).expect_err("a restore of that").to_string();
    let left: Vec<_> = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "lock"), "{left:?}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2, "nothing was written elsewhere");
    assert!(verify(&archive).is_err());
    error
}

#[test]
fn a_restore_that_was_killed_between_its_files_is_repeated() {
    let (home, dir) = state();
    let archive = path_of(&dir, &create(&dir, 7).unwrap());
    let to = home.path().join("to");
    let leave = |names: &[&str]| {
        let _ = fs::remove_dir_all(&to);
        fs::create_dir_all(to.join(".restoring")).unwrap();
        names.iter().for_each(|name| fs::write(to.join(name), "left").unwrap());
    };
    for refused in [&["gateway.db"][..], &["catalog.json", "notes.txt"]] {
        leave(refused);
        assert!(matches!(restore_to(&archive, &to), Err(BackupError::NotEmpty(_))), "{refused:?}");
    }
    leave(&["catalog.json"]);
    restore_to(&archive, &to).unwrap();
    assert_eq!(fs::read_to_string(to.join("catalog.json")).unwrap(), "{}");
    open(&to, &KEY).unwrap();
    fs::remove_file(to.join("gateway.db")).unwrap();
    assert!(matches!(restore_to(&archive, &to), Err(BackupError::NotEmpty(_))), "it was not interrupted");
}

#[test]
fn an_unmodified_forged_archive_restores() {
    let home = TempDir::new().unwrap();
    let archive = home.path().join("archive");
    fs::write(&archive, zstd::encode_all(Forged::new().tar().as_slice(), 1).unwrap()).unwrap();
    restore_to(&archive, &home.path().join("to")).unwrap();
}

#[test]
fn archives_with_hostile_names_links_or_devices_are_rejected() {
    for (kind, name, mention) in [
        (EntryType::Regular, "../evil", "../evil"),
        (EntryType::Regular, "/etc/cron.d/evil", "/etc/cron.d/evil"),
        (EntryType::Regular, "a/../../evil", "evil"),
        (EntryType::Regular, "config.yaml", "config.yaml"),
        (EntryType::Regular, DATABASE, DATABASE),
        (EntryType::Symlink, "usage.db", "a link"),
        (EntryType::Link, "usage.db", "a link"),
        (EntryType::Char, "usage.db", "a device"),
        (EntryType::Fifo, "usage.db", "a device"),
        (EntryType::Directory, "usage.db", "a directory"),
        (EntryType::GNULongName, "././@LongLink", "an entry"),
        (EntryType::XHeader, "pax", "an entry"),
        (EntryType::GNUSparse, "usage.db", "an entry"),
    ] {
        let bytes: &[u8] = if kind == EntryType::Regular { b"x" } else { b"" };
        let refusal = Forged::new().with(kind, name, bytes).refused();
        assert!(
            refusal.contains(mention) && refusal.contains("which is not part of a backup"),
            "{name} {kind:?}: {refusal}"
        );
        // The same entry is rejected even if the manifest lists it.
        let refusal =
            Forged::new().listed(name, bytes.len() as u64, &sha256(bytes)).with(kind, name, bytes).refused();
        assert!(refusal.contains("is not a valid backup"), "{name} {kind:?}: {refusal}");
    }
}

#[test]
fn an_archive_that_differs_from_its_manifest_is_rejected() {
    let good = Forged::new();
    let mut other = Forged::new();
    let at = other.entries[0].2.len() - 1;
    other.entries[0].2[at] ^= 1;
    assert!(other.refused().contains("checksum"));
    other.entries[0].2.pop();
    assert!(other.refused().contains("length"));
    other.entries.clear();
    assert!(other.refused().contains("missing"));
    let mut newer = Forged::new();
    newer.manifest["format"] = 2.into();
    assert!(newer.refused().contains("format 2"));
    newer.manifest["format"] = 1.into();
    newer.manifest["database_version"] = 1.into();
    assert!(newer.refused().contains("version"));
    assert!(Forged::new().listed("usage.db", u64::MAX, "").refused().contains("--max-bytes"));
    let mut tail = good.tar();
    tail.extend([1; 512]);
    assert!(refused(&zstd::encode_all(tail.as_slice(), 1).unwrap()).contains("not a valid backup"));
    let packed = zstd::encode_all(good.tar().as_slice(), 1).unwrap();
    for cut in [0, 3, packed.len() / 2, packed.len() - 1] {
        assert!(refused(&packed[..cut]).contains("not a valid backup"), "cut at {cut}");
    }
    assert!(refused(b"this is no archive at all").contains("not a valid backup"));
}

#[test]
fn an_archive_with_an_invalid_database_is_rejected() {
    for content in [vec![b'#'; 8_192], Vec::new()] {
        let mut forged = Forged::new();
        forged.manifest["files"][0]["bytes"] = content.len().into();
        forged.manifest["files"][0]["sha256"] = sha256(&content).into();
        forged.entries[0].2 = content;
        assert!(forged.refused().contains("gateway.db"));
    }
}

#[test]
fn a_decompression_bomb_is_rejected_before_it_fills_the_disk() {
    let bytes: u64 = 200 << 20;
    let zeros = vec![0; 1 << 20];
    let mut encoder = zstd::Encoder::new(Vec::new(), 19).unwrap();
    let mut forged = Forged::new().listed("usage.db", bytes, "");
    // The manifest is correct, but the contents are far too large for the archive's length.
    let mut tar = forged.tar();
    tar.truncate(tar.len() - 1_024);
    encoder.write_all(&tar).unwrap();
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_path("usage.db").unwrap();
    header.set_size(bytes);
    header.set_cksum();
    encoder.write_all(header.as_bytes()).unwrap();
    (0..200).for_each(|_| encoder.write_all(&zeros).unwrap());
    encoder.write_all(&[0; 1_024]).unwrap();
    let packed = encoder.finish().unwrap();
    assert!((packed.len() as u64) < bytes / 1_000, "{}", packed.len());
    assert!(refused(&packed).contains("more than the limit"));
    // The manifest states a wrong length.
    forged.manifest["files"][1]["bytes"] = 1.into();
    assert!(forged.refused().contains("missing"));
}

#[test]
fn a_rehearsal_opens_the_newest_archive_and_reports_why_it_would_not_restore() {
    let (_home, dir) = state();
    assert_eq!(rehearse(&dir, &KEY).unwrap(), None, "without an archive there is nothing to rehearse");
    let archive = create(&dir, 3).unwrap();
    assert_eq!(rehearse(&dir, &KEY).unwrap(), Some(archive.name.clone()));
    let other = Secret::new([2; 32]);
    let refused = rehearse(&dir, &other).unwrap_err().to_string();
    assert!(refused.contains("does not open it"), "{refused}");
    let path = path_of(&dir, &archive);
    let mut bytes = fs::read(&path).unwrap();
    let place = bytes.len() - 3;
    bytes[place] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(rehearse(&dir, &KEY).unwrap_err().to_string().contains("cannot be decompressed"));
    assert!(!dir.join("backups/.rehearsal").exists(), "nothing is left behind");
}
