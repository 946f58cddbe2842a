//! `session`: browser sign-in with an administrator key (M-042).

use http::header::SET_COOKIE;
use http::{Method, Response, StatusCode};
use serde::Serialize;
use shared::clock::unix_ms;
use shared::port::{Body, full};

use super::gate::{IDLE_MAX, SignedIn, key_in_header};
use super::reference::NoContent;
use super::{ApiError, Call, Route, json, route_of};
use crate::actor::Actor;
use crate::db::audit::AuditEntry;
use crate::permission::{Permission, Standing};

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, PATH, |call| Box::pin(async move { show(&call) }))
        .answers::<ShownSession>("Shows the caller and its session.")
        .permits(Permission::OwnSession),
    route_of(Method::POST, PATH, |call| Box::pin(sign_in(call)))
        .answers::<ShownSession>("Opens a session: 201 and a cookie.")
        .takes::<super::gate::SignIn>()
        .permits(Permission::OwnSession),
    route_of(Method::DELETE, PATH, |call| Box::pin(sign_out(call)))
        .answers::<NoContent>("Ends the session.")
        .permits(Permission::OwnSession),
];

/// The caller and its session.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Session"))]
struct ShownSession {
    /// True for an administrator; false for a caller without a session and without a key, to whom all else is null.
    administrator: bool,
    /// The key's id, which includes the name of its holder if it has one.
    key: Option<String>,
    /// The permissions that the caller has for some objects at least.
    permissions: Vec<Permission>,
    /// The means of authentication: `session`, or `key` for a key in a header.
    by: Option<&'static str>,
    /// The token that requests of the session send in `x-csrf-token` if they change something. Null without a session.
    csrf_token: Option<String>,
    /// The latest end of the session, in milliseconds since the Unix epoch. Null without a session.
    expires_at_ms: Option<u64>,
    /// The time without a request after which a session ends, in seconds.
    idle_seconds_max: u64,
}

impl ShownSession {
    /// The answer to a caller without a session and without a key.
    const NONE: Self = Self {
        administrator: false,
        key: None,
        permissions: Vec::new(),
        by: None,
        csrf_token: None,
        expires_at_ms: None,
        idle_seconds_max: IDLE_MAX.as_secs(),
    };

    fn of((actor, standing): (&Actor, &Standing), signed_in: Option<SignedIn>) -> Self {
        let left = signed_in.as_ref().map(|session| session.left);
        Self {
            administrator: standing.human().is_none(),
            permissions: standing.permissions(),
            key: Some(actor.who.name().to_owned()),
            by: Some(if signed_in.is_some() { "session" } else { "key" }),
            csrf_token: signed_in.map(|session| session.csrf_token),
            expires_at_ms: left
                .map(|left| unix_ms().saturating_add(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))),
            idle_seconds_max: IDLE_MAX.as_secs(),
        }
    }
}

/// Returns the answer to a caller that reads the session and has none. It is no error, because every page of the console
/// asks when it is opened, and a browser logs an error status.
pub(crate) fn signed_out() -> Result<Response<Body>, ApiError> {
    json(&ShownSession::NONE)
}

/// Shows the caller's identity and session.
fn show(call: &Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let by_key = key_in_header(call.parts)?.is_some();
    json(&ShownSession::of(
        (call.actor, call.standing),
        if by_key { None } else { call.app.gate.signed_in(call.parts) },
    ))
}

async fn sign_in(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let (session, cookie) = call.app.gate.sign_in(call.parts, call.body)?;
    // Record the sign-in before the cookie is sent, so that no session is usable without an audit record.
    call.record(AuditEntry::done("session.open", "session", &session.name)).await?;
    let mut response = json(&ShownSession::of((call.actor, call.standing), Some(session)))?;
    *response.status_mut() = StatusCode::CREATED;
    response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response)
}

async fn sign_out(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let session = call.app.gate.signed_in(call.parts);
    let cookie = call.app.gate.sign_out(call.parts)?;
    if let Some(session) = session {
        call.record(AuditEntry::done("session.close", "session", &session.name)).await?;
    }
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response)
}

pub(super) const PATH: &str = "session";
