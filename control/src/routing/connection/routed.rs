//! A provider instance that routing uses, and its known models.

use shared::id::ModelId;

use super::ProviderStanding;
use crate::routing::catalog::cache::CatalogCache;
use crate::routing::config::Provider;

/// A provider instance that routing uses under its id, if its standing permits.
#[derive(Clone, Debug)]
pub(crate) struct RoutedProvider {
    pub(crate) standing: ProviderStanding,
    /// The known models of the instance.
    pub(crate) models: Vec<ModelId>,
}

/// Returns the known models of a provider instance: the declared ones, followed by those that its upstream lists.
pub(crate) fn known_models(provider: &Provider, catalog: &CatalogCache) -> Vec<ModelId> {
    let declared = provider.models.iter().map(|model| model.id.clone());
    let entry = catalog.entry_of(provider);
    let listed = entry.iter().flat_map(|entry| entry.models.keys()).map(|id| ModelId::new(id.as_str()));
    declared.chain(listed).collect()
}
