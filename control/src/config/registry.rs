//! The well-known providers that `registry_id` names: embedded data, no code.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// A well-known provider.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The value of `registry_id`.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// The kind of provider that it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// The address that its own SDK takes.
    pub base_url: String,
    /// The variable that its own SDK reads the key from; none where no key is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// Where its documentation is.
    pub docs: String,
}

/// Every well-known provider, sorted by id.
pub fn entries() -> &'static [Entry] {
    static ENTRIES: LazyLock<Vec<Entry>> =
        LazyLock::new(|| serde_json::from_str(REGISTRY).unwrap_or_default());
    &ENTRIES
}

/// The one that `id` names.
pub(super) fn entry(id: &str) -> Option<&'static Entry> {
    entries().iter().find(|entry| entry.id == id)
}

const REGISTRY: &str = include_str!("../../../shared/src/provider/registry.json");

#[cfg(test)]
mod tests {
    use shared::provider::path::Place;
    use shared::routing::HttpVersion;

    use super::*;

    #[test]
    fn every_entry_can_be_used() {
        assert!(entries().len() >= 14, "the file parses");
        assert!(entries().is_sorted_by(|a, b| a.id < b.id), "sorted, each once");
        for entry in entries() {
            let kind = shared::provider::kind(&entry.kind).expect(&entry.id);
            assert!(shared::id::is_name(&entry.id), "{}", entry.id);
            let place = Place::default();
            super::super::address::origin(kind, &entry.base_url, &place, HttpVersion::Auto).expect(&entry.id);
            assert_eq!(entry.api_key_env.is_none(), kind.name == "local_server", "{}", entry.id);
        }
    }
}
