//! The programs of PostgreSQL: where they are, and their installation below the target directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::account::Account;

/// A folder with PostgreSQL's programs, which takes precedence over the installed ones.
const FOLDER_VARIABLE: &str = "LLMGW_TEST_POSTGRES_BIN";

/// The programs that are used. Debian has all of them in one folder.
const NEEDED: &[&str] = &["initdb", "pg_basebackup", "postgres", "psql"];

/// The folder of the programs, and their version.
#[derive(Debug)]
pub(crate) struct Programs {
    folder: PathBuf,
    /// The folder of the libraries, if the packages were unpacked and not installed.
    libraries: Option<PathBuf>,
    /// The version in full, such as `15.18`.
    pub(crate) version: String,
}

/// True if a server can be started. Otherwise the test cannot run here: this is reported, and in CI it is a failure.
pub fn installed() -> bool {
    match find() {
        Ok(_) => true,
        Err(why) => {
            assert!(variable("CI").is_none(), "skipped, which CI does not allow: {why}");
            eprintln!("SKIPPED: {why}");
            false
        }
    }
}

/// Returns the programs, which are unpacked first if there are none.
pub(crate) fn find() -> Result<&'static Programs, &'static str> {
    static FOUND: OnceLock<Result<Programs, String>> = OnceLock::new();
    FOUND.get_or_init(|| present().or_else(|()| unpack())).as_ref().map_err(String::as_str)
}

/// Returns the folder for what is made once and used by all tests: in the target directory, unless the account of the
/// servers cannot reach it there.
pub(crate) fn cache(account: Account) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    match target {
        Some(target) if account.may_enter(target) => target.join("postgres"),
        _ => PathBuf::from(format!("/var/tmp/llmgw-postgres-{}", rustix::process::geteuid().as_raw())),
    }
}

impl Programs {
    /// Returns a command that runs a program as `account`, without PostgreSQL's variables of the environment.
    pub(crate) fn command(&self, account: Account, program: &str) -> Command {
        let mut command = account.command(self.folder.join(program));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
            command.env_remove(name);
        }
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        // Neither does a client use the certificate or the passwords of the user.
        command.env("HOME", "/nonexistent").env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    /// Returns the first part of the version.
    pub(crate) fn major(&self) -> u32 {
        self.version.split('.').next().and_then(|number| number.parse().ok()).unwrap()
    }

    /// Returns the programs of a folder that has all of them.
    fn of(folder: &Path, libraries: Option<PathBuf>) -> Option<Self> {
        if !NEEDED.iter().all(|program| folder.join(program).exists()) {
            return None;
        }
        let mut programs = Self { folder: folder.to_owned(), libraries, version: String::new() };
        let output = programs.command(Account::current(), "postgres").arg("--version").output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        // postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)
        programs.version = text.split_whitespace().nth(2)?.to_owned();
        Some(programs)
    }

    /// Returns the newest programs below the root of a file system with Debian's layout.
    fn below(root: &Path) -> Option<Self> {
        let versions = fs::read_dir(root.join("usr/lib/postgresql")).ok()?;
        let mut folders: Vec<_> = versions.flatten().map(|version| version.path().join("bin")).collect();
        folders.sort_by_key(|folder| version_of(folder));
        let libraries = (root != Path::new("/")).then(|| libraries(root)).flatten();
        folders.iter().rev().find_map(|folder| Self::of(folder, libraries.clone()))
    }
}

/// Returns the programs of the folder in the environment; else those in the path; else Debian's.
fn present() -> Result<Programs, ()> {
    if let Some(folder) = variable(FOLDER_VARIABLE) {
        let programs = Programs::of(Path::new(&folder), None);
        return Ok(
            programs.unwrap_or_else(|| panic!("{FOLDER_VARIABLE}: {NEEDED:?} are not all in {folder:?}"))
        );
    }
    let path = variable("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).find_map(|folder| Programs::of(&folder, None));
    in_path.or_else(|| Programs::below(Path::new("/"))).ok_or(())
}

/// Unpacks Debian's packages, once for all processes of tests.
fn unpack() -> Result<Programs, String> {
    let cache = cache(Account::current());
    fs::create_dir_all(&cache).unwrap();
    let lock = File::create(cache.join("unpack.lock")).unwrap();
    lock.lock().unwrap();
    let root = cache.join("root");
    if let Some(programs) = Programs::below(&root) {
        return Ok(programs);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("install");
    let status = Command::new(script).arg(&root).stdin(Stdio::null()).status();
    let unpacked = status.is_ok_and(|status| status.success()).then(|| Programs::below(&root)).flatten();
    unpacked.ok_or_else(|| {
        format!(
            "PostgreSQL 14 or newer is needed: install it (`apt-get install postgresql`), or set \
             {FOLDER_VARIABLE} to the folder that has {NEEDED:?}"
        )
    })
}

/// Returns the folder of the shared libraries of this architecture.
fn libraries(root: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(root.join("usr/lib")).ok()?;
    folders.flatten().map(|folder| folder.path()).find(|path| path.to_string_lossy().ends_with("-linux-gnu"))
}

/// Returns the number in `/usr/lib/postgresql/15/bin`.
fn version_of(folder: &Path) -> Option<u32> {
    folder.parent()?.file_name()?.to_str()?.parse().ok()
}

#[expect(clippy::disallowed_methods, reason = "the environment of a test run, no setting of the gateway")]
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}
