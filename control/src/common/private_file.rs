//! Creates files and directories that only their owner can access: those of the state.
//!
//! What root creates belongs to the owner of the directory around it, as with the files that SQLite creates. Otherwise a
//! backup by root would leave files that the gateway, as another user, can neither read nor replace. A file that exists
//! never changes its owner: its name may be a link to any file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, fchown, lchown};
use std::path::Path;

use rustix::process::geteuid;

/// Creates a file for reading and writing. Fails if it exists.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    if let Some((user, group)) = owner_around(path) {
        // Without the right to change owners, root keeps the file, like any other user.
        let _ = fchown(&file, Some(user), Some(group));
    }
    Ok(file)
}

/// Creates a file like [`create_new`]. Removes one of that name first.
pub(crate) fn create_fresh(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => create_new(path),
    }
}

/// Opens a file for reading and writing, and creates it if it does not exist.
pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    match create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().read(true).write(true).open(path)
        }
        outcome => outcome,
    }
}

/// Creates a directory, and those above it that do not exist.
pub(crate) fn create_directories(path: &Path) -> io::Result<()> {
    match (create_directory(path), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            create_directories(parent)?;
            create_directory(path)
        }
        (Err(error), _) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        (outcome, _) => outcome,
    }
}

/// Creates a directory. Fails if it exists, or the one around it does not.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    if let Some((user, group)) = owner_around(path) {
        let _ = lchown(path, Some(user), Some(group));
    }
    Ok(())
}

/// Returns user and group of the directory around `path`, if this process is root and they are not.
fn owner_around(path: &Path) -> Option<(u32, u32)> {
    if !geteuid().is_root() {
        return None;
    }
    let around =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let metadata = fs::metadata(around).ok()?;
    (metadata.uid() != 0).then(|| (metadata.uid(), metadata.gid()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    fn owner(path: &Path) -> (u32, u32, u32) {
        let metadata = fs::symlink_metadata(path).unwrap();
        (metadata.uid(), metadata.gid(), metadata.permissions().mode() & 0o777)
    }

    #[test]
    fn only_the_owner_has_access() {
        let folder = tempfile::tempdir().unwrap();
        let nested = folder.path().join("one/two");
        create_directories(&nested).unwrap();
        create_directories(&nested).unwrap();
        create_new(&nested.join("file")).unwrap();
        create_new(&nested.join("file")).unwrap_err();
        open_or_create(&nested.join("file")).unwrap();
        create_fresh(&nested.join("file")).unwrap();
        let user = geteuid().as_raw();
        for (path, mode) in
            [(nested.parent().unwrap(), 0o700), (&nested, 0o700), (&nested.join("file"), 0o600)]
        {
            assert_eq!((owner(path).0, owner(path).2), (user, mode), "{}", path.display());
        }
        create_directories(&nested.join("file")).unwrap_err();
        create_directories(&nested.join("file/below")).unwrap_err();
    }

    /// Only root can prove it; the tests of the image and of the unit of systemd run as root.
    #[test]
    fn what_root_creates_belongs_to_the_owner_of_the_directory() {
        if !geteuid().is_root() {
            return;
        }
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let state = folder.path().join("state");
        create_directory(&state).unwrap();
        chown(&state, Some(65_532), Some(65_533)).unwrap();
        let nested = state.join("one/two");
        create_directories(&nested).unwrap();
        let files = ["new", "fresh", "opened"].map(|name| nested.join(name));
        create_new(&files[0]).unwrap();
        create_fresh(&files[1]).unwrap();
        open_or_create(&files[2]).unwrap();
        for path in files.iter().chain([&nested]) {
            assert_eq!((owner(path).0, owner(path).1), (65_532, 65_533), "{}", path.display());
        }
        let target = elsewhere.path().join("of-root");
        create_new(&target).unwrap();
        symlink(&target, state.join("link")).unwrap();
        open_or_create(&state.join("link")).unwrap();
        assert_eq!(owner(&target).0, 0, "a file that exists keeps its owner");
    }
}
