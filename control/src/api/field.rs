//! Validation of fields that several resources share.

use serde_json::Value;
use shared::clock::unix_ms;

use super::ApiError;
use super::query::moment;

/// Validates a display name: 1 to 200 characters on one line. Trims surrounding spaces.
pub(crate) fn name(field: &str, text: &str) -> Result<String, ApiError> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > NAME_CHARS_MAX || text.chars().any(char::is_control) {
        let message = format!("{field} must be 1 to {NAME_CHARS_MAX} characters on one line.");
        return Err(ApiError::parameter(field, message));
    }
    Ok(text.to_owned())
}

/// Validates an e-mail address as far as possible without sending mail: a non-empty local part, `@`, and a domain
/// without spaces.
pub(crate) fn email(text: &str) -> Result<String, ApiError> {
    let text = text.trim();
    let parts = text.rsplit_once('@');
    let good = parts.is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty());
    if !good || text.len() > 254 || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(ApiError::parameter("email", "email must be an address like name@example.com."));
    }
    Ok(text.to_owned())
}

/// Parses a time, as RFC 3339 or as milliseconds since the Unix epoch.
pub(crate) fn any_moment(field: &str, value: &Value) -> Result<u64, ApiError> {
    match value {
        Value::String(text) => moment(field, text),
        other => moment(field, &other.to_string()),
    }
}

/// Parses a time that must be in the future.
pub(crate) fn future(field: &str, value: &Value) -> Result<u64, ApiError> {
    let at = any_moment(field, value)?;
    if at <= unix_ms() {
        return Err(ApiError::parameter(field, format!("{field} must be a moment in the future.")));
    }
    Ok(at)
}

const NAME_CHARS_MAX: usize = 200;
