//! Provider instances of the configuration file whose key lies in the database.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::Connection;
use shared::secret::Secret;

use crate::config::{KeptKey, Routing, lacking};
use crate::store::credentials;
use crate::vault::VaultKeys;

/// Keys that are kept for provider instances of the file. They change only while no gateway runs.
#[derive(Debug)]
pub(crate) struct KeptKeys(HashMap<String, Secret<String>>);

impl KeptKeys {
    pub(crate) fn read(db: &Connection, keys: &VaultKeys) -> rusqlite::Result<Self> {
        credentials::all(db, keys).map(Self)
    }

    /// `file` with the keys that it does not have itself. The log tells who has none even so.
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
                    "it cannot be used: {}",
                    lacking(provider)
                );
            }
        }
        file
    }
}
