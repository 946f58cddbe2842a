//! Merges the facts about each model from all sources. Overrides take precedence over the configuration, that over the
//! upstream's own list, that over the price list, and that over the built-in list. Prices of one source are never mixed with those of another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shared::answer_head::AnswerHead;
use shared::id::{ModelId, ProviderId};
use shared::prices::Prices;
use shared::routing::Model;

use super::built_in;
use super::cache::CatalogCache;
use super::entry::CatalogEntry;
use super::facts::{FactSource, KnownModel, Priced, PricesFrom, StandingPrices, day, label};
use super::listing::ListedModel;
use super::prices::{ListedFacts, PriceList};
use crate::common::model_facts::Facts;
use crate::db::engine::{Db, DbResult};
use crate::db::overrides::{self, Override};
use crate::routing::config::{Endpoint, Provider};

/// Builds the models of one snapshot.
#[derive(Debug)]
pub(crate) struct Merger {
    cache: Arc<CatalogCache>,
    list: Arc<PriceList>,
    overrides: Overrides,
    now_ms: u64,
    /// The next start or end of a vendor's peak hours.
    next_hours_at_ms: Option<u64>,
    /// The models that endpoints name, by provider.
    named: BTreeMap<String, BTreeSet<String>>,
    known: Vec<KnownModel>,
}

/// The overrides in force at one moment.
#[derive(Debug, Default, PartialEq)]
struct Overrides {
    /// By provider, then by model.
    in_force: BTreeMap<String, BTreeMap<String, Overriding>>,
    /// The time at which the next override takes effect.
    next_at_ms: Option<u64>,
}

#[derive(Debug, Default, PartialEq)]
struct Overriding {
    facts: Facts,
    priced_from_ms: u64,
}

impl Merger {
    /// Creates a merger with the overrides in force at `now_ms`.
    pub(crate) fn new(cache: &Arc<CatalogCache>, db: &Db, now_ms: u64) -> DbResult<Self> {
        let overrides = Overrides::at(now_ms, overrides::all(db)?);
        Ok(Self {
            cache: Arc::clone(cache),
            list: cache.list(),
            overrides,
            now_ms,
            next_hours_at_ms: None,
            named: BTreeMap::new(),
            known: Vec::new(),
        })
    }

    /// Adds the models that `endpoints` name.
    pub(crate) fn with_endpoints(mut self, endpoints: &[Endpoint]) -> Self {
        for member in endpoints.iter().flat_map(|endpoint| &endpoint.failover) {
            let models = self.named.entry(member.provider.to_string()).or_default();
            models.insert(member.model.to_string());
        }
        self
    }

    /// Returns the models of `provider`, sorted by id.
    pub(crate) fn models_of(&mut self, provider: &Provider) -> Vec<Arc<Model>> {
        let entry = self.cache.entry_of(provider);
        let offers = entry.as_ref().map(|entry| &entry.models);
        let declared = provider.models.iter().map(|model| model.id.as_str());
        let offered = offers.into_iter().flatten().map(|(id, _)| id.as_str());
        // Without a catalog, accept every model that an endpoint names: a lost catalog file must not break a route.
        let is_unlisted = entry.is_none() && provider.origin.is_some();
        let named = self.named.get(provider.id.as_str()).filter(|_| is_unlisted).cloned().unwrap_or_default();
        let named = named.iter().map(String::as_str);
        let ids: BTreeSet<&str> = declared.chain(offered).chain(named).collect();
        let mut models = Vec::with_capacity(ids.len());
        for id in ids {
            let listed = self.list.of(provider, id);
            if let Some((hours, _)) = listed.as_ref().and_then(|listed| listed.off_peak.as_ref()) {
                let next = hours.next_change(self.now_ms);
                self.next_hours_at_ms = self.next_hours_at_ms.into_iter().chain(next).min();
            }
            let known = self.known_of(provider, entry.as_deref(), id, listed.as_ref());
            models.push(Arc::clone(&known.model));
            self.known.push(known);
        }
        models
    }

    fn known_of(
        &self,
        provider: &Provider,
        entry: Option<&CatalogEntry>,
        id: &str,
        listed: Option<&ListedFacts>,
    ) -> KnownModel {
        let place = provider.models.binary_search_by(|model| model.id.as_str().cmp(id));
        let declared = place.ok().and_then(|place| provider.models.get(place));
        let offer: Option<&ListedModel> = entry.and_then(|entry| entry.models.get(id));
        let listed_now = listed.map(|listed| listed.at(self.now_ms));
        let overriding = self.overrides.in_force.get(provider.id.as_str()).and_then(|models| models.get(id));
        let config = declared.map(|model| Facts::of_declared(model));
        let built_in = built_in::facts_of(provider, id);
        let layers = [
            (FactSource::Override, overriding.map(|overriding| &overriding.facts)),
            (FactSource::Config, config.as_ref()),
            (FactSource::Upstream, offer.map(|offer| &offer.facts)),
            (FactSource::List, listed_now.as_ref()),
            (FactSource::BuiltIn, built_in.as_ref()),
        ];
        let stated = || layers.iter().filter_map(|(source, facts)| Some((*source, (*facts)?)));
        let facts = stated().fold(Facts::default(), |known, (_, facts)| known.or(facts));
        let of = |source| PricesFrom {
            source,
            as_of: match source {
                FactSource::Override => overriding.and_then(|overriding| day(overriding.priced_from_ms)),
                FactSource::Config => None,
                FactSource::Upstream => entry.and_then(|entry| day(entry.evidence.catalog.synced_at_ms?)),
                FactSource::List => Some(self.list.as_of.clone()),
                FactSource::BuiltIn => None,
            },
        };
        let mut priced = stated().filter_map(|(source, facts)| Some((source, facts.prices.as_ref()?)));
        let prices_from = priced.clone().next().map(|(source, _)| of(source));
        let without_override = priced
            .find(|(source, _)| *source != FactSource::Override)
            .map(|(source, prices)| standing(prices, &of(source), listed));
        let sources = stated().map(|(source, _)| source).collect();
        KnownModel {
            provider: provider.id.clone(),
            audio: facts.audio,
            created: offer.and_then(|offer| offer.created),
            owned_by: offer.and_then(|offer| offer.owned_by.clone()),
            model: Arc::new(Model {
                body: declared.and_then(|declared| declared.body.clone()),
                headers: declared.map(|declared| declared.headers.clone()).unwrap_or_default(),
                ..model(&provider.id, id, facts, prices_from.as_ref())
            }),
            prices_from,
            without_override,
            sources,
        }
    }

    /// Publishes the merged facts to the shelf. Returns the time of the next price change: an override that takes
    /// effect, or a start or end of peak hours.
    pub(crate) fn finish(self) -> Option<u64> {
        self.cache.show(self.known);
        self.overrides.next_at_ms.into_iter().chain(self.next_hours_at_ms).min()
    }
}

/// Returns the prices of a source other than an override; those of the price list with their hours.
fn standing(prices: &Prices, from: &PricesFrom, listed: Option<&ListedFacts>) -> StandingPrices {
    let priced = |prices: &Prices| Priced { prices: prices.clone(), label: label(prices, from) };
    let listed = listed.filter(|_| from.source == FactSource::List);
    let peak = listed.and_then(ListedFacts::prices).unwrap_or(prices);
    let off_peak = listed.and_then(|listed| listed.off_peak.as_ref());
    StandingPrices {
        priced: priced(peak),
        off_peak: off_peak.map(|(hours, prices)| (hours.clone(), priced(prices))),
    }
}

fn model(provider: &ProviderId, id: &str, facts: Facts, prices_from: Option<&PricesFrom>) -> Model {
    let id = ModelId::new(id);
    Model {
        answer_head: Some(AnswerHead::new(provider, &id)),
        display_name: facts.display_name,
        vision: facts.vision,
        tools: facts.tools,
        reasoning: facts.reasoning,
        dialects: facts.protocols,
        lacks: facts.lacks.unwrap_or_default(),
        context_window: facts.context_window,
        output_tokens_max: facts.max_output_tokens,
        rules: facts.rules,
        price_label: facts.prices.as_ref().zip(prices_from).map(|(prices, from)| label(prices, from)),
        prices: facts.prices,
        ..Model::bare(id)
    }
}

impl Overrides {
    /// Merges those of `rows` that are in force at `now_ms`. Rows are in order of their effective dates; if two set the
    /// same fact, the later one takes precedence.
    fn at(now_ms: u64, rows: Vec<Override>) -> Self {
        let mut overrides = Self::default();
        for row in rows {
            if row.effective_from_ms > now_ms {
                overrides.next_at_ms = Some(row.effective_from_ms);
                break;
            }
            let overriding =
                overrides.in_force.entry(row.provider).or_default().entry(row.model).or_default();
            if row.facts.prices.is_some() {
                overriding.priced_from_ms = row.effective_from_ms;
            }
            overriding.facts = row.facts.or(&overriding.facts);
        }
        overrides
    }
}

#[cfg(test)]
mod tests;
