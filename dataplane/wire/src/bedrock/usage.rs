//! Converts Bedrock's usage to disjoint token classes, and reads the service tier of answers.

use serde::Deserialize;
use serde_json::value::RawValue;
use shared::usage::TokenCounts;

use crate::extras::{joined, term};
use crate::json::{BorrowedText, parse_raw};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConverseUsage<'a> {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_write_input_tokens: Option<u64>,
    #[serde(borrow)]
    cache_details: Option<&'a RawValue>,
}

/// Input tokens written to a cache with a given lifetime.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CacheDetail<'a> {
    input_tokens: Option<u64>,
    #[serde(borrow)]
    ttl: Option<BorrowedText<'a>>,
}

#[derive(Debug, Deserialize)]
struct ServiceTier<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<BorrowedText<'a>>,
}

#[derive(Debug, Deserialize)]
struct PerformanceConfig<'a> {
    #[serde(borrow)]
    latency: Option<BorrowedText<'a>>,
}

impl ConverseUsage<'_> {
    /// Returns the token counts. Cache reads and writes are separate classes.
    pub(crate) fn counts(&self) -> TokenCounts {
        let details: Option<Vec<CacheDetail<'_>>> = parse_raw(self.cache_details);
        let written = |is_hour: bool| {
            let details = details.iter().flatten();
            let matching = details.filter(move |detail| {
                detail.ttl.as_ref().is_some_and(|ttl| ttl.0.eq_ignore_ascii_case("1h")) == is_hour
            });
            matching.filter_map(|detail| detail.input_tokens).fold(0, u64::saturating_add)
        };
        let (short, hour) = (written(false), written(true));
        let all = self.cache_write_input_tokens.unwrap_or_else(|| short.saturating_add(hour));
        let cache_write_1h = hour.min(all);
        TokenCounts {
            input: self.input_tokens.unwrap_or(0),
            cache_read: self.cache_read_input_tokens.unwrap_or(0),
            cache_write: all.saturating_sub(cache_write_1h),
            cache_write_1h,
            output: self.output_tokens.unwrap_or(0),
            ..TokenCounts::ZERO
        }
    }
}

/// Returns the service tier given by these members of an answer.
pub(super) fn tier(service_tier: Option<&RawValue>, performance: Option<&RawValue>) -> Option<Box<str>> {
    let service = parse_raw::<ServiceTier<'_>>(service_tier).and_then(|tier| tier.kind);
    let latency = parse_raw::<PerformanceConfig<'_>>(performance).and_then(|config| config.latency);
    joined([service, latency].into_iter().flatten().filter_map(|name| term(name.0.as_bytes())))
}
