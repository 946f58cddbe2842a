//! `azure_openai`: OpenAI's models in an Azure resource. A model is identified by its deployment.
//!
//! `base_url` is the endpoint of the resource, below which each deployment has its own path and each request carries
//! a version; or that endpoint with `/openai/v1`, below which the paths are the same as OpenAI's.

use std::time::Duration;

use super::openai::{DIALECTS, QUIRKS};
use super::path::{ANSWER, Layout, ListRule, OPENAI_RULES, Pages, PathRule, UpstreamCall};
use super::{Auth, Field, ProviderKind, Reach};
use crate::operation::Dialect;

pub(super) static KIND: ProviderKind = ProviderKind {
    name: "azure_openai",
    other_names: &[],
    summary: "OpenAI's models in an Azure resource; models are deployments",
    genai_name: "azure.ai.openai",
    reach: Reach::BaseUrl,
    auth: Auth::Azure,
    api_key_required: true,
    fields: &[Field::ApiVersion, Field::DefaultVoice],
    dialects: DIALECTS,
    families: &[],
    layouts: LAYOUTS,
    added_by_sdk: &["/openai", "/openai/deployments"],
    headers: &[],
    models: &[],
    timeout: Duration::from_secs(300),
    quirks: QUIRKS,
};

const LAYOUTS: &[Layout] = &[
    // The list at this base URL contains the models that could be deployed, not the deployments, so it is not used.
    Layout { base_ends: "/openai/v1", rules: OPENAI_RULES, lists: &[], api_version: None },
    Layout { base_ends: "", rules: DEPLOYMENTS, lists: LISTS, api_version: Some("2025-04-01-preview") },
];

const DEPLOYMENTS: &[PathRule] = &[
    PathRule {
        dialect: Dialect::Chat,
        calls: ANSWER,
        template: "/openai/deployments/{model}/chat/completions",
    },
    // Responses has no path per deployment; the model in the body is the deployment.
    PathRule { dialect: Dialect::Responses, calls: ANSWER, template: "/openai/responses" },
    PathRule {
        dialect: Dialect::Responses,
        calls: &[UpstreamCall::Stored],
        template: "/openai/responses/{id}",
    },
    PathRule {
        dialect: Dialect::Responses,
        calls: &[UpstreamCall::Cancel],
        template: "/openai/responses/{id}/cancel",
    },
    PathRule {
        dialect: Dialect::Responses,
        calls: &[UpstreamCall::InputItems],
        template: "/openai/responses/{id}/input_items",
    },
    PathRule {
        dialect: Dialect::Responses,
        calls: &[UpstreamCall::Compact],
        template: "/openai/responses/compact",
    },
    PathRule {
        dialect: Dialect::Embeddings,
        calls: ANSWER,
        template: "/openai/deployments/{model}/embeddings",
    },
    PathRule {
        dialect: Dialect::Speech,
        calls: ANSWER,
        template: "/openai/deployments/{model}/audio/speech",
    },
    PathRule {
        dialect: Dialect::Transcription,
        calls: ANSWER,
        template: "/openai/deployments/{model}/audio/transcriptions",
    },
    PathRule {
        dialect: Dialect::Images,
        calls: ANSWER,
        template: "/openai/deployments/{model}/images/generations",
    },
];

/// The list of deployments, in the last version that has one.
const LISTS: &[ListRule] =
    &[ListRule { host: None, template: "/openai/deployments?api-version=2022-12-01", pages: Pages::One }];
