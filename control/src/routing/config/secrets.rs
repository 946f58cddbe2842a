//! The two required secrets, generated once on a machine where they are not set. They are stored in a file beside the
//! state directory, not inside it, so that no backup of the state contains the key that opens it.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::rand::{SecureRandom as _, SystemRandom};
use thiserror::Error;

use super::env::Environment;
use crate::common::{private_file, regular_file};

/// The secrets that the environment lacks, and their file.
#[derive(Debug)]
pub struct SecretsFile {
    /// The file.
    pub file: PathBuf,
    /// Variables to add to the environment.
    pub variables: Vec<(String, String)>,
    /// True if any of them was generated now.
    pub made: bool,
}

/// Secrets that could not be stored.
#[derive(Debug, Error)]
pub enum SecretsError {
    /// State exists, but its encryption key is unknown; a new key would not open it.
    #[error(
        "{}: {} contains state, but its key is neither in the environment nor in {}; set it, or move that \
         directory away to start with new state",
        ENCRYPTION_KEY, state_dir.display(), file.display()
    )]
    KeyLost {
        /// The state directory.
        state_dir: PathBuf,
        /// The expected file of the key.
        file: PathBuf,
    },
    /// The file cannot be read or written.
    #[error("{}: {}", .0.display(), .1)]
    File(PathBuf, io::Error),
}

/// Returns the path of the secrets file for `state_dir`.
pub fn secrets_file(state_dir: &Path) -> PathBuf {
    let mut name = state_dir.components().collect::<PathBuf>().into_os_string();
    name.push(".secrets");
    PathBuf::from(name)
}

/// Reads the secrets that `environment` lacks from the file beside `state_dir`, and generates those that the file
/// lacks.
pub fn keep_secrets(environment: &Environment, state_dir: &Path) -> Result<SecretsFile, SecretsError> {
    let file = secrets_file(state_dir);
    let failed = |error| SecretsError::File(file.clone(), error);
    let mut known = read(&file).map_err(failed)?;
    let mut variables = Vec::new();
    let mut made = false;
    for name in [API_KEY, ENCRYPTION_KEY] {
        if environment.names_secret(name) {
            continue;
        }
        let value = match known.iter().find(|(kept, _)| kept == name) {
            Some((_, value)) => value.clone(),
            None if name == ENCRYPTION_KEY && state_dir.join("gateway.db").exists() => {
                return Err(SecretsError::KeyLost { state_dir: state_dir.to_owned(), file });
            }
            None => {
                made = true;
                let value = random().map_err(failed)?;
                known.push((name.to_owned(), value.clone()));
                value
            }
        };
        variables.push((name.to_owned(), value));
    }
    if made {
        write(&file, &known).map_err(failed)?;
    }
    Ok(SecretsFile { file, variables, made })
}

/// Reads `NAME=VALUE` lines; skips comments, empty lines and a leading `export`.
fn read(file: &Path) -> io::Result<Vec<(String, String)>> {
    let bytes = match regular_file::read(file, BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))?;
    // A copied file may be readable by others.
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    Ok(lines
        .filter_map(|line| line.strip_prefix("export ").unwrap_or(line).split_once('='))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().trim_matches(['\'', '"']).to_owned()))
        .filter(|(_, value)| !value.is_empty())
        .collect())
}

/// Writes all of `secrets`, readable only by the owner, atomically.
fn write(file: &Path, secrets: &[(String, String)]) -> io::Result<()> {
    let mut fresh = file.as_os_str().to_owned();
    fresh.push(format!(".{}.new", std::process::id()));
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        private_file::create_directories(folder)?;
    }
    let mut open = private_file::create_fresh(Path::new(&fresh))?;
    writeln!(open, "# Secrets of llmgw. Keep them: the state cannot be opened without the second one.")?;
    for (name, value) in secrets {
        writeln!(open, "{name}={value}")?;
    }
    open.sync_all()?;
    fs::rename(fresh, file)
}

fn random() -> io::Result<String> {
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the operating system returned no random bytes"))?;
    Ok(BASE64_STANDARD.encode(bytes))
}

/// The size limit of the file, which holds two lines.
const BYTES_MAX: u64 = 1 << 20;
const API_KEY: &str = "LLMGW_API_KEY";
const ENCRYPTION_KEY: &str = "LLMGW_CREDENTIAL_ENCRYPTION_KEY";

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::read(pairs.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn secrets_are_created_once_beside_the_state_and_reused() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let first = keep_secrets(&environment(&[]), &state).unwrap();
        assert!(first.made && first.file == folder.path().join("state.secrets"));
        assert_eq!(fs::metadata(&first.file).unwrap().permissions().mode() & 0o777, 0o600);
        for (_, value) in &first.variables {
            assert_eq!(BASE64_STANDARD.decode(value).unwrap().len(), 32);
        }
        assert_ne!(first.variables[0].1, first.variables[1].1);

        fs::set_permissions(&first.file, fs::Permissions::from_mode(0o644)).unwrap();
        let second = keep_secrets(&environment(&[]), &state).unwrap();
        assert!(!second.made);
        assert_eq!(first.variables, second.variables);
        assert_eq!(fs::metadata(&first.file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left behind");
    }

    #[test]
    fn secrets_of_the_environment_take_precedence_and_are_not_stored() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let all = environment(&[(API_KEY, "own-key"), (ENCRYPTION_KEY, "x")]);
        let kept = keep_secrets(&all, &state).unwrap();
        assert!(!kept.made && kept.variables.is_empty() && !kept.file.exists());

        let kept = keep_secrets(&environment(&[(API_KEY, "own-key")]), &state).unwrap();
        assert_eq!(kept.variables.len(), 1);
        assert!(!fs::read_to_string(&kept.file).unwrap().contains("own-key"));
    }

    #[test]
    fn a_lost_encryption_key_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("gateway.db"), "").unwrap();
        let error = keep_secrets(&environment(&[(API_KEY, "k")]), folder.path()).unwrap_err();
        assert!(error.to_string().starts_with("LLMGW_CREDENTIAL_ENCRYPTION_KEY: "), "{error}");
        assert!(!secrets_file(folder.path()).exists());
    }

    #[test]
    fn the_secrets_file_name_ignores_trailing_slashes() {
        for path in ["/a/b", "/a/b/", "/a/b//"] {
            assert_eq!(secrets_file(Path::new(path)), Path::new("/a/b.secrets"), "{path}");
        }
    }
}
