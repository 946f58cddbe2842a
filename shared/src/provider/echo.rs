//! `echo`: answers inside the process, deterministically; the fault lab for rehearsing failover.

use std::time::Duration;

use super::{Auth, ProviderKind, Reach};
use crate::operation::Dialect;

pub(super) static KIND: ProviderKind = ProviderKind {
    name: "echo",
    summary: "Repeats the prompt; for trying the gateway and rehearsing failures",
    reach: Reach::InProcess,
    auth: Auth::None,
    api_key_required: false,
    dialects: &[Dialect::Chat],
    layouts: &[],
    timeout: Duration::from_secs(300),
    output_limit_field: "max_tokens",
};
