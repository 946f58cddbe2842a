//! Secrets in files, as Docker and Kubernetes mount them: those that `NAME_FILE` names, and those of `${FILE:/path}` in the
//! configuration file. A message names the path, never the content.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use shared::secret::Secret;

use crate::common::regular_file;

/// The files that one reading of the configuration has asked for, with their contents. Two are equal if no file has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretFiles(BTreeMap<PathBuf, Result<Secret<String>, String>>);

impl SecretFiles {
    /// Returns the secret in `path`. Each file is read once, so that all its uses have the same content.
    pub(in crate::routing::config) fn read(&mut self, path: &Path) -> Result<Secret<String>, String> {
        self.0.entry(path.to_owned()).or_insert_with(|| read(path)).clone()
    }

    /// Returns the paths.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(PathBuf::as_path)
    }
}

/// Returns the content of `path` without the newline at its end.
pub(super) fn read(path: &Path) -> Result<Secret<String>, String> {
    let shown = path.display();
    let bytes = regular_file::read(path, SECRET_BYTES_MAX)
        .map_err(|error| format!("cannot read {shown}: {error}"))?;
    let mut text = String::from_utf8(bytes).map_err(|error| {
        drop(Secret::new(error.into_bytes()));
        format!("{shown} is not UTF-8 text")
    })?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    let secret = Secret::new(text);
    if secret.expose().trim().is_empty() { Err(format!("{shown} is empty")) } else { Ok(secret) }
}

/// The size limit of a file. The largest secrets are service accounts and keys in PEM, which have a few kilobytes.
const SECRET_BYTES_MAX: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn one_newline_is_cut_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let shown = path.display();
        let content = |content: &[u8]| {
            fs::write(&path, content).unwrap();
            read(&path).map(|secret| secret.expose().clone())
        };
        for (given, want) in [
            (&b"s3cret"[..], Ok("s3cret")),
            (b"s3cret\n", Ok("s3cret")),
            (b"s3cret\r\n", Ok("s3cret")),
            (b"s3cret\n\n", Ok("s3cret\n")),
            (b" s3cret \n", Ok(" s3cret ")),
            (b"two\nlines\n", Ok("two\nlines")),
            (b"", Err("is empty")),
            (b"\n", Err("is empty")),
            (b" \t\n", Err("is empty")),
            (b"s3cret\xff", Err("is not UTF-8 text")),
        ] {
            let want = want.map(str::to_owned).map_err(|why| format!("{shown} {why}"));
            assert_eq!(content(given), want, "{given:?}");
        }
    }

    #[test]
    fn a_secret_of_one_byte_too_many_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let bytes = usize::try_from(SECRET_BYTES_MAX).unwrap();
        fs::write(&path, "s".repeat(bytes)).unwrap();
        assert_eq!(read(&path).unwrap().expose().len(), bytes);
        fs::write(&path, "s".repeat(bytes + 1)).unwrap();
        let why = format!("cannot read {}: it is larger than {bytes} bytes", path.display());
        assert_eq!(read(&path), Err(why));
        let gone = folder.path().join("gone");
        assert!(
            read(&gone).unwrap_err().starts_with(&format!("cannot read {}: No such file", gone.display()))
        );
        let folder_read = read(folder.path()).unwrap_err();
        assert!(folder_read.ends_with("it is a directory, not a regular file"), "{folder_read}");
    }

    #[test]
    fn a_file_is_read_once_until_the_next_reading() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "first").unwrap();
        let (mut files, mut again) = (SecretFiles::default(), SecretFiles::default());
        assert_eq!(files.read(&path).unwrap().expose(), "first");
        fs::write(&path, "second").unwrap();
        assert_eq!(files.read(&path).unwrap().expose(), "first");
        assert_eq!(again.read(&path).unwrap().expose(), "second");
        assert!(files != again && files.paths().eq([path.as_path()]));
        assert!(!format!("{files:?}").contains("first"));
    }
}
