//! What a command may ask about the provider instances of file and database together.

use std::sync::Arc;

use shared::id::ModelId;

use super::{Connection, Held, Standing, shadow_of};
use crate::catalog::shelf::Shelf;
use crate::command::Write;
use crate::config::Provider;
use crate::store::providers;

/// A provider instance that routing uses under its id, unless its standing says otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) standing: Standing,
    /// Models that it is known to serve.
    pub(crate) models: Vec<ModelId>,
}

/// Models that a provider instance is known to serve: those that are declared, and those that its upstream lists.
fn known_models(provider: &Provider, catalog: &Shelf) -> Vec<ModelId> {
    let declared = provider.models.iter().map(|model| model.id.clone());
    let entry = catalog.entry_of(provider);
    let listed = entry.iter().flat_map(|entry| entry.models.keys()).map(|id| ModelId::new(id.as_str()));
    declared.chain(listed).collect()
}

/// The provider instance that `id` means; the file's where it has one.
pub(crate) fn lookup(write: &Write<'_>, id: &str) -> rusqlite::Result<Option<Found>> {
    let of_file = write.file.providers.iter().find(|provider| provider.id.as_str() == id);
    if let Some(provider) = of_file.map(Arc::as_ref) {
        return Ok(Some(Found {
            standing: Standing::of(provider),
            models: known_models(provider, write.catalog),
        }));
    }
    let Some(row) = providers::find(write.db, id)? else { return Ok(None) };
    let held = Held::of(row, Vec::new(), write.keys, write.environment);
    let connection = Connection::of_row(&Arc::new(held), shadow_of(write.file, id));
    let models = connection.read.as_deref().map(|read| known_models(read, write.catalog)).unwrap_or_default();
    Ok(Some(Found { standing: connection.standing, models }))
}

/// Every id that [`lookup`] finds something for.
pub(crate) fn provider_ids(write: &Write<'_>) -> rusqlite::Result<Vec<String>> {
    let stored = providers::stamps(write.db)?.into_iter().map(|(id, _)| id);
    Ok(write.file.providers.iter().map(|provider| provider.id.to_string()).chain(stored).collect())
}
