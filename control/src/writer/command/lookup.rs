//! Looks up provider instances in the configuration file and the database.

use std::sync::Arc;

use super::Write;
use crate::db::engine::DbResult;
use crate::db::providers;
use crate::routing::connection::{
    Extensions, ProviderConnection, RoutedProvider, SignIns, StoredProvider, known_models, shadow_of,
};

/// Returns the provider instance with this id. The configuration file takes precedence over the database.
pub(super) fn find(write: &Write<'_>, id: &str) -> DbResult<Option<ProviderConnection>> {
    let sign_ins = SignIns::of_one(write.db, write.keys, id)?;
    let of_file = write.file.providers.iter().find(|provider| provider.id.as_str() == id);
    let connection = match of_file.map(Arc::clone) {
        Some(mut provider) => {
            sign_ins.fill(&mut provider);
            ProviderConnection::of_file(&provider)
        }
        None => {
            let Some(row) = providers::find(write.db, id)? else { return Ok(None) };
            let held = StoredProvider::of(row, Vec::new(), write.keys, write.environment);
            ProviderConnection::of_row(&Arc::new(held), shadow_of(write.file, id), &sign_ins)
        }
    };
    connected(write, connection).map(Some)
}

/// Returns the standing and the models of the provider instance with this id.
pub(crate) fn lookup(write: &Write<'_>, id: &str) -> DbResult<Option<RoutedProvider>> {
    let Some(connection) = find(write, id)? else { return Ok(None) };
    let models = connection.read.as_deref().map(|read| known_models(read, write.catalog)).unwrap_or_default();
    Ok(Some(RoutedProvider { standing: connection.standing, models }))
}

/// Connects an instance to its extension, if it belongs to one.
pub(crate) fn connected(write: &Write<'_>, connection: ProviderConnection) -> DbResult<ProviderConnection> {
    Ok(match connection.extension() {
        Some(_) => connection.connected(&Extensions::read(write.db, write.keys)?),
        None => connection,
    })
}

/// Returns every id that [`lookup`] finds.
pub(crate) fn provider_ids(write: &Write<'_>) -> DbResult<Vec<String>> {
    let stored = providers::stamps(write.db)?.into_iter().map(|(id, _)| id);
    Ok(write.file.providers.iter().map(|provider| provider.id.to_string()).chain(stored).collect())
}
