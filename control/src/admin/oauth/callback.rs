//! The page to which the vendor sends the browser back. It needs no script and loads nothing; the page of the console
//! that began the sign-in reads its result from the API.
//!
//! The request is not authenticated: `state` and the cookie of the flow admit it, and the session that began the flow
//! must still be open. A flow is taken before its code is exchanged, so a repeated callback sends no code.

use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, REFERRER_POLICY};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use serde::Deserialize;
use shared::base_path::BasePath;
use shared::clock::unix_ms;
use shared::port::{Body, full};
use shared::sanitize::diagnostic;
use shared::secret::Secret;

use super::super::query::Query;
use super::super::{ApiError, App, RequestId};
use super::completion::{Completion, Granted};
use super::flows::{BrowserFlow, FlowWay, NoFlow, SignIn, id_of, opened};
use crate::common::credential::oauth::plain;
use crate::db::sign_in_flows;

/// The parameters of a redirect (RFC 6749 section 4.1.2, RFC 9207 section 2). Others are ignored.
struct Redirect {
    state: String,
    code: Option<Secret<String>>,
    error: Option<String>,
    issuer: Option<String>,
}

/// Answers the redirect of a vendor.
pub(in crate::admin) async fn callback(app: &App, parts: &Parts) -> Result<Response<Body>, ApiError> {
    if parts.method != Method::GET {
        return Err(ApiError::method_not_allowed("GET"));
    }
    let base = &app.config.server.base_path;
    let Some(redirect) = redirect(parts.uri.query().unwrap_or_default()) else {
        return page(
            base,
            StatusCode::BAD_REQUEST,
            FAILED,
            "The address of this page is incomplete or damaged.",
        );
    };
    let completion = Completion::of(app);
    let taken = match taken(app, &completion, parts, &redirect.state).await? {
        Ok(taken) => taken,
        Err(why) => return page(base, StatusCode::BAD_REQUEST, FAILED, no_flow(why)),
    };
    let (mut sign_in, flow) = taken;
    sign_in.actor.request_id = RequestId::of(&parts.headers).text();
    let granted = tokens(&completion, &sign_in, redirect, &flow).await;
    let provider = sign_in.provider.clone();
    match completion.complete(sign_in, granted).await {
        Ok(account) => {
            let account = account.as_deref().map(|account| format!(" as {account}")).unwrap_or_default();
            let text = format!("The provider {provider} is connected{account}. You can close this page.");
            page(base, StatusCode::OK, "Connected", &text)
        }
        Err(why) => page(
            base,
            StatusCode::BAD_REQUEST,
            FAILED,
            &format!("The provider {provider} is not connected: {why}."),
        ),
    }
}

/// Takes the flow of `state`, if the request carries the cookie of the browser that began it. A callback of another browser
/// does not end the flow.
async fn taken(
    app: &App,
    completion: &Completion,
    parts: &Parts,
    state: &str,
) -> Result<Result<(SignIn, BrowserFlow), NoFlow>, ApiError> {
    let id = match id_of(&app.keys, state) {
        Ok(id) => id,
        Err(why) => return Ok(Err(why)),
    };
    let wanted = id.clone();
    let row = app.readers.ask(move |db| sign_in_flows::find(db, &wanted)).await?;
    let Some(row) = row.filter(|row| row.ends_at_ms > unix_ms()) else { return Ok(Err(NoFlow::Over)) };
    let (sign_in, flow) = match opened(&app.keys, row) {
        Some((sign_in, FlowWay::Browser(flow))) => (sign_in, flow),
        Some((_, FlowWay::Device(_))) => return Ok(Err(NoFlow::Forged)),
        None => return Ok(Err(NoFlow::Over)),
    };
    if let Err(why) = flow.check_browser(&id, |name| cookie_called(parts, name)) {
        return Ok(Err(why));
    }
    Ok(if completion.take(&sign_in).await? { Ok((sign_in, flow)) } else { Err(NoFlow::Over) })
}

/// Exchanges the code for tokens, or returns the reason of the failure.
async fn tokens(
    completion: &Completion,
    sign_in: &SignIn,
    redirect: Redirect,
    BrowserFlow { redirect_uri, verifier, .. }: &BrowserFlow,
) -> Result<Granted, String> {
    completion.still_admitted(sign_in)?;
    let issuer = completion.issuer(sign_in)?;
    if let Some(expected) = issuer.settings().and_then(|settings| settings.issuer.as_ref())
        && redirect.issuer.as_ref() != Some(expected)
    {
        return Err("the answer came from another issuer than oauth.issuer".to_owned());
    }
    if let Some(error) = redirect.error {
        return Err(format!("the vendor answered {error}"));
    }
    let code = redirect.code.ok_or("the vendor sent no code")?;
    let request = issuer.code_request(&code, verifier, redirect_uri);
    let sent = [code.expose().as_str(), verifier.expose(), &redirect.state];
    match completion.vendor.tokens(request, &sent).await {
        Ok(tokens) => Ok(Granted { tokens, issuer }),
        Err(failure) => Err(format!("the token address failed: {}", failure.text())),
    }
}

/// The parameters of a redirect. A vendor may add others.
#[derive(Deserialize)]
struct Answer {
    state: String,
    code: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
    iss: Option<String>,
}

/// Reads the parameters. `None` if one occurs twice (RFC 6749 section 3.1), or if `state` is missing.
fn redirect(query: &str) -> Option<Redirect> {
    let Answer { state, code, error, error_description, iss } = Query::parse(query).ok()?.take().ok()?;
    // A vendor may quote what it got. The texts are cut after they are redacted, so that no part of a secret is left.
    let quoted = [state.as_str(), code.as_deref().unwrap_or_default()];
    let shown = |text: &str, chars_max| plain(&diagnostic(text, &quoted), chars_max);
    let error = error.map(|error| {
        let description = error_description.map(|text| format!(": {}", shown(&text, 300)));
        format!("{}{}", shown(&error, 64), description.unwrap_or_default())
    });
    Some(Redirect { code: code.map(Secret::new), error, issuer: iss, state })
}

fn no_flow(why: NoFlow) -> &'static str {
    match why {
        NoFlow::Forged => "The gateway did not begin this sign-in.",
        NoFlow::Over => {
            "This sign-in was completed or replaced already, or has expired. Connect the provider again."
        }
        NoFlow::Stolen => "Another browser began this sign-in. Use the browser in which you pressed Connect.",
    }
}

/// Returns the cookies of the request as names and values.
fn cookies(parts: &Parts) -> impl Iterator<Item = (&str, &str)> {
    let lines = parts.headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

fn cookie_called<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    cookies(parts).find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// Returns a page with a title and a text. Both are escaped, because they contain texts of other parties.
fn page(base: &BasePath, status: StatusCode, title: &str, text: &str) -> Result<Response<Body>, ApiError> {
    let (title, text) = (escaped(title), escaped(text));
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>{title} - llmgw</title>\n<h1>{title}</h1>\n<p>{text}</p>\n\
         <p><a href=\"{base}/console/\">To the console</a></p>\n</html>\n"
    );
    let mut response = Response::new(full(html));
    *response.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}

const FAILED: &str = "Not connected";
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
