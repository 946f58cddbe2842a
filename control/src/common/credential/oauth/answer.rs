//! The answers of a vendor's token, device and userinfo addresses. Their texts are untrusted: bounded, and escaped
//! where they are shown.

use serde::Deserialize;
use serde_json::Value;
use shared::characters::is_direction_mark;
use shared::sanitize::{diagnostic, guarded};
use shared::secret::Secret;

/// Tokens that a vendor issued (RFC 6749 section 5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenSet {
    pub(crate) access: Secret<String>,
    /// `None` if the vendor issued no new one; an earlier one stays valid then.
    pub(crate) refresh: Option<Secret<String>>,
    /// The lifetime of the access token; `None` if the vendor does not state it.
    pub(crate) life_s: Option<u64>,
    /// The scopes that were granted, if the vendor states them.
    pub(crate) scopes: Option<Vec<String>>,
    /// The name of the account, if the answer states it. OAuth has another address for it.
    pub(crate) account: Option<String>,
}

/// A token request that returned no tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenFailure {
    /// An error of RFC 6749 section 5.2: its code, and a text with code and description.
    Refused { code: String, text: String },
    /// Any other answer. The vendor may or may not have issued tokens.
    Unclear(String),
}

impl TokenFailure {
    /// True if the vendor rejected the refresh token or the code itself, so that a repetition cannot succeed.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "invalid_grant")
    }

    /// Returns the text for people.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Refused { text, .. } | Self::Unclear(text) => text,
        }
    }
}

#[derive(Deserialize)]
struct TokenMembers {
    access_token: String,
    token_type: Option<String>,
    refresh_token: Option<String>,
    expires_in: Option<Value>,
    scope: Option<String>,
    account: Option<Value>,
}

/// Reads the answer to a token request that contained the secrets `sent`.
pub(crate) fn token_answer(status: u16, body: &[u8], sent: &[&str]) -> Result<TokenSet, TokenFailure> {
    if status != 200 {
        return Err(failure(status, body, sent));
    }
    let members: TokenMembers = serde_json::from_slice(body)
        .map_err(|_| TokenFailure::Unclear("the answer contains no access token".to_owned()))?;
    let unclear = |text: &str| Err(TokenFailure::Unclear(text.to_owned()));
    if members.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return unclear("the token is not a bearer token");
    }
    let fits = |token: &str| (1..=TOKEN_BYTES_MAX).contains(&token.len()) && super::super::fits_header(token);
    if !fits(&members.access_token) {
        return unclear("the access token is empty, too long, or contains invalid characters");
    }
    if members.refresh_token.as_deref().is_some_and(|token| !fits(token)) {
        return unclear("the refresh token is empty, too long, or contains invalid characters");
    }
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    Ok(TokenSet {
        access: Secret::new(members.access_token),
        refresh: members.refresh_token.map(Secret::new),
        life_s: members.expires_in.as_ref().and_then(number).map(|life_s| life_s.clamp(1, LIFE_S_MAX)),
        scopes: members.scope.map(|scope| {
            scope.split_ascii_whitespace().take(SCOPES_MAX).map(|scope| plain(&guarded(scope), 256)).collect()
        }),
        account: members.account.as_ref().and_then(Value::as_str).and_then(account_name),
    })
}

/// Reads the answer that refuses a request. Its texts contain neither the secrets `sent` with the request nor others of the
/// gateway: they are redacted before the texts are cut, so that no part of one is left.
pub(super) fn failure(status: u16, body: &[u8], sent: &[&str]) -> TokenFailure {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| answer.get(name).and_then(Value::as_str).map(|text| diagnostic(text, sent));
    match text("error") {
        Some(code) if (400..500).contains(&status) => {
            let code = plain(&code, 64);
            let text = match text("error_description") {
                Some(description) => format!("{code}: {}", plain(&description, 300)),
                None => code.clone(),
            };
            TokenFailure::Refused { code, text }
        }
        _ => TokenFailure::Unclear(format!("it answered with status {status}")),
    }
}

/// The answer of the device authorization address (RFC 8628 section 3.2).
#[derive(Clone, Debug)]
pub(crate) struct DeviceAnswer {
    pub(crate) device_code: Secret<String>,
    pub(crate) user_code: String,
    pub(crate) verification_uri: String,
    pub(crate) verification_uri_complete: Option<String>,
    pub(crate) life_s: u64,
    pub(crate) interval_s: u64,
}

/// The answer to the start of a sign-in on another device (RFC 8628).
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DeviceCode {
    /// Any text of 1 to 16,384 bytes, which `/oauth/poll` gets.
    device_code: String,
    /// The code that the human types, at most 64 characters.
    user_code: String,
    /// The page on which the human types it, at most 2,048 bytes: `https://`, or `http://` on this machine.
    verification_uri: String,
    /// The page with the code in its address.
    verification_uri_complete: Option<String>,
    /// The time in which the human must consent, in seconds; at most 1,800.
    expires_in: u64,
    /// The pause between two polls, in seconds, from 1 to 60; absent: 5.
    interval: Option<u64>,
}

/// Reads the answer of the device authorization address.
pub(crate) fn device_answer(status: u16, body: &[u8]) -> Result<DeviceAnswer, TokenFailure> {
    if status != 200 {
        return Err(failure(status, body, &[]));
    }
    let code: Result<DeviceCode, _> = serde_json::from_slice(body);
    let code = code.ok().filter(|code| {
        let pages = [Some(&code.verification_uri), code.verification_uri_complete.as_ref()];
        pages.into_iter().flatten().all(|page| is_page(page, DEVICE_PAGE_BYTES_MAX))
            && (1..=TOKEN_BYTES_MAX).contains(&code.device_code.len())
    });
    let Some(code) = code else {
        return Err(TokenFailure::Unclear("the answer contains no device code and https address".to_owned()));
    };
    Ok(DeviceAnswer {
        device_code: Secret::new(code.device_code),
        user_code: plain(&code.user_code, 64),
        verification_uri: code.verification_uri,
        verification_uri_complete: code.verification_uri_complete,
        life_s: code.expires_in.clamp(1, DEVICE_LIFE_S_MAX),
        interval_s: code.interval.unwrap_or(DEVICE_INTERVAL_S).clamp(1, 60),
    })
}

/// Returns the name of the account in an answer of the userinfo address.
pub(crate) fn account(body: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let names = ["email", "preferred_username", "name", "login", "sub"];
    account_name(names.iter().find_map(|name| answer.get(*name)?.as_str().filter(|text| !text.is_empty()))?)
}

fn account_name(text: &str) -> Option<String> {
    Some(plain(&guarded(text), 200)).filter(|name| !name.is_empty())
}

/// True if `address` is a page that a human may be sent to.
pub(super) fn is_page(address: &str, bytes_max: usize) -> bool {
    address.len() <= bytes_max && super::super::grant::is_safe(address)
}

/// Returns the first `chars_max` characters of a text of another party, without control characters and without those
/// that change the direction of text.
pub(crate) fn plain(text: &str, chars_max: usize) -> String {
    let is_plain = |c: &char| !c.is_control() && !is_direction_mark(*c);
    text.chars().filter(is_plain).take(chars_max).collect()
}

const TOKEN_BYTES_MAX: usize = 16 << 10;
const SCOPES_MAX: usize = 64;
/// The longest lifetime that is believed: a year.
const LIFE_S_MAX: u64 = 31_536_000;
const DEVICE_PAGE_BYTES_MAX: usize = 2 << 10;
const DEVICE_LIFE_S_MAX: u64 = 1_800;
/// The polling interval of vendors that state none (RFC 8628 section 3.2).
const DEVICE_INTERVAL_S: u64 = 5;
