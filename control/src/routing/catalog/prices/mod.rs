//! The price list: the vendors' prices and a few other facts, as of a date. One list is embedded; the database may contain
//! a newer one.

mod hours;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use shared::prices::Prices;

pub(crate) use self::hours::PeakHours;
use crate::common::model_facts::Facts;
use crate::routing::catalog::file::read_bounded;
use crate::routing::config::Provider;

/// A price list. Models are found by exact id, because a vendor's next model may have any price.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PriceList {
    /// The date of its prices, as `2026-11-04`.
    pub(crate) as_of: String,
    /// The packages it was generated from; for readers of the file only.
    #[serde(default, rename = "sources")]
    _sources: IgnoredAny,
    /// Peak hours of vendors with lower prices at other times; a list such as `deepseek@off-peak` has those prices.
    #[serde(default)]
    peak_hours: BTreeMap<String, PeakHours>,
    /// By well-known provider (`registry_id`) or provider kind, then by model. Prices that differ at regional addresses
    /// are in separate lists, such as `vertex@regional`.
    lists: BTreeMap<String, BTreeMap<String, Facts>>,
}

impl PriceList {
    /// The limit on the bytes of a list.
    pub(crate) const BYTES_MAX: u64 = 16 << 20;

    /// Returns the list of this release.
    pub(crate) fn embedded() -> Self {
        serde_json::from_str(EMBEDDED).unwrap_or_default()
    }

    /// Reads the list at `path` and returns it with its bytes. Returns `None` without such a file.
    pub(crate) fn of_file(path: &Path) -> Result<Option<(Vec<u8>, Self)>, String> {
        let bytes = read_bounded(path, Self::BYTES_MAX)
            .map_err(|error| format!("prices.json cannot be read: {error}"))?;
        let list = bytes.map(|bytes| Self::read(&bytes).map(|list| (bytes, list))).transpose();
        list.map_err(|why| format!("prices.json is not a price list: {why}"))
    }

    /// Parses a list, which must have a date and models.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let list: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if list.as_of.parse::<jiff::civil::Date>().is_err() {
            return Err("`as_of` must be a date such as 2026-11-04".to_owned());
        }
        if list.lists.values().all(BTreeMap::is_empty) {
            return Err("`lists` contains no models".to_owned());
        }
        Ok(list)
    }

    /// Returns the facts about a model of `provider`, with the prices of the address that the provider uses.
    pub(crate) fn of(&self, provider: &Provider, model: &str) -> Option<ListedFacts> {
        let vendor = provider.registry_id.as_deref().unwrap_or(provider.kind.name);
        let facts = self.lists.get(vendor)?.get(model)?;
        let regional = || self.lists.get(&format!("{vendor}{REGIONAL}"))?.get(model);
        let prices = if is_regional(provider) { regional() } else { None };
        let facts = Facts { prices: prices.unwrap_or(facts).prices.clone(), ..facts.clone() };
        let off_peak = || self.lists.get(&format!("{vendor}{OFF_PEAK}"))?.get(model)?.prices.clone();
        let hours = self.peak_hours.get(vendor);
        Some(ListedFacts { facts, off_peak: hours.and_then(|hours| Some((hours.clone(), off_peak()?))) })
    }
}

/// The facts about a model in the price list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListedFacts {
    /// The facts, with the prices of peak hours if the vendor has peak hours.
    facts: Facts,
    /// The prices of all other hours.
    pub(crate) off_peak: Option<(PeakHours, Prices)>,
}

impl ListedFacts {
    /// Returns the facts at `at_ms`.
    pub(crate) fn at(&self, at_ms: u64) -> Facts {
        let off_peak = self.off_peak.as_ref().filter(|(hours, _)| !hours.contains(at_ms));
        let prices = off_peak.map(|(_, prices)| prices).or(self.facts.prices.as_ref());
        Facts { prices: prices.cloned(), ..self.facts.clone() }
    }

    /// Returns the prices of peak hours, or of all hours.
    pub(crate) fn prices(&self) -> Option<&Prices> {
        self.facts.prices.as_ref()
    }
}

/// True for a location other than `global`, and for the addresses at which OpenAI processes in one region.
fn is_regional(provider: &Provider) -> bool {
    let host = provider.origin.as_ref().map(|origin| origin.host.as_str());
    provider.location.as_deref().is_some_and(|location| location != "global")
        || host.is_some_and(|host| REGIONAL_HOSTS.contains(&host))
}

const REGIONAL: &str = "@regional";
const OFF_PEAK: &str = "@off-peak";
const REGIONAL_HOSTS: &[&str] = &["us.api.openai.com", "eu.api.openai.com"];

const EMBEDDED: &str = include_str!("../prices.json");

#[cfg(test)]
mod golden_bills;

#[cfg(test)]
mod tests {
    use shared::prices::{Schedule, Tier};
    use shared::usage::Class;

    use super::*;

    /// Returns the rates of input, cached input and output.
    fn main_rates(prices: &Prices) -> [Option<u64>; 3] {
        [Class::Input, Class::CacheRead, Class::Output].map(|class| prices.base.rates.get(class))
    }

    fn schedule_is_good(schedule: &Schedule, name: &str) {
        let mut last = 0;
        for (from, rates) in std::iter::once(&(0, schedule.rates)).chain(&schedule.above) {
            let of = |class| rates.get(class);
            let priced = Class::ALL.iter().filter(|class| of(**class).is_some()).count();
            assert!(Class::ALL.iter().all(|class| of(*class) != Some(0)), "{name}: unknown is left out");
            assert!(priced > 0 || !schedule.pictures.is_empty(), "{name}");
            let input = of(Class::Input);
            assert!(
                of(Class::Output).is_none_or(|_| input.or_else(|| of(Class::AudioInput)).is_some()),
                "{name}"
            );
            // Cerebras, and Nebius for two models, charge the same for cached input.
            assert!(of(Class::CacheRead) <= input, "{name}: a cache makes it cheaper");
            assert!(of(Class::Output).is_none_or(|price| Some(price) >= input), "{name}");
            assert!(
                of(Class::CacheWrite1h) >= of(Class::CacheWrite) || of(Class::CacheWrite1h).is_none(),
                "{name}"
            );
            assert!(*from >= last && (*from > last || last == 0), "{name}: steps go up");
            last = *from;
        }
        assert!(schedule.above.is_empty() || schedule.input_tokens_max.is_none(), "{name}");
    }

    #[test]
    fn the_embedded_price_list_is_valid() {
        let embedded = PriceList::embedded();
        assert!(embedded.as_of.parse::<jiff::civil::Date>().is_ok(), "{}", embedded.as_of);
        let entries = crate::routing::config::registry_entries().iter().map(|entry| entry.id.as_str());
        let kinds = shared::provider::KINDS.iter().map(|kind| kind.name);
        let known: Vec<&str> = entries.chain(kinds).collect();
        for (vendor, models) in &embedded.lists {
            let base = vendor.split_once('@').map_or(vendor.as_str(), |(base, _)| base);
            assert!(known.contains(&base), "{vendor}");
            assert!(models.keys().all(|model| embedded.lists[base].contains_key(model)), "{vendor}");
            for (id, facts) in models {
                let prices = facts.prices.as_ref().unwrap_or_else(|| panic!("{vendor}/{id} has prices"));
                assert!(crate::routing::config::is_model_id(id) && facts.fault().is_none(), "{vendor}/{id}");
                let own = prices.tiers.iter().filter_map(|(_, tier)| match tier {
                    Tier::Own(schedule) => Some(&**schedule),
                    Tier::Times(_) => None,
                });
                for schedule in std::iter::once(&prices.base).chain(own) {
                    schedule_is_good(schedule, &format!("{vendor}/{id}"));
                }
            }
        }
        for vendor in VENDORS {
            assert!(!embedded.lists[vendor].is_empty(), "{vendor}");
        }
        let mini = embedded.lists["openai"]["gpt-4o-mini"].prices.as_ref().unwrap();
        assert_eq!(main_rates(mini), [150, 75, 600].map(|price| Some(price * 1_000_000)));
    }

    const VENDORS: [&str; 13] = [
        "gemini",
        "vertex",
        "bedrock",
        "azure_openai",
        "deepseek",
        "cohere",
        "moonshot",
        "perplexity",
        "deepinfra",
        "dashscope",
        "zai",
        "novita",
        "nebius",
    ];

    #[test]
    fn a_list_without_a_date_or_models_is_none() {
        let whole = r#"{"as_of":"2999-01-01","lists":{"openai":{"m":{"prices":{"input":1}}}}}"#;
        assert_eq!(PriceList::read(whole.as_bytes()).unwrap().as_of, "2999-01-01");
        for text in [r#"{"as_of":"2999-01-01","lists":{}}"#, "{", r#"{"as_of":"2999-01-01"}"#] {
            assert!(PriceList::read(text.as_bytes()).is_err(), "{text}");
        }
        assert!(PriceList::read(whole.replace("2999-01-01", "soon").as_bytes()).is_err());
    }
}
