//! `builtin_speech`: speech synthesis inside the process, without network and key (AUD-2).

use std::time::Duration;

use super::quirks::Quirks;
use super::{Auth, Field, Inside, ProviderKind, Reach};
use crate::operation::Dialect;

pub(super) static KIND: ProviderKind = ProviderKind {
    name: "builtin_speech",
    other_names: &[],
    summary: "The gateway's own voice; works offline",
    genai_name: "llmgw.speech",
    reach: Reach::InProcess(Inside::Speech),
    auth: Auth::None,
    api_key_required: false,
    fields: &[Field::DefaultVoice],
    dialects: &[Dialect::Speech],
    families: &[],
    layouts: &[],
    added_by_sdk: &[],
    headers: &[],
    models: &["pico"],
    timeout: Duration::from_secs(300),
    quirks: Quirks::PLAIN,
};
