//! The price list: what the vendors ask, and a few facts beside it, as of a date. One is embedded; a newer one may
//! lie in the state directory as `prices.json`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::facts::Facts;
use super::file::read_bounded;
use crate::config::Provider;

/// A list. Models are found by exact id: a vendor's next model may cost anything.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PriceList {
    /// The day on which it was true, as `2026-11-04`.
    pub(crate) as_of: String,
    /// By well-known provider (`registry_id`) or provider kind, then by model.
    lists: BTreeMap<String, BTreeMap<String, Facts>>,
}

impl PriceList {
    /// The embedded list, or the one in the state directory where that is newer.
    pub(crate) fn load(own: &Path) -> Self {
        let embedded: Self = serde_json::from_str(EMBEDDED).unwrap_or_default();
        let bytes = match read_bounded(own, BYTES_MAX) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return embedded,
            Err(error) => {
                tracing::warn!("{} cannot be read; the built-in price list holds: {error}", own.display());
                return embedded;
            }
        };
        match Self::read(&bytes) {
            Ok(list) if list.as_of > embedded.as_of => list,
            Ok(list) => {
                let (theirs, ours) = (&list.as_of, &embedded.as_of);
                tracing::warn!("{} is of {theirs}, the built-in one of {ours} holds", own.display());
                embedded
            }
            Err(error) => {
                tracing::warn!("{} is no price list; the built-in one holds: {error}", own.display());
                embedded
            }
        }
    }

    /// Parses a list, which must have a date and models.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let list: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if list.as_of.parse::<jiff::civil::Date>().is_err() {
            return Err("`as_of` must be a date such as 2026-11-04".to_owned());
        }
        if list.lists.values().all(BTreeMap::is_empty) {
            return Err("`lists` holds no models".to_owned());
        }
        Ok(list)
    }

    /// The models of the vendor that `provider` connects to; none where that is not known.
    pub(crate) fn of(&self, provider: &Provider) -> Option<&BTreeMap<String, Facts>> {
        self.lists.get(provider.registry_id.as_deref().unwrap_or(provider.kind.name))
    }
}

const EMBEDDED: &str = include_str!("prices.json");
const BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use shared::prices::Prices;
    use shared::usage::Class;

    use super::*;

    fn list(text: &str) -> PriceList {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prices.json");
        std::fs::write(&file, text).unwrap();
        PriceList::load(&file)
    }

    /// Input, cached input and output.
    fn main_rates(prices: &Prices) -> [Option<u64>; 3] {
        [Class::Input, Class::CacheRead, Class::Output].map(|class| prices.base.rates.get(class))
    }

    #[test]
    fn the_embedded_list_is_good() {
        let embedded = PriceList::load(Path::new("/nowhere/prices.json"));
        assert!(embedded.as_of.parse::<jiff::civil::Date>().is_ok(), "{}", embedded.as_of);
        let known: Vec<&str> =
            crate::config::registry_entries().iter().map(|entry| entry.id.as_str()).collect();
        let to_come = shared::provider::KINDS_TO_COME;
        for (vendor, models) in &embedded.lists {
            assert!(known.contains(&vendor.as_str()) || to_come.contains(&vendor.as_str()), "{vendor}");
            for (id, facts) in models {
                let prices = facts.prices.as_ref().unwrap_or_else(|| panic!("{vendor}/{id} has prices"));
                let [input, cached_input, output] = main_rates(prices);
                assert!(crate::config::is_model_id(id) && facts.fault().is_none(), "{vendor}/{id}");
                assert!(input.is_some_and(|price| price > 0), "{vendor}/{id}: unknown is left out");
                assert!(cached_input < input, "{vendor}/{id}: a cache makes it cheaper");
                assert!(output.is_none_or(|price| Some(price) >= input), "{vendor}/{id}");
            }
        }
        let mini = embedded.lists["openai"]["gpt-4o-mini"].prices.as_ref().unwrap();
        assert_eq!(main_rates(mini), [150, 75, 600].map(|price| Some(price * 1_000_000)));
    }

    #[test]
    fn a_newer_list_of_ones_own_holds_and_no_other_does() {
        let newer = r#"{"as_of":"2999-01-01","lists":{"openai":{"m":{"prices":{"input":1}}}}}"#;
        assert_eq!(list(newer).as_of, "2999-01-01");
        for text in [r#"{"as_of":"1999-01-01","lists":{}}"#, "{", r#"{"as_of":"2999-01-01"}"#] {
            assert!(list(text).lists.contains_key("anthropic"), "{text}");
        }
    }
}
