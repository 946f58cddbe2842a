//! The seed: a file that is copied once to the configuration's path while no file exists there, and never again
//! (CFG-1).

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::file::FILE_BYTES_MAX;
use crate::common::{private_file, regular_file};

/// A copy that has not been made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// The file that `LLMGW_CONFIG_SEED` names.
    pub from: PathBuf,
    /// The path of the configuration file.
    pub to: PathBuf,
}

impl Seed {
    /// Makes the copy atomically. Keeps a file that has been created there in the meantime.
    pub fn plant(&self) -> io::Result<()> {
        write_new(&self.to, &regular_file::read(&self.from, FILE_BYTES_MAX)?)
    }
}

/// Writes a file that does not exist yet, readable only by the owner, atomically. Keeps an existing file.
pub fn write_new(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder =
        file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    private_file::create_directories(folder)?;
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let fresh = folder.join(name);
    let result = fill(&fresh, bytes).and_then(|()| match fs::hard_link(&fresh, file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    let removed = fs::remove_file(&fresh);
    result.and(removed)
}

fn fill(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut open = private_file::create_fresh(file)?;
    open.write_all(bytes)?;
    open.sync_all()
}
