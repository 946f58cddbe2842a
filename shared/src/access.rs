//! The result of authentication: the caller, the human it acts as, and what it may use.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;

use crate::id::{KeyId, PrincipalId, ProjectId};
use crate::operation::Operation;
use crate::quota::Quota;
use crate::routing::{ProviderInstance, Target};

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

    /// Returns true if the caller may use `provider`: it has no owner, the caller acts as the owner, or it is shared with the
    /// caller's project (AUTH-4).
    pub fn may_use(&self, provider: &ProviderInstance) -> bool {
        let Some(owner) = &provider.owner else { return true };
        self.acts_as.as_ref() == Some(owner)
            || self.project.as_ref().is_some_and(|project| provider.shared_with.contains(project))
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
}
