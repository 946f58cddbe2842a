//! The choice among the targets of an endpoint that is no plain list.

use serde::{Deserialize, Serialize};

/// The order of an endpoint's targets within a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetOrder {
    /// As listed.
    #[default]
    Listed,
    /// At random, in proportion to the weights.
    Weighted,
    /// By the attempts in flight for each unit of weight.
    LeastBusy,
    /// By the time to the first content and the attempts in flight.
    Fastest,
    /// By the probable cost of the request.
    Cheapest,
}

/// The reason for which a target came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChosenBy {
    /// The order of the endpoint.
    Order,
    /// The session that the client or its `prompt_cache_key` names.
    Session,
    /// The affinity key.
    Affinity,
    /// State of a provider that the request refers to.
    State,
}

/// The choice of the first target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetChoice {
    /// The order of the endpoint.
    pub order: TargetOrder,
    /// The reason.
    pub chosen_by: ChosenBy,
}

impl TargetOrder {
    /// Every order.
    pub const ALL: [Self; 5] = [Self::Listed, Self::Weighted, Self::LeastBusy, Self::Fastest, Self::Cheapest];

    /// Returns the name in configurations and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Weighted => "weighted",
            Self::LeastBusy => "least_busy",
            Self::Fastest => "fastest",
            Self::Cheapest => "cheapest",
        }
    }
}

impl ChosenBy {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Order, Self::Session, Self::Affinity, Self::State];

    /// Returns the name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Session => "session",
            Self::Affinity => "affinity",
            Self::State => "state",
        }
    }

    /// Returns the reason with this [`name`](Self::name).
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

impl TargetChoice {
    /// Returns the number that stands for the choice in packed records; the numbers never change.
    pub fn code(self) -> u64 {
        let order: u64 = match self.order {
            TargetOrder::Listed => 0,
            TargetOrder::Weighted => 1,
            TargetOrder::LeastBusy => 2,
            TargetOrder::Fastest => 3,
            TargetOrder::Cheapest => 4,
        };
        let reason = match self.chosen_by {
            ChosenBy::Order => 0,
            ChosenBy::Session => 1,
            ChosenBy::Affinity => 2,
            ChosenBy::State => 3,
        };
        order << REASON_BITS | reason
    }

    /// Returns the choice with this [`code`](Self::code).
    pub fn of_code(code: u64) -> Option<Self> {
        let mut all = TargetOrder::ALL
            .into_iter()
            .flat_map(|order| ChosenBy::ALL.into_iter().map(move |chosen_by| Self { order, chosen_by }));
        all.find(|choice| choice.code() == code)
    }
}

const REASON_BITS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_serde_and_codes_are_read_back() {
        for order in TargetOrder::ALL {
            assert_eq!(serde_json::to_value(order).unwrap(), order.name());
            for chosen_by in ChosenBy::ALL {
                assert_eq!(serde_json::to_value(chosen_by).unwrap(), chosen_by.name());
                let choice = TargetChoice { order, chosen_by };
                assert_eq!(TargetChoice::of_code(choice.code()), Some(choice));
            }
        }
        let last = TargetChoice { order: TargetOrder::Cheapest, chosen_by: ChosenBy::State };
        assert_eq!((last.code(), TargetChoice::of_code(4)), (67, None));
    }
}
