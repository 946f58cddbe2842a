//! Settings of commands that work on the state without a gateway: paths, keys and the number of backups to keep. Faults
//! in other settings do not affect them.

use std::path::PathBuf;

use shared::secret::Secret;

use super::env::Environment;
use super::fault::{ConfigError, ConfigFault};
use super::layer::{DATABASE_URL, places_of};
use crate::db::engine::postgres::DatabaseAddress;

/// The settings of an offline command.
#[derive(Debug)]
pub struct Offline {
    /// The state directory.
    pub state_dir: PathBuf,
    /// `LLMGW_CREDENTIAL_ENCRYPTION_KEY`.
    pub encryption_key: Option<Secret<[u8; 32]>>,
    /// `LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY`.
    pub new_encryption_key: Option<Secret<[u8; 32]>>,
    /// `LLMGW_BACKUP_KEEP`.
    pub backups_kept: u32,
    /// `LLMGW_DATABASE_URL`, if the state is in a database of PostgreSQL.
    pub database: Option<DatabaseAddress>,
}

/// Reads the settings from `environment`.
pub fn offline(environment: &std::sync::Arc<Environment>) -> Result<Offline, ConfigError> {
    let faults = environment.faults().iter().filter(|fault| NAMES.iter().any(|name| fault.is_of(name)));
    ConfigError::check(faults.cloned().collect())?;
    let (state_dir, _) = places_of(environment)?;
    let kept = environment.count("LLMGW_BACKUP_KEEP").and_then(|count| u32::try_from(count).ok());
    Ok(Offline {
        state_dir,
        encryption_key: environment.key(KEY),
        new_encryption_key: environment.key(NEW_KEY),
        database: environment.database(DATABASE_URL),
        backups_kept: kept.unwrap_or(super::identity::BACKUPS_KEPT),
    })
}

impl Offline {
    /// Returns the key that opens the state.
    pub fn key(&self) -> Result<&Secret<[u8; 32]>, ConfigError> {
        const MESSAGE: &str = "is required: the key that the state was encrypted with";
        self.encryption_key.as_ref().ok_or_else(|| ConfigFault::variable(KEY, MESSAGE).into())
    }

    /// Fails if the state is in a database of PostgreSQL: the command works on files.
    pub fn expect_files(&self, instead: &str) -> Result<(), ConfigError> {
        match &self.database {
            None => Ok(()),
            Some(address) => Err(ConfigFault::variable(
                DATABASE_URL,
                format!("names {address}, and this command is for a state in files: {instead}"),
            )
            .into()),
        }
    }

    /// Returns the key that replaces it.
    pub fn new_key(&self) -> Result<&Secret<[u8; 32]>, ConfigError> {
        const MESSAGE: &str = "is required: the next key; make one with `openssl rand -base64 32`";
        self.new_encryption_key.as_ref().ok_or_else(|| ConfigFault::variable(NEW_KEY, MESSAGE).into())
    }
}

const KEY: &str = "LLMGW_CREDENTIAL_ENCRYPTION_KEY";
const NEW_KEY: &str = "LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY";
const NAMES: [&str; 4] = [KEY, NEW_KEY, "LLMGW_BACKUP_KEEP", DATABASE_URL];
