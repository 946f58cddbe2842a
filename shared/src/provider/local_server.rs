//! `local_server`: a model server on this machine or network that requires no credential.

use std::time::Duration;

use super::quirks::Quirks;
use super::{Auth, COMPATIBLE_DIALECTS, Field, ProviderKind, Reach, path};

pub(super) static KIND: ProviderKind = ProviderKind {
    name: "local_server",
    other_names: &["ollama"],
    summary: "A model server without authentication (Ollama, LM Studio, llama.cpp, vLLM, SGLang)",
    genai_name: "openai",
    reach: Reach::BaseUrl,
    auth: Auth::None,
    api_key_required: false,
    fields: &[Field::DefaultVoice],
    dialects: COMPATIBLE_DIALECTS,
    families: &[],
    layouts: path::OPENAI,
    added_by_sdk: &[],
    headers: &[],
    models: &[],
    timeout: Duration::from_secs(30),
    quirks: Quirks { leading_system: true, word_tool_names: false, ..Quirks::PLAIN },
};
