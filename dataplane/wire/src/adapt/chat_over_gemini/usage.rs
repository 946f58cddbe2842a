//! `usageMetadata`: what Gemini counts, as disjoint token classes. Input that the cache served is part of the prompt;
//! thoughts are no part of the candidates.

use serde::Deserialize;
use serde_json::value::RawValue;
use shared::usage::TokenCounts;

use super::answer::GeminiText;
use crate::extras::term;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::adapt) struct GeminiUsage<'a> {
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
    /// Of Vertex AI.
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
    modality: Option<GeminiText<'a>>,
    token_count: Option<u64>,
}

impl GeminiUsage<'_> {
    /// Each token in one class. Pictures, video and documents of the prompt are billed like its text.
    pub(in crate::adapt) fn counts(&self) -> TokenCounts {
        let prompt = self.prompt_token_count.unwrap_or(0);
        let prompt = prompt.saturating_add(self.tool_use_prompt_token_count.unwrap_or(0));
        let cache_read = self.cached_content_token_count.unwrap_or(0).min(prompt);
        let fresh = prompt.saturating_sub(cache_read);
        let audio = of(self.prompt_tokens_details, "AUDIO");
        let audio = audio.saturating_add(of(self.tool_use_prompt_tokens_details, "AUDIO"));
        let audio = audio.saturating_sub(of(self.cache_tokens_details, "AUDIO")).min(fresh);
        let candidates = self.candidates_token_count.unwrap_or(0);
        let spoken = of(self.candidates_tokens_details, "AUDIO").min(candidates);
        let drawn = self.image_tokens().min(candidates.saturating_sub(spoken));
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

    /// Tokens of pictures in the candidates.
    fn image_tokens(&self) -> u64 {
        of(self.candidates_tokens_details, "IMAGE")
    }

    /// The service tier, or how the traffic is paid for.
    pub(in crate::adapt) fn tier(&self) -> Option<Box<str>> {
        let tier = read::<GeminiText<'_>>(self.service_tier);
        let tier = tier.and_then(|tier| term(tier.0.strip_prefix(TIER).unwrap_or(&tier.0).as_bytes()));
        let traffic = || match &*read::<GeminiText<'_>>(self.traffic_type)?.0 {
            "PROVISIONED_THROUGHPUT" => term(b"provisioned"),
            "ON_DEMAND" | "TRAFFIC_TYPE_UNSPECIFIED" => None,
            other => term(other.strip_prefix("ON_DEMAND_").unwrap_or(other).as_bytes()),
        };
        tier.or_else(traffic)
    }
}

/// The tokens of `modality`.
fn of(details: Option<&RawValue>, modality: &str) -> u64 {
    let details: Vec<GeminiModalityTokens<'_>> = read(details).unwrap_or_default();
    let is_meant =
        |detail: &&GeminiModalityTokens<'_>| detail.modality.as_ref().is_some_and(|text| text.0 == modality);
    details.iter().filter(is_meant).filter_map(|detail| detail.token_count).fold(0, u64::saturating_add)
}

/// A member, if it has the form that is expected.
fn read<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// What the names of service tiers begin with.
const TIER: &str = "SERVICE_TIER_";
