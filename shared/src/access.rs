//! The result of authentication: the caller, the human it acts as, and what it may use.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;

use crate::id::{EndpointName, KeyId, PrincipalId, ProjectId};
use crate::operation::Operation;
use crate::quota::Quota;
use crate::routing::{ProviderInstance, Target};
use crate::usage::StepResult;

/// The result of authentication: the caller's identity, permissions and quotas, for all later stages.
#[derive(Debug)]
pub struct Access {
    /// The key's ID; `admin` for static keys, `local` in the unauthenticated local mode.
    pub key: KeyId,
    /// The caller's role.
    pub role: Role,
    /// The project that pays, if any.
    pub project: Option<ProjectId>,
    /// The human that the key acts as, if any.
    pub acts_as: Option<PrincipalId>,
    /// The expiry of the key, in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
    /// The text of the key's default tags, see [`crate::tags`]; a tag of a request overrides the one with its name.
    pub tags: Option<Box<str>>,
    /// The allowlists of the key and of its project; a request must pass all of them (AUTH-2).
    pub allowlists: Vec<Arc<Allowlist>>,
    /// The limits that may count a request of this caller; the scope of each limit decides. Administrators have no
    /// hard limits (AUTH-2).
    pub quotas: Box<[Arc<Quota>]>,
}

impl Access {
    /// Creates a caller without a project and without limits.
    pub fn new(key: &str, role: Role) -> Self {
        Self {
            key: KeyId::new(key),
            role,
            project: None,
            acts_as: None,
            expires_at_ms: None,
            tags: None,
            allowlists: Vec::new(),
            quotas: Box::default(),
        }
    }

    /// Returns true if the caller may use `provider`: it has no owner, the caller acts as the owner, or it is shared
    /// with the caller's project (AUTH-4).
    pub fn may_use(&self, provider: &ProviderInstance) -> bool {
        let Some(owner) = &provider.owner else { return true };
        self.acts_as.as_ref() == Some(owner)
            || self.project.as_ref().is_some_and(|project| provider.shared_with.contains(project))
    }

    /// Returns true if no allowlist restricts the caller.
    pub fn is_unlisted(&self) -> bool {
        self.allowlists.is_empty() || self.role == Role::Administrator
    }

    /// Returns the reason why the caller may not use `target`, selected through the endpoint `endpoint` or by its own
    /// name; `None` if it may. Allowlists are checked first, so that a caller who may not use a provider does not learn
    /// that it has an owner.
    pub fn refusal(&self, endpoint: Option<&str>, target: &Target) -> Option<StepResult> {
        if !self.is_unlisted() && !self.allowlists.iter().all(|list| list.permits(endpoint, target)) {
            Some(StepResult::NotAllowed)
        } else if !self.may_use(&target.provider) {
            Some(StepResult::Private)
        } else {
            None
        }
    }

    /// Returns true if a hard limit on cost applies to the caller at `target`, so that the target must have a known
    /// price.
    pub fn bounds_cost(&self, endpoint: Option<&EndpointName>, target: &Target) -> bool {
        self.quotas.iter().any(|quota| quota.bounds_cost() && quota.scope.covers(endpoint, target))
    }
}

/// The role of a caller, which determines its permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A static key from the environment: permits everything, without allowlists and quotas (AUTH-2).
    Administrator,
    /// A key that the gateway issued: the data plane only.
    Project,
    /// An unauthenticated caller in the local mode: the data plane only (AUTH-3).
    Local,
}

/// The allowlist of one key or project. An absent list restricts nothing. If `models` or `endpoints` is present,
/// targets that neither of them contains are rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Allowlist {
    /// Exact model IDs (`provider/model`), or all models of a provider (`provider/*`).
    pub models: Option<BTreeSet<Box<str>>>,
    /// Endpoints by name. A listed endpoint may use all of its members.
    pub endpoints: Option<BTreeSet<Box<str>>>,
    /// The permitted operations.
    pub routes: Option<Vec<Operation>>,
}

impl Allowlist {
    /// Returns true if the list permits `operation`.
    pub fn permits_route(&self, operation: Operation) -> bool {
        self.routes.as_ref().is_none_or(|routes| routes.contains(&operation))
    }

    /// Returns true if the list permits `target`, selected through the endpoint `endpoint` or by its own ID.
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

/// Returns the key that a request presents, if any: `x-api-key` takes precedence over `Authorization: Bearer`
/// (AUTH-1). Returns an error text for the caller if a header occurs twice with different values or is not a bearer token.
pub fn presented(headers: &HeaderMap) -> Result<Option<&[u8]>, &'static str> {
    let value = only(headers, &X_API_KEY).map_err(|()| "Two different x-api-key headers were sent.")?;
    // Clients that are configured with an empty key still send the header.
    if let Some(key) = value.map(|value| value.as_bytes().trim_ascii()).filter(|key| !key.is_empty()) {
        return Ok(Some(key));
    }
    let value =
        only(headers, &AUTHORIZATION).map_err(|()| "Two different Authorization headers were sent.")?;
    let is_named = |value: &&HeaderValue| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"bearer");
    let Some(value) = value.filter(is_named) else { return Ok(None) };
    bearer(value).map(Some).ok_or("The Authorization header is not 'Bearer KEY'.")
}

/// Returns the key that a Gemini client presents, if any: the first of `x-goog-api-key`, `Authorization: Bearer`, `x-api-key`
/// and the member `key` of the query that is not empty. Returns an error text for the caller if two of them differ.
pub fn presented_to_google<'a>(
    headers: &'a HeaderMap,
    query: Option<&'a str>,
) -> Result<Option<Cow<'a, [u8]>>, &'static str> {
    const DIFFERENT: &str = "Two different API keys were sent. Send one, as 'x-goog-api-key: KEY'.";
    let mut found: Option<Cow<'a, [u8]>> = None;
    for name in [&X_GOOG_API_KEY, &AUTHORIZATION, &X_API_KEY] {
        for value in headers.get_all(name) {
            let bytes = value.as_bytes();
            let key =
                if *name == AUTHORIZATION { bearer(value).unwrap_or_default() } else { bytes.trim_ascii() };
            take(&mut found, key.into()).map_err(|()| DIFFERENT)?;
        }
    }
    let members = query.into_iter().flat_map(|query| query.split('&'));
    for key in members.filter_map(|member| member.strip_prefix("key=")) {
        take(&mut found, percent_encoding::percent_decode_str(key).into()).map_err(|()| DIFFERENT)?;
    }
    Ok(found)
}

/// Takes `key` unless it is empty. Fails if another one has been taken.
fn take<'a>(found: &mut Option<Cow<'a, [u8]>>, key: Cow<'a, [u8]>) -> Result<(), ()> {
    match found {
        _ if key.is_empty() => Ok(()),
        Some(known) if *known == key => Ok(()),
        Some(_) => Err(()),
        None => {
            *found = Some(key);
            Ok(())
        }
    }
}

static X_GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
static X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, ()> {
    // A request has few fields: one pass over them is cheaper than a look-up.
    let mut values = headers.iter().filter(|(known, _)| *known == name).map(|(_, value)| value);
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
    fn x_api_key_takes_precedence_and_repeated_headers_must_agree() {
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
    fn a_gemini_client_presents_one_key_in_any_of_four_places() {
        for (sent, query, want) in [
            (&[][..], None, Ok(None)),
            (&[("x-goog-api-key", "a")], None, Ok(Some("a"))),
            // Gemini CLI without a key sends an empty field.
            (&[("x-goog-api-key", ""), ("authorization", "Bearer b")], None, Ok(Some("b"))),
            (&[("x-api-key", "c")], Some("alt=sse"), Ok(Some("c"))),
            (&[], Some("alt=sse&key=d%2De"), Ok(Some("d-e"))),
            (&[("x-goog-api-key", "a")], Some("key=a"), Ok(Some("a"))),
            (&[("x-goog-api-key", "a")], Some("key=&key=b"), Err(())),
            (&[("x-goog-api-key", "a"), ("authorization", "Bearer b")], None, Err(())),
            (&[("x-api-key", "a"), ("x-api-key", "b")], None, Err(())),
        ] {
            let headers = headers(sent);
            let found = presented_to_google(&headers, query).map_err(|_| ());
            assert_eq!(
                found,
                want.map(|key| key.map(|key: &str| key.as_bytes().into())),
                "{sent:?} {query:?}"
            );
        }
    }
}
