//! The prices that were in force at a moment: those of an override from its day on, and before the first override those
//! that apply without any. Only today's price list is known; it applies to all of that time.

use std::collections::HashMap;
use std::sync::Arc;

use shared::prices::Prices;

use super::merge::{KnownModel, label_of_override};
use super::prices::PeakHours;
use crate::store::overrides::Override;
use crate::store::reprice::PriceHistory;

/// Prices and their label.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Priced {
    pub(crate) prices: Prices,
    pub(crate) label: Arc<str>,
}

/// Prices that no override changes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StandingPrices {
    /// The prices of peak hours, or of all hours.
    pub(crate) priced: Priced,
    /// The prices of all other hours.
    pub(crate) off_peak: Option<(PeakHours, Priced)>,
}

impl StandingPrices {
    fn at(&self, at_ms: u64) -> &Priced {
        let off_peak = self.off_peak.as_ref().filter(|(hours, _)| !hours.contains(at_ms));
        off_peak.map_or(&self.priced, |(_, priced)| priced)
    }
}

/// The prices of every model over time, by provider and model.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(HashMap<String, HashMap<String, Periods>>);

#[derive(Clone, Debug, Default)]
struct Periods {
    /// What holds before the first of the others.
    first: Option<StandingPrices>,
    /// From when on, in that order.
    later: Vec<(u64, Priced)>,
}

impl History {
    /// What is `known` of the models without overrides, and `overrides` in the order in which they come into force.
    pub(crate) fn new(known: &[KnownModel], overrides: Vec<Override>) -> Self {
        let mut history = Self::default();
        for known in known.iter().filter(|known| known.without_override.is_some()) {
            let (provider, model) = (known.provider.as_str(), known.model.id.as_str());
            history.periods(provider, model).first.clone_from(&known.without_override);
        }
        for said in overrides {
            let Some(prices) = said.facts.prices else { continue };
            let label = label_of_override(&prices, said.effective_from_ms);
            let priced = Priced { prices, label };
            history.periods(&said.provider, &said.model).later.push((said.effective_from_ms, priced));
        }
        history
    }

    /// The same prices at all times, for one model.
    pub(crate) fn of_one(provider: &str, model: &str, priced: Priced) -> Self {
        let mut history = Self::default();
        history.periods(provider, model).first = Some(StandingPrices { priced, off_peak: None });
        history
    }

    fn periods(&mut self, provider: &str, model: &str) -> &mut Periods {
        self.0.entry(provider.to_owned()).or_default().entry(model.to_owned()).or_default()
    }
}

impl PriceHistory for History {
    fn at(&self, provider: &str, model: &str, at_ms: u64) -> Option<(&Prices, &str)> {
        let periods = self.0.get(provider)?.get(model)?;
        let begun = periods.later.partition_point(|(from_ms, _)| *from_ms <= at_ms);
        let priced = match begun.checked_sub(1) {
            Some(last) => periods.later.get(last).map(|(_, priced)| priced)?,
            None => periods.first.as_ref()?.at(at_ms),
        };
        Some((&priced.prices, &priced.label))
    }
}
