//! Who asks for something, as the audit names them.

use std::net::IpAddr;

use shared::id::{KeyId, PrincipalId};

/// Who, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Actor {
    pub(crate) who: Who,
    /// The address of whoever sent the request; none for the gateway itself.
    pub(crate) address: Option<IpAddr>,
    /// The id of the request.
    pub(crate) request_id: Option<String>,
}

/// Who.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The holder of a static key, by its id.
    Administrator(KeyId),
    /// A human with a sign-in of their own.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "humans cannot sign in yet; what they may do is decided")
    )]
    Human(PrincipalId),
    /// Nobody that is known: a request that was refused.
    Unknown,
    /// The gateway itself.
    Gateway,
}

impl Who {
    /// The holder of the static key that has no name.
    #[cfg(test)]
    pub(crate) fn admin() -> Self {
        Self::Administrator(KeyId::new("admin"))
    }

    /// The name in the audit and in the scope of idempotency keys.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Administrator(key) => key.as_str(),
            Self::Human(principal) => principal.as_str(),
            Self::Unknown => "unknown",
            Self::Gateway => "gateway",
        }
    }
}
