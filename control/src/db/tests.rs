//! Opens state directories: creates missing ones, rejects invalid ones, and changes nothing when it rejects one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use shared::secret::Secret;
use tempfile::TempDir;

use super::error::OpenError;
use super::sqlite_state::migrate;
use super::sqlite_state::open::{DATABASE, JOURNAL, Opened, open};
use crate::db::engine::Db;

static KEY: std::sync::LazyLock<Secret<[u8; 32]>> = std::sync::LazyLock::new(|| Secret::new([1; 32]));

fn key(byte: u8) -> Secret<[u8; 32]> {
    Secret::new([byte; 32])
}

/// Creates a state directory with a database, and closes it.
fn made() -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    drop(open(dir.path(), &KEY).unwrap());
    let path = dir.path().join(DATABASE);
    (dir, path)
}

fn refused(dir: &Path, key: &Secret<[u8; 32]>) -> OpenError {
    let before = files(dir);
    let error = open(dir, key).map(|_: Opened| ()).unwrap_err();
    assert_eq!(files(dir), before, "a refusal changes no file: {error}");
    let line = error.to_string();
    assert!(!line.contains('\n') && line.len() > 20, "{line}");
    error
}

/// Returns every file that contains state, with its contents. Excludes the lock and SQLite's shared memory, which
/// contain none.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.is_file() && !path.ends_with("lock") && path.extension().is_some_and(|e| e != "db-shm")
        })
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .filter(|(path, content)| path.extension().is_some_and(|e| e != "db-wal") || !content.is_empty())
        .collect();
    files.sort();
    files
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_new_state_is_closed_to_others_and_durable() {
    let dir = TempDir::new().unwrap();
    let state = dir.path().join("a/state");
    let opened = open(&state, &KEY).unwrap();
    opened.writer.execute("CREATE TABLE t (a INTEGER) STRICT", ()).unwrap();
    assert_eq!(mode(&state), 0o700);
    for file in [DATABASE, "gateway.db-wal", "lock"] {
        assert_eq!(mode(&state.join(file)), 0o600, "{file}");
    }
    assert_eq!(opened.writer.pragma::<String>(None, "journal_mode").unwrap(), "wal");
    assert_eq!(opened.writer.pragma::<i64>(None, "synchronous").unwrap(), 2);
    assert!(opened.writer.pragma::<bool>(None, "foreign_keys").unwrap());
}

#[test]
fn too_wide_permissions_of_the_state_are_restricted() {
    let (dir, path) = made();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    drop(open(dir.path(), &KEY).unwrap());
    assert_eq!((mode(dir.path()), mode(&path)), (0o700, 0o600));
}

#[test]
fn keys_are_stable_and_never_stored_in_plain() {
    let dir = TempDir::new().unwrap();
    let first = open(dir.path(), &KEY).unwrap().keys.key_hash_key;
    let again = open(dir.path(), &KEY).unwrap().keys.key_hash_key;
    assert_eq!(first, again);
    assert_ne!(first.expose(), &[0; 32]);
    for (path, content) in files(dir.path()) {
        for secret in [first.expose(), KEY.expose()] {
            assert!(!content.windows(32).any(|bytes| bytes == secret), "{}", path.display());
        }
    }
    let other = TempDir::new().unwrap();
    assert_ne!(open(other.path(), &KEY).unwrap().keys.key_hash_key, first, "each database has its own");
}

#[test]
fn another_encryption_key_is_refused_by_name() {
    let (dir, _) = made();
    let error = refused(dir.path(), &key(2));
    assert!(error.to_string().starts_with("LLMGW_CREDENTIAL_ENCRYPTION_KEY is not the key"), "{error}");
    assert_eq!(error.exit_code(), 78);
    drop(open(dir.path(), &KEY).expect("the right key still opens it"));
}

#[test]
fn a_newer_database_is_refused() {
    let (dir, path) = made();
    let newer = migrate::newest() + 1;
    Db::create(&path).unwrap().set_pragma(None, "user_version", newer).unwrap();
    let error = refused(dir.path(), &KEY);
    assert!(matches!(error, OpenError::Newer { found, .. } if found == newer), "{error}");
    assert_eq!(error.exit_code(), 78);
}

#[test]
fn a_damaged_database_is_refused_and_kept() {
    let whole = fs::read(made().1).unwrap();
    let page = 4_096;
    let mut torn = whole.clone();
    torn[page..2 * page].fill(0xa5);
    let mut header = whole.clone();
    header[..16].fill(0);
    let foreign = {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("other.db");
        Db::create(&path).unwrap().execute("CREATE TABLE t (a)", ()).unwrap();
        fs::read(path).unwrap()
    };
    let cases = [
        ("empty", Vec::new()),
        ("short", whole[..10].to_vec()),
        ("cut", whole[..2 * page].to_vec()),
        ("a page overwritten", torn),
        ("no header", header),
        ("text", b"hello, this is no database at all".to_vec()),
        ("another program's", foreign),
    ];
    for (what, content) in cases {
        let (dir, path) = made();
        fs::write(&path, content).unwrap();
        let error = refused(dir.path(), &KEY);
        assert!(matches!(error, OpenError::Damaged { .. }), "{what}: {error:?}");
        assert_eq!(error.exit_code(), 74, "{what}");
    }
}

#[test]
fn a_missing_vault_row_counts_as_damage() {
    for name in [super::vault::DATA_KEY, super::vault::KEY_HASH_KEY] {
        let (dir, path) = made();
        Db::create(&path).unwrap().execute("DELETE FROM vault WHERE name = :name", [name]).unwrap();
        assert!(matches!(refused(dir.path(), &KEY), OpenError::Damaged { .. }), "{name}");
    }
}

#[test]
fn a_missing_database_is_not_silently_recreated() {
    let (dir, path) = made();
    fs::create_dir_all(dir.path().join(JOURNAL)).unwrap();
    let waiting = dir.path().join(JOURNAL).join("0000000000000001-000000.usage");
    fs::write(&waiting, "{}\n").unwrap();
    fs::remove_file(&path).unwrap();
    assert!(matches!(refused(dir.path(), &KEY), OpenError::Missing { .. }));
    fs::remove_file(&waiting).unwrap();
    let wal = dir.path().join("gateway.db-wal");
    fs::write(&wal, "what a killed process left").unwrap();
    assert!(matches!(refused(dir.path(), &KEY), OpenError::Missing { .. }));
    assert!(!path.exists());
}

#[test]
fn a_half_created_database_is_replaced_at_the_next_start() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("gateway.db.new"), "half of it").unwrap();
    fs::write(dir.path().join("gateway.db.new-wal"), "and more").unwrap();
    drop(open(dir.path(), &KEY).unwrap());
    assert!(!dir.path().join("gateway.db.new").exists());
}

#[test]
fn a_database_of_an_older_release_is_brought_forward() {
    let (dir, path) = made();
    let db = Db::create(&path).unwrap();
    // The tables that later migrations create.
    let later: Vec<String> = db
        .rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'vault' AND name NOT LIKE 'sqlite%'", (), |row| row.get(0))
        .unwrap();
    db.set_pragma(None, "foreign_keys", false).unwrap();
    later.iter().for_each(|table| db.batch(&format!("DROP TABLE {table}")).unwrap());
    db.set_pragma(None, "user_version", 1).unwrap();
    drop(db);
    let opened = open(dir.path(), &KEY).unwrap();
    assert_eq!(migrate::version(&opened.writer).unwrap(), migrate::newest());
    opened.writer.row("SELECT count(*) FROM usage, usage_hour", (), |_| Ok(())).unwrap();
}

#[test]
fn a_locked_state_cannot_be_opened_until_it_is_released() {
    let dir = TempDir::new().unwrap();
    let first = open(dir.path(), &KEY).unwrap();
    let error = open(dir.path(), &KEY).map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Locked { holder: Some(pid), .. } if pid == std::process::id()));
    assert_eq!(error.exit_code(), 75);
    drop(first);
    drop(open(dir.path(), &KEY).unwrap());
}

#[test]
fn an_unusable_state_directory_error_names_llmgw_state_dir() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for place in [file.join("state"), file] {
        let error = open(&place, &KEY).map(|_| ()).unwrap_err();
        assert!(matches!(error, OpenError::Io { .. }), "{error:?}");
        assert!(error.to_string().contains("LLMGW_STATE_DIR"), "{error}");
        assert_eq!(error.exit_code(), 74);
    }
}
