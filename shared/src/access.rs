//! Who calls, acting as whom, allowed to use what.
//!
//! A presented key is never stored or compared in plain: its HMAC-SHA-256 under a key of the database
//! (AUTH-6) is looked up in a table, so a near miss takes the same path as any other wrong key.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use ring::hmac;
use serde::Serialize;

use crate::id::{KeyId, PrincipalId, ProjectId};
pub use crate::key_table::{KeyHash, KeyTable};
use crate::operation::Operation;
use crate::quota::Quota;
use crate::routing::Target;
use crate::secret::Secret;

/// Hashes presented keys under the key of the database (AUTH-6). Made once; hashing needs no more set-up.
#[derive(Clone)]
pub struct KeyHasher(hmac::Key);

impl KeyHasher {
    /// A hasher under `key`.
    pub fn new(key: &Secret<[u8; 32]>) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key.expose()))
    }

    /// What `presented` is looked up by.
    pub fn hash(&self, presented: &[u8]) -> KeyHash {
        let mut hash = KeyHash([0; 32]);
        hash.0.copy_from_slice(hmac::sign(&self.0, presented).as_ref());
        hash
    }

    /// Returns the pseudonym of an end user: 16 hexadecimal digits, always the same for the same name.
    pub fn pseudonym(&self, name: &str) -> Box<str> {
        // No key begins like that, so that no pseudonym is a part of the hash of one.
        let hash = self.hash(&[b"end user\0", name.as_bytes()].concat());
        let digits = hash.0.iter().take(8).flat_map(|byte| [byte >> 4, byte & 15]);
        digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHasher(••••)")
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
    /// What the key may use, and what its project may use; both must agree (AUTH-2).
    pub allowlists: Vec<Arc<Allowlist>>,
    /// The limits that may count a request of this caller; their scopes say which do. None is hard for
    /// administrators (AUTH-2).
    pub quotas: Box<[Arc<Quota>]>,
}

impl Access {
    /// A caller without a project, without limits of its own.
    pub fn new(key: &str, role: Role) -> Self {
        Self {
            key: KeyId::new(key),
            role,
            project: None,
            acts_as: None,
            expires_at_ms: None,
            allowlists: Vec::new(),
            quotas: Box::default(),
        }
    }
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

/// What one key or project may use. A list that is absent says nothing; where either of `models` and
/// `endpoints` is there, what neither of them names is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Allowlist {
    /// Exact model ids (`provider/model`), or all of a provider (`provider/*`).
    pub models: Option<BTreeSet<Box<str>>>,
    /// Endpoints by name. One that is named may use all of its members.
    pub endpoints: Option<BTreeSet<Box<str>>>,
    /// Operations.
    pub routes: Option<Vec<Operation>>,
}

impl Allowlist {
    /// Whether it lets `operation` pass.
    pub fn permits_route(&self, operation: Operation) -> bool {
        self.routes.as_ref().is_none_or(|routes| routes.contains(&operation))
    }

    /// Whether it lets `target` be used, reached through the endpoint called `endpoint` or by its own id.
    pub fn permits(&self, endpoint: Option<&str>, target: &Target) -> bool {
        if self.models.is_none() && self.endpoints.is_none() {
            return true;
        }
        let by_endpoint = |names: &BTreeSet<Box<str>>| endpoint.is_some_and(|name| names.contains(name));
        let provider = target.provider.id.as_str();
        let by_model = |names: &BTreeSet<Box<str>>| {
            names.iter().any(|name| {
                let Some((wanted, model)) = name.split_once('/') else { return false };
                wanted == provider && (model == "*" || model == target.model.id.as_str())
            })
        };
        self.endpoints.as_ref().is_some_and(by_endpoint) || self.models.as_ref().is_some_and(by_model)
    }
}

/// Every key that opens the data plane.
#[derive(Debug, Default)]
pub struct AccessTable {
    /// By hash. Lookup time does not depend on how much of a wrong key is right.
    pub keys: KeyTable,
    /// Who an unauthenticated caller is, when the local mode is on.
    pub anonymous: Option<Arc<Access>>,
    /// The limits that count what administrators and the local mode use, and refuse them nothing.
    pub unbound: Box<[Arc<Quota>]>,
}

/// The key that a request presents, if it presents one: `x-api-key` wins over `Authorization: Bearer` (AUTH-1).
/// A header that stands there twice with different values, or that is no bearer, is an error for the caller to
/// read.
pub fn presented(headers: &HeaderMap) -> Result<Option<&[u8]>, &'static str> {
    let value = only(headers, &X_API_KEY).map_err(|()| "Two different x-api-key headers were sent.")?;
    // Clients that were told an empty key send the header all the same.
    if let Some(key) = value.map(|value| value.as_bytes().trim_ascii()).filter(|key| !key.is_empty()) {
        return Ok(Some(key));
    }
    let value =
        only(headers, &AUTHORIZATION).map_err(|()| "Two different Authorization headers were sent.")?;
    let is_named = |value: &&HeaderValue| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"bearer");
    let Some(value) = value.filter(is_named) else { return Ok(None) };
    bearer(value).map(Some).ok_or("The Authorization header is not 'Bearer KEY'.")
}

static X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, ()> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.any(|other| Some(other) != first) { Err(()) } else { Ok(first) }
}

fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, key) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn x_api_key_wins_and_repeats_must_agree() {
        for (sent, want) in [
            (&[][..], Ok(None)),
            (&[("authorization", "Bearer  a ")], Ok(Some(&b"a"[..]))),
            (&[("authorization", "bearer a"), ("x-api-key", "b")], Ok(Some(b"b"))),
            (&[("x-api-key", "b"), ("x-api-key", "b")], Ok(Some(b"b"))),
            (&[("x-api-key", "b"), ("x-api-key", "c")], Err("Two different x-api-key headers were sent.")),
            (
                &[("authorization", "Bearer a"), ("authorization", "Bearer b")],
                Err("Two different Authorization headers were sent."),
            ),
            (&[("authorization", "Basic a")], Err("The Authorization header is not 'Bearer KEY'.")),
            (&[("authorization", "Bearer")], Ok(None)),
            (&[("authorization", "bearer ")], Ok(None)),
            (&[("authorization", "BEARER   b")], Ok(Some(&b"b"[..]))),
            (&[("x-api-key", ""), ("authorization", "Bearer b")], Ok(Some(&b"b"[..]))),
            (&[("x-api-key", " "), ("authorization", "Bearer ")], Ok(None)),
        ] {
            assert_eq!(presented(&headers(sent)), want, "{sent:?}");
        }
    }

    #[test]
    fn a_hash_is_hmac_sha_256() {
        // RFC 4231, test case 1, with its key filled up with zeros, as HMAC does.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let hash = KeyHasher::new(&Secret::new(key)).hash(b"Hi There").0;
        assert_eq!(hash[..4], [0xb0, 0x34, 0x4c, 0x61]);
        assert_eq!(hash[28..], [0x2e, 0x32, 0xcf, 0xf7]);
    }
}
