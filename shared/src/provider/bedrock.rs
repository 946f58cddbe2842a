//! `bedrock`: Amazon Bedrock through its Converse API. A model is identified by its ID, an inference profile or an ARN.

use std::time::Duration;

use super::path::{ANSWER, Layout, ListRule, Missing, Pages, PathRule, Place, UpstreamCall};
use super::quirks::Quirks;
use super::{Auth, Field, ProviderKind, Reach};
use crate::operation::Dialect;

pub(super) static KIND: ProviderKind = ProviderKind {
    name: "bedrock",
    other_names: &[],
    summary: "Amazon Bedrock",
    genai_name: "aws.bedrock",
    reach: Reach::Placed(base_url),
    auth: Auth::Aws { service: "bedrock" },
    api_key_required: true,
    fields: &[Field::Region],
    dialects: &[Dialect::Bedrock],
    families: &[],
    layouts: LAYOUTS,
    added_by_sdk: &["/model"],
    headers: &[],
    models: &[],
    timeout: Duration::from_secs(300),
    quirks: Quirks {
        json_schema: false,
        strict_tools: false,
        root_unions: false,
        files: true,
        cache_marks: true,
        ..Quirks::PLAIN
    },
};

fn base_url(place: &Place<'_>) -> Result<String, Missing> {
    address("bedrock-runtime", place)
}

/// Returns the base URL of the API that lists models.
fn control_plane(place: &Place<'_>) -> Result<String, Missing> {
    address("bedrock", place)
}

fn address(service: &str, place: &Place<'_>) -> Result<String, Missing> {
    let region = place.region.ok_or(Missing("region"))?;
    let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    Ok(format!("https://{service}.{region}.{domain}"))
}

const LAYOUTS: &[Layout] = &[Layout {
    base_ends: "",
    rules: &[
        rule(&[UpstreamCall::Whole], "/model/{model}/converse"),
        rule(&[UpstreamCall::Stream], "/model/{model}/converse-stream"),
        rule(&[UpstreamCall::Count], "/model/{model}/count-tokens"),
        // Only a few models support these paths; they must be listed in `protocols`.
        PathRule { dialect: Dialect::Chat, calls: ANSWER, template: "/openai/v1/chat/completions" },
        PathRule { dialect: Dialect::Responses, calls: ANSWER, template: "/openai/v1/responses" },
    ],
    lists: &[
        ListRule { host: Some(control_plane), template: "/foundation-models", pages: Pages::One },
        ListRule {
            host: Some(control_plane),
            template: "/inference-profiles?maxResults=1000",
            pages: Pages::NextToken,
        },
    ],
    api_version: None,
}];

const fn rule(calls: &'static [UpstreamCall], template: &'static str) -> PathRule {
    PathRule { dialect: Dialect::Bedrock, calls, template }
}
