//! A provider instance that routing uses, and the models that it is known to serve.

use shared::id::ModelId;

use super::ProviderStanding;
use crate::catalog::shelf::CatalogShelf;
use crate::config::Provider;

/// A provider instance that routing uses under its id, unless its standing says otherwise.
#[derive(Clone, Debug)]
pub(crate) struct FoundProvider {
    pub(crate) standing: ProviderStanding,
    /// Models that it is known to serve.
    pub(crate) models: Vec<ModelId>,
}

/// Returns the models that a provider instance is known to serve: those that are declared, and those that its upstream lists.
pub(crate) fn known_models(provider: &Provider, catalog: &CatalogShelf) -> Vec<ModelId> {
    let declared = provider.models.iter().map(|model| model.id.clone());
    let entry = catalog.entry_of(provider);
    let listed = entry.iter().flat_map(|entry| entry.models.keys()).map(|id| ModelId::new(id.as_str()));
    declared.chain(listed).collect()
}
