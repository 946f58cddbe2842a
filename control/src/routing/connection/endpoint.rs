//! The API view of an endpoint.

use serde::Serialize;

use super::{ObjectSource, RoutedProvider};
use crate::db::endpoints::{EndpointContent, EndpointRow, StoredMember};
use crate::routing::config;

/// An endpoint of the configuration file or of the database.
#[derive(Clone, Debug)]
pub(crate) struct ListedEndpoint {
    pub(crate) name: String,
    pub(crate) source: ObjectSource,
    pub(crate) content: EndpointContent,
    /// The kind of file object that has the same name and shadows this endpoint, if any.
    pub(crate) shadow: Option<&'static str>,
    /// The version, creation time and last change of the row, times in milliseconds since the Unix epoch. `None` for an
    /// endpoint of the file.
    pub(crate) row: Option<(u64, u64, u64)>,
    /// The sort key in lists, formed as for a provider instance.
    pub(crate) place: String,
}

/// A member that routing skips, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PassedOver {
    pub(crate) provider: String,
    pub(crate) model: String,
    /// `no_such_provider`, `unknown_model`, or the state of the provider.
    pub(crate) reason: &'static str,
}

impl ListedEndpoint {
    /// Builds the view of an endpoint of the file.
    pub(crate) fn of_file(endpoint: &config::Endpoint) -> Self {
        let member = |member: &config::Member| StoredMember {
            provider: member.provider.to_string(),
            model: member.model.to_string(),
            weight: member.weight,
            tier: member.tier,
            first_content_timeout: member.first_content_timeout.map(|limit| limit.as_secs_f64()),
        };
        Self {
            name: endpoint.name.to_string(),
            source: ObjectSource::File,
            content: EndpointContent {
                failover: endpoint.failover.iter().map(member).collect(),
                preamble: endpoint.preamble.clone(),
                also: endpoint.also.clone(),
                order: endpoint.order,
                sticky: endpoint.sticky,
                cursor_bodies: endpoint.cursor_bodies,
            },
            shadow: None,
            row: None,
            place: endpoint.name.to_string(),
        }
    }

    /// Builds the view of an endpoint of the database; `shadow` is the kind of file object with the same name.
    pub(crate) fn of_row(row: EndpointRow, shadow: Option<&'static str>) -> Self {
        Self {
            place: if shadow.is_some() { format!("{}+", row.name) } else { row.name.clone() },
            name: row.name,
            source: ObjectSource::Api,
            content: row.content,
            shadow,
            row: Some((row.version, row.created_at_ms, row.updated_at_ms)),
        }
    }

    /// Returns the version of the row.
    pub(crate) fn version(&self) -> Option<u64> {
        self.row.map(|(version, _, _)| version)
    }

    /// Returns the members that routing skips; `find` looks up their provider instances.
    pub(crate) fn passed_over<E>(
        &self,
        mut find: impl FnMut(&str) -> Result<Option<RoutedProvider>, E>,
    ) -> Result<Vec<PassedOver>, E> {
        let mut passed_over = Vec::new();
        for StoredMember { provider, model, .. } in &self.content.failover {
            if let Some(reason) = reason(find(provider)?, model) {
                passed_over.push(PassedOver { provider: provider.clone(), model: model.clone(), reason });
            }
        }
        Ok(passed_over)
    }

    /// Returns the endpoint as the API shows it.
    pub(crate) fn shown(&self, passed_over: Vec<PassedOver>) -> ShownEndpoint {
        let (created_at_ms, updated_at_ms) = self.row.map(|(_, created, updated)| (created, updated)).unzip();
        ShownEndpoint {
            name: self.name.clone(),
            source: self.source,
            shadowed: self.shadow.is_some(),
            content: self.content.clone(),
            passed_over,
            warnings: Vec::new(),
            version: self.version(),
            created_at_ms,
            updated_at_ms,
        }
    }
}

impl ShownEndpoint {
    /// Adds the warnings about its settings.
    pub(crate) fn with_warnings(self, warnings: Vec<String>) -> Self {
        Self { warnings, ..self }
    }
}

/// An endpoint.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Endpoint"))]
pub(crate) struct ShownEndpoint {
    name: String,
    source: ObjectSource,
    /// True if the configuration file has an endpoint or a provider of the same name.
    shadowed: bool,
    #[serde(flatten)]
    content: EndpointContent,
    /// Targets that receive no requests at the moment.
    passed_over: Vec<PassedOver>,
    /// Settings that keep the endpoint from failing over, or from failing over in time, and further names that something
    /// else has. Empty in an answer to a write.
    warnings: Vec<String>,
    /// Null for an endpoint of the configuration file.
    version: Option<u64>,
    /// In milliseconds since the Unix epoch. Absent for an endpoint of the configuration file.
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at_ms: Option<u64>,
    /// In milliseconds since the Unix epoch. Absent for an endpoint of the configuration file.
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at_ms: Option<u64>,
}

fn reason(found: Option<RoutedProvider>, model: &str) -> Option<&'static str> {
    let Some(found) = found else { return Some("no_such_provider") };
    match found.standing.name() {
        "ready" if found.models.iter().any(|known| known.as_str() == model) => None,
        "ready" => Some("unknown_model"),
        other => Some(other),
    }
}
