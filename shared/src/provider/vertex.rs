//! `vertex`: Gemini and Claude in a Google Cloud project. The control service obtains its access tokens.

use std::time::Duration;

use super::gemini::QUIRKS;
use super::path::{Layout, Missing, PathRule, Place, UpstreamCall};
use super::quirks::Quirks;
use super::{Auth, Field, ProviderKind, Reach};
use crate::operation::Dialect;

pub(super) static KIND: ProviderKind = ProviderKind {
    name: "vertex",
    other_names: &[],
    summary: "Gemini and Claude in a Google Cloud project (Vertex AI)",
    genai_name: "gcp.vertex_ai",
    reach: Reach::Placed(base_url),
    auth: Auth::Google,
    api_key_required: false,
    fields: &[Field::Project, Field::Location],
    dialects: &[Dialect::Gemini, Dialect::Messages, Dialect::GeminiEmbeddings],
    families: FAMILIES,
    layouts: LAYOUTS,
    added_by_sdk: &["/v1", "/v1beta1"],
    headers: &[],
    models: MODELS,
    timeout: Duration::from_secs(300),
    quirks: Quirks {
        messages_version: Some("vertex-2023-10-16"),
        count_betas: Some(COUNT_BETAS),
        vertex_embeddings: true,
        root_unions: false,
        ..QUIRKS
    },
};

/// The betas that Vertex AI's token counting for Claude accepts. It responds with 400 to any other, including betas
/// that its answers accept.
const COUNT_BETAS: &[&str] =
    &["claude-code-20250219", "interleaved-thinking-2025-05-14", "context-management-2025-06-27"];

/// Returns the base URL of a location. Each location has its own host, except `global` and the multi-regions `us` and `eu`.
fn base_url(place: &Place<'_>) -> Result<String, Missing> {
    Ok(match place.location.ok_or(Missing("location"))? {
        "global" => "https://aiplatform.googleapis.com".to_owned(),
        many @ ("us" | "eu") => format!("https://aiplatform.{many}.rep.googleapis.com"),
        one => format!("https://{one}-aiplatform.googleapis.com"),
    })
}

const LAYOUTS: &[Layout] = &[Layout { base_ends: "", rules: RULES, lists: &[], api_version: None }];

const RULES: &[PathRule] = &[
    rule(
        &[UpstreamCall::Whole],
        "/v1/<projects/{project}/locations/{location}/>publishers/google/models/{model}:generateContent",
    ),
    rule(
        &[UpstreamCall::Stream],
        "/v1/<projects/{project}/locations/{location}/>publishers/google/models/{model}:streamGenerateContent?alt=sse",
    ),
    rule(
        &[UpstreamCall::Count],
        "/v1/<projects/{project}/locations/{location}/>publishers/google/models/{model}:countTokens",
    ),
    rule(
        &[UpstreamCall::Predict],
        "/v1/<projects/{project}/locations/{location}/>publishers/google/models/{model}:predict",
    ),
    rule(
        &[UpstreamCall::Start],
        "/v1/<projects/{project}/locations/{location}/>publishers/google/models/{model}:predictLongRunning",
    ),
    rule(
        &[UpstreamCall::PollByPost],
        "/v1/<projects/{project}/locations/{location}/>publishers/google/models/{model}:fetchPredictOperation",
    ),
    // Google's SDKs call embeddings in this version.
    embeddings(
        &[UpstreamCall::Whole],
        "/v1beta1/<projects/{project}/locations/{location}/>publishers/google/models/{model}:embedContent",
    ),
    embeddings(
        &[UpstreamCall::Batch],
        "/v1beta1/<projects/{project}/locations/{location}/>publishers/google/models/{model}:batchEmbedContents",
    ),
    embeddings(
        &[UpstreamCall::Predict],
        "/v1/<projects/{project}/locations/{location}/>publishers/google/models/{model}:predict",
    ),
    claude(
        &[UpstreamCall::Whole],
        "/v1/<projects/{project}/locations/{location}/>publishers/anthropic/models/{model}:rawPredict",
    ),
    claude(
        &[UpstreamCall::Stream],
        "/v1/<projects/{project}/locations/{location}/>publishers/anthropic/models/{model}:streamRawPredict",
    ),
    // The body contains the model.
    claude(
        &[UpstreamCall::Count],
        "/v1/<projects/{project}/locations/{location}/>publishers/anthropic/models/count-tokens:rawPredict",
    ),
];

/// The known models. Google Cloud's list contains the models of all publishers and requires additional permissions.
const MODELS: &[&str] =
    &["gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-2.5-pro", "gemini-embedding-001"];

const fn rule(calls: &'static [UpstreamCall], template: &'static str) -> PathRule {
    PathRule { dialect: Dialect::Gemini, calls, template }
}

const fn embeddings(calls: &'static [UpstreamCall], template: &'static str) -> PathRule {
    PathRule { dialect: Dialect::GeminiEmbeddings, calls, template }
}

const fn claude(calls: &'static [UpstreamCall], template: &'static str) -> PathRule {
    PathRule { dialect: Dialect::Messages, calls, template }
}

/// The dialect of each family of models, by the beginning of their names.
const FAMILIES: &[(&str, &[Dialect])] = &[
    ("claude-", &[Dialect::Messages]),
    ("gemini-embedding", &[Dialect::GeminiEmbeddings]),
    ("text-embedding", &[Dialect::GeminiEmbeddings]),
    ("text-multilingual-embedding", &[Dialect::GeminiEmbeddings]),
    ("", &[Dialect::Gemini]),
];
