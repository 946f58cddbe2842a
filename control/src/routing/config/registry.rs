//! The well-known providers that `registry_id` names, as embedded data.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use shared::operation::Dialect;
use shared::provider::quirks::Differing;

/// A well-known provider.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RegistryEntry {
    /// The value of `registry_id`.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Its provider kind.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its `gen_ai.provider.name` in OpenTelemetry, if it differs from that of its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub genai_name: Option<String>,
    /// The base URL that its own SDK uses; absent if its kind provides one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The variable that its own SDK reads the key from; absent if no key is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// Its native protocols, if they differ from those of its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<Vec<crate::common::shared_shapes::Protocol>>"))]
    pub protocols: Option<Vec<Dialect>>,
    /// Its models, if the upstream has no model list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Its differences from other providers of its kind.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, serde_json::Value>"))]
    pub quirks: Differing,
    /// Features of the Responses API that it lacks, as in [`shared::routing::ProviderInstance::lacks`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
    /// The URL of its documentation.
    pub docs: String,
}

/// Returns all well-known providers, sorted by id.
pub fn entries() -> &'static [RegistryEntry] {
    static ENTRIES: LazyLock<Vec<RegistryEntry>> =
        LazyLock::new(|| serde_json::from_str(REGISTRY).unwrap_or_default());
    &ENTRIES
}

/// Returns the provider with the given `id`.
pub(super) fn entry(id: &str) -> Option<&'static RegistryEntry> {
    entries().iter().find(|entry| entry.id == id)
}

const REGISTRY: &str = include_str!("../../../../shared/src/provider/registry.json");

#[cfg(test)]
mod tests {
    use shared::provider::Reach;
    use shared::provider::path::Place;
    use shared::routing::HttpVersion;

    use super::super::address::{Base, origin};
    use super::*;

    #[test]
    fn every_registry_entry_is_valid() {
        assert!(entries().len() >= 30, "the file parses");
        assert!(entries().is_sorted_by(|a, b| a.id < b.id), "sorted, each once");
        for entry in entries() {
            let kind = shared::provider::kind(&entry.kind).expect(&entry.id);
            assert!(shared::id::is_name(&entry.id), "{}", entry.id);
            let place =
                Place { region: Some("r"), project: Some("p"), location: Some("l"), ..Place::default() };
            assert!(entry.models.iter().all(|id| crate::routing::config::is_model_id(id)), "{}", entry.id);
            let needs_key = kind.api_key_required || kind.name == "compatible";
            assert_eq!(entry.api_key_env.is_some(), needs_key, "{}", entry.id);
            let Some(url) = entry.base_url.as_deref() else {
                assert!(!matches!(kind.reach, Reach::BaseUrl), "{} needs an address", entry.id);
                continue;
            };
            let origin =
                origin(kind, Base { url, is_own: false }, &place, HttpVersion::Auto).expect(&entry.id);
            for dialect in entry.protocols.iter().flatten() {
                assert!(origin.paths.has(*dialect), "{} {}", entry.id, dialect.name());
            }
        }
    }
}
