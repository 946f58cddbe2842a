//! Estimates of a request's cost before it runs: each amount is assigned to the most expensive class as which it may
//! be billed. The pricing function computes the sum.

use super::{Bill, Billed, ONE, Prices, Schedule, Tier, price};
use crate::operation::Operation;
use crate::usage::{Class, Provenance, TokenCounts, Units};

/// The consumption that a request may reach.
#[derive(Clone, Copy, Debug)]
pub struct Plausible<'a> {
    /// The requested operation.
    pub operation: Operation,
    /// Text tokens of the input.
    pub text: u64,
    /// Image tokens of the input.
    pub pictures: u64,
    /// Audio tokens of the input.
    pub audio: u64,
    /// Output tokens.
    pub output: u64,
    /// Other units.
    pub units: Units,
    /// The requested quality and size of images, if the request specifies them.
    pub picture: Option<&'a str>,
    /// True if the request asks for another service tier or for anything else that has a surcharge.
    pub has_tier: bool,
}

impl Plausible<'_> {
    /// Returns the cost if nothing is billed in a more expensive class than the usual one.
    pub fn probable(&self, prices: &Prices) -> Bill {
        let rates = prices.base.of_prompt(self.input()).0;
        let own = |own: Class, usual| if rates.get(own).is_some() { own } else { usual };
        let made = match self.operation {
            Operation::Images => own(Class::ImageOutput, Class::Output),
            Operation::Speech => own(Class::AudioOutput, Class::Output),
            _ => Class::Output,
        };
        let [image, audio] = [Class::ImageInput, Class::AudioInput].map(|class| own(class, Class::Input));
        let picture = self.sort_of(&prices.base);
        Plausible { picture, ..*self }.bill(prices, None, &self.tokens([Class::Input, image, audio, made]))
    }

    /// Returns the maximum cost: input may have to be written to a cache, output may be reasoning, and the service
    /// tier may be the most expensive one.
    pub fn at_most(&self, prices: &Prices) -> Bill {
        let mut most = self.dearest(prices, None, &prices.base);
        if !self.has_tier {
            return most;
        }
        let surcharges = prices.tiers.iter().filter(|(_, tier)| matches!(tier, Tier::Times(of) if *of > ONE));
        let surcharges: Vec<&str> = surcharges.map(|(name, _)| &**name).collect();
        let own = prices.tiers.iter().filter_map(|(name, tier)| match tier {
            Tier::Own(schedule) => Some((Some(&**name), &**schedule)),
            Tier::Times(_) => None,
        });
        for (name, schedule) in own.chain([(None, &prices.base)]) {
            let terms = [name.as_slice(), &surcharges].concat().join("+");
            let bill = self.dearest(prices, Some(terms.as_str()).filter(|terms| !terms.is_empty()), schedule);
            if bill.known > most.known {
                most = bill;
            }
        }
        most
    }

    /// Returns the maximum cost at one tier.
    fn dearest(&self, prices: &Prices, tier: Option<&str>, schedule: &Schedule) -> Bill {
        let rates = schedule.of_prompt(self.input()).0;
        // Of classes with equal prices, or without prices, `max_by_key` selects the last.
        let dearest = |classes: &[Class]| classes.iter().copied().max_by_key(|class| rates.billed(*class));
        let input = |classes: &[Class]| dearest(classes).unwrap_or(Class::Input);
        let made = [Class::ImageOutput, Class::AudioOutput, Class::Reasoning, Class::Output];
        let tokens = self.tokens([
            input(&[Class::CacheWrite1h, Class::CacheWrite, Class::Input]),
            input(&[Class::ImageInput, Class::CacheWrite1h, Class::CacheWrite, Class::Input]),
            input(&[Class::AudioInput, Class::CacheWrite1h, Class::CacheWrite, Class::Input]),
            dearest(&made).unwrap_or(Class::Output),
        ]);
        let mut units = self.units;
        // A request need not use them, so an unknown price must not reduce the reservation.
        if rates.get(Class::Searches).is_none() {
            units.searches = 0;
        }
        if rates.get(Class::ToolCalls).is_none() {
            units.tool_calls = 0;
        }
        let picture = self.sort_of(schedule);
        Plausible { units, picture, ..*self }.bill(prices, tier, &tokens)
    }

    /// Returns the requested quality and size of images, or else the most expensive one.
    fn sort_of<'a>(&'a self, schedule: &'a Schedule) -> Option<&'a str> {
        let dearest = schedule.pictures.iter().max_by_key(|(_, price)| *price);
        self.picture.or_else(|| dearest.map(|(sort, _)| &**sort))
    }

    fn bill(&self, prices: &Prices, tier: Option<&str>, tokens: &TokenCounts) -> Bill {
        let billed = Billed {
            operation: self.operation,
            provenance: Provenance::Reported,
            tokens,
            units: &self.units,
            tier,
            picture: self.picture,
            vendor_cost: None,
        };
        price(&billed, Some(prices))
    }

    /// Builds token counts with text, images, audio and output each in the given class.
    fn tokens(&self, classes: [Class; 4]) -> TokenCounts {
        let mut list = [0_u64; TokenCounts::COUNT];
        for (class, amount) in classes.into_iter().zip([self.text, self.pictures, self.audio, self.output]) {
            if let Some(count) = list.get_mut(class as usize) {
                *count = amount.saturating_add(*count);
            }
        }
        TokenCounts::of_list(list)
    }

    fn input(&self) -> u64 {
        self.text.saturating_add(self.pictures).saturating_add(self.audio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: Plausible<'static> = Plausible {
        operation: Operation::ChatCompletions,
        text: 1_000,
        pictures: 0,
        audio: 0,
        output: 100,
        units: Units::ZERO,
        picture: None,
        has_tier: false,
    };

    /// Returns the probable and the maximum cost, in nano-dollars.
    fn costs(plausible: Plausible<'_>, prices: serde_json::Value) -> (Option<u64>, Option<u64>) {
        let prices: Prices = serde_json::from_value(prices).unwrap();
        (plausible.probable(&prices).cost, plausible.at_most(&prices).cost)
    }

    #[test]
    fn each_amount_is_reserved_at_the_costliest_possible_class() {
        let rows = [
            ("plain", CHAT, serde_json::json!({"input": 1, "output": 2}), (1_200_000, 1_200_000)),
            (
                "a cache written for an hour",
                CHAT,
                serde_json::json!({"input": 1, "cached_input": 0.1, "cache_write": 1.25, "cache_write_1h": 2, "output": 2}),
                (1_200_000, 2_200_000),
            ),
            (
                "reasoning",
                CHAT,
                serde_json::json!({"input": 1, "output": 2, "reasoning": 5}),
                (1_200_000, 1_500_000),
            ),
            (
                "pictures and sound by prices of their own",
                Plausible { pictures: 100, audio: 10, ..CHAT },
                serde_json::json!({"input": 1, "image_input": 4, "audio_input": 50, "output": 2}),
                (2_100_000, 2_100_000),
            ),
            (
                "pictures as input",
                Plausible { pictures: 100, ..CHAT },
                serde_json::json!({"input": 1, "output": 2}),
                (1_300_000, 1_300_000),
            ),
            (
                "a long prompt",
                CHAT,
                serde_json::json!({"input": 1, "output": 2, "above": [{"input_tokens": 999, "input": 3, "output": 4}]}),
                (3_400_000, 3_400_000),
            ),
            (
                "searches where they have a price",
                Plausible { units: Units { searches: 2, tool_calls: 9, ..Units::ZERO }, ..CHAT },
                serde_json::json!({"input": 1, "output": 2, "search": 0.01}),
                (1_200_000, 21_200_000),
            ),
        ];
        for (name, plausible, prices, (probable, most)) in rows {
            let probably = Plausible { units: plausible.units.media(), ..plausible };
            assert_eq!(costs(probably, prices.clone()).0, Some(probable), "{name}");
            assert_eq!(costs(plausible, prices).1, Some(most), "{name}");
        }
    }

    #[test]
    fn a_tier_is_reserved_at_the_costliest_tier_with_surcharges() {
        let prices = serde_json::json!({"input": 1, "output": 2, "tiers": {"flex": {"input": 0.5, "output": 1},
            "priority": {"input": 2, "output": 4}, "geo:us": {"times": 1.1}}});
        assert_eq!(costs(CHAT, prices.clone()), (Some(1_200_000), Some(1_200_000)));
        assert_eq!(costs(Plausible { has_tier: true, ..CHAT }, prices), (Some(1_200_000), Some(2_640_000)));
        let surcharge = serde_json::json!({"input": 1, "output": 2, "tiers": {"fast": {"times": 6}}});
        assert_eq!(costs(Plausible { has_tier: true, ..CHAT }, surcharge).1, Some(7_200_000));
    }

    #[test]
    fn media_are_reserved_by_their_units() {
        let media = |operation, units| Plausible { operation, units, output: 0, text: 0, ..CHAT };
        let pictures = media(Operation::Images, Units { images: 3, ..Units::ZERO });
        let sorts = serde_json::json!({"pictures": {"low/1024x1024": 0.01, "high/1024x1024": 0.2}});
        assert_eq!(costs(pictures, sorts.clone()), (Some(600_000_000), Some(600_000_000)), "of any sort");
        let low = Plausible { picture: Some("low/1024x1024"), ..pictures };
        assert_eq!(costs(low, sorts.clone()), (Some(30_000_000), Some(30_000_000)));
        let other = Plausible { picture: Some("low/8x8"), ..pictures };
        assert_eq!(costs(other, sorts).0, None, "of a sort without a price");
        let spoken = media(Operation::Speech, Units { characters: 1_000, ..Units::ZERO });
        assert_eq!(costs(spoken, serde_json::json!({"characters": 15})).1, Some(15_000_000));
        let transcription = media(Operation::Transcription, Units { audio_ms: 60_000, ..Units::ZERO });
        assert_eq!(costs(transcription, serde_json::json!({"audio_second": 0.0001})).1, Some(6_000_000));
    }
}
