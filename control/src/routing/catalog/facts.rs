//! Types that several modules of the catalog share: a known model, the sources of its facts, and its prices with their label.

use std::sync::Arc;

use serde::Serialize;
use shared::id::ProviderId;
use shared::prices::Prices;
use shared::routing::Model;

use super::prices::PeakHours;

/// A model of an instance, with the sources of its facts.
#[derive(Clone, Debug)]
pub(crate) struct KnownModel {
    pub(crate) provider: ProviderId,
    pub(crate) model: Arc<Model>,
    pub(crate) audio: Option<bool>,
    pub(crate) created: Option<u64>,
    pub(crate) owned_by: Option<String>,
    pub(crate) prices_from: Option<PricesFrom>,
    /// The prices that apply while no override sets any.
    pub(crate) without_override: Option<StandingPrices>,
    /// Every source with facts about the model.
    pub(crate) sources: Vec<FactSource>,
}

/// A source of facts about models, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum FactSource {
    Override,
    Config,
    Upstream,
    List,
    BuiltIn,
}

/// The source of prices, and the date since which or on which they are valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PricesFrom {
    pub(crate) source: FactSource,
    /// The date; null if it is unknown.
    pub(crate) as_of: Option<String>,
}

/// Prices and their label.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Priced {
    pub(crate) prices: Prices,
    pub(crate) label: Arc<str>,
}

/// Prices without overrides.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StandingPrices {
    /// The prices of peak hours, or of all hours if there are no off-peak prices.
    pub(crate) priced: Priced,
    /// The prices of all other hours.
    pub(crate) off_peak: Option<(PeakHours, Priced)>,
}

impl StandingPrices {
    pub(super) fn at(&self, at_ms: u64) -> &Priced {
        let off_peak = self.off_peak.as_ref().filter(|(hours, _)| !hours.contains(at_ms));
        off_peak.map_or(&self.priced, |(_, priced)| priced)
    }
}

/// Returns the label of prices from a source.
pub(super) fn label(prices: &Prices, from: &PricesFrom) -> Arc<str> {
    let name = from.source.name();
    match &from.as_of {
        Some(day) => prices.label(&format!("{name} {day}")),
        None => prices.label(name),
    }
}

/// Returns the label of an override's prices that apply from `effective_from_ms` on.
pub(super) fn label_of_override(prices: &Prices, effective_from_ms: u64) -> Arc<str> {
    label(prices, &PricesFrom { source: FactSource::Override, as_of: day(effective_from_ms) })
}

impl FactSource {
    /// Returns the name in price labels.
    fn name(self) -> &'static str {
        match self {
            Self::Override => "override",
            Self::Config => "config",
            Self::Upstream => "upstream",
            Self::List => "list",
            Self::BuiltIn => "built_in",
        }
    }
}

/// Returns the UTC date of a time, as `2026-11-04`.
pub(super) fn day(ms: u64) -> Option<String> {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
    Some(at.to_zoned(jiff::tz::TimeZone::UTC).date().to_string())
}
