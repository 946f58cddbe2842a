//! Costs in exact arithmetic, from the text of the prices: an implementation of its own, to be compared with the
//! gateway's.

use std::collections::BTreeMap;

use serde_json::Value;

/// What an attempt used, by the name of the count in records.
pub(super) type Counts = BTreeMap<String, u64>;

/// The price of each count: its name in records, its name in prices, and the number of counted units that the
/// written price is for.
const PRICED: [(&str, &str, u128); 16] = [
    ("input", "input", 1_000_000),
    ("cache_read", "cached_input", 1_000_000),
    ("cache_write", "cache_write", 1_000_000),
    ("cache_write_1h", "cache_write_1h", 1_000_000),
    ("output", "output", 1_000_000),
    ("reasoning", "reasoning", 1_000_000),
    ("audio_input", "audio_input", 1_000_000),
    ("audio_output", "audio_output", 1_000_000),
    ("image_input", "image_input", 1_000_000),
    ("image_output", "image_output", 1_000_000),
    ("characters", "characters", 1_000_000),
    ("audio_ms", "audio_second", 1_000),
    ("video_ms", "video_second", 1_000),
    ("images", "image", 1),
    ("searches", "search", 1),
    ("tool_calls", "tool_call", 1),
];
const MEDIA: [(&str, &str); 3] =
    [("characters", "characters"), ("audio_ms", "audio_second"), ("images", "image")];
const INPUT: [&str; 6] =
    ["input", "cache_read", "cache_write", "cache_write_1h", "audio_input", "image_input"];

/// The cost in nano-dollars, rounded once, half up; `None` where a count that is not zero has no price.
pub(super) fn cost(counts: &Counts, prices: &Value) -> Option<u64> {
    let of = |name: &str| u128::from(counts.get(name).copied().unwrap_or(0));
    let input: u128 = INPUT.iter().map(|name| of(name)).sum();
    let steps = prices["above"].as_array().cloned().unwrap_or_default();
    let step = steps.iter().filter(|step| u128::from(step["input_tokens"].as_u64().unwrap()) < input);
    let rates = step.max_by_key(|step| step["input_tokens"].as_u64()).unwrap_or(prices);
    // In units of 10^-15 dollars: every price of the test is a whole number of them.
    let mut femto = 0_u128;
    let by_unit = MEDIA.iter().any(|(name, price)| of(name) > 0 && !rates[price].is_null());
    for (name, price, per) in PRICED {
        if of(name) == 0 {
            continue;
        }
        let own = dollars(&rates[price]);
        let own = own.or_else(|| (name == "reasoning").then(|| dollars(&rates["output"])).flatten());
        let Some(price) = own else {
            // Where sound and pictures are billed by the unit, estimated tokens are not billed too.
            if by_unit { continue } else { return None }
        };
        assert_eq!(price % per, 0, "a price of the test has too many digits");
        femto += of(name) * (price / per);
    }
    Some(u64::try_from((femto + 500_000) / 1_000_000).unwrap())
}

/// A number of dollars in units of 10^-15, from its decimal text.
fn dollars(written: &Value) -> Option<u128> {
    let text = written.as_number()?.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    assert!(part.len() <= 9, "{text}");
    Some(format!("{whole}{part:0<15}").parse().unwrap())
}
