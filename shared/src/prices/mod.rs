//! Prices, and the one function that computes a cost: for an exchange, for repricing and for reservations (ADM-6).
//!
//! A class without a price is unknown, never free; one exception is cached input at an operator's prices. Prices are written in dollars and stored in femto-dollars per
//! counted unit, so that no price loses a digit and a cost is rounded once.

mod form;
mod gaps;
mod label;
mod plausible;

#[cfg(test)]
mod tests;

use crate::operation::Operation;
use crate::usage::{Class, Provenance, TokenCounts, Units, Unpriced};

pub use self::form::{PriceField, femto_a_token, fields};
pub use self::plausible::Plausible;

/// The prices of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    /// The prices of the standard service tier.
    pub base: Schedule,
    /// The prices of other service tiers by name, and surcharges; sorted by name.
    pub tiers: Vec<(Box<str>, Tier)>,
    /// Cached input without a price of its own costs as much as input. True for prices that an operator has set: no
    /// vendor charges more for cached input, so the cost is never too low. A list that lacks a price does not know it.
    pub cached_as_input: bool,
}

/// The effect of a service tier, or of another term in an answer, on the prices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The tier has its own prices.
    Own(Box<Schedule>),
    /// A factor on the prices of tokens, in millionths.
    Times(u64),
}

impl Tier {
    /// Returns the prices of a tier that has its own.
    fn schedule(&self) -> Option<&Schedule> {
        match self {
            Self::Own(schedule) => Some(schedule),
            Self::Times(_) => None,
        }
    }
}

/// The prices of one service tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Prices by class.
    pub rates: Rates,
    /// The number of input tokens, including cached ones, up to which `rates` apply.
    pub input_tokens_max: Option<u64>,
    /// Prices of prompts with more input tokens than the number beside them, in ascending order. Nothing is inherited.
    pub above: Vec<(u64, Rates)>,
    /// The price of one image, or of a second of video, by `size` or `quality/size`, in femto-dollars; sorted.
    pub pictures: Vec<(Box<str>, u64)>,
}

/// Prices by class, in femto-dollars per token, character, millisecond, image or call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates([Option<u64>; Class::COUNT]);

impl Rates {
    /// Returns the price of one unit of `class`.
    pub fn get(&self, class: Class) -> Option<u64> {
        self.0.get(class as usize).copied().flatten()
    }

    /// Sets the price of one unit of `class`.
    pub fn set(&mut self, class: Class, femto_usd: Option<u64>) {
        if let Some(rate) = self.0.get_mut(class as usize) {
            *rate = femto_usd;
        }
    }

    /// Returns these rates with this price for one unit of `class`.
    #[must_use]
    pub fn with(mut self, class: Class, femto_usd: u64) -> Self {
        self.set(class, Some(femto_usd));
        self
    }

    /// Returns the price of `class`, or of the class as which it is billed if it has no price.
    fn billed(&self, class: Class) -> Option<u64> {
        let own = self.get(class);
        if class == Class::Reasoning { own.or_else(|| self.get(Class::Output)) } else { own }
    }

    /// Returns these rates with the price of input for cached input, unless that has a price.
    fn with_cached_as_input(mut self) -> Self {
        let cached = self.get(Class::CacheRead).or_else(|| self.get(Class::Input));
        self.set(Class::CacheRead, cached);
        self
    }
}

/// The billable consumption of one attempt.
#[derive(Clone, Copy, Debug)]
pub struct Billed<'a> {
    /// The requested operation.
    pub operation: Operation,
    /// The source of `tokens`.
    pub provenance: Provenance,
    /// The tokens used.
    pub tokens: &'a TokenCounts,
    /// The units other than tokens.
    pub units: &'a Units,
    /// The service tier, as in [`UsageEvent::tier`](crate::usage::UsageEvent::tier).
    pub tier: Option<&'a str>,
    /// The quality and size of the generated images or video.
    pub picture: Option<&'a str>,
    /// The cost that the vendor reported, in nano-dollars.
    pub vendor_cost: Option<u64>,
}

/// The cost of one attempt, in nano-dollars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bill {
    /// The cost; `None` if a part of it has no price.
    pub cost: Option<u64>,
    /// The sum of the parts that have a price.
    pub known: u64,
    /// True if the cost is the vendor's own, because our prices do not cover the consumption.
    pub by_vendor: bool,
    /// What lacks a price, if the cost is unknown although there are prices.
    pub unpriced: Unpriced,
}

impl Bill {
    /// The bill of an attempt that used nothing.
    pub const FREE: Self = Self::of(0);
    /// The bill of an attempt without prices.
    pub const UNKNOWN: Self = Self { cost: None, ..Self::FREE };

    const fn of(nano: u64) -> Self {
        Self { cost: Some(nano), known: nano, by_vendor: false, unpriced: Unpriced::NOTHING }
    }

    const fn of_vendor(nano: u64) -> Self {
        Self { by_vendor: true, ..Self::of(nano) }
    }
}

impl Billed<'_> {
    /// Returns true if nothing was used, so that the cost is zero at any prices.
    fn is_nothing(&self) -> bool {
        let nothing_counted = self.tokens.total() == 0 && self.units.is_empty();
        // Media that was not counted may still have been used.
        let uncounted = is_media(self.operation) && self.provenance != Provenance::Reported;
        self.provenance == Provenance::None || (nothing_counted && !uncounted)
    }

    /// Returns true if the upstream counted the media in tokens, so that the prices of tokens cover it. The tokens of
    /// the prompt alone are not those of what was made of it.
    fn media_is_in_tokens(&self) -> bool {
        let counted = match self.operation {
            Operation::Transcription => self.tokens.total(),
            _ => self.tokens.output_total(),
        };
        self.provenance == Provenance::Reported && counted > 0
    }
}

/// Returns true for the operations that vendors may bill by characters, seconds or images instead of tokens.
fn is_media(operation: Operation) -> bool {
    matches!(operation, Operation::Speech | Operation::Transcription | Operation::Images | Operation::Videos)
}

/// Returns the cost of `billed` at `prices`, rounded once, half up. The prices do not cover it if a used class has no
/// price, the prompt exceeds the prices' maximum length, or the answer names a service tier without prices. Then the
/// cost is the vendor's own, or else unknown. Prices of an operator that lack only one for cached input bill it as input
/// if the vendor reports no cost.
pub fn price(billed: &Billed<'_>, prices: Option<&Prices>) -> Bill {
    if billed.is_nothing() {
        return Bill::FREE;
    }
    let Some(prices) = prices else {
        return billed.vendor_cost.map_or(Bill::UNKNOWN, Bill::of_vendor);
    };
    let exact = by_prices(billed, prices, false);
    match (exact.cost, billed.vendor_cost) {
        (None, Some(cost)) => Bill::of_vendor(cost),
        (None, None) if prices.cached_as_input => by_prices(billed, prices, true),
        _ => exact,
    }
}

fn by_prices(billed: &Billed<'_>, prices: &Prices, cached_as_input: bool) -> Bill {
    let (schedule, times, tier_known) = prices.of_tier(billed.tier);
    let (own, length_known) = schedule.of_prompt(billed.tokens.input_total());
    let rates = if cached_as_input { &own.with_cached_as_input() } else { own };
    let mut sum = Sum::default();
    sum.needs(tier_known, Unpriced::TIER);
    sum.needs(length_known, Unpriced::LENGTH);
    sum.add_media(billed, schedule, rates);
    let by_unit = is_media(billed.operation) && has_media_rate(billed, schedule, rates);
    sum.add_tokens(billed, rates, times, by_unit);
    for (class, count) in
        [(Class::Searches, billed.units.searches), (Class::ToolCalls, billed.units.tool_calls)]
    {
        sum.add(class, count, rates.get(class));
    }
    sum.bill()
}

/// Returns true if the schedule has a price for the media of `billed`, which is then billed by it.
fn has_media_rate(billed: &Billed<'_>, schedule: &Schedule, rates: &Rates) -> bool {
    media(billed).any(|(class, _)| schedule.media_rate(rates, class, billed.picture).is_some())
}

/// Returns the nonzero units of `billed` that replace tokens.
fn media(billed: &Billed<'_>) -> impl Iterator<Item = (Class, u64)> + use<> {
    let counts = billed.units.media().list();
    let classes = Class::ALL.into_iter().skip(TokenCounts::COUNT);
    classes.zip(counts).filter(|(_, count)| *count > 0)
}

/// A running sum.
#[derive(Default)]
struct Sum {
    femto: u128,
    /// True if a part has no price.
    is_partial: bool,
    /// The parts without a price, as far as they have a name.
    unpriced: Unpriced,
}

impl Sum {
    fn add(&mut self, class: Class, count: u64, rate: Option<u64>) {
        if count == 0 {
            return;
        }
        self.needs(rate.is_some(), Unpriced::class(class));
        let femto = u128::from(count).saturating_mul(u128::from(rate.unwrap_or(0)));
        self.femto = self.femto.saturating_add(femto);
    }

    /// Records that the cost is unknown because of `part`, unless that has a price.
    fn needs(&mut self, has_price: bool, part: Unpriced) {
        if !has_price {
            self.is_partial = true;
            self.unpriced = self.unpriced.and(part);
        }
    }

    /// Adds the media units that have prices. In media operations, tokens may be billed instead of units without
    /// prices; a conversation is billed for both.
    fn add_media(&mut self, billed: &Billed<'_>, schedule: &Schedule, rates: &Rates) {
        for (class, count) in media(billed) {
            let rate = schedule.media_rate(rates, class, billed.picture);
            if rate.is_some() || !is_media(billed.operation) {
                self.add(class, count, rate);
            }
        }
    }

    /// Adds the tokens. If the media is billed by the unit, tokens count only as far as they also have prices;
    /// otherwise a media operation is billed by the tokens that the upstream reported, or its cost is unknown.
    fn add_tokens(&mut self, billed: &Billed<'_>, rates: &Rates, times: u64, by_unit: bool) {
        if is_media(billed.operation) && !by_unit && !billed.media_is_in_tokens() {
            self.is_partial = true;
            media(billed).for_each(|(class, _)| self.needs(false, Unpriced::class(class)));
        }
        let mut tokens = Self::default();
        for (class, count) in Class::ALL.into_iter().zip(billed.tokens.list()) {
            tokens.add(class, count, rates.billed(class));
        }
        if tokens.is_partial && !by_unit {
            self.needs(false, tokens.unpriced);
        }
        let times = u128::from(times);
        self.femto = self.femto.saturating_add(tokens.femto.saturating_mul(times) / u128::from(ONE));
    }

    fn bill(&self) -> Bill {
        let nano = self.femto.saturating_add(FEMTO_IN_NANO / 2) / FEMTO_IN_NANO;
        let known = Bill::of(u64::try_from(nano).unwrap_or(u64::MAX));
        if self.is_partial { Bill { cost: None, unpriced: self.unpriced, ..known } } else { known }
    }
}

impl Prices {
    /// Creates prices with one tier and no thresholds.
    pub fn flat(rates: Rates) -> Self {
        Self { base: Schedule { rates, ..Schedule::default() }, ..Self::default() }
    }

    /// Returns the same prices as those of an operator: see [`cached_as_input`](Self::cached_as_input).
    #[must_use]
    pub fn by_operator(self) -> Self {
        Self { cached_as_input: true, ..self }
    }

    /// Returns the schedule of a tier, the factor on tokens in millionths, and true if every term of the tier has prices.
    fn of_tier(&self, tier: Option<&str>) -> (&Schedule, u64, bool) {
        let (mut schedule, mut times, mut known) = (&self.base, ONE, true);
        for term in tier.into_iter().flat_map(|tier| tier.split('+')) {
            match self.tiers.iter().find(|(name, _)| **name == *term) {
                Some((_, Tier::Own(own))) => schedule = own,
                Some((_, Tier::Times(factor))) => times = times.saturating_mul(*factor) / ONE,
                None => known = false,
            }
        }
        (schedule, times, known)
    }
}

impl Schedule {
    /// Returns the rates for a prompt of `input_tokens` tokens, and true if they apply to that length.
    fn of_prompt(&self, input_tokens: u64) -> (&Rates, bool) {
        let above = self.above.iter().rev().find(|(from, _)| *from < input_tokens);
        match above {
            Some((_, rates)) => (rates, true),
            None => (&self.rates, self.input_tokens_max.is_none_or(|max| input_tokens <= max)),
        }
    }

    /// Returns the price of one unit of audio, video or an image. The price of an image or a video depends on its
    /// quality and size if the schedule has such a price.
    fn media_rate(&self, rates: &Rates, class: Class, picture: Option<&str>) -> Option<u64> {
        let named =
            |name: &str| self.pictures.iter().find(|(known, _)| **known == *name).map(|(_, price)| *price);
        let picture = picture.filter(|_| matches!(class, Class::Images | Class::VideoMs));
        let by_sort = picture.and_then(|sort| {
            let size = sort.rsplit('/').next().unwrap_or(sort);
            named(sort).or_else(|| named(size))
        });
        // Video is counted in milliseconds and priced by the second.
        let by_sort = by_sort.map(|price| if class == Class::VideoMs { price / 1_000 } else { price });
        by_sort.or_else(|| rates.get(class))
    }
}

/// The label of a cost that the vendor reported.
pub const VENDOR_LABEL: &str = "vendor";
/// The factor one, in millionths.
pub const ONE: u64 = 1_000_000;
const FEMTO_IN_NANO: u128 = 1_000_000;
