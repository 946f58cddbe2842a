//! `openai`: the vendor's own API.

use std::time::Duration;

use super::{Auth, ProviderKind, Reach, path};
use crate::operation::Dialect;

pub(super) static KIND: ProviderKind = ProviderKind {
    name: "openai",
    summary: "OpenAI",
    reach: Reach::Known("https://api.openai.com/v1"),
    auth: Auth::Bearer,
    api_key_required: true,
    dialects: &[Dialect::Chat],
    layouts: path::OPENAI,
    timeout: Duration::from_secs(300),
    output_limit_field: "max_completion_tokens",
};
