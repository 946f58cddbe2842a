//! Costs in exact arithmetic, from the text of the prices: an independent implementation to compare with the gateway's.

use std::collections::BTreeMap;

use serde_json::Value;

/// The counts of an attempt, by their names in records.
pub(super) type Counts = BTreeMap<String, u64>;

/// The report of an attempt: counts, service tier, and the vendor's own cost in nano-dollars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) counts: Counts,
    pub(super) tier: Option<&'static str>,
    pub(super) vendor_cost: Option<u64>,
}

/// The source of counts, as far as it affects the cost of sound, pictures and video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Reported by the upstream, or counts of a conversation.
    Reported,
    /// Tokens that the gateway estimated for a request about sound, pictures or video.
    EstimatedMedia,
    /// No usage.
    Nothing,
}

/// A cost in nano-dollars, and the sum of the parts that have a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bill {
    pub(super) cost: Option<u64>,
    pub(super) known: u64,
}

/// The token classes: name in records, and name in prices, per million.
const TOKENS: [(&str, &str); 10] = [
    ("input", "input"),
    ("cache_read", "cached_input"),
    ("cache_write", "cache_write"),
    ("cache_write_1h", "cache_write_1h"),
    ("output", "output"),
    ("reasoning", "reasoning"),
    ("audio_input", "audio_input"),
    ("audio_output", "audio_output"),
    ("image_input", "image_input"),
    ("image_output", "image_output"),
];
/// The units used instead of tokens, and the number of units that the written price covers.
const MEDIA: [(&str, &str, u128); 4] = [
    ("characters", "characters", 1_000_000),
    ("audio_ms", "audio_second", 1_000),
    ("video_ms", "video_second", 1_000),
    ("images", "image", 1),
];
const CALLS: [(&str, &str, u128); 2] = [("searches", "search", 1), ("tool_calls", "tool_call", 1)];
const INPUT: [&str; 6] =
    ["input", "cache_read", "cache_write", "cache_write_1h", "audio_input", "image_input"];
const MILLION: u128 = 1_000_000;

/// Returns the bill, rounded once, half up. The cost is unknown if a non-zero count has no price, or if the tier has
/// none; the vendor's own cost applies then.
pub(super) fn bill(used: &Used, source: Source, prices: &Value) -> Bill {
    let nothing_counted = used.counts.values().all(|count| *count == 0);
    if source == Source::Nothing || (nothing_counted && source == Source::Reported) {
        return Bill { cost: Some(0), known: 0 };
    }
    let exact = by_prices(used, source, prices, false);
    match (exact.cost, used.vendor_cost) {
        (Some(_), _) => exact,
        (None, Some(cost)) => Bill { cost: Some(cost), known: cost },
        // An operator's prices: cached input without a price costs as much as input.
        (None, None) => by_prices(used, source, prices, true),
    }
}

fn by_prices(used: &Used, source: Source, prices: &Value, cached_as_input: bool) -> Bill {
    let of = |name: &str| u128::from(used.counts.get(name).copied().unwrap_or(0));
    let (schedule, times, tier_is_known) = match used.tier {
        None => (prices, MILLION, true),
        Some(tier) => match &prices["tiers"][tier] {
            Value::Null => (prices, MILLION, false),
            tier if tier["times"].is_number() => (prices, decimal(&tier["times"], 6).unwrap(), true),
            own => (own, MILLION, true),
        },
    };
    let input: u128 = INPUT.iter().map(|name| of(name)).sum();
    let steps = schedule["above"].as_array().cloned().unwrap_or_default();
    let step = steps.iter().filter(|step| u128::from(step["input_tokens"].as_u64().unwrap()) < input);
    let step = step.max_by_key(|step| step["input_tokens"].as_u64());
    let rates = step.unwrap_or(schedule);
    let too_long = schedule["input_tokens_max"].as_u64().is_some_and(|max| input > u128::from(max));
    let mut is_whole = tier_is_known && (step.is_some() || !too_long);
    // In units of 10^-15 dollars: every price of the test is a whole number of them.
    let mut femto = 0_u128;
    let by_unit = MEDIA.iter().any(|(name, price, _)| of(name) > 0 && !rates[price].is_null());
    for (name, price, per) in MEDIA.into_iter().chain(CALLS).filter(|(name, _, _)| of(name) > 0) {
        match decimal(&rates[price], 15) {
            Some(price) => femto += of(name) * exactly(price, per),
            None => is_whole = false,
        }
    }
    is_whole &= by_unit || source == Source::Reported;
    let mut tokens = 0_u128;
    for (name, price) in TOKENS.into_iter().filter(|(name, _)| of(name) > 0) {
        let own = decimal(&rates[price], 15);
        let instead = match name {
            "reasoning" => Some("output"),
            "cache_read" if cached_as_input => Some("input"),
            _ => None,
        };
        let own = own.or_else(|| decimal(&rates[instead?], 15));
        match own {
            Some(price) => tokens += of(name) * exactly(price, MILLION),
            // Where sound and pictures are billed by the unit, estimated tokens are not billed in addition.
            None => is_whole &= by_unit,
        }
    }
    femto += tokens * times / MILLION;
    let known = u64::try_from((femto + 500_000) / MILLION).unwrap();
    Bill { cost: is_whole.then_some(known), known }
}

fn exactly(price: u128, per: u128) -> u128 {
    assert_eq!(price % per, 0, "a price of the test has too many digits");
    price / per
}

/// Converts a decimal text to a number in units of 10 to the power of -`digits`.
fn decimal(written: &Value, digits: usize) -> Option<u128> {
    let text = written.as_number()?.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    assert!(part.len() <= digits.min(9), "{text}");
    Some(format!("{whole}{part:0<digits$}").parse().unwrap())
}
