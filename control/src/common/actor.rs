//! The originator of a request, as the audit names it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use shared::id::{KeyId, PrincipalId};

/// The identity and address behind a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Actor {
    pub(crate) who: Who,
    /// The client's address; `None` for the gateway itself.
    pub(crate) address: Option<IpAddr>,
    /// The request id.
    pub(crate) request_id: Option<String>,
}

impl Actor {
    /// The gateway itself, in work that no request asked for.
    pub(crate) fn gateway() -> Self {
        Self { who: Who::Gateway, address: None, request_id: None }
    }
}

/// The identity behind a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Who {
    /// The holder of a static key, by the key's id.
    Administrator(KeyId),
    /// A human of the administrators' group who signed in with their own account.
    GroupAdministrator(PrincipalId),
    /// A human who signed in with their own account.
    Human(PrincipalId),
    /// A human whom single sign-on is signing in.
    Arriving,
    /// An unknown caller whose request was refused.
    Unknown,
    /// The gateway itself.
    Gateway,
}

impl Who {
    /// The holder of the static key without a name.
    #[cfg(test)]
    pub(crate) fn admin() -> Self {
        Self::Administrator(KeyId::new("admin"))
    }

    /// The name used in the audit and in the scope of idempotency keys.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Administrator(key) => key.as_str(),
            Self::GroupAdministrator(principal) | Self::Human(principal) => principal.as_str(),
            Self::Arriving => "single sign-on",
            Self::Unknown => "unknown",
            Self::Gateway => "gateway",
        }
    }
}
