//! The data of a new server, made once for each version of PostgreSQL and copied for each server.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::account::Account;
use crate::folder::Folder;
use crate::programs::{Programs, cache};

/// The name and the password of the role that the gateway uses, which owns all databases.
pub(crate) const ROLE: &str = "llmgw";
/// The role of standbys.
pub(crate) const STANDBY_ROLE: &str = "standby";
/// The superuser, which can connect only through the socket in the server's own folder.
pub(crate) const SUPERUSER: &str = "postgres";

/// Raise it if what [`make`] does changes.
const FORMAT: u32 = 1;

/// One statement a line, for the single-user mode.
const STATEMENTS: &str = "
CREATE ROLE llmgw LOGIN PASSWORD 'llmgw'
CREATE ROLE standby LOGIN REPLICATION PASSWORD 'standby'
CREATE DATABASE llmgw OWNER llmgw
";

/// Creates `data` as a copy of the template.
pub(crate) fn copy(programs: &Programs, account: Account, data: &Path) {
    copy_tree(&template(programs, account), data);
}

/// Returns the template of this version, which is made if it does not exist. One process makes it, the others wait.
fn template(programs: &Programs, account: Account) -> PathBuf {
    let cache = cache(account);
    let template = cache.join(format!("data-{}-{}-{FORMAT}", programs.version, account.uid));
    if template.exists() {
        return template;
    }
    fs::create_dir_all(&cache).unwrap();
    let lock = File::create(cache.join("data.lock")).unwrap();
    lock.lock().unwrap();
    if !template.exists() {
        let folder = Folder::new(account);
        make(programs, account, &folder.path().join("data"));
        // It has its name only when it is complete. A copy that a killed process left is replaced.
        let incomplete = cache.join("data.incomplete");
        let _ = fs::remove_dir_all(&incomplete);
        copy_tree(&folder.path().join("data"), &incomplete);
        fs::rename(&incomplete, &template).unwrap();
    }
    template
}

/// Creates the data with `initdb`, and the roles and the first database in single-user mode.
fn make(programs: &Programs, account: Account, data: &Path) {
    let mut initdb = programs.command(account, "initdb");
    initdb.args(["--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C", "--auth=trust"]);
    initdb.arg(format!("--username={SUPERUSER}")).arg("--pgdata").arg(data);
    if programs.major() >= 15 {
        // As in most installations, texts are not ordered by their bytes: SQL that relies on bytes must state it.
        initdb.args(["--locale-provider=icu", "--icu-locale=en-US"]);
    }
    let output = initdb.current_dir(data.parent().unwrap()).output().unwrap();
    assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));

    let mut single = programs.command(account, "postgres");
    single.args(["--single", "-F", "-D"]).arg(data).arg("postgres").current_dir(data.parent().unwrap());
    let mut single =
        single.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    single.stdin.take().unwrap().write_all(STATEMENTS.trim_start().as_bytes()).unwrap();
    let output = single.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("ERROR"), "postgres --single: {errors}");
}

/// Copies a folder with its owners; without copying the blocks where the file system can share them.
fn copy_tree(from: &Path, to: &Path) {
    let output = Command::new("cp").args(["-a", "--reflink=auto"]).args([from, to]).output().unwrap();
    assert!(output.status.success(), "cp: {}", String::from_utf8_lossy(&output.stderr));
}
