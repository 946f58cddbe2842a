//! `compatible`: anybody's server that speaks OpenAI Chat Completions.

use std::time::Duration;

use super::{Auth, ProviderKind, Reach, path};
use crate::operation::Dialect;

pub(super) static KIND: ProviderKind = ProviderKind {
    name: "compatible",
    summary: "A remote server that speaks OpenAI Chat Completions",
    reach: Reach::BaseUrl,
    auth: Auth::Bearer,
    api_key_required: false,
    dialects: &[Dialect::Chat],
    layouts: path::OPENAI,
    timeout: Duration::from_secs(300),
    output_limit_field: "max_tokens",
};
