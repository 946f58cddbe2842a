//! The account that runs the servers: PostgreSQL refuses to run as root.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::{geteuid, getuid};

/// The account of the server's processes and files: `postgres` or `nobody` if the test runs as root, else its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    other: Option<Ids>,
}

#[derive(Clone, Copy, Debug)]
struct Ids {
    uid: u32,
    gid: u32,
}

impl Account {
    /// Returns the account for servers of this process.
    pub(crate) fn current() -> Self {
        if !geteuid().is_root() {
            return Self { uid: getuid().as_raw(), other: None };
        }
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let ids = ids_of(&users, "postgres").or_else(|| ids_of(&users, "nobody"));
        let ids = ids.expect("PostgreSQL does not run as root and needs a user `postgres` or `nobody`");
        Self { uid: ids.uid, other: Some(ids) }
    }

    /// Returns a command that runs as this account, and is not hit by a signal to the process group of the test.
    pub(crate) fn command(self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.process_group(0);
        if let Some(ids) = self.other {
            command.uid(ids.uid).gid(ids.gid);
        }
        command
    }

    /// Makes the account the owner of a file or folder that this process has created.
    pub(crate) fn own(self, path: &Path) {
        if let Some(ids) = self.other {
            chown(path, Some(ids.uid), Some(ids.gid)).unwrap();
        }
    }

    /// True if the account reaches the files of `folder`, which must be readable to all if the account is not the
    /// owner.
    pub(crate) fn may_enter(self, folder: &Path) -> bool {
        let open =
            |folder: &Path| fs::metadata(folder).is_ok_and(|data| data.permissions().mode() & 0o001 != 0);
        self.other.is_none() || folder.ancestors().all(open)
    }
}

/// Returns the IDs of a user in the text of `/etc/passwd`.
fn ids_of(users: &str, name: &str) -> Option<Ids> {
    let mut fields =
        users.lines().map(|line| line.split(':')).find(|fields| fields.clone().next() == Some(name))?;
    Some(Ids { uid: fields.nth(2)?.parse().ok()?, gid: fields.next()?.parse().ok()? })
}
