//! The routes of the authorization server that Claude Code calls without a key. They ignore parameters that they do not know,
//! because each release may send further ones. Their errors have the form of OAuth (RFC 6749 section 5.2).

use http::header::{HOST, LOCATION};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use shared::access::Role;
use shared::clock::{monotonic_ms, unix_ms};
use shared::error_kind::ErrorKind;
use shared::port::{Body, full};
use shared::tags;

use super::codes::{hash, is_signed, new_device_code, new_user_code, read_user_code, shown_user_code};
use super::polls::INTERVAL_SECONDS;
use super::{ClientAddress, settings};
use crate::admin::authorize::standing;
use crate::admin::permission::{Object, Permission, may};
use crate::admin::query::Query;
use crate::admin::reach::Reach;
use crate::admin::{ApiError, App, Request, RequestId, console, json};
use crate::common::actor::{Actor, Who};
use crate::db::device_sign_ins::{self, Approval, DeviceSignIn, DeviceState};
use crate::db::principals;
use crate::writer::command::device_sign_ins::{BeginDeviceSignIn, CompleteDeviceSignIn};
use crate::writer::command::keys::EditKey;
use crate::writer::command::{AdminWrite, Answer, Command, CommandRefusal};

/// True if the path is one of the authorization server.
pub(in crate::admin) fn is_known(path: &str) -> bool {
    [METADATA, DEVICE, PAGE, TOKEN, REVOKE].contains(&path)
}

/// Answers a request to a path that [`is_known`].
pub(in crate::admin) async fn answer(app: &App, request: &Request) -> Result<Response<Body>, ApiError> {
    let (parts, path) = (&request.parts, request.parts.uri.path());
    settings(app, path)?;
    let method = if [METADATA, PAGE].contains(&path) { Method::GET } else { Method::POST };
    if parts.method != method && !(method == Method::GET && parts.method == Method::HEAD) {
        return Err(ApiError::method_not_allowed(if method == Method::GET { "GET, HEAD" } else { "POST" }));
    }
    match path {
        METADATA => metadata(app, parts),
        PAGE => page(app, parts),
        DEVICE => begin(app, parts).await,
        TOKEN => token(app, request).await,
        _ => revoke(app, request).await,
    }
}

fn metadata(app: &App, parts: &Parts) -> Result<Response<Body>, ApiError> {
    let base = address(app, parts);
    json(&json!({
        "issuer": base,
        "device_authorization_endpoint": format!("{base}{DEVICE}"),
        "token_endpoint": format!("{base}{TOKEN}"),
        "revocation_endpoint": format!("{base}{REVOKE}"),
        "grant_types_supported": [DEVICE_GRANT],
        "response_types_supported": [],
        "token_endpoint_auth_methods_supported": ["none"],
        "gateway_protocol_version": 1,
    }))
}

/// Returns the address of the gateway: the configured one, or that of the request.
fn address(app: &App, parts: &Parts) -> String {
    let base = &app.config.server.base_path;
    if let Some(public) = &app.config.partner.public_base_url {
        return format!("{public}{base}");
    }
    let scheme = if app.config.server.tls.is_some() { "https" } else { "http" };
    let named = parts.uri.authority().map(http::uri::Authority::as_str);
    let host = || parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let is_host =
        |host: &&str| host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-[]".contains(&byte));
    let bound = app.config.server.bind.to_string();
    format!("{scheme}://{}{base}", named.or_else(host).filter(is_host).unwrap_or(&bound))
}

/// The query of the short address that people open.
#[derive(Deserialize)]
struct PageQuery {
    user_code: Option<String>,
}

/// Leads from the short address to the page of the console.
fn page(app: &App, parts: &Parts) -> Result<Response<Body>, ApiError> {
    let PageQuery { user_code } = Query::parse(parts.uri.query().unwrap_or_default())?.take()?;
    let code = user_code.as_deref().and_then(read_user_code);
    let code = code.map(|code| format!("?code={}", shown_user_code(&code))).unwrap_or_default();
    let place = format!("{}{}{PAGE}{code}", app.config.server.base_path, console::PATH);
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SEE_OTHER;
    let place =
        HeaderValue::from_str(&place).map_err(|_| internal("The address of the page cannot be sent."))?;
    response.headers_mut().insert(LOCATION, place);
    Ok(response)
}

async fn begin(app: &App, parts: &Parts) -> Result<Response<Body>, ApiError> {
    let claude_code = settings(app, DEVICE)?;
    let address_of_client = parts.extensions.get::<ClientAddress>().map(|ClientAddress(address)| *address);
    if address_of_client.is_some_and(|address| app.gate.note_client_sign_in(address).is_err()) {
        return failure(StatusCode::TOO_MANY_REQUESTS, "slow_down", "Too many sign-ins from this network.");
    }
    let (device_code, now_ms) = (new_device_code(&app.keys).map_err(|_| no_randomness())?, unix_ms());
    let row = DeviceSignIn {
        code_hash: hash(device_code.expose()),
        user_code: new_user_code().map_err(|_| no_randomness())?,
        state: DeviceState::Pending,
        address: address_of_client.map(|address| address.to_canonical().to_string()),
        created_at_ms: now_ms,
        ends_at_ms: now_ms.saturating_add(SECONDS_MAX * 1_000),
        approval: None,
    };
    let user_code = shown_user_code(&row.user_code);
    match write(app, BeginDeviceSignIn { row }, Actor::gateway()).await {
        Ok(_) => {}
        Err(CommandRefusal::Reported { kind: ErrorKind::RateLimited, message, .. }) => {
            return failure(StatusCode::TOO_MANY_REQUESTS, "slow_down", &message);
        }
        Err(refusal) => return Err(refusal.into()),
    }
    let page = format!("{}{PAGE}", address(app, parts));
    let mut answer = json!({
        "device_code": device_code.expose(),
        "user_code": user_code,
        "verification_uri": page,
        "verification_uri_complete": format!("{page}?user_code={user_code}"),
        "expires_in": SECONDS_MAX,
        "interval": INTERVAL_SECONDS,
    });
    if let (Some(notice), Value::Object(members)) = (&claude_code.login_notice, &mut answer) {
        members.insert("login_notice".to_owned(), notice.as_str().into());
    }
    json(&answer)
}

/// The form of a question for tokens.
#[derive(Deserialize)]
struct TokenForm {
    grant_type: Option<String>,
    device_code: Option<String>,
}

async fn token(app: &App, request: &Request) -> Result<Response<Body>, ApiError> {
    let Some(TokenForm { grant_type, device_code }) = form(request) else {
        return failure(StatusCode::BAD_REQUEST, "invalid_request", "The form cannot be read.");
    };
    match (grant_type.as_deref(), device_code) {
        (Some(DEVICE_GRANT), Some(code)) if is_signed(&app.keys, &code) => {
            by_device_code(app, hash(&code)).await
        }
        (Some(DEVICE_GRANT), Some(_)) => expired(),
        (Some(DEVICE_GRANT) | None, _) => {
            failure(StatusCode::BAD_REQUEST, "invalid_request", "grant_type or device_code is missing.")
        }
        // No refresh token is issued: a key that has expired is replaced by a new sign-in.
        (Some("refresh_token"), _) => {
            failure(StatusCode::UNAUTHORIZED, "invalid_grant", "Sign in again with /login.")
        }
        (Some(_), _) => {
            failure(StatusCode::BAD_REQUEST, "unsupported_grant_type", "Sign in by the device flow.")
        }
    }
}

async fn by_device_code(app: &App, code_hash: Vec<u8>) -> Result<Response<Body>, ApiError> {
    if app.polls.is_too_soon(&code_hash, monotonic_ms()) {
        return failure(StatusCode::BAD_REQUEST, "slow_down", "Wait longer between two questions.");
    }
    let wanted = code_hash.clone();
    let found = app.readers.ask(move |db| device_sign_ins::of_client(db, &wanted, unix_ms())).await?;
    let Some(DeviceSignIn { state, approval, .. }) = found else { return expired() };
    match (state, approval) {
        (DeviceState::Pending, _) => {
            failure(StatusCode::BAD_REQUEST, "authorization_pending", "The person has not decided yet.")
        }
        (DeviceState::Approved, Some(approval)) => complete(app, code_hash, approval).await,
        (DeviceState::Approved | DeviceState::Denied, _) => denied("The sign-in was denied in the console."),
    }
}

/// Issues the key of an approved sign-in, if its person may still mint it.
async fn complete(app: &App, code_hash: Vec<u8>, approval: Approval) -> Result<Response<Body>, ApiError> {
    if !may_mint(app, &approval).await? {
        return denied("The person who approved the sign-in may no longer mint keys in the project.");
    }
    let days = settings(app, TOKEN)?.key_days;
    let seconds = days.saturating_mul(86_400);
    let expires_at_ms = unix_ms().saturating_add(seconds.saturating_mul(1_000));
    let (actor, acts_as) = (approval.actor.clone(), approval.acts_as.clone());
    let command = CompleteDeviceSignIn { code_hash, approval, expires_at_ms };
    let answer = match write(app, command, actor).await {
        Ok(answer) => answer,
        Err(CommandRefusal::Reported { kind: ErrorKind::NotFound, .. }) => return expired(),
        Err(CommandRefusal::Reported { message, .. }) => return denied(&message),
        Err(refusal) => return Err(refusal.into()),
    };
    if let Some(awaited) = answer.awaited {
        // The first request may go to another node.
        Reach::wait(&app.readers, awaited).await;
    }
    let issued: IssuedToken =
        serde_json::from_slice(&answer.body).map_err(|_| internal("The new key could not be read."))?;
    let mut members = json!({"access_token": issued.key, "token_type": "Bearer", "expires_in": seconds});
    if let (Some(email), Value::Object(members)) = (email(app, acts_as).await?, &mut members) {
        members.insert("email".to_owned(), email.into());
    }
    json(&members)
}

/// The part of a new key that its client gets.
#[derive(Deserialize)]
struct IssuedToken {
    key: String,
}

/// True if the person who approved may mint the key now.
async fn may_mint(app: &App, approval: &Approval) -> Result<bool, ApiError> {
    let Who::Human(principal) = &approval.actor.who else { return Ok(true) };
    let principal = principal.to_string();
    let Ok(standing) = app.readers.ask(move |db| standing(db, principal)).await? else { return Ok(false) };
    let object = Object::One { project: Some(approval.project.clone()), owner: approval.acts_as.clone() };
    Ok(may(&standing, Permission::MintKeys, &object).is_ok())
}

async fn email(app: &App, acts_as: Option<String>) -> Result<Option<String>, ApiError> {
    let Some(principal) = acts_as else { return Ok(None) };
    let found = app.readers.ask(move |db| principals::find(db, &principal)).await?;
    Ok(found.and_then(|human| human.email))
}

/// The form of a revocation (RFC 7009).
#[derive(Deserialize)]
struct RevokeForm {
    token: Option<String>,
}

/// Revokes a key that a sign-in issued. Other keys are left alone: their holders may share them.
async fn revoke(app: &App, request: &Request) -> Result<Response<Body>, ApiError> {
    let token = form(request).and_then(|RevokeForm { token }| token).unwrap_or_default();
    let found = {
        let snapshot = app.snapshot.load();
        let access = snapshot.access.keys.get(&snapshot.key_hasher.hash(token.as_bytes()));
        let access = access
            .filter(|access| access.role == Role::Project && tags::is_signed_in(access.tags.as_deref()));
        access.map(|access| (access.key.to_string(), access.acts_as.clone()))
    };
    if let Some((id, acts_as)) = found {
        let address = request.parts.extensions.get::<ClientAddress>().map(|ClientAddress(address)| *address);
        let who = acts_as.map_or(Who::Gateway, Who::Human);
        let actor = Actor { who, address, request_id: RequestId::of(&request.parts.headers).text() };
        write(app, EditKey::revoke(id), actor).await?;
    }
    // The answer does not tell whether there was such a key.
    json(&json!({}))
}

async fn write(app: &App, command: impl Command, actor: Actor) -> Result<Answer, CommandRefusal> {
    let command = Box::new(command);
    app.writer.write(AdminWrite { command, actor, status: StatusCode::OK, idempotency: None }).await
}

/// Reads a form. `None` if it cannot be read.
fn form<T: serde::de::DeserializeOwned>(request: &Request) -> Option<T> {
    let text = std::str::from_utf8(&request.body).ok()?;
    Query::parse(text).ok()?.take().ok()
}

fn expired() -> Result<Response<Body>, ApiError> {
    failure(StatusCode::BAD_REQUEST, "expired_token", "The sign-in has ended. Begin again with /login.")
}

fn denied(why: &str) -> Result<Response<Body>, ApiError> {
    failure(StatusCode::BAD_REQUEST, "access_denied", why)
}

fn failure(status: StatusCode, error: &str, why: &str) -> Result<Response<Body>, ApiError> {
    let mut response = json(&json!({"error": error, "error_description": why}))?;
    *response.status_mut() = status;
    Ok(response)
}

fn internal(message: &'static str) -> ApiError {
    ApiError::new(ErrorKind::Internal, message)
}

fn no_randomness() -> ApiError {
    internal("The operating system returned no random bytes.")
}

const METADATA: &str = "/.well-known/oauth-authorization-server";
const DEVICE: &str = "/oauth/device_authorization";
/// The short address that people open, also of the page below the console.
const PAGE: &str = "/device";
const TOKEN: &str = "/oauth/token";
const REVOKE: &str = "/oauth/revoke";
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// The time in which a sign-in must be completed.
const SECONDS_MAX: u64 = 600;
