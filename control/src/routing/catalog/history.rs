//! The prices in force at a given time: those of an override from its effective date on; before the first override, the
//! prices that apply without overrides. Only the current price list is known; it applies to all of that time.

use std::collections::HashMap;

use shared::prices::Prices;

use super::facts::{KnownModel, Priced, StandingPrices, label_of_override};
use crate::db::overrides::Override;

/// The prices of all models over time, by provider and model.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(HashMap<String, HashMap<String, PricePeriods>>);

#[derive(Clone, Debug, Default)]
struct PricePeriods {
    /// The prices before the first entry of `later`.
    first: Option<StandingPrices>,
    /// Start times and prices of the overrides, in ascending order.
    later: Vec<(u64, Priced)>,
}

impl History {
    /// Builds the history from the prices without overrides in `known`, and from `overrides` in order of their
    /// effective dates.
    pub(crate) fn new(known: &[KnownModel], overrides: Vec<Override>) -> Self {
        let mut history = Self::default();
        for known in known.iter().filter(|known| known.without_override.is_some()) {
            let (provider, model) = (known.provider.as_str(), known.model.id.as_str());
            history.periods(provider, model).first.clone_from(&known.without_override);
        }
        for change in overrides {
            let Some(prices) = change.facts.prices else { continue };
            let label = label_of_override(&prices, change.effective_from_ms);
            let priced = Priced { prices, label };
            history.periods(&change.provider, &change.model).later.push((change.effective_from_ms, priced));
        }
        history
    }

    /// Builds a history of one model whose prices never change.
    pub(crate) fn of_one(provider: &str, model: &str, priced: Priced) -> Self {
        let mut history = Self::default();
        history.periods(provider, model).first = Some(StandingPrices { priced, off_peak: None });
        history
    }

    fn periods(&mut self, provider: &str, model: &str) -> &mut PricePeriods {
        self.0.entry(provider.to_owned()).or_default().entry(model.to_owned()).or_default()
    }

    /// Returns the prices of a model at `at_ms` and their label, if they are known.
    pub(crate) fn at(&self, provider: &str, model: &str, at_ms: u64) -> Option<(&Prices, &str)> {
        let periods = self.0.get(provider)?.get(model)?;
        let begun = periods.later.partition_point(|(from_ms, _)| *from_ms <= at_ms);
        let priced = match begun.checked_sub(1) {
            Some(last) => periods.later.get(last).map(|(_, priced)| priced)?,
            None => periods.first.as_ref()?.at(at_ms),
        };
        Some((&priced.prices, &priced.label))
    }
}
