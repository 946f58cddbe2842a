//! A file system of a few MiB in memory, for tests of disks that become full.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::statvfs;
use rustix::process::geteuid;

/// A file system that is mounted until it is dropped.
pub(crate) struct SmallDisk {
    root: PathBuf,
}

impl SmallDisk {
    /// Mounts a file system on the directory `root`. Returns `None` if the test may not mount one.
    pub(crate) fn mount(root: &Path, mebibytes: u64) -> Option<Self> {
        if !geteuid().is_root() {
            super::skipped("only root may mount a file system");
            return None;
        }
        let options = format!("size={mebibytes}m,mode=700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(root).status();
        assert!(mounted.unwrap().success(), "a file system is mounted on {}", root.display());
        Some(Self { root: root.to_owned() })
    }

    /// Fills the file system until at most `bytes` are free.
    pub(crate) fn fill(&self, bytes: u64) {
        let mut ballast = File::options().append(true).create(true).open(self.ballast()).unwrap();
        while self.free_bytes() > bytes {
            // The last block may not fit.
            if ballast.write_all(&[0; 4_096]).is_err() {
                return;
            }
        }
    }

    /// Removes what [`SmallDisk::fill`] has written.
    pub(crate) fn clear(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }

    fn free_bytes(&self) -> u64 {
        let space = statvfs(&self.root).unwrap();
        space.f_bavail * space.f_frsize
    }

    fn ballast(&self) -> PathBuf {
        self.root.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Files that a gateway still has open end with it.
        let _ = Command::new("umount").arg("--lazy").arg(&self.root).status();
    }
}
