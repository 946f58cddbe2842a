//! Examines the state directory: permissions, and free space on its file system.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};
use rustix::process::geteuid;

use super::finding::{Findings, Subject, quoted};
use crate::db::sqlite_state::files::USAGE;
use crate::db::sqlite_state::lock::FILE as LOCK;
use crate::db::sqlite_state::open::{DATABASE, JOURNAL};
use crate::db::telemetry::TELEMETRY;
use crate::state::backup::FOLDER as BACKUPS;

/// Examines the permissions of the directory and of the databases in it. Returns false if the directory does not exist,
/// or cannot be read.
pub(super) fn examine(dir: &Path, is_in_use: bool, found: &mut Findings) -> bool {
    let subject = Subject::Directory;
    let shown = dir.display();
    let metadata = match fs::metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            examine_parent(dir, found);
            return false;
        }
        Err(error) => {
            found.fault(subject, format!("{shown} cannot be read: {error}"), take_over(dir));
            return false;
        }
        Ok(metadata) if !metadata.is_dir() => {
            let repair = "set LLMGW_STATE_DIR to a directory";
            found.fault(subject, format!("{shown} is not a directory"), repair);
            return false;
        }
        Ok(metadata) => metadata,
    };
    let wanted = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    if let Err(error) = access(dir, wanted) {
        found.fault(subject, format!("{shown} is not writable for this user: {error}"), take_over(dir));
        return fs::read_dir(dir).is_ok();
    }
    let others = [dir.to_owned(), dir.join(DATABASE), dir.join(USAGE), dir.join(TELEMETRY)]
        .into_iter()
        .filter(|path| fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0));
    for path in others {
        let text = format!("other users have access to {}", path.display());
        found.warning(subject, text, format!("chmod go= {}", quoted(&path)));
    }
    examine_owners(dir, metadata.uid(), found);
    let user = geteuid();
    let database = dir.join(DATABASE);
    let owner = fs::metadata(&database).map(|metadata| metadata.uid());
    if let Ok(owner) = owner
        && owner != user.as_raw()
        && !user.is_root()
    {
        let text =
            format!("{} belongs to user {owner}, not to this user ({})", database.display(), user.as_raw());
        found.fault(subject, text, take_over(dir));
    } else if !is_in_use && user.is_root() && metadata.uid() != 0 {
        let text = format!(
            "{shown} belongs to user {}, and this is root: run the gateway as its owner",
            metadata.uid()
        );
        found.good(subject, text);
    } else {
        found.good(subject, format!("{shown} is writable"));
    }
    true
}

/// Examines the owners of the directories and files that the gateway creates: it may not be able to use those of
/// another user than its own.
fn examine_owners(dir: &Path, owner: u32, found: &mut Findings) {
    let foreign = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.uid() != owner);
    let below = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let created = [DATABASE, USAGE, TELEMETRY, LOCK, JOURNAL, BACKUPS].map(|name| dir.join(name));
    let first = created.iter().cloned().chain(created.iter().flat_map(|path| below(path))).find(foreign);
    if let Some(path) = first {
        let text = format!("{} does not belong to user {owner}, as its directory does", path.display());
        found.fault(Subject::Directory, text, format!("chown -R {owner} {}, as root", quoted(dir)));
    }
}

/// Examines the closest existing directory above a state directory that does not exist yet.
fn examine_parent(dir: &Path, found: &mut Findings) {
    let parent = dir.ancestors().skip(1).find(|parent| parent.exists()).unwrap_or_else(|| Path::new("/"));
    let shown = dir.display();
    match access(parent, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => found.good(Subject::Directory, format!("{shown} does not exist; 'llmgw serve' creates it")),
        Err(error) => found.fault(
            Subject::Directory,
            format!("{shown} does not exist and cannot be created in {}: {error}", parent.display()),
            format!("install -d -m 700 -o \"$(id -u)\" {}, as root", quoted(dir)),
        ),
    }
}

fn take_over(dir: &Path) -> String {
    format!("chown -R \"$(id -u)\" {0} && chmod -R u+rwX {0}, as root; or set LLMGW_STATE_DIR", quoted(dir))
}

/// Examines the free space of the directory's file system.
pub(super) fn examine_disk(dir: &Path, found: &mut Findings) {
    let subject = Subject::Disk;
    let space = match statvfs(dir) {
        Ok(space) => space,
        Err(error) => return found.warning(subject, format!("free space is unknown: {error}"), ""),
    };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let length = |name| fs::metadata(dir.join(name)).map_or(0, |metadata| metadata.len());
    let databases = length(DATABASE).saturating_add(length(USAGE));
    let wanted = databases.saturating_mul(2).max(FREE_BYTES_WANTED);
    let text = format!("{} MiB are free at {}", free >> 20, dir.display());
    let repair = format!("free space; the largest files: du -xh {} | sort -h | tail", quoted(dir));
    if space.f_files > 0 && space.f_favail == 0 {
        found.fault(
            subject,
            format!("no more files can be created at {}: it has no free inodes", dir.display()),
            repair,
        );
    } else if free < FREE_BYTES_MIN {
        found.fault(subject, format!("{text}: usage cannot be recorded, so requests get 503"), repair);
    } else if free < wanted {
        let text = format!("{text}; a backup or an upgrade needs up to {} MiB", wanted >> 20);
        found.warning(subject, text, repair);
    } else {
        found.good(subject, text);
    }
}

/// Free space below which the journal may not get its files.
const FREE_BYTES_MIN: u64 = 32 << 20;
/// Free space that should always exist.
const FREE_BYTES_WANTED: u64 = 256 << 20;
