//! Converts `usageMetadata` to disjoint token classes. Gemini counts cached input as part of the prompt, and does not
//! count thoughts as part of the candidates.

use serde::Deserialize;
use serde_json::value::RawValue;
use shared::usage::TokenCounts;

use crate::extras::term;
use crate::json::{BorrowedText, parse_raw};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GeminiUsage<'a> {
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
    #[serde(borrow)]
    prompt_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_use_prompt_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    candidates_tokens_details: Option<&'a RawValue>,
    /// Set by Vertex AI.
    #[serde(borrow)]
    traffic_type: Option<&'a RawValue>,
    #[serde(borrow)]
    service_tier: Option<&'a RawValue>,
}

/// The tokens of one modality.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiModalityTokens<'a> {
    #[serde(borrow)]
    modality: Option<BorrowedText<'a>>,
    token_count: Option<u64>,
}

impl GeminiUsage<'_> {
    /// Returns the counts, each token in one class. Images, video and documents in the prompt are billed like text.
    pub(crate) fn counts(&self) -> TokenCounts {
        let prompt = self.prompt_token_count.unwrap_or(0);
        let prompt = prompt.saturating_add(self.tool_use_prompt_token_count.unwrap_or(0));
        let cache_read = self.cached_content_token_count.unwrap_or(0).min(prompt);
        let fresh = prompt.saturating_sub(cache_read);
        let audio = of(self.prompt_tokens_details, "AUDIO");
        let audio = audio.saturating_add(of(self.tool_use_prompt_tokens_details, "AUDIO"));
        let audio = audio.saturating_sub(of(self.cache_tokens_details, "AUDIO")).min(fresh);
        let candidates = self.candidates_token_count.unwrap_or(0);
        let spoken = of(self.candidates_tokens_details, "AUDIO").min(candidates);
        let drawn = self.image_tokens().unwrap_or(0).min(candidates.saturating_sub(spoken));
        TokenCounts {
            input: fresh.saturating_sub(audio),
            cache_read,
            output: candidates.saturating_sub(spoken).saturating_sub(drawn),
            reasoning: self.thoughts_token_count.unwrap_or(0),
            audio_input: audio,
            audio_output: spoken,
            image_output: drawn,
            ..TokenCounts::ZERO
        }
    }

    /// Returns the tokens of images in the candidates, if the tokens are reported by modality.
    pub(crate) fn image_tokens(&self) -> Option<u64> {
        self.candidates_tokens_details.map(|_| of(self.candidates_tokens_details, "IMAGE"))
    }

    /// Returns the service tier, or Vertex AI's traffic type if the tier is missing.
    pub(crate) fn tier(&self) -> Option<Box<str>> {
        let tier = parse_raw::<BorrowedText<'_>>(self.service_tier);
        let tier = tier.and_then(|tier| term(tier.0.strip_prefix(TIER).unwrap_or(&tier.0).as_bytes()));
        let traffic = || match &*parse_raw::<BorrowedText<'_>>(self.traffic_type)?.0 {
            "PROVISIONED_THROUGHPUT" => term(b"provisioned"),
            "ON_DEMAND" | "TRAFFIC_TYPE_UNSPECIFIED" => None,
            other => term(other.strip_prefix("ON_DEMAND_").unwrap_or(other).as_bytes()),
        };
        tier.or_else(traffic)
    }
}

/// Returns the tokens of `modality`.
fn of(details: Option<&RawValue>, modality: &str) -> u64 {
    let details: Vec<GeminiModalityTokens<'_>> = parse_raw(details).unwrap_or_default();
    let is_meant =
        |detail: &&GeminiModalityTokens<'_>| detail.modality.as_ref().is_some_and(|text| text.0 == modality);
    details.iter().filter(is_meant).filter_map(|detail| detail.token_count).fold(0, u64::saturating_add)
}

/// The prefix of service tier names.
const TIER: &str = "SERVICE_TIER_";
