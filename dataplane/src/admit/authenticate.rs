//! Authentication: from the key header to [`Access`] (AUTH-1 to AUTH-3).

use std::borrow::Cow;
use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderValue, Uri};
use shared::access::{Access, Role, presented, presented_to_google};
use shared::clock;
use shared::error_kind::ErrorKind;
use shared::freshness::{Doubt, Freshness};
use shared::key_format::is_well_formed;
use shared::key_table::AccessTable;
use shared::secret::Secret;
use shared::snapshot::Snapshot;

use crate::error::Fault;
use crate::route::google::is_google;

/// Authenticates the caller. `x-api-key` takes precedence over `Authorization`; a wrong key is an error even if the
/// other header has a valid one, and so are two different `x-api-key` headers. `last` belongs to the connection.
pub(crate) fn authenticate(
    snapshot: &Snapshot,
    last: &LastKey,
    request: &Parts,
) -> Result<Arc<Access>, Fault> {
    let local = |access| from_this_machine(request).map(|()| Arc::clone(access));
    let Some(presented) = presented_by(request)? else {
        return match &snapshot.access.anonymous {
            Some(access) => local(access),
            None => Err(invalid(
                "No API key was sent. Send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.",
            )),
        };
    };
    let presented = &*presented;
    let known = last.access(presented, &snapshot.access).or_else(|| look_up(snapshot, last, presented));
    if let Some(access) = known
        && is_live(&access)
    {
        return current(access, &snapshot.freshness);
    }
    match &snapshot.access.anonymous {
        // SDKs always send some key; in the local mode any key is accepted.
        Some(access) => local(access),
        // Another node may have issued the key since.
        None => match snapshot.freshness.doubt() {
            Some(doubt) if is_issued(presented) => Err(doubtful(doubt)),
            _ => Err(invalid(NOT_VALID)),
        },
    }
}

/// Returns the key that a request presents, if any, where clients of its protocol put it.
pub(crate) fn presented_by(request: &Parts) -> Result<Option<Cow<'_, [u8]>>, Fault> {
    if is_google(request) {
        let found = presented_to_google(&request.headers, request.uri.query());
        return found.map_err(|why| Fault::new(ErrorKind::InvalidRequest, why));
    }
    presented(&request.headers).map(|key| key.map(Cow::Borrowed)).map_err(invalid)
}

/// Refuses the callers that an administrator may have revoked since the snapshot was current, and whose limits a node with a wrong
/// clock would count in other windows.
fn current(access: Arc<Access>, freshness: &Freshness) -> Result<Arc<Access>, Fault> {
    if access.role != Role::Project {
        return Ok(access);
    }
    freshness.doubt().map_or(Ok(access), |doubt| Err(doubtful(doubt)))
}

fn doubtful(doubt: Doubt) -> Fault {
    let message = match doubt {
        Doubt::Stale => STALE,
        Doubt::WrongClock => WRONG_CLOCK,
    };
    Fault::new(ErrorKind::DatabaseUnreachable, message).retry_after(DOUBT_RETRY)
}

fn look_up(snapshot: &Snapshot, last: &LastKey, presented: &[u8]) -> Option<Arc<Access>> {
    let access = snapshot.access.keys.get(&snapshot.key_hasher.hash(presented))?;
    last.remember(presented, &snapshot.access, access);
    Some(Arc::clone(access))
}

/// The key that was last found on a connection. The next request nearly always presents it again, and then it need
/// not be hashed and looked up.
#[derive(Debug, Default)]
pub(crate) struct LastKey(RefCell<Option<Found>>);

#[derive(Debug)]
struct Found {
    key: Secret<Vec<u8>>,
    /// The table that contained the key: in another table it may be absent or belong to another caller. The weak
    /// reference keeps no table alive for an idle connection.
    table: Weak<AccessTable>,
    access: Arc<Access>,
}

impl LastKey {
    /// Returns the access of `presented` if it is this key and was found in `table`.
    fn access(&self, presented: &[u8], table: &Arc<AccessTable>) -> Option<Arc<Access>> {
        let found = self.0.borrow();
        let found = found.as_ref()?;
        let is_current = std::ptr::eq(found.table.as_ptr(), Arc::as_ptr(table));
        (is_current && found.key.is(presented)).then(|| Arc::clone(&found.access))
    }

    fn remember(&self, presented: &[u8], table: &Arc<AccessTable>, access: &Arc<Access>) {
        *self.0.borrow_mut() = Some(Found {
            key: Secret::new(presented.to_vec()),
            table: Arc::downgrade(table),
            access: Arc::clone(access),
        });
    }
}

/// Returns true if the request presents a key that is not of the format that the gateway issues: one that may be meant as
/// an administrator's. Issued keys cannot be guessed, and a client with a revoked one gets 401 each time.
pub(crate) fn presents_foreign_key(request: &Parts) -> bool {
    let presented = presented_by(request).ok().flatten();
    presented.is_some_and(|key| !is_issued(&key))
}

/// Returns true if a key has the format that the gateway issues.
fn is_issued(key: &[u8]) -> bool {
    std::str::from_utf8(key).is_ok_and(is_well_formed)
}

/// Returns the error for a caller that has presented too many wrong keys.
pub(crate) fn too_many_wrong_keys(wait: Duration) -> Fault {
    let message = format!(
        "Too many wrong keys. Try again in {} s; a correct key is accepted at any time.",
        wait.as_millis().div_ceil(1_000)
    );
    Fault::new(ErrorKind::TooManySignIns, message).retry_after(wait)
}

const STALE: &str =
    "This node of the gateway cannot reach its database, so it cannot know whether the key is still valid.";
const WRONG_CLOCK: &str = "The clocks of this node of the gateway and of its database differ by more than 30 s, so it cannot count limits.";
const DOUBT_RETRY: Duration = Duration::from_secs(5);
const NOT_VALID: &str = "The API key is wrong, expired or disabled.";

fn is_live(access: &Access) -> bool {
    access.expires_at_ms.is_none_or(|end| clock::unix_ms() < end)
}

/// Rejects an in-process access whose key has expired, or may have been revoked.
pub(crate) fn still_live(access: &Arc<Access>, freshness: &Freshness) -> Result<Arc<Access>, Fault> {
    if is_live(access) { current(Arc::clone(access), freshness) } else { Err(invalid(NOT_VALID)) }
}

/// Returns true if the caller is an administrator.
pub(crate) fn is_administrator(access: &Access) -> bool {
    access.role == Role::Administrator
}

/// Rejects requests from web pages of other origins in the local mode (AUTH-3). Browsers send the page's origin in
/// `Origin`, but not always; a page whose own name resolves to this machine (DNS rebinding) is then detected by
/// `Host`. Both must name this machine.
fn from_this_machine(request: &Parts) -> Result<(), Fault> {
    let headers = &request.headers;
    let is_local = |value: &HeaderValue| {
        let uri = value.to_str().ok().and_then(|text| text.parse::<Uri>().ok());
        uri.as_ref().and_then(Uri::host).is_some_and(is_this_machine)
    };
    let refusal = if !headers.get_all(ORIGIN).iter().all(is_local) {
        "A gateway without API keys accepts only web pages from this machine."
    } else if !headers.get_all(HOST).iter().all(is_local) || !request.uri.host().is_none_or(is_this_machine) {
        "On a gateway without API keys, the Host header must be localhost or a loopback address."
    } else {
        return Ok(());
    };
    Err(Fault::new(ErrorKind::ForbiddenOrigin, refusal))
}

/// Returns true for loopback addresses and names. Browsers themselves resolve `*.localhost` to loopback (RFC 6761).
fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return address.to_canonical().is_loopback();
    }
    let host = host.to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

fn invalid(message: &'static str) -> Fault {
    Fault::new(ErrorKind::InvalidKey, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use http::header::AUTHORIZATION;
    use shared::freshness::Moment;
    use shared::key_format::key_of;

    fn snapshot(keys: &[(&str, &str)], expires_at_ms: Option<u64>) -> Snapshot {
        let empty = Snapshot::empty();
        let access = |id: &str| Arc::new(Access { expires_at_ms, ..Access::new(id, Role::Project) });
        let keys = keys.iter().map(|(key, id)| (empty.key_hasher.hash(key.as_bytes()), access(id)));
        let table = AccessTable { keys: keys.collect(), ..AccessTable::default() };
        Snapshot { access: Arc::new(table), ..empty }
    }

    fn who(snapshot: &Snapshot, last: &LastKey, key: &str) -> Option<String> {
        let request = Request::builder().header(AUTHORIZATION, format!("Bearer {key}")).body(()).unwrap();
        authenticate(snapshot, last, &request.into_parts().0).ok().map(|access| access.key.to_string())
    }

    #[test]
    fn a_remembered_key_authenticates_only_itself() {
        let last = LastKey::default();
        let now = snapshot(&[("key-a", "a"), ("key-b", "b")], None);
        for (key, want) in [
            ("key-a", Some("a")),
            ("key-a", Some("a")),
            ("key-b", Some("b")),
            ("key-c", None),
            ("key-b", Some("b")),
            ("key-", None),
            ("key-bb", None),
            ("key-a", Some("a")),
        ] {
            assert_eq!(who(&now, &last, key).as_deref(), want, "{key}");
        }
    }

    #[test]
    fn a_remembered_key_is_invalid_after_its_table_changes() {
        let last = LastKey::default();
        assert_eq!(who(&snapshot(&[("key", "a")], None), &last, "key").as_deref(), Some("a"));
        assert_eq!(who(&snapshot(&[], None), &last, "key"), None);
        assert_eq!(who(&snapshot(&[("key", "b")], None), &last, "key").as_deref(), Some("b"));
    }

    #[test]
    fn a_node_whose_snapshot_is_stale_refuses_project_keys_and_keeps_administrators() {
        let freshness = Freshness::new(Duration::from_mins(5));
        let unknown = key_of(&Secret::new([7; 32]));
        let empty = Snapshot::empty();
        let keys = [("project", Role::Project), ("admin", Role::Administrator)];
        let keys =
            keys.map(|(key, role)| (empty.key_hasher.hash(key.as_bytes()), Arc::new(Access::new(key, role))));
        let table = AccessTable { keys: keys.into_iter().collect(), ..AccessTable::default() };
        let snapshot = Snapshot { access: Arc::new(table), freshness: freshness.clone(), ..empty };
        let kind = |key: &str| {
            let request = Request::builder().header(AUTHORIZATION, format!("Bearer {key}")).body(()).unwrap();
            let found = authenticate(&snapshot, &LastKey::default(), &request.into_parts().0);
            found.err().map(|fault| (fault.kind, fault.retry_after.is_some()))
        };
        assert_eq!(kind("project"), Some((ErrorKind::DatabaseUnreachable, true)));
        assert_eq!(kind(unknown.expose()), Some((ErrorKind::DatabaseUnreachable, true)), "it may be new");
        assert_eq!((kind("admin"), kind("wrong")), (None, Some((ErrorKind::InvalidKey, false))));
        freshness.confirm(Moment::now());
        assert_eq!((kind("project"), kind("admin")), (None, None));
        assert_eq!(kind(unknown.expose()), Some((ErrorKind::InvalidKey, false)));
        freshness.compare_clocks(true);
        assert_eq!((kind("project"), kind("admin")), (Some((ErrorKind::DatabaseUnreachable, true)), None));
    }

    #[test]
    fn a_remembered_key_still_expires() {
        let last = LastKey::default();
        let ended = snapshot(&[("key", "a")], Some(1));
        last.remember(b"key", &ended.access, ended.access.keys.values().next().unwrap());
        assert_eq!(who(&ended, &last, "key"), None);
    }
}
