//! What lacks a price: by name, and before any request uses it.

use super::Prices;
use super::form::fields;
use crate::operation::Dialect;
use crate::usage::{Class, Unpriced};

impl Prices {
    /// Returns the classes of tokens that answers in `dialects` report and that have no price at some tier or length of
    /// prompt. A model that hears also reports audio.
    pub fn gaps(&self, dialects: &[Dialect], hears: bool) -> Unpriced {
        // A list prices embeddings by their input alone, and does not say that a model makes no conversation.
        let is_of_reader = !self.cached_as_input && self.base.rates.get(Class::Output).is_none();
        let speaks = |some: &[Dialect]| dialects.iter().any(|dialect| some.contains(dialect));
        let converses = dialects.iter().any(|dialect| dialect.is_conversation()) && !is_of_reader;
        let counted = [
            (Class::Input, converses || speaks(&[Dialect::Embeddings, Dialect::GeminiEmbeddings])),
            (Class::CacheRead, converses && !self.cached_as_input),
            (Class::CacheWrite, converses && speaks(&[Dialect::Messages, Dialect::Bedrock])),
            (Class::CacheWrite1h, converses && speaks(&[Dialect::Messages, Dialect::Bedrock])),
            (Class::Output, converses),
            (Class::AudioInput, converses && hears),
        ];
        let own = self.tiers.iter().filter_map(|(_, tier)| tier.schedule());
        let schedules = || own.clone().chain([&self.base]);
        let rates = || schedules().flat_map(|of| of.above.iter().map(|(_, rates)| rates).chain([&of.rates]));
        let lacking = counted
            .into_iter()
            .filter(|(class, is_counted)| *is_counted && rates().any(|rates| rates.get(*class).is_none()));
        lacking.fold(Unpriced::NOTHING, |gaps, (class, _)| gaps.and(Unpriced::class(class)))
    }
}

impl Unpriced {
    /// Returns the members of `prices` that are missing; `tier` is the service tier of the answer.
    pub fn members(self, tier: Option<&str>) -> Vec<String> {
        let fields = fields().iter().filter(|field| self.contains(Self::class(field.class)));
        let mut members: Vec<String> = fields.map(|field| field.name.to_owned()).collect();
        if self.contains(Self::TIER) {
            members.push(format!("tiers.{}", tier.unwrap_or_default()));
        }
        if self.contains(Self::LENGTH) {
            members.push("above".to_owned());
        }
        members
    }
}
