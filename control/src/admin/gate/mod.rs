//! Authentication of the admin API: administrators by key, and humans whom a trusted proxy has signed in, are admitted
//! (AUTH-2, AUTH-3, AUTH-7). It runs before the body of a request is read.
//!
//! A key in a header is sufficient and takes precedence. Without one, the session cookie is used, but only for
//! requests from pages of the console, because a browser attaches cookies to requests from any page.

mod cookie;
pub(crate) mod identity;
mod origin;
mod sessions;
mod ticket;
mod watched;
mod wrong_keys;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method};
use serde::{Deserialize, Serialize};
use shared::access::{Role, presented};
use shared::base_path::BasePath;
use shared::clock::{monotonic_ms, unix_ms};
use shared::error_kind::ErrorKind;
use shared::id::KeyId;
use shared::key_hash::KeyHash;
use shared::secret::Secret;
use shared::snapshot::SnapshotReader;

pub(crate) use self::cookie::is_session_cookie;
use self::cookie::{SessionCookies, cookies};
use self::identity::{Asserted, Identity, IdentityBoundary};
pub(super) use self::sessions::IDLE_MAX;
pub(crate) use self::sessions::Sessions;
pub(super) use self::ticket::{SessionHolder, Ticket};
use self::watched::LatestUse;
use self::wrong_keys::WrongKeys;
use super::{ApiError, RequestId, call};
use crate::common::actor::{Actor, Who};
use crate::db::ended_sessions::{SESSION_LIFE_MAX, SessionEnd};
use crate::routing::config::Sso;

/// Authenticates requests to the admin API.
#[derive(Debug)]
pub(crate) struct Gate {
    snapshot: SnapshotReader,
    sessions: Sessions,
    wrong_keys: WrongKeys,
    /// Sign-ins that clients have begun, within the same limits.
    client_sign_ins: WrongKeys,
    boundary: IdentityBoundary,
    cookies: SessionCookies,
    /// True if the gateway terminates TLS itself.
    is_tls: bool,
}

/// The session of a request.
#[derive(Debug)]
pub(super) struct SignedIn {
    /// The session's name in the audit.
    pub(super) name: String,
    pub(super) csrf_token: String,
    /// The latest time at which it ends, in milliseconds since the Unix epoch.
    pub(super) end_ms: u64,
}

/// A session that a sign-in opened.
#[derive(Debug)]
pub(super) struct OpenedSession {
    pub(super) signed_in: SignedIn,
    /// The `Set-Cookie` header, the only place where the ticket leaves the gateway.
    pub(super) cookie: HeaderValue,
    /// The ends of the sessions that it replaces.
    pub(super) replaced: Vec<SessionEnd>,
}

/// The session or key that admitted a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::admin) enum Admission {
    /// A key in a header, by its hash.
    Key(#[serde(with = "ticket::key_hash")] KeyHash),
    /// A session.
    Session {
        ticket: Ticket,
        /// Its later requests, for a response that stays open.
        #[serde(skip)]
        latest: Option<Arc<LatestUse>>,
    },
}

impl Gate {
    pub(crate) fn new(
        snapshot: SnapshotReader,
        sessions: Sessions,
        boundary: IdentityBoundary,
        base: &BasePath,
        is_tls: bool,
    ) -> Self {
        let (cookies, wrong_keys) = (SessionCookies::below(base), WrongKeys::default());
        Self {
            snapshot,
            sessions,
            wrong_keys,
            client_sign_ins: WrongKeys::default(),
            boundary,
            cookies,
            is_tls,
        }
    }

    /// Authenticates the caller. The local mode grants no access here.
    pub(crate) fn admit(&self, parts: &Parts, address: IpAddr) -> Result<Actor, ApiError> {
        let who = match key_in_header(parts)? {
            Some(key) => Who::Administrator(self.administrator(key, address)?),
            None => self.page(parts)?,
        };
        Ok(actor(who, parts, address))
    }

    /// Counts a wrong key. Returns the time to wait if there are too many.
    pub(crate) fn note_wrong_key(&self, address: IpAddr) -> Result<(), Duration> {
        self.wrong_keys.note(address, monotonic_ms()).map_err(Duration::from_millis)
    }

    /// Counts a sign-in that a client begins without a key. Returns the time to wait if there are too many.
    pub(crate) fn note_client_sign_in(&self, address: IpAddr) -> Result<(), Duration> {
        self.client_sign_ins.note(address, monotonic_ms()).map_err(Duration::from_millis)
    }

    /// Moves the identity that a trusted proxy asserts from the headers of a request to its extensions. Identity headers
    /// from other senders are removed.
    pub(crate) fn take_identity(&self, parts: &mut Parts, peer: IpAddr) {
        let asserted = match self.boundary.take(&mut parts.headers, peer) {
            // Guesses come through the proxy's address, or from another process of its machine.
            Asserted::WrongSecret => match self.note_wrong_key(peer) {
                Ok(()) => Asserted::Invalid(WRONG_SECRET),
                Err(wait) => Asserted::TooMany(wait),
            },
            other => other,
        };
        parts.extensions.insert(asserted);
    }

    /// Returns the settings of single sign-on; `None` if it is off.
    pub(super) fn sso(&self) -> Option<&Sso> {
        self.boundary.sso()
    }

    /// Authenticates a sign-in, whose key may also be in the body.
    pub(crate) fn admit_to_sign_in(
        &self,
        parts: &Parts,
        body: &Bytes,
        address: IpAddr,
    ) -> Result<Actor, ApiError> {
        if origin::is_foreign(parts) {
            return Err(foreign());
        }
        let who = match arriving(parts, body)? {
            Some(_) => Who::Arriving,
            None => Who::Administrator(self.administrator(key_of(parts, body)?.expose(), address)?),
        };
        Ok(actor(who, parts, address))
    }

    /// Returns the holder of a session that an administrator's key opens.
    pub(super) fn holder_by_key(&self, parts: &Parts, body: &Bytes) -> Result<SessionHolder, ApiError> {
        Ok(SessionHolder::Key(self.snapshot.load().key_hasher.hash(key_of(parts, body)?.expose())))
    }

    /// Opens a session for a caller admitted by `admit_to_sign_in` with the same request.
    pub(super) fn sign_in(&self, parts: &Parts, holder: SessionHolder) -> Result<OpenedSession, ApiError> {
        let began = self.sessions.begin(holder, unix_ms());
        let (ticket, text) =
            began.map_err(|_| ApiError::new(ErrorKind::Internal, "The session could not be sealed."))?;
        let cookie = self.cookies.set(text.expose(), SESSION_LIFE_MAX, self.is_tls(parts))?;
        let replaced = self.tickets(parts).map(|old| old.end()).collect();
        Ok(OpenedSession { signed_in: self.signed_in_as(&ticket), cookie, replaced })
    }

    /// True if the request carries neither a key nor the cookie of an open session. Always false for a request of a page
    /// of another origin.
    pub(crate) fn is_signed_out(&self, parts: &Parts) -> bool {
        let has_no_key = key_in_header(parts).is_ok_and(|key| key.is_none());
        has_no_key && !origin::is_foreign(parts) && self.session(parts).is_none()
    }

    /// Returns the session of the request's cookie.
    pub(super) fn signed_in(&self, parts: &Parts) -> Option<SignedIn> {
        self.session(parts).map(|(ticket, _)| self.signed_in_as(&ticket))
    }

    fn signed_in_as(&self, ticket: &Ticket) -> SignedIn {
        let (name, csrf_token) = (ticket.public_name(), self.sessions.csrf_token(ticket));
        SignedIn { name, csrf_token, end_ms: ticket.end_ms }
    }

    /// Returns a `Set-Cookie` header with the renewed ticket of the request's session, if it is time for that.
    pub(crate) fn renewed_cookie(&self, parts: &Parts) -> Option<HeaderValue> {
        let has_key = key_in_header(parts).is_ok_and(|key| key.is_some());
        let is_of_api = parts.uri.path().starts_with(cookie::PATH);
        if !is_of_api || is_live(parts) || has_key || origin::is_foreign(parts) {
            return None;
        }
        let (ticket, _) = self.session(parts)?;
        let text = self.sessions.renewed(&ticket, unix_ms())?;
        self.cookies.set(text.expose(), left(&ticket), self.is_tls(parts)).ok()
    }

    /// Returns the ends of the sessions of the request's cookies.
    pub(super) fn ends(&self, parts: &Parts) -> Vec<SessionEnd> {
        self.tickets(parts).map(|ticket| ticket.end()).collect()
    }

    /// Returns the ends of all sessions of the holders of the request's cookies, and of its key.
    pub(super) fn ends_everywhere(&self, parts: &Parts) -> Vec<SessionEnd> {
        let key = key_in_header(parts).ok().flatten();
        let key = key.map(|key| SessionHolder::Key(self.snapshot.load().key_hasher.hash(key)));
        let holders = self.tickets(parts).map(|ticket| ticket.holder).chain(key);
        holders.map(|holder| SessionEnd::of_all(holder.name(), unix_ms())).collect()
    }

    /// Returns a `Set-Cookie` header that clears the session's cookie.
    pub(super) fn cleared_cookie(&self, parts: &Parts) -> Result<HeaderValue, ApiError> {
        self.cookies.set("", Duration::ZERO, self.is_tls(parts))
    }

    /// Returns the tickets of open sessions in the request's cookies.
    fn tickets(&self, parts: &Parts) -> impl Iterator<Item = Ticket> {
        let now_ms = unix_ms();
        cookies(parts).filter_map(move |text| self.sessions.open(text, now_ms))
    }

    /// Returns the id of an administrator's key. Wrong keys are counted; once there are too many, the error contains
    /// the time to wait.
    fn administrator(&self, key: &[u8], address: IpAddr) -> Result<KeyId, ApiError> {
        let snapshot = self.snapshot.load();
        let hash = snapshot.key_hasher.hash(key);
        let Some(access) = snapshot.access.keys.get(&hash) else {
            self.note_wrong_key(address).map_err(too_many)?;
            return Err(invalid("The key is not valid."));
        };
        if access.expires_at_ms.is_some_and(|at| at <= unix_ms()) {
            return Err(invalid("The key is not valid."));
        }
        match access.role {
            Role::Administrator => Ok(access.key.clone()),
            Role::Project | Role::Local => {
                Err(ApiError::new(ErrorKind::Forbidden, "This key may not administer the gateway."))
            }
        }
    }

    /// Returns the caller of an open session, if the request comes from a page of the console.
    fn page(&self, parts: &Parts) -> Result<Who, ApiError> {
        match parts.extensions.get() {
            Some(Asserted::Invalid(reason)) => return Err(invalid(reason)),
            Some(Asserted::TooMany(wait)) => return Err(too_many(*wait)),
            Some(Asserted::Nobody | Asserted::Human(_) | Asserted::WrongSecret) | None => {}
        }
        if cookies(parts).next().is_none() {
            return Err(invalid(
                "The admin API needs an administrator key in x-api-key or Authorization: Bearer.",
            ));
        }
        let ended = || invalid("The session has ended. Sign in again.");
        let (ticket, who) = self.session(parts).ok_or_else(ended)?;
        if origin::is_foreign(parts) {
            return Err(foreign());
        }
        let token = parts.headers.get(CSRF_HEADER).map_or(&b""[..], HeaderValue::as_bytes);
        if !is_safe(&parts.method) && !self.sessions.is_csrf_token(&ticket, token) {
            let message = "Requests that change something in a session must send its csrf_token in \
                           x-csrf-token; GET /admin/api/session returns it.";
            return Err(ApiError::new(ErrorKind::Forbidden, message));
        }
        Ok(who)
    }

    /// Returns the session of the request's cookie, with its caller. A session ends when its key becomes invalid. That of a
    /// human needs the same identity in each request.
    fn session(&self, parts: &Parts) -> Option<(Ticket, Who)> {
        let ticket = self.tickets(parts).next()?;
        let who = self.caller(&ticket.holder, parts)?;
        let used_ms = (!is_live(parts)).then(unix_ms);
        self.sessions.note(&ticket, used_ms, matches!(who, Who::GroupAdministrator(_)));
        Some((ticket, who))
    }

    fn caller(&self, holder: &SessionHolder, parts: &Parts) -> Option<Who> {
        let (principal, subject) = match holder {
            SessionHolder::Key(key) => return self.administrator_with(key).map(Who::Administrator),
            SessionHolder::Human { principal, subject } => (principal, subject),
        };
        let Some(Asserted::Human(identity)) = parts.extensions.get() else { return None };
        if identity.subject != **subject {
            return None;
        }
        Some(match identity.is_administrator {
            true => Who::GroupAdministrator(principal.clone()),
            false => Who::Human(principal.clone()),
        })
    }

    /// Returns the id of the valid administrator key with this hash.
    fn administrator_with(&self, hash: &KeyHash) -> Option<KeyId> {
        let snapshot = self.snapshot.load();
        let access = snapshot.access.keys.get(hash)?;
        let stands =
            access.role == Role::Administrator && access.expires_at_ms.is_none_or(|at| unix_ms() < at);
        stands.then(|| access.key.clone())
    }

    /// Returns the session or key that admits a request, to be asked about later.
    pub(super) fn admission(&self, parts: &Parts) -> Option<Admission> {
        self.key_admission(parts).or_else(|| {
            let (ticket, _) = self.session(parts)?;
            // The cookie may show an earlier use.
            Some(Admission::Session { ticket: Ticket { used_ms: unix_ms(), ..ticket }, latest: None })
        })
    }

    /// Returns the session or key that admits a live stream. It does not prolong the session.
    pub(super) fn live_admission(&self, parts: &Parts) -> Option<Admission> {
        self.key_admission(parts).or_else(|| {
            let (ticket, _) = self.session(parts)?;
            let watched = self.sessions.watch(ticket);
            // Reads the session again, so that the stream's own request is the latest one.
            self.session(parts).map(|_| watched)
        })
    }

    fn key_admission(&self, parts: &Parts) -> Option<Admission> {
        let key = key_in_header(parts).ok().flatten()?;
        Some(Admission::Key(self.snapshot.load().key_hasher.hash(key)))
    }

    /// True if the key of an admission is still valid and its session open, and for a human's session if the latest
    /// request asserted the administrators' group. Does not prolong the session.
    pub(super) fn still_admits(&self, admission: &Admission) -> bool {
        let is_administrator = match admission {
            Admission::Session { ticket: Ticket { holder: SessionHolder::Human { .. }, .. }, latest } => {
                latest.as_ref().is_some_and(|latest| latest.is_administrator())
            }
            Admission::Session { .. } | Admission::Key(_) => true,
        };
        is_administrator && self.is_open(admission)
    }

    /// True if the key of an admission is still valid and its session open, also that of a human who does not administer.
    /// Does not prolong the session.
    pub(super) fn is_open(&self, admission: &Admission) -> bool {
        match admission {
            Admission::Key(key) => self.administrator_with(key).is_some(),
            Admission::Session { ticket, .. } => {
                let is_valid = match &ticket.holder {
                    SessionHolder::Key(key) => self.administrator_with(key).is_some(),
                    SessionHolder::Human { .. } => true,
                };
                is_valid && self.sessions.is_admitting(admission, unix_ms())
            }
        }
    }

    fn is_tls(&self, parts: &Parts) -> bool {
        self.is_tls || origin::is_by_tls(parts)
    }
}

fn actor(who: Who, parts: &Parts, address: IpAddr) -> Actor {
    let request_id = RequestId::of(&parts.headers).text();
    Actor { who, address: Some(address), request_id }
}

/// Returns the identity that a trusted proxy asserts, if the sign-in asks for single sign-on.
pub(super) fn arriving<'a>(parts: &'a Parts, body: &Bytes) -> Result<Option<&'a Identity>, ApiError> {
    let SignIn { key, sso } = call::parse(body)?;
    if !sso || key.is_some() || key_in_header(parts)?.is_some() {
        return Ok(None);
    }
    match parts.extensions.get() {
        Some(Asserted::Human(identity)) => Ok(Some(identity)),
        Some(Asserted::Invalid(reason)) => Err(invalid(reason)),
        Some(Asserted::TooMany(wait)) => Err(too_many(*wait)),
        Some(Asserted::Nobody | Asserted::WrongSecret) | None => Err(invalid(
            "This request has no identity from single sign-on. Open the console at the address of its proxy.",
        )),
    }
}

/// The body of a sign-in.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct SignIn {
    /// The administrator key; not needed if the request has it in a header.
    #[serde(default)]
    key: Option<String>,
    /// True signs in the human whom the single sign-on proxy has authenticated, instead of a key.
    #[serde(default)]
    sso: bool,
}

/// Returns the key of a sign-in. A key in a header takes precedence over one in the body.
fn key_of(parts: &Parts, body: &Bytes) -> Result<Secret<Vec<u8>>, ApiError> {
    let SignIn { key, sso: _ } = call::parse(body)?;
    let key = key.map(|key| Secret::new(key.into_bytes()));
    match key_in_header(parts)? {
        Some(key) => Ok(Secret::new(key.to_vec())),
        None => key.ok_or_else(|| invalid("Sign in with an administrator key: {\"key\": \"...\"}.")),
    }
}

pub(super) fn key_in_header(parts: &Parts) -> Result<Option<&[u8]>, ApiError> {
    presented(&parts.headers).map_err(invalid)
}

/// Returns the maximum remaining lifetime of a session.
fn left(ticket: &Ticket) -> Duration {
    Duration::from_millis(ticket.end_ms.saturating_sub(unix_ms()))
}

/// True for the live stream, which a page keeps open while it is not used: it does not prolong the session.
fn is_live(parts: &Parts) -> bool {
    let path = parts.uri.path().strip_prefix(cookie::PATH);
    path.is_some_and(|path| path.trim_matches('/') == LIVE_PATH)
}

/// True for methods that change nothing (RFC 9110 section 9.2.1).
fn is_safe(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

fn invalid(message: &'static str) -> ApiError {
    ApiError::new(ErrorKind::InvalidKey, message)
}

fn foreign() -> ApiError {
    ApiError::new(ErrorKind::ForbiddenOrigin, "The admin API rejects requests of pages of another origin.")
}

fn too_many(wait: Duration) -> ApiError {
    let seconds = u64::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX);
    let message =
        format!("Too many wrong keys. Try again in {seconds} s; a correct key is accepted at any time.");
    ApiError::new(ErrorKind::TooManySignIns, message).retry_after(seconds)
}

const WRONG_SECRET: &str = "The secret of the single sign-on proxy in X-LLMGW-SSO-Secret is missing or wrong. It must be the value of \
                            LLMGW_SSO_SHARED_SECRET.";
/// The path of the live stream below the admin API. It does not prolong a session.
pub(super) const LIVE_PATH: &str = "live";
const CSRF_HEADER: &str = "x-csrf-token";
