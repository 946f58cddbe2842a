//! `session`: browser sign-in with an administrator key (M-042), or as the human whom single sign-on has authenticated
//! (AUTH-7).

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::SET_COOKIE;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json as value;
use shared::error_kind::ErrorKind;
use shared::id::PrincipalId;
use shared::port::{Body, full};

use super::gate::identity::{Asserted, Identity};
use super::gate::{Gate, IDLE_MAX, OpenedSession, SessionHolder, SignedIn, arriving, key_in_header};
use super::reference::NoContent;
use super::{ApiError, Call, Route, json, route_of};
use crate::admin::permission::matrix::Extent;
use crate::admin::permission::{Permission, Standing};
use crate::common::actor::Who;
use crate::db::audit::AuditEntry;
use crate::db::members::MemberRole;
use crate::db::{members, principals};
use crate::writer::command::sessions::EndSessions;
use crate::writer::command::sso::SignInHuman;

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, PATH, |call| Box::pin(show(call)))
        .answers::<ShownSession>("Shows the caller and its session.")
        .permits(Permission::OwnSession),
    route_of(Method::POST, PATH, |call| Box::pin(sign_in(call)))
        .answers::<ShownSession>("Opens a session, whose cookie the answer sets.")
        .statuses(&[201])
        .takes::<super::gate::SignIn>()
        .acts_each_time()
        .permits(Permission::OwnSession),
    route_of(Method::DELETE, PATH, |call| Box::pin(sign_out(call)))
        .answers::<NoContent>("Ends the session, or all sessions of its holder or of the key in the header.")
        .query::<SignOutQuery>()
        .permits(Permission::OwnSession),
];

/// The caller and its session.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Session"))]
struct ShownSession {
    /// True for an administrator. False for a human without the administrators' group, and for a caller without a session
    /// and without a key, to whom all else but `sso` is null or empty.
    administrator: bool,
    /// The key's id, which includes the name of its holder if it has one. Null for a human.
    key: Option<String>,
    /// The human who signed in by single sign-on; null for an administrator's key.
    human: Option<SessionHuman>,
    /// The permissions that the caller has for some objects at least.
    permissions: Vec<Permission>,
    /// The role of a human in each of their projects, by the ID of the project. Empty for administrators.
    roles: BTreeMap<String, MemberRole>,
    /// The extent of each permission in a project, by the role of the human there. Empty for administrators.
    extents: BTreeMap<&'static str, BTreeMap<&'static str, Extent>>,
    /// The means of authentication: `session`, or `key` for a key in a header.
    by: Option<&'static str>,
    /// The token that requests of the session send in `x-csrf-token` if they change something. Null without a session.
    csrf_token: Option<String>,
    /// The latest end of the session, in milliseconds since the Unix epoch. Null without a session.
    expires_at_ms: Option<u64>,
    /// The time without a request after which a session ends, in seconds.
    idle_seconds_max: u64,
    /// Null if single sign-on is off.
    sso: Option<ShownSso>,
}

/// A human who signed in.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SessionHuman {
    id: String,
    name: String,
    /// Null if unknown.
    email: Option<String>,
}

/// Single sign-on, as the sign-in needs it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SessionSso"))]
struct ShownSso {
    /// The e-mail address or name of the human whom the proxy has authenticated; null if there is no such human.
    user: Option<String>,
    /// The reason why the proxy's headers are rejected; null if they are valid or absent.
    problem: Option<&'static str>,
    /// Where a browser ends its session with the proxy: a path or an https URL; null if it is not configured.
    sign_out_url: Option<String>,
}

impl ShownSso {
    fn of(gate: &Gate, parts: &Parts) -> Option<Self> {
        let sso = gate.sso()?;
        let (user, problem) = match parts.extensions.get() {
            Some(Asserted::Human(identity)) => (Some(identity.shown().to_owned()), None),
            Some(Asserted::Invalid(reason)) => (None, Some(*reason)),
            Some(Asserted::TooMany(_)) => (None, Some(TOO_MANY_SECRETS)),
            Some(Asserted::Nobody | Asserted::WrongSecret) | None => (None, None),
        };
        Some(Self { user, problem, sign_out_url: sso.sign_out_url.clone() })
    }
}

/// A caller as the session shows it.
struct SessionCaller<'a> {
    key: Option<String>,
    human: Option<SessionHuman>,
    standing: &'a Standing,
}

impl ShownSession {
    /// The answer to a caller without a session and without a key.
    const NONE: Self = Self {
        administrator: false,
        key: None,
        human: None,
        permissions: Vec::new(),
        roles: BTreeMap::new(),
        extents: BTreeMap::new(),
        by: None,
        csrf_token: None,
        expires_at_ms: None,
        idle_seconds_max: IDLE_MAX.as_secs(),
        sso: None,
    };

    fn of(call: &Call<'_>, caller: SessionCaller<'_>, signed_in: Option<SignedIn>) -> Self {
        let SessionCaller { key, human, standing } = caller;
        let expires_at_ms = signed_in.as_ref().map(|session| session.end_ms);
        Self {
            administrator: standing.human().is_none(),
            key,
            human,
            permissions: standing.permissions(),
            roles: standing.roles().cloned().unwrap_or_default(),
            extents: standing.extents(),
            by: Some(if signed_in.is_some() { "session" } else { "key" }),
            csrf_token: signed_in.map(|session| session.csrf_token),
            expires_at_ms,
            idle_seconds_max: IDLE_MAX.as_secs(),
            sso: ShownSso::of(&call.app.gate, call.parts),
        }
    }
}

/// Returns the answer to a caller that reads the session and has none. It is no error, because every page of the console
/// asks when it is opened, and a browser logs an error status.
pub(crate) fn signed_out(gate: &Gate, parts: &Parts) -> Result<Response<Body>, ApiError> {
    json(&ShownSession { sso: ShownSso::of(gate, parts), ..ShownSession::NONE })
}

/// Shows the caller's identity and session.
async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let by_key = key_in_header(call.parts)?.is_some();
    let signed_in = if by_key { None } else { call.app.gate.signed_in(call.parts) };
    let (key, human) = match &call.actor.who {
        Who::Human(id) | Who::GroupAdministrator(id) => {
            let id = id.to_string();
            (None, call.app.readers.ask(move |db| principals::find(db, &id)).await?)
        }
        who @ (Who::Administrator(_) | Who::Arriving | Who::Unknown | Who::Gateway) => {
            (Some(who.name().to_owned()), None)
        }
    };
    let human = human.map(|found| SessionHuman { id: found.id, name: found.name, email: found.email });
    json(&ShownSession::of(&call, SessionCaller { key, human, standing: call.standing }, signed_in))
}

async fn sign_in(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    if let Some(identity) = arriving(call.parts, call.body)? {
        return sign_in_human(&call, identity).await;
    }
    let holder = call.app.gate.holder_by_key(call.parts, call.body)?;
    let key = Some(call.actor.who.name().to_owned());
    opened(&call, holder, SessionCaller { key, human: None, standing: call.standing }).await
}

/// Opens a session for a human whom single sign-on has authenticated.
async fn sign_in_human(call: &Call<'_>, identity: &Identity) -> Result<Response<Body>, ApiError> {
    let sign_in = SignInHuman {
        subject: identity.subject.clone(),
        email: identity.email.clone(),
        name: identity.name.clone(),
        auto_provision: call.app.gate.sso().is_some_and(|sso| sso.auto_provision),
    };
    let entry = call.write(StatusCode::OK, sign_in, None).await?;
    let human: SessionHuman = serde_json::from_slice(&entry.body)
        .map_err(|_| ApiError::new(ErrorKind::Internal, "The entry of the human could not be read."))?;
    let holder = SessionHolder::Human {
        principal: PrincipalId::new(human.id.as_str()),
        subject: Arc::from(identity.subject.as_str()),
    };
    let standing = match identity.is_administrator {
        true => Standing::Administrator,
        false => standing_of(call, human.id.clone()).await?,
    };
    opened(call, holder, SessionCaller { key: None, human: Some(human), standing: &standing }).await
}

/// Returns the authority of a human without the administrators' group.
async fn standing_of(call: &Call<'_>, principal: String) -> Result<Standing, ApiError> {
    let id = principal.clone();
    let members = call.app.readers.ask(move |db| members::of_principal(db, &id)).await?;
    let roles = members.into_iter().map(|member| (member.project, member.role)).collect();
    Ok(Standing::Human { principal, roles })
}

async fn opened(
    call: &Call<'_>,
    holder: SessionHolder,
    caller: SessionCaller<'_>,
) -> Result<Response<Body>, ApiError> {
    let OpenedSession { signed_in, cookie, replaced } = call.app.gate.sign_in(call.parts, holder)?;
    // Record the sign-in before the cookie is sent, so that no session is usable without an audit record.
    let audit = AuditEntry::done("session.open", "session", &signed_in.name);
    let audit = match &caller.human {
        Some(human) => audit.after(value!({"principal": human.id})),
        None => audit,
    };
    call.write(StatusCode::NO_CONTENT, EndSessions { ends: replaced, audit }, None).await?;
    let mut response = json(&ShownSession::of(call, caller, Some(signed_in)))?;
    *response.status_mut() = StatusCode::CREATED;
    response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response)
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SignOutQuery {
    /// If true, all sessions of the same human or key end, those of a key in the header too.
    everywhere: Option<bool>,
}

async fn sign_out(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let SignOutQuery { everywhere } = call.query()?;
    let everywhere = everywhere.unwrap_or(false);
    let (gate, parts) = (&call.app.gate, call.parts);
    let (session, cookie) = (gate.signed_in(parts), gate.cleared_cookie(parts)?);
    let ends = if everywhere { gate.ends_everywhere(parts) } else { gate.ends(parts) };
    if !ends.is_empty() {
        let name = session.map_or_else(|| call.actor.who.name().to_owned(), |session| session.name);
        let audit = AuditEntry::done("session.close", "session", &name);
        let audit = if everywhere { audit.after(value!({"everywhere": true})) } else { audit };
        call.write(StatusCode::NO_CONTENT, EndSessions { ends, audit }, None).await?;
    }
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response)
}

pub(super) const PATH: &str = "session";

const TOO_MANY_SECRETS: &str = "The single sign-on proxy sent too many wrong secrets. Try again in a while.";
