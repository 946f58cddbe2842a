//! What is known of each model, all sources together: overrides go before the configuration, that before the
//! upstream's own list, and that before the price list. Prices of one source are never mixed with another's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rusqlite::Connection;
use serde::Serialize;
use shared::answer_head::AnswerHead;
use shared::id::{ModelId, ProviderId};
use shared::prices::Prices;
use shared::routing::Model;

use super::history::{Priced, StandingPrices};
use super::listing::Offer;
use super::prices::{ListedFacts, PriceList};
use super::shelf::{CatalogEntry, CatalogShelf};
use crate::config::{Endpoint, Provider};
use crate::model_facts::Facts;
use crate::store::overrides::{self, Override};

/// A model of an instance, and where what is known of it comes from.
#[derive(Clone, Debug)]
pub(crate) struct KnownModel {
    pub(crate) provider: ProviderId,
    pub(crate) model: Arc<Model>,
    pub(crate) audio: Option<bool>,
    pub(crate) created: Option<u64>,
    pub(crate) owned_by: Option<String>,
    pub(crate) prices_from: Option<PricesFrom>,
    /// The prices that hold while no override says any.
    pub(crate) without_override: Option<StandingPrices>,
    /// Every source that says something of it.
    pub(crate) sources: Vec<FactSource>,
}

/// Who says something of a model, in the order in which they are believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FactSource {
    Override,
    Config,
    Upstream,
    List,
}

/// Where prices come from, and the day since or on which they hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PricesFrom {
    pub(crate) source: FactSource,
    pub(crate) as_of: Option<String>,
}

/// Makes the models of one snapshot.
#[derive(Debug)]
pub(crate) struct Merger {
    shelf: Arc<CatalogShelf>,
    list: Arc<PriceList>,
    overrides: Overrides,
    now_ms: u64,
    /// When the peak hours of a vendor begin or end next.
    next_hours_at_ms: Option<u64>,
    /// What endpoints are made of: models by provider.
    named: BTreeMap<String, BTreeSet<String>>,
    known: Vec<KnownModel>,
}

/// What the overrides say at one moment.
#[derive(Debug, Default, PartialEq)]
struct Overrides {
    /// By provider, then by model.
    in_force: BTreeMap<String, BTreeMap<String, Overriding>>,
    /// When the next one comes into force.
    next_at_ms: Option<u64>,
}

#[derive(Debug, Default, PartialEq)]
struct Overriding {
    facts: Facts,
    priced_from_ms: u64,
}

impl Merger {
    /// A merger with what holds at `now_ms`.
    pub(crate) fn new(shelf: &Arc<CatalogShelf>, db: &Connection, now_ms: u64) -> rusqlite::Result<Self> {
        let overrides = Overrides::at(now_ms, overrides::all(db)?);
        Ok(Self {
            shelf: Arc::clone(shelf),
            list: shelf.list(),
            overrides,
            now_ms,
            next_hours_at_ms: None,
            named: BTreeMap::new(),
            known: Vec::new(),
        })
    }

    /// The same, with what `endpoints` are made of.
    pub(crate) fn with_endpoints(mut self, endpoints: &[Endpoint]) -> Self {
        for member in endpoints.iter().flat_map(|endpoint| &endpoint.failover) {
            let models = self.named.entry(member.provider.to_string()).or_default();
            models.insert(member.model.to_string());
        }
        self
    }

    /// The models of `provider`, sorted by id.
    pub(crate) fn models_of(&mut self, provider: &Provider) -> Vec<Arc<Model>> {
        let entry = self.shelf.entry_of(provider);
        let offers = entry.as_ref().map(|entry| &entry.models);
        let declared = provider.models.iter().map(|model| model.id.as_str());
        let offered = offers.into_iter().flatten().map(|(id, _)| id.as_str());
        // Without a catalog, what endpoints were made of once is still believed: a lost file breaks no route.
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
        let offer: Option<&Offer> = entry.and_then(|entry| entry.models.get(id));
        let listed_now = listed.map(|listed| listed.at(self.now_ms));
        let overriding = self.overrides.in_force.get(provider.id.as_str()).and_then(|models| models.get(id));
        let config = declared.map(|model| Facts::of_declared(model));
        let layers = [
            (FactSource::Override, overriding.map(|overriding| &overriding.facts)),
            (FactSource::Config, config.as_ref()),
            (FactSource::Upstream, offer.map(|offer| &offer.facts)),
            (FactSource::List, listed_now.as_ref()),
        ];
        let said = || layers.iter().filter_map(|(source, facts)| Some((*source, (*facts)?)));
        let facts = said().fold(Facts::default(), |known, (_, facts)| known.or(facts));
        let of = |source| PricesFrom {
            source,
            as_of: match source {
                FactSource::Override => overriding.and_then(|overriding| day(overriding.priced_from_ms)),
                FactSource::Config => None,
                FactSource::Upstream => entry.and_then(|entry| day(entry.evidence.catalog.synced_at_ms?)),
                FactSource::List => Some(self.list.as_of.clone()),
            },
        };
        let mut priced = said().filter_map(|(source, facts)| Some((source, facts.prices.as_ref()?)));
        let prices_from = priced.clone().next().map(|(source, _)| of(source));
        let without_override = priced
            .find(|(source, _)| *source != FactSource::Override)
            .map(|(source, prices)| standing(prices, &of(source), listed));
        let sources = said().map(|(source, _)| source).collect();
        KnownModel {
            provider: provider.id.clone(),
            audio: facts.audio,
            created: offer.and_then(|offer| offer.created),
            owned_by: offer.and_then(|offer| offer.owned_by.clone()),
            model: Arc::new(model(&provider.id, id, facts, prices_from.as_ref())),
            prices_from,
            without_override,
            sources,
        }
    }

    /// Shows what was made known. Returns when prices change next: by an override that comes into force, or by the hour.
    pub(crate) fn finish(self) -> Option<u64> {
        self.shelf.show(self.known);
        self.overrides.next_at_ms.into_iter().chain(self.next_hours_at_ms).min()
    }
}

/// The prices of a source that is no override; those of the list with their hours.
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
        price_label: facts.prices.as_ref().zip(prices_from).map(|(prices, from)| label(prices, from)),
        prices: facts.prices,
        ..Model::bare(id)
    }
}

fn label(prices: &Prices, from: &PricesFrom) -> Arc<str> {
    let name = from.source.name();
    match &from.as_of {
        Some(day) => prices.label(&format!("{name} {day}")),
        None => prices.label(name),
    }
}

/// The label of what an override says from `effective_from_ms` on.
pub(crate) fn label_of_override(prices: &Prices, effective_from_ms: u64) -> Arc<str> {
    label(prices, &PricesFrom { source: FactSource::Override, as_of: day(effective_from_ms) })
}

impl FactSource {
    /// The name in the labels of prices.
    fn name(self) -> &'static str {
        match self {
            Self::Override => "override",
            Self::Config => "config",
            Self::Upstream => "upstream",
            Self::List => "list",
        }
    }
}

impl Overrides {
    /// What holds at `now_ms` of `rows`, which are in the order in which they come into force: of two that say the
    /// same fact the later one holds.
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

/// The day of a moment, as `2026-11-04`.
fn day(ms: u64) -> Option<String> {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
    Some(at.to_zoned(jiff::tz::TimeZone::UTC).date().to_string())
}

#[cfg(test)]
mod tests;
