//! The folder of one server. Whatever ends the test process also ends the processes of the folder and deletes it.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::Builder;

use crate::account::Account;

/// A folder below the directory of temporary files, and the supervisor of the processes that use it.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    supervisor: Child,
}

impl Folder {
    /// Creates an empty folder that belongs to `account`.
    pub(crate) fn new(account: Account) -> Self {
        let temporary = std::env::temp_dir();
        let parent = if account.may_enter(&temporary) { temporary } else { PathBuf::from("/tmp") };
        let path = Builder::new().prefix("postgres-").tempdir_in(&parent).unwrap().keep();
        // The supervisor comes first: if this process is killed now, the folder is deleted.
        let supervisor = Command::new("sh")
            .args(["-c", include_str!("supervise.sh")])
            .env("folder", &path)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        account.own(&path);
        Self { path, supervisor }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Closes the pipe to the supervisor, which then does the same as after the end of this process.
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}
