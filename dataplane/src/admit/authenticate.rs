//! Key header to [`Access`] (AUTH-1 to AUTH-3).

use std::sync::Arc;

use http::header::ORIGIN;
use http::{HeaderMap, HeaderValue};
use shared::access::{Access, Role, presented};
use shared::clock;
use shared::error_kind::ErrorKind;
use shared::snapshot::Snapshot;

use crate::error::Fault;

/// Finds out who calls. `x-api-key` wins over `Authorization`; a wrong key is not rescued by another one, and
/// two different `x-api-key` headers are none.
pub(crate) fn authenticate(snapshot: &Snapshot, headers: &HeaderMap) -> Result<Arc<Access>, Fault> {
    let Some(presented) = presented(headers).map_err(invalid)? else {
        return match &snapshot.access.anonymous {
            Some(local) => from_local_page(headers).map(|()| Arc::clone(local)),
            None => Err(invalid(
                "No API key was sent. Send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.",
            )),
        };
    };
    let hash = snapshot.key_hasher.hash(presented);
    if let Some(access) = snapshot.access.keys.get(&hash)
        && is_live(access)
    {
        return Ok(Arc::clone(access));
    }
    match &snapshot.access.anonymous {
        // SDKs insist on sending some key; in the local mode any will do.
        Some(local) => from_local_page(headers).map(|()| Arc::clone(local)),
        None => Err(invalid(NOT_VALID)),
    }
}

const NOT_VALID: &str = "The API key is wrong, expired or disabled.";

fn is_live(access: &Access) -> bool {
    access.expires_at_ms.is_none_or(|end| clock::unix_ms() < end)
}

/// What stands for a key from inside the process ends when the key does.
pub(crate) fn still_live(access: &Arc<Access>) -> Result<Arc<Access>, Fault> {
    if is_live(access) { Ok(Arc::clone(access)) } else { Err(invalid(NOT_VALID)) }
}

/// Whether the caller is an administrator.
pub(crate) fn is_administrator(access: &Access) -> bool {
    access.role == Role::Administrator
}

/// In the local mode a page from somewhere else must not use the visitor's models (AUTH-3): whatever sends a
/// browser's `Origin` has to come from this machine.
fn from_local_page(headers: &HeaderMap) -> Result<(), Fault> {
    let foreign = |origin: &HeaderValue| {
        let uri = origin.to_str().ok().and_then(|text| text.parse::<http::Uri>().ok());
        let host = uri.as_ref().and_then(http::Uri::host).unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let loopback = bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        !(loopback || host.eq_ignore_ascii_case("localhost"))
    };
    if headers.get_all(ORIGIN).iter().any(foreign) {
        return Err(Fault::new(
            ErrorKind::ForbiddenOrigin,
            "Without a key only pages from this machine may call the gateway.",
        ));
    }
    Ok(())
}

fn invalid(message: &'static str) -> Fault {
    Fault::new(ErrorKind::InvalidKey, message)
}
