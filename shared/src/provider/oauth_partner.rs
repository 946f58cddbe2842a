//! `oauth_partner`: a server of OpenAI's API that a human signs in to with OAuth.

use std::time::Duration;

use super::quirks::Quirks;
use super::{Auth, COMPATIBLE_DIALECTS, Field, ProviderKind, Reach, path};

pub(super) static KIND: ProviderKind = ProviderKind {
    name: "oauth_partner",
    other_names: &[],
    summary: "An account that a human signs in to with OAuth (experimental)",
    genai_name: "openai",
    reach: Reach::BaseUrl,
    auth: Auth::Oauth,
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
