//! `openai`: OpenAI's own API.

use std::time::Duration;

use super::quirks::{OutputLimit, Quirks};
use super::{Auth, Field, ProviderKind, Reach, path};
use crate::operation::Dialect;

pub(super) static KIND: ProviderKind = ProviderKind {
    name: "openai",
    other_names: &[],
    summary: "OpenAI",
    genai_name: "openai",
    reach: Reach::Known("https://api.openai.com/v1"),
    auth: Auth::Bearer,
    api_key_required: true,
    fields: &[Field::DefaultVoice],
    dialects: DIALECTS,
    families: &[],
    layouts: path::OPENAI,
    added_by_sdk: &[],
    headers: &[],
    models: &[],
    timeout: Duration::from_secs(300),
    quirks: QUIRKS,
};

/// The dialects of OpenAI's models, at every provider that runs them.
pub(super) const DIALECTS: &[Dialect] = &[
    Dialect::Chat,
    Dialect::Responses,
    Dialect::Embeddings,
    Dialect::Speech,
    Dialect::Transcription,
    Dialect::Images,
    Dialect::Videos,
];

/// The quirks of OpenAI's models, at every provider that runs them.
pub(super) const QUIRKS: Quirks = Quirks {
    output_limit: OutputLimit::MaxCompletionTokens,
    developer_role: true,
    stops_max: Some(4),
    custom_tools: true,
    files: true,
    inline_images: true,
    root_unions: false,
    ..Quirks::PLAIN
};
