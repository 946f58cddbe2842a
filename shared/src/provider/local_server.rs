//! `local_server`: a model server on this machine or network that asks for no credential.

use std::time::Duration;

use super::{Auth, ProviderKind, Reach, path};
use crate::operation::Dialect;

pub(super) static KIND: ProviderKind = ProviderKind {
    name: "local_server",
    summary: "A model server without authentication (Ollama, LM Studio, llama.cpp, vLLM, SGLang)",
    reach: Reach::BaseUrl,
    auth: Auth::None,
    api_key_required: false,
    dialects: &[Dialect::Chat],
    layouts: path::OPENAI,
    timeout: Duration::from_secs(30),
    output_limit_field: "max_tokens",
};
