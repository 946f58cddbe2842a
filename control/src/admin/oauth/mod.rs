//! `providers/{id}/oauth`: signing in to the vendor of a provider instance with a human's own account (AUTH-4), and the
//! page to which the vendor sends the browser back.

mod callback;
mod completion;
mod device;
mod flows;

use std::sync::Arc;

use http::header::{ORIGIN, SET_COOKIE};
use http::{HeaderValue, Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use shared::clock::unix_ms;
use shared::error_kind::ErrorKind;
use shared::port::Body;

pub(super) use self::callback::callback;
use self::completion::Completion;
pub(crate) use self::device::resume;
use self::device::wait_for_consent;
use self::flows::{
    BrowserFlow, DeviceFlow, FLOW_TIME_MAX, FlowTickets, FlowWay, SignIn, new_id, random_text, sealed,
};
use super::gate::key_in_header;
use super::query::choose;
use super::{ApiError, App, Call, Route, json, route_of};
use crate::admin::permission::Permission;
use crate::common::credential::oauth::{
    Consent, NO_CLIENT, NO_SETTINGS, TokenFailure, TokenIssuer, challenge,
};
use crate::db::principals;
use crate::jobs::oauth::Vendor;
use crate::routing::config::{ConnectionAuth, Provider};
use crate::routing::connection::{ProviderConnection, ProviderStanding, ShownSignIn, SignInError};
use crate::writer::command::oauth::ForgetSignIn;
use crate::writer::command::sign_in_flows::{BeginSignIn, CancelSignIn};

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::POST, "providers/{}/oauth/start", |call| Box::pin(start(call)))
        .answers::<StartedSignIn>(
            "Begins a sign-in: open `authorize_url` in the browser that sent this request.",
        )
        .takes::<StartSignIn>()
        .acts_each_time()
        .permits(Permission::ChangeConnections),
    route_of(Method::DELETE, "providers/{}/oauth", |call| Box::pin(disconnect(call)))
        .answers::<Disconnected>("Forgets the sign-in, and revokes its tokens at the vendor.")
        .permits(Permission::ChangeConnections),
];

/// The beginning of a sign-in.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "StartOauthSignIn"))]
#[serde(deny_unknown_fields)]
struct StartSignIn {
    /// The ID of the human who signs in and to whom the provider is private; absent: its owner.
    #[serde(default)]
    owner: Option<String>,
    /// `browser` or `device`, for a sign-in on another device; absent: `browser`.
    #[serde(default)]
    method: Option<String>,
}

/// A sign-in that has begun.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "StartedOauthSignIn"))]
struct StartedSignIn {
    /// The vendor's page on which the human consents.
    authorize_url: String,
    /// The code to type on that page; null for a sign-in in the browser.
    user_code: Option<String>,
    /// The address to which the vendor sends the browser back, registered with the vendor byte by byte; null for a sign-in
    /// on another device.
    redirect_uri: Option<String>,
    /// The time until which the human must have consented, in milliseconds since the Unix epoch.
    expires_at_ms: u64,
}

/// The end of a sign-in.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "OauthDisconnected"))]
struct Disconnected {
    /// True if the vendor revoked the tokens; null if it has no address for that, or the tokens were gone already.
    revoked: Option<bool>,
    /// The reason why the tokens were not revoked; null if they were, or if `revoked` is null. The gateway has forgotten
    /// them in any case.
    error: Option<String>,
}

async fn start(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let StartSignIn { owner, method } = call.json()?;
    let methods = [("browser", false), ("device", true)];
    let is_device = method.map_or(Ok(false), |method| choose("method", &method, &methods))?;
    let provider = connectable(&call)?;
    let issuer = provider.issuer.as_ref().ok_or_else(|| conflict(sentence(NO_SETTINGS)))?;
    let owner = owner_of(&call, &provider, owner).await?;
    let admission = call.app.gate.admission(call.parts);
    let sign_in = SignIn {
        id: new_id().map_err(|_| no_randomness())?,
        provider: provider.id.to_string(),
        owner,
        binding: issuer.binding(provider.origin.as_ref()),
        admission: admission
            .ok_or_else(|| ApiError::new(ErrorKind::InvalidKey, "The session has ended. Sign in again."))?,
        actor: call.actor.clone(),
    };
    if is_device {
        return json(&on_device(&call, sign_in, issuer).await?);
    }
    let (started, cookie) = in_browser(&call, sign_in, issuer).await?;
    let mut response = json(&started)?;
    response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response)
}

/// Begins a sign-in in the browser that sent the request, and returns the cookie that binds it to that browser.
async fn in_browser(
    call: &Call<'_>,
    sign_in: SignIn,
    issuer: &TokenIssuer,
) -> Result<(StartedSignIn, HeaderValue), ApiError> {
    if let Some(lacks) = lacks(call.app, issuer) {
        return Err(conflict(lacks));
    }
    let redirect_uri = call.app.config.redirect_uri().unwrap_or_default();
    opened_at_the_public_origin(call)?;
    let verifier = random_text().map_err(|_| no_randomness())?;
    let challenge = challenge(verifier.expose());
    let tickets = FlowTickets::new(&call.app.keys, &sign_in.id).map_err(|_| no_randomness())?;
    let consent = Consent { redirect_uri: &redirect_uri, state: &tickets.state, challenge: &challenge };
    let page = Vendor::new(&call.app.http).consent_page(issuer, &consent).await;
    let authorize_url = page.map_err(|failure| not_begun("consent page", &failure))?;
    let cookie = cookie(&tickets, &call.app.config.callback_path(), redirect_uri.starts_with("https://"))?;
    let way = FlowWay::Browser(BrowserFlow {
        cookie: tickets.cookie_hash(),
        redirect_uri: redirect_uri.clone(),
        verifier,
    });
    let expires_at_ms = in_future(FLOW_TIME_MAX.as_secs());
    begin(call, &sign_in, &way, expires_at_ms).await?;
    let redirect_uri = Some(redirect_uri);
    Ok((StartedSignIn { authorize_url, user_code: None, redirect_uri, expires_at_ms }, cookie))
}

/// Begins a sign-in on another device.
async fn on_device(
    call: &Call<'_>,
    sign_in: SignIn,
    issuer: &TokenIssuer,
) -> Result<StartedSignIn, ApiError> {
    let completion = Completion::of(call.app);
    let device = match completion.vendor.device_code(issuer).await {
        None => return Err(conflict("oauth.device_authorization_url is not set.".to_owned())),
        Some(Err(failure)) => return Err(not_begun("device code", &failure)),
        Some(Ok(device)) => device,
    };
    let page = device.verification_uri_complete.unwrap_or(device.verification_uri);
    let expires_at_ms = in_future(device.life_s);
    let flow = || DeviceFlow { device_code: device.device_code.clone(), interval_s: device.interval_s };
    begin(call, &sign_in, &FlowWay::Device(flow()), expires_at_ms).await?;
    tokio::spawn(wait_for_consent(completion, sign_in, flow(), expires_at_ms));
    let (authorize_url, user_code) = (page, Some(device.user_code));
    Ok(StartedSignIn { authorize_url, user_code, redirect_uri: None, expires_at_ms })
}

/// Stores a sign-in that has begun, in place of an earlier one of its provider.
async fn begin(call: &Call<'_>, sign_in: &SignIn, way: &FlowWay, expires_at_ms: u64) -> Result<(), ApiError> {
    let row = sealed(&call.app.keys, sign_in, way, expires_at_ms).map_err(|_| no_randomness())?;
    call.write(StatusCode::OK, BeginSignIn { row, owner: sign_in.owner.clone() }, None).await?;
    Ok(())
}

async fn disconnect(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let provider = connectable(&call)?;
    let cancel = CancelSignIn { provider: provider.id.to_string() };
    call.write(StatusCode::NO_CONTENT, cancel, None).await?;
    let forget = ForgetSignIn { provider: provider.id.to_string() };
    call.execute_each_time(StatusCode::NO_CONTENT, forget).await?;
    let revoked = revoke(call.app, &provider).await;
    json(&Disconnected { revoked: revoked.as_ref().map(Result::is_ok), error: revoked.and_then(Result::err) })
}

/// Revokes the tokens of a provider at its vendor. `None` if it has none, or the vendor has no address for that. Tokens are
/// sent only to the addresses that they were granted for.
pub(super) async fn revoke(app: &App, provider: &Provider) -> Option<Result<(), String>> {
    let (issuer, tokens) = (provider.issuer.as_ref()?, provider.oauth_tokens(0).ok()?);
    Vendor::new(&app.http).revoke(issuer, tokens).await
}

/// Returns the view of a provider's sign-in; `None` if it uses none.
pub(super) fn sign_in(app: &App, provider: &Provider) -> Option<ShownSignIn> {
    let issuer = provider.issuer.as_ref().filter(|_| provider.auth == ConnectionAuth::Oauth)?;
    let id = provider.id.as_str();
    let mut shown = ShownSignIn::of(provider, unix_ms());
    if let Some(trouble) = app.refreshes.trouble(id) {
        shown.state = "expiring";
        shown.last_error = Some(SignInError::of(trouble));
    }
    if let Some(failure) = app.sign_ins.failure(id, unix_ms()) {
        shown.last_error = Some(SignInError::of(failure));
    }
    if app.sign_ins.is_waiting(id, unix_ms()) {
        shown.state = "waiting";
    }
    shown.redirect_uri = app.config.redirect_uri();
    shown.on_device = issuer.has_device_flow();
    shown.lacks = lacks(app, issuer);
    Some(shown)
}

/// Returns what a sign-in in a browser lacks.
fn lacks(app: &App, issuer: &TokenIssuer) -> Option<String> {
    let settings = issuer.settings();
    if settings.is_some_and(|settings| settings.client.is_none()) {
        Some(sentence(NO_CLIENT))
    } else if app.config.partner.public_base_url.is_none() {
        Some("LLMGW_OAUTH_PUBLIC_BASE_URL is not set.".to_owned())
    } else if settings.is_some_and(|settings| settings.authorize_url.is_none()) {
        Some("oauth.authorize_url is not set.".to_owned())
    } else {
        None
    }
}

/// Returns the provider instance that the path names, if humans sign in to it. For a human, it must be theirs: the one of the
/// file takes precedence over the one about whose owner was decided before.
pub(super) fn connectable(call: &Call<'_>) -> Result<Arc<Provider>, ApiError> {
    let view = call.app.view.read();
    let is_own = |connection: &&ProviderConnection| {
        call.standing.human().is_none_or(|human| connection.owner() == Some(human))
    };
    let mut found =
        view.providers.iter().filter(|connection| connection.id == call.argument()).filter(is_own);
    let found = found.find(|connection| !matches!(connection.standing, ProviderStanding::Shadowed(_)));
    let found = found.ok_or_else(|| ApiError::new(ErrorKind::NotFound, "There is no such provider."))?;
    let is_faulty = matches!(found.standing, ProviderStanding::Faulty(_));
    let provider = found.read.clone().filter(|_| !is_faulty).ok_or_else(|| {
        conflict(found.standing.reason().unwrap_or_else(|| "The provider cannot be used.".to_owned()))
    })?;
    if provider.auth != ConnectionAuth::Oauth {
        return Err(conflict("The provider does not use OAuth.".to_owned()));
    }
    Ok(provider)
}

/// Returns the human who signs in: the provider's owner, or the one that the body names.
async fn owner_of(call: &Call<'_>, provider: &Provider, named: Option<String>) -> Result<String, ApiError> {
    let owner = match (&provider.owner, named) {
        (Some(owner), Some(named)) if owner.as_str() != named => {
            let message =
                format!("The provider belongs to '{owner}'. Disconnect it, or change its owner first.");
            return Err(ApiError::parameter("owner", message));
        }
        (Some(owner), _) => owner.to_string(),
        (None, Some(named)) => named,
        (None, None) => {
            return Err(ApiError::parameter("owner", "owner is missing: name the human who signs in."));
        }
    };
    let id = owner.clone();
    let found = call.app.readers.ask(move |db| principals::find(db, &id)).await?;
    match found {
        Some(human) if human.disabled => Err(ApiError::parameter("owner", "This human is disabled.")),
        Some(_) => Ok(owner),
        None => Err(ApiError::parameter("owner", format!("There is no principal '{owner}'."))),
    }
}

/// Refuses a page of another origin than the public one: the browser would not send its cookie to the callback.
fn opened_at_the_public_origin(call: &Call<'_>) -> Result<(), ApiError> {
    let origin = call.parts.headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
    let config = &call.app.config;
    let (public, base) =
        (config.partner.public_base_url.as_deref().unwrap_or_default(), &config.server.base_path);
    match origin {
        Some(origin) if key_in_header(call.parts)?.is_none() && !origin.eq_ignore_ascii_case(public) => {
            let text = format!("Open the console at {public}{base}/console and connect the provider there.");
            Err(conflict(text))
        }
        _ => Ok(()),
    }
}

/// Returns a `Set-Cookie` header for the callback alone. `Lax`, because the browser comes from the vendor's page.
fn cookie(tickets: &FlowTickets, path: &str, is_tls: bool) -> Result<HeaderValue, ApiError> {
    let (name, value, seconds) = (&tickets.cookie_name, tickets.cookie.expose(), FLOW_TIME_MAX.as_secs());
    let secure = if is_tls { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
    let mut value = HeaderValue::from_str(&text)
        .map_err(|_| ApiError::new(ErrorKind::Internal, "The cookie could not be created."))?;
    value.set_sensitive(true);
    Ok(value)
}

fn not_begun(lacking: &str, failure: &TokenFailure) -> ApiError {
    let message = format!("The vendor returned no {lacking}: {}.", failure.text().trim_end_matches('.'));
    ApiError::new(ErrorKind::UpstreamUnreachable, message)
}

fn in_future(seconds: u64) -> u64 {
    unix_ms().saturating_add(seconds.saturating_mul(1_000))
}

fn no_randomness() -> ApiError {
    ApiError::new(ErrorKind::Internal, "The operating system returned no random bytes.")
}

fn conflict(message: String) -> ApiError {
    ApiError::new(ErrorKind::Conflict, message)
}

/// Makes a sentence of a reason.
fn sentence(reason: &str) -> String {
    format!("The provider cannot be connected: {reason}.")
}
