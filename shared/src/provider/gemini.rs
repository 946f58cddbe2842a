//! `gemini`: Google's Gemini API with an API key. `base_url` may end with the version.

use std::time::Duration;

use super::path::{Layout, ListRule, Pages, PathRule, UpstreamCall};
use super::quirks::Quirks;
use super::{Auth, ProviderKind, Reach};
use crate::operation::Dialect;

pub(super) static KIND: ProviderKind = ProviderKind {
    name: "gemini",
    other_names: &["google_ai_studio"],
    summary: "Google's Gemini API",
    genai_name: "gcp.gemini",
    reach: Reach::Known("https://generativelanguage.googleapis.com"),
    auth: Auth::Header("x-goog-api-key"),
    api_key_required: true,
    fields: &[],
    dialects: &[Dialect::Gemini, Dialect::GeminiEmbeddings],
    families: FAMILIES,
    layouts: LAYOUTS,
    added_by_sdk: &["/models"],
    headers: &[],
    models: &[],
    timeout: Duration::from_secs(300),
    quirks: Quirks { counts_whole: true, ..QUIRKS },
};

/// The quirks of Gemini, at every provider that runs it.
pub(super) const QUIRKS: Quirks = Quirks { top_k: true, files: true, stops_max: Some(5), ..Quirks::PLAIN };

const LAYOUTS: &[Layout] = &[
    Layout { base_ends: "/v1beta", rules: BELOW_VERSION, lists: LISTS_BELOW_VERSION, api_version: None },
    Layout { base_ends: "/v1", rules: BELOW_VERSION, lists: LISTS_BELOW_VERSION, api_version: None },
    Layout { base_ends: "", rules: RULES, lists: LISTS, api_version: None },
];

const RULES: &[PathRule] = &[
    rule(&[UpstreamCall::Whole], "/v1beta/models/{model}:generateContent"),
    rule(&[UpstreamCall::Stream], "/v1beta/models/{model}:streamGenerateContent?alt=sse"),
    rule(&[UpstreamCall::Count], "/v1beta/models/{model}:countTokens"),
    rule(&[UpstreamCall::Predict], "/v1beta/models/{model}:predict"),
    rule(&[UpstreamCall::Start], "/v1beta/models/{model}:predictLongRunning"),
    rule(&[UpstreamCall::Poll], "/v1beta/{id}"),
    embeddings(&[UpstreamCall::Whole], "/v1beta/models/{model}:embedContent"),
    embeddings(&[UpstreamCall::Batch], "/v1beta/models/{model}:batchEmbedContents"),
];

const BELOW_VERSION: &[PathRule] = &[
    rule(&[UpstreamCall::Whole], "/models/{model}:generateContent"),
    rule(&[UpstreamCall::Stream], "/models/{model}:streamGenerateContent?alt=sse"),
    rule(&[UpstreamCall::Count], "/models/{model}:countTokens"),
    rule(&[UpstreamCall::Predict], "/models/{model}:predict"),
    rule(&[UpstreamCall::Start], "/models/{model}:predictLongRunning"),
    rule(&[UpstreamCall::Poll], "/{id}"),
    embeddings(&[UpstreamCall::Whole], "/models/{model}:embedContent"),
    embeddings(&[UpstreamCall::Batch], "/models/{model}:batchEmbedContents"),
];

const LISTS: &[ListRule] =
    &[ListRule { host: None, template: "/v1beta/models?pageSize=1000", pages: Pages::PageToken }];
const LISTS_BELOW_VERSION: &[ListRule] =
    &[ListRule { host: None, template: "/models?pageSize=1000", pages: Pages::PageToken }];

const fn rule(calls: &'static [UpstreamCall], template: &'static str) -> PathRule {
    PathRule { dialect: Dialect::Gemini, calls, template }
}

const fn embeddings(calls: &'static [UpstreamCall], template: &'static str) -> PathRule {
    PathRule { dialect: Dialect::GeminiEmbeddings, calls, template }
}

/// The dialect of each family of models, by the beginning of their names.
const FAMILIES: &[(&str, &[Dialect])] = &[
    ("gemini-embedding", &[Dialect::GeminiEmbeddings]),
    ("text-embedding", &[Dialect::GeminiEmbeddings]),
    ("text-multilingual-embedding", &[Dialect::GeminiEmbeddings]),
    ("embedding", &[Dialect::GeminiEmbeddings]),
    ("", &[Dialect::Gemini]),
];
