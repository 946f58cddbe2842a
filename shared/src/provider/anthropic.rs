//! `anthropic`: Anthropic's own API and servers of the same API. `base_url` does not include `/v1`.

use std::time::Duration;

use super::path::{ANSWER, Layout, ListRule, Pages, PathRule, UpstreamCall};
use super::quirks::Quirks;
use super::{Auth, ProviderKind, Reach};
use crate::operation::Dialect;

pub(super) static KIND: ProviderKind = ProviderKind {
    name: "anthropic",
    other_names: &[],
    summary: "Anthropic, and servers of its Messages API",
    genai_name: "anthropic",
    reach: Reach::Known("https://api.anthropic.com"),
    auth: Auth::Header("x-api-key"),
    api_key_required: true,
    fields: &[],
    dialects: &[Dialect::Messages],
    families: &[],
    layouts: LAYOUTS,
    added_by_sdk: &["/v1", "/v1/messages"],
    headers: &[("anthropic-version", "2023-06-01")],
    models: &[],
    timeout: Duration::from_secs(300),
    quirks: Quirks { top_k: true, files: true, root_unions: false, cache_marks: true, ..Quirks::PLAIN },
};

const LAYOUTS: &[Layout] = &[Layout {
    base_ends: "",
    rules: &[
        PathRule { dialect: Dialect::Messages, calls: ANSWER, template: "/v1/messages" },
        PathRule {
            dialect: Dialect::Messages,
            calls: &[UpstreamCall::Count],
            template: "/v1/messages/count_tokens",
        },
        // Anthropic offers this path for testing only; it is used only if `protocols` lists `chat`.
        PathRule { dialect: Dialect::Chat, calls: ANSWER, template: "/v1/chat/completions" },
    ],
    lists: &[ListRule { host: None, template: "/v1/models?limit=1000", pages: Pages::AfterId }],
    api_version: None,
}];
