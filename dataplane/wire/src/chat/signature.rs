//! Gemini's signatures of thoughts, as its chat endpoint attaches them to calls and messages.

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Extra {
    google: Option<SignedContent>,
    vertex: Option<SignedContent>,
}

#[derive(Deserialize)]
struct SignedContent {
    thought_signature: Option<String>,
}

/// Returns the signature in an `extra_content`.
pub(crate) fn thought_signature(extra_content: &RawValue) -> Option<String> {
    let extra: Extra = serde_json::from_str(extra_content.get()).ok()?;
    let signed = [extra.google, extra.vertex].into_iter().flatten();
    signed.filter_map(|signed| signed.thought_signature).find(|signature| !signature.is_empty())
}
