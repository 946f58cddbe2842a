//! Converts an upstream's error response to the gateway's envelope. Keeps its meaningful parts and removes credentials.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use shared::error_kind::ErrorKind;

use super::diagnosis::{StreamError, clean};
use super::{EnvelopeFamily, anthropic, google, open_ai_with};

/// The maximum number of bytes of a non-JSON body that are read.
const TEXT_BYTES_MAX: usize = 16 * 1024;
/// The maximum number of bytes of such a body that are passed on.
const EXCERPT_BYTES_MAX: usize = 512;

/// An upstream's error response.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamAnswer<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The content type, if the response has one.
    pub content_type: Option<&'a str>,
    /// The body, or the first part of it.
    pub body: &'a [u8],
    /// Credentials that must not appear in the output.
    pub secrets: &'a [&'a str],
}

/// Returns the client's body for an upstream error.
pub fn upstream_error(family: EnvelopeFamily, answer: UpstreamAnswer<'_>, request_id: &str) -> Bytes {
    diagnosed(family, answer.status, &answer.diagnosis(), None, request_id)
}

/// Returns the client's body for an error that was read from a response with this status and is sanitized. After
/// `retry_after` a retry may succeed.
pub fn diagnosed(
    family: EnvelopeFamily,
    status: u16,
    error: &StreamError,
    retry_after: Option<Duration>,
    request_id: &str,
) -> Bytes {
    let (error, meaning) = (error.in_words_of(family, status), error.meaning(status));
    let defaults = Defaults::of(error.client_status(status));
    match family {
        EnvelopeFamily::OpenAi => {
            let kind = error.in_open_ai_words().kind.map_or_else(|| defaults.kind.into(), Value::from);
            let code = error.code.map_or_else(|| defaults.code.into(), Value::from);
            let nested = error.nested.map_or_else(Map::new, |nested| *nested);
            open_ai_with(nested, (&error.message, &kind, &code), error.param.as_deref(), request_id)
        }
        EnvelopeFamily::Anthropic => {
            let kind = meaning.and_then(|read| read.meaning.row().anthropic).unwrap_or(defaults.anthropic);
            anthropic(&error.message, kind, error.details.map(|details| *details), request_id)
        }
        EnvelopeFamily::Google => {
            let status = error.client_status(status);
            google::upstream(status, &error, retry_after, request_id).to_string().into()
        }
    }
}

/// Adds the error type from AWS's header `x-amzn-errortype` to an error body that does not contain one.
pub fn with_error_type(body: &[u8], header: &str) -> Vec<u8> {
    // `com.amazonaws#ThrottlingException:http://internal.amazon.com/..`
    let name = header.rsplit_once('#').map_or(header, |(_, name)| name);
    let name = name.split(':').next().unwrap_or_default().trim();
    let document = serde_json::from_slice::<Map<String, Value>>(body);
    match document {
        Ok(mut document) if !name.is_empty() && !document.contains_key("__type") => {
            document.insert("__type".to_owned(), name.into());
            Value::Object(document).to_string().into_bytes()
        }
        Ok(_) | Err(_) => body.to_vec(),
    }
}

/// Returns the sanitized `error` in Anthropic's envelope, with one of Anthropic's types.
pub(super) fn anthropic_error(error: &StreamError) -> Value {
    const KINDS: [&str; 10] = [
        "invalid_request_error",
        "authentication_error",
        "billing_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
        "rate_limit_error",
        "timeout_error",
        "overloaded_error",
        "api_error",
    ];
    let status = error.status.unwrap_or(500);
    let error = error.in_words_of(EnvelopeFamily::Anthropic, status);
    let own = error.kind.as_deref().filter(|kind| KINDS.contains(kind));
    let kind = own.unwrap_or_else(|| Defaults::of(error.client_status(status)).anthropic);
    json!({"type": "error", "error": {"type": kind, "message": error.message}})
}

impl UpstreamAnswer<'_> {
    /// Returns the error that the response contains, sanitized.
    pub fn diagnosis(&self) -> StreamError {
        let body = self.body.trim_ascii();
        let json = match body.first() {
            Some(b'{' | b'[' | b'"') => serde_json::from_slice::<Value>(body).ok(),
            Some(_) if body.starts_with(b"data:") || body.starts_with(b"event:") => {
                let end = crate::sse::Blocks::default().find(self.body).unwrap_or(self.body.len());
                let data = crate::sse::data_of(self.body.get(..end).unwrap_or_default()).text;
                data.and_then(|data| serde_json::from_slice(&data).ok())
            }
            Some(_) | None => None,
        };
        let read = match &json {
            Some(Value::String(text)) => Some(StreamError::of_words(text.clone())),
            Some(document) => StreamError::of_document(document),
            None => None,
        };
        let read = read.filter(|error| !error.message.trim().is_empty());
        let error = read.unwrap_or_else(|| StreamError::of_words(self.excerpt()));
        error.sanitized(self.secrets)
    }

    /// Returns a message for a body that is not a JSON error.
    fn excerpt(&self) -> String {
        let status = self.status;
        let body = self.body.get(..TEXT_BYTES_MAX).unwrap_or(self.body);
        let text = String::from_utf8_lossy(body);
        let is_html = self.content_type.is_some_and(|kind| kind.to_ascii_lowercase().contains("html"))
            || text.trim_start().starts_with('<');
        let excerpt = if is_html { title(&text).unwrap_or_default() } else { text.into_owned() };
        let excerpt = excerpt.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_binary = excerpt.contains(|c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER);
        if excerpt.is_empty() || is_binary {
            return format!("The upstream answered with status {status}.");
        }
        // Sanitized before it is cut: a cut through a credential would prevent its detection.
        let excerpt = clean(&excerpt, self.secrets, EXCERPT_BYTES_MAX);
        format!("The upstream answered with status {status}: {excerpt}")
    }
}

/// Returns the title of an HTML page.
fn title(html: &str) -> Option<String> {
    let lower = html.to_ascii_lowercase();
    let after = lower.find("<title").and_then(|at| Some(at + lower.get(at..)?.find('>')? + 1))?;
    let end = lower.get(after..)?.find('<')?;
    html.get(after..after.checked_add(end)?).map(str::to_owned)
}

/// The default types and code of a status, used when the upstream sends none.
struct Defaults {
    kind: &'static str,
    code: Option<&'static str>,
    anthropic: &'static str,
}

impl Defaults {
    fn of(status: u16) -> Self {
        let fallback = ErrorKind::UpstreamStatus.row();
        let (kind, code, anthropic) = match status {
            401 => ("authentication_error", None, "authentication_error"),
            402 => ("billing_error", None, "billing_error"),
            403 => ("permission_error", None, "permission_error"),
            404 => ("invalid_request_error", None, "not_found_error"),
            413 => ("invalid_request_error", Some("request_too_large"), "request_too_large"),
            429 => ("rate_limit_error", Some("rate_limit_exceeded"), "rate_limit_error"),
            408 | 504 => (fallback.kind, Some("timeout"), "timeout_error"),
            400..=499 => ("invalid_request_error", None, "invalid_request_error"),
            503 | 529 => (fallback.kind, Some("overloaded"), "overloaded_error"),
            _ => (fallback.kind, Some(fallback.code), fallback.anthropic),
        };
        Self { kind, code, anthropic }
    }
}
