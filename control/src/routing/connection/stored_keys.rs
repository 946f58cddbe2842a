//! Provider instances of the configuration file whose key is stored in the database.

use std::collections::HashMap;
use std::sync::Arc;

use shared::secret::Secret;

use crate::common::vault::VaultKeys;
use crate::db::credentials;
use crate::db::engine::{Db, DbResult};
use crate::routing::config::{KeptKey, Routing, lacking};

/// Stored keys for provider instances of the file. They change only while no gateway runs.
#[derive(Debug)]
pub(crate) struct StoredKeys(HashMap<String, Secret<String>>);

impl StoredKeys {
    pub(crate) fn read(db: &Db, keys: &VaultKeys) -> DbResult<Self> {
        credentials::all(db, keys).map(Self)
    }

    /// Returns `file` with stored keys filled in where the file has none. Logs a warning for each instance that still
    /// lacks a key.
    pub(crate) fn fill(&self, mut file: Routing) -> Routing {
        for provider in &mut file.providers {
            if provider.kept_key != KeptKey::Ignored
                && provider.api_key.is_none()
                && let Some(key) = self.0.get(provider.id.as_str())
            {
                Arc::make_mut(provider).api_key = Some(key.clone());
            }
            if provider.lacks_key() {
                tracing::warn!(
                    provider.id = provider.id.as_str(),
                    "the provider cannot be used: {}",
                    lacking(provider)
                );
            }
        }
        file
    }
}
