//! The curated providers that can be used without an account. `curated.json` contains them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::routing::config::WrittenProvider;

/// A provider with a free catalog that needs no account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct CuratedProvider {
    /// The ID that the provider gets.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) base_url: String,
    /// The model to test; if the catalog lacks it, its first model that holds conversations is tested.
    pub(crate) model: String,
    /// The vendor's limits of anonymous use.
    limits: String,
    /// The address of the vendor's documentation.
    documentation: String,
    /// The address of the terms.
    terms: String,
    /// The date on which the entry was checked.
    checked: String,
    /// What was checked, and how.
    checked_by: String,
}

impl CuratedProvider {
    /// Returns the settings of the provider. They contain no credential.
    pub(crate) fn settings(&self) -> WrittenProvider {
        let settings = [("type", "compatible"), ("base_url", self.base_url.as_str())];
        let member = |(name, value): (&str, &str)| (name.to_owned(), Value::from(value));
        WrittenProvider(settings.into_iter().map(member).collect::<Map<_, _>>())
    }
}

/// Returns the built-in list.
pub(crate) fn curated() -> Vec<CuratedProvider> {
    serde_json::from_str(CURATED).unwrap_or_else(|error| {
        tracing::error!("the built-in list of anonymous providers is invalid: {error}");
        Vec::new()
    })
}

const CURATED: &str = include_str!("curated.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jiff::civil::Date;
    use shared::id::is_name;

    use super::*;
    use crate::routing::config::{Environment, provider_of};

    #[test]
    fn each_curated_provider_needs_no_key_and_says_what_was_checked() {
        let list = curated();
        assert!(!list.is_empty());
        let ids: BTreeSet<&str> = list.iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(ids.len(), list.len());
        for entry in &list {
            let id = &entry.id;
            assert!(is_name(id) && !entry.name.is_empty() && !entry.model.is_empty(), "{id}");
            assert!(!entry.limits.is_empty() && !entry.checked_by.is_empty(), "{id}");
            assert!(entry.checked.parse::<Date>().is_ok(), "{id}");
            for address in [&entry.base_url, &entry.terms, &entry.documentation] {
                assert!(address.starts_with("https://"), "{id}: {address}");
            }
            let provider = provider_of(id, &entry.settings(), None, &Environment::read([])).unwrap();
            assert!(
                provider.api_key.is_none() && !provider.lacks_key() && provider.headers.is_empty(),
                "{id}"
            );
        }
    }
}
