//! `compatible`: any server that speaks OpenAI Chat Completions.

use std::time::Duration;

use super::quirks::Quirks;
use super::{Auth, COMPATIBLE_DIALECTS, Field, ProviderKind, Reach, path};

pub(super) static KIND: ProviderKind = ProviderKind {
    name: "compatible",
    other_names: &["openai_compatible"],
    summary: "A remote server that speaks OpenAI Chat Completions",
    genai_name: "openai",
    reach: Reach::BaseUrl,
    auth: Auth::Bearer,
    api_key_required: false,
    fields: &[Field::DefaultVoice],
    dialects: COMPATIBLE_DIALECTS,
    families: &[],
    layouts: path::OPENAI,
    added_by_sdk: &[],
    headers: &[],
    models: &[],
    timeout: Duration::from_secs(300),
    quirks: Quirks::PLAIN,
};
