//! Who calls the admin API: an administrator, or nobody (AUTH-2, AUTH-3). A key is looked up by its hash, so a
//! wrong one takes as long as a right one.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use shared::access::Role;
use shared::clock::unix_ms;
use shared::error_kind::ErrorKind;
use shared::snapshot::Snapshot;

use super::ApiError;
use crate::publish::key_hash;

/// Passes if the request carries an administrator's key. The local mode never helps.
pub(crate) fn administrator(headers: &HeaderMap, snapshot: &Snapshot) -> Result<(), ApiError> {
    let key = presented(headers)?.ok_or_else(|| {
        ApiError::new(
            ErrorKind::InvalidKey,
            "The admin API needs an administrator key in x-api-key or Authorization: Bearer.",
        )
    })?;
    let access = snapshot.access.keys.get(&key_hash(&snapshot.key_hash_key, key)).ok_or_else(wrong_key)?;
    if access.expires_at_ms.is_some_and(|at| at <= unix_ms()) {
        return Err(wrong_key());
    }
    match access.role {
        Role::Administrator => Ok(()),
        Role::Project | Role::Local => {
            Err(ApiError::new(ErrorKind::Forbidden, "This key may not administer the gateway."))
        }
    }
}

/// The key as presented; `x-api-key` wins (AUTH-1).
fn presented(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut own = headers.get_all("x-api-key").iter();
    if let Some(key) = own.next() {
        if own.next().is_some() {
            return Err(wrong_key());
        }
        return key.to_str().map(Some).map_err(|_| wrong_key());
    }
    let mut bearers = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = bearers.next() else { return Ok(None) };
    if bearers.next().is_some() {
        return Err(wrong_key());
    }
    let value = value.to_str().map_err(|_| wrong_key())?;
    let (scheme, key) = value.split_once(' ').ok_or_else(wrong_key)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(Some(key.trim())) } else { Err(wrong_key()) }
}

fn wrong_key() -> ApiError {
    ApiError::new(ErrorKind::InvalidKey, "The key is not valid.")
}
