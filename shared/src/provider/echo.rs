//! `echo`: answers inside the process, deterministically; used to rehearse failover.

use std::time::Duration;

use super::quirks::Quirks;
use super::{Auth, Inside, ProviderKind, Reach};
use crate::operation::Dialect;

pub(super) static KIND: ProviderKind = ProviderKind {
    name: "echo",
    other_names: &[],
    summary: "Repeats the prompt; for trying the gateway and rehearsing failures",
    genai_name: "llmgw.echo",
    reach: Reach::InProcess(Inside::Echo),
    auth: Auth::None,
    api_key_required: false,
    fields: &[],
    dialects: &[Dialect::Chat, Dialect::Responses],
    families: &[],
    layouts: &[],
    added_by_sdk: &[],
    headers: &[],
    models: &["echo"],
    timeout: Duration::from_secs(300),
    quirks: Quirks::PLAIN,
};
