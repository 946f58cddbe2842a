//! Who calls the admin API: an administrator, or nobody (AUTH-2, AUTH-3). It is asked before the body of a
//! request is read.

use std::net::IpAddr;

use http::request::Parts;
use shared::access::{Role, presented};
use shared::clock::unix_ms;
use shared::error_kind::ErrorKind;
use shared::snapshot::SnapshotReader;

use super::{ApiError, RequestId};
use crate::actor::{Actor, Who};

/// The door of the admin API.
#[derive(Debug)]
pub(crate) struct Gate {
    snapshot: SnapshotReader,
}

impl Gate {
    pub(crate) fn new(snapshot: SnapshotReader) -> Self {
        Self { snapshot }
    }

    /// Who calls. The local mode never helps.
    pub(crate) fn admit(&self, parts: &Parts, address: IpAddr) -> Result<Actor, ApiError> {
        self.administrator(parts)?;
        let request_id = RequestId::of(&parts.headers).text();
        Ok(Actor { who: Who::Administrator, address: Some(address), request_id })
    }

    /// Passes if the request carries an administrator's key.
    fn administrator(&self, parts: &Parts) -> Result<(), ApiError> {
        let invalid = |message| ApiError::new(ErrorKind::InvalidKey, message);
        let key = presented(&parts.headers).map_err(invalid)?.ok_or_else(|| {
            invalid("The admin API needs an administrator key in x-api-key or Authorization: Bearer.")
        })?;
        let snapshot = self.snapshot.load();
        let access = snapshot.access.keys.get(&snapshot.key_hasher.hash(key));
        let access = access.filter(|access| access.expires_at_ms.is_none_or(|at| unix_ms() < at));
        match access.ok_or_else(|| invalid("The key is not valid."))?.role {
            Role::Administrator => Ok(()),
            Role::Project | Role::Local => {
                Err(ApiError::new(ErrorKind::Forbidden, "This key may not administer the gateway."))
            }
        }
    }
}
