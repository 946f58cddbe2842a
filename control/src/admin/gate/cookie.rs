//! The cookie that holds the ticket of a session.

use std::time::Duration;

use http::HeaderValue;
use http::header::COOKIE;
use http::request::Parts;
use shared::base_path::BasePath;
use shared::error_kind::ErrorKind;

use crate::admin::ApiError;

/// Returns the texts of the request's session cookies.
pub(super) fn cookies(parts: &Parts) -> impl Iterator<Item = &str> {
    let lines = parts.headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == COOKIE_NAME).map(|(_, text)| text).take(COOKIES_MAX)
}

/// True if the header sets or clears the session's cookie.
pub(crate) fn is_session_cookie(header: &HeaderValue) -> bool {
    let name = header.as_bytes().strip_prefix(COOKIE_NAME.as_bytes());
    name.is_some_and(|rest| rest.starts_with(b"="))
}

/// Makes `Set-Cookie` headers.
#[derive(Debug)]
pub(super) struct SessionCookies {
    /// The path of the admin API as browsers know it.
    path: String,
}

impl SessionCookies {
    pub(super) fn below(base: &BasePath) -> Self {
        Self { path: format!("{base}{PATH}") }
    }

    /// Returns a `Set-Cookie` header for the admin API alone.
    pub(super) fn set(&self, text: &str, life: Duration, is_secure: bool) -> Result<HeaderValue, ApiError> {
        let (path, life, secure) = (&self.path, life.as_secs(), if is_secure { "; Secure" } else { "" });
        let text =
            format!("{COOKIE_NAME}={text}; Path={path}; Max-Age={life}; HttpOnly; SameSite=Strict{secure}");
        let mut value = HeaderValue::from_str(&text)
            .map_err(|_| ApiError::new(ErrorKind::Internal, "The session cookie could not be created."))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

const COOKIE_NAME: &str = "llmgw_session";
/// Only the admin API needs the cookie; it must not be sent to the data plane.
pub(super) const PATH: &str = "/admin/api";
/// The maximum number of session cookies that are examined.
const COOKIES_MAX: usize = 4;
