//! `extension`: a provider of an extension, which is a service beside the gateway (`docs/extensions.md`). The extension sets
//! address and signature.

use std::time::Duration;

use super::path::{Layout, ListRule, Pages, PathRule, UpstreamCall};
use super::quirks::Quirks;
use super::{Auth, ProviderKind, Reach};
use crate::operation::Dialect;

pub(super) static KIND: ProviderKind = ProviderKind {
    name: "extension",
    other_names: &[],
    summary: "A provider of an extension, a service of your own beside the gateway",
    genai_name: "openai",
    reach: Reach::Extension,
    auth: Auth::Header("x-llmgw-credential"),
    api_key_required: false,
    fields: &[],
    dialects: &[Dialect::Chat],
    families: &[],
    layouts: LAYOUTS,
    added_by_sdk: &[],
    headers: &[],
    models: &[],
    timeout: Duration::from_secs(300),
    quirks: Quirks::PLAIN,
};

const LAYOUTS: &[Layout] = &[Layout {
    base_ends: "",
    rules: &[
        invoke(Dialect::Chat, "/v1/{provider}/invoke?dialect=chat"),
        stream(Dialect::Chat, "/v1/{provider}/stream?dialect=chat"),
        invoke(Dialect::Responses, "/v1/{provider}/invoke?dialect=responses"),
        stream(Dialect::Responses, "/v1/{provider}/stream?dialect=responses"),
        invoke(Dialect::Messages, "/v1/{provider}/invoke?dialect=messages"),
        stream(Dialect::Messages, "/v1/{provider}/stream?dialect=messages"),
    ],
    lists: &[ListRule { host: None, template: "/v1/{provider}/models", pages: Pages::One }],
    api_version: None,
}];

const fn invoke(dialect: Dialect, template: &'static str) -> PathRule {
    PathRule { dialect, calls: &[UpstreamCall::Whole], template }
}

const fn stream(dialect: Dialect, template: &'static str) -> PathRule {
    PathRule { dialect, calls: &[UpstreamCall::Stream], template }
}
