//! Who calls, acting as whom, allowed to use what.
//!
//! A presented key is never stored or compared in plain: its HMAC-SHA-256 under a key of the database
//! (AUTH-6) is looked up in a table, so a near miss takes the same path as any other wrong key.

use std::collections::HashMap;
use std::sync::Arc;

use crate::id::{KeyId, PrincipalId, ProjectId};

/// HMAC-SHA-256 of a presented key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

impl std::fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyHash({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

/// The result of authentication: all that later stages may ask about the caller.
#[derive(Debug)]
pub struct Access {
    /// The key's id; `admin` for static keys, `local` in the unauthenticated local mode.
    pub key: KeyId,
    /// What the caller may do.
    pub role: Role,
    /// The project that pays, if any.
    pub project: Option<ProjectId>,
    /// The human the key stands for, if any.
    pub acts_as: Option<PrincipalId>,
    /// When the key stops working, in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
}

/// What a caller is, as far as authority goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A static key from the environment: everything, past allowlists and quotas (AUTH-2).
    Administrator,
    /// A key that the gateway issued: the data plane only.
    Project,
    /// Nobody, in the unauthenticated local mode: the data plane only (AUTH-3).
    Local,
}

/// Every key that opens the data plane.
#[derive(Debug, Default)]
pub struct AccessTable {
    /// By hash. Lookup time does not depend on how much of a wrong key is right.
    pub keys: HashMap<KeyHash, Arc<Access>>,
    /// Who an unauthenticated caller is, when the local mode is on.
    pub anonymous: Option<Arc<Access>>,
}
