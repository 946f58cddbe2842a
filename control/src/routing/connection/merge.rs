//! Merges the objects of file and database into the routing and the list that the API shows.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use shared::id::{EndpointName, ModelId, ProviderId};

use super::provider::{A_PROVIDER, AN_ENDPOINT};
use super::{
    DatabaseInstances, Extensions, ListedEndpoint, ProviderConnection, ProviderStanding, RoutedProvider,
    SignIns,
};
use crate::db::endpoints::EndpointRow;
use crate::routing::catalog::facts::KnownModel;
use crate::routing::config::{self, Provider, Routing};

/// All provider instances and endpoints as the API shows them, in list order.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) providers: Vec<ProviderConnection>,
    pub(crate) endpoints: Vec<ListedEndpoint>,
}

impl View {
    /// Returns the provider instance that routing uses under each id; `known` holds their models.
    pub(crate) fn found(&self, known: &[KnownModel]) -> HashMap<&str, RoutedProvider> {
        let mut models: HashMap<&str, Vec<ModelId>> = HashMap::new();
        for known in known {
            models.entry(known.provider.as_str()).or_default().push(known.model.id.clone());
        }
        // In list order a shadowed instance follows the one that shadows it: in reverse, the latter overwrites it.
        let found = |connection: &ProviderConnection| RoutedProvider {
            standing: connection.standing.clone(),
            models: models.get(ProviderConnection::id(connection)).cloned().unwrap_or_default(),
        };
        let named = |connection| (ProviderConnection::id(connection), found(connection));
        self.providers.iter().rev().map(named).collect()
    }
}

/// The view as of the last publication.
#[derive(Clone, Debug, Default)]
pub(crate) struct ViewCell(Arc<Mutex<Arc<View>>>);

impl ViewCell {
    pub(crate) fn read(&self) -> Arc<View> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn write(&self, view: View) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
    }
}

/// Merges the objects of file and database. Returns the routing and the list that the API shows.
pub(crate) fn merge(
    file: &Routing,
    holdings: &DatabaseInstances,
    (sign_ins, extensions): (&SignIns, &Extensions),
    rows: Vec<EndpointRow>,
) -> (Routing, View) {
    let of_file = |provider: &Arc<Provider>| {
        let mut provider = Arc::clone(provider);
        sign_ins.fill(&mut provider);
        ProviderConnection::of_file(&provider).connected(extensions)
    };
    let mut view = View {
        providers: file.providers.iter().map(of_file).collect(),
        endpoints: file.endpoints.iter().map(ListedEndpoint::of_file).collect(),
    };
    let mut routing = Routing {
        providers: view.providers.iter().filter_map(routed_provider).collect(),
        endpoints: file.endpoints.clone(),
    };
    let providers: HashSet<&str> = file.providers.iter().map(|provider| provider.id.as_str()).collect();
    let endpoints: HashSet<&str> = file.endpoints.iter().map(|endpoint| endpoint.name.as_str()).collect();
    let further: HashSet<&String> = file.endpoints.iter().flat_map(|endpoint| &endpoint.also).collect();
    let shadow = |name: &str| match name {
        name if providers.contains(name) => Some(A_PROVIDER),
        name if endpoints.contains(name) => Some(AN_ENDPOINT),
        _ => None,
    };
    for held in holdings.iter() {
        let shadow = shadow(&held.row.id);
        let connection = ProviderConnection::of_row(held, shadow, sign_ins).connected(extensions);
        routing.providers.extend(routed_provider(&connection));
        view.providers.push(connection);
    }
    for row in rows {
        let shadow = shadow(&row.name);
        if shadow.is_none() {
            routing.endpoints.push(routed(&row, &further));
        }
        view.endpoints.push(ListedEndpoint::of_row(row, shadow));
    }
    view.providers.sort_by(|a, b| a.place.cmp(&b.place));
    view.endpoints.sort_by(|a, b| a.place.cmp(&b.place));
    (routing, view)
}

/// Returns the instance if routing keeps it: one that is shadowed, or lacks its extension, is not kept.
fn routed_provider(connection: &ProviderConnection) -> Option<Arc<Provider>> {
    let provider = connection.read.as_ref()?;
    let lacks_extension =
        provider.extension.is_some() && matches!(connection.standing, ProviderStanding::Faulty(_));
    let is_kept = !matches!(connection.standing, ProviderStanding::Shadowed(_)) && !lacks_extension;
    is_kept.then(|| Arc::clone(provider))
}

/// Returns the endpoint of a row, without the further names that endpoints of the file have: `taken`.
fn routed(row: &EndpointRow, taken: &HashSet<&String>) -> config::Endpoint {
    let content = &row.content;
    config::Endpoint {
        name: EndpointName::new(row.name.as_str()),
        failover: content
            .failover
            .iter()
            .map(|member| config::Member {
                provider: ProviderId::new(member.provider.as_str()),
                model: ModelId::new(member.model.as_str()),
                weight: member.weight,
                tier: member.tier,
                first_content_timeout: member.content_limit(),
            })
            .collect(),
        preamble: content.preamble.clone(),
        also: content.also.iter().filter(|name| !taken.contains(name)).cloned().collect(),
        order: content.order,
        sticky: content.sticky,
        cursor_bodies: content.cursor_bodies,
    }
}
