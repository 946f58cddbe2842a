//! Reads upstream errors of any shape.

use serde_json::{Map, Value, json};
use shared::sanitize::diagnostic;

use super::{EnvelopeFamily, nested};
use crate::finish_word::FailedEnd;

/// The maximum length of a message that is passed on, in bytes.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;
/// The maximum length of a type, code or param that is passed on, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// The maximum length of details, as JSON, that are passed on, in bytes; longer ones are omitted.
const DETAILS_BYTES_MAX: usize = 4 * 1024;

/// An error that an upstream reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamError {
    /// The message for a person. Never empty if read from a document.
    pub message: String,
    /// Its `type`, or the vendor's equivalent.
    pub kind: Option<String>,
    /// Its `code`; a number is converted to text.
    pub code: Option<String>,
    /// The member of the request that the error refers to.
    pub param: Option<String>,
    /// The HTTP status, given explicitly or derived from the type and code.
    pub status: Option<u16>,
    /// Anthropic's `details`: the stable cause, by which its SDKs choose an exception or a different retry.
    pub details: Option<Box<Value>>,
    /// Other members with a diagnosis: OpenRouter's `metadata`, Azure's `innererror` and Google's list of `details`.
    pub nested: Option<Box<Map<String, Value>>>,
}

impl StreamError {
    /// The message for an error that is too large, or nested too deeply, to be read.
    pub(crate) const UNREADABLE: &str = "The upstream sent an error that is too large to pass on.";

    /// Returns an error of which only the message is known.
    pub fn of_words(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    /// Returns the error for an answer of the upstream that cannot be used.
    pub(crate) fn of_bad_answer(message: &str) -> Self {
        Self { status: Some(502), ..Self::of_words(message) }
    }

    /// Returns the error for a stream that is not in the target's dialect. `why` completes the sentence.
    pub(crate) fn unreadable_stream(why: &str) -> Self {
        Self {
            message: format!("The upstream's stream is invalid: {why}."),
            kind: Some("server_error".to_owned()),
            code: Some("upstream_invalid_response".to_owned()),
            status: Some(502),
            ..Self::default()
        }
    }

    /// Returns the error for an answer that ended as a failure with this `word`. `words` are the vendor's own about it;
    /// they may be empty.
    pub(crate) fn of_failed_end(end: &FailedEnd, word: &str, words: &str) -> Self {
        let message = format!("{} Finish reason: {word}. {}", end.message, words.trim());
        Self {
            message: message.trim_end().to_owned(),
            code: end.code.map(str::to_owned),
            status: Some(end.status),
            ..Self::default()
        }
    }

    /// Returns the error for a response that the vendor calls incomplete because it failed.
    pub(crate) fn of_failed_response() -> Self {
        let message = "The upstream ended its response with an error.".to_owned();
        Self { message, status: Some(502), ..Self::default() }
    }

    /// True if the official SDKs take the value of an `error` member for an error.
    pub(crate) fn is_error(value: &Value) -> bool {
        is_truthy(value)
    }

    /// Reads a whole JSON error document. `None` if it contains no known error member.
    pub fn of_document(document: &Value) -> Option<Self> {
        match document {
            Value::Array(items) => Self::of_document(items.first()?),
            Value::Object(members) => {
                if let Some(error) = members.get("error").filter(|error| is_truthy(error)) {
                    let mut read = Self::of_member(error);
                    if error.is_string() {
                        // The code, if any, is a sibling of the `error` member.
                        read = Self { message: read.message, ..Self::of_object(members) };
                    }
                    read.status = read.status.or_else(|| status_in(members));
                    return Some(read);
                }
                let detail = members.get("errors").or_else(|| members.get("detail"));
                if let Some(detail) = detail.filter(|detail| is_truthy(detail)) {
                    return Some(Self::of_member(detail));
                }
                message_in(members).map(|_| Self::of_object(members))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    /// Reads an event or a body that may be an error of any shape.
    pub(crate) fn of_odd(document: &[u8]) -> Option<Self> {
        serde_json::from_slice(document).ok().as_ref().and_then(Self::of_document)
    }

    /// Reads the value of an `error`, `errors` or `detail` member.
    pub fn of_member(error: &Value) -> Self {
        match error {
            Value::String(message) => Self { message: message.clone(), ..Self::default() }.with_status(),
            Value::Object(members) => Self::of_object(members),
            Value::Array(items) if !items.is_empty() => {
                let messages: Vec<String> =
                    items.iter().take(8).map(|item| Self::of_member(item).message).collect();
                let first = items.first().map(Self::of_member).unwrap_or_default();
                Self { message: messages.join("; "), ..first }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                Self { message: format!("The upstream answered with an error: {error}"), ..Self::default() }
            }
        }
    }

    fn of_object(members: &Map<String, Value>) -> Self {
        let text = |names: &[&str]| names.iter().find_map(|name| word(members.get(*name)?));
        let read = Self {
            message: message_in(members).unwrap_or_else(|| Value::from(members.clone()).to_string()),
            kind: text(&["type", "__type"])
                .filter(|kind| kind != "error")
                .or_else(|| members.get("status").and_then(Value::as_str).map(str::to_owned)),
            code: text(&["code"]),
            param: text(&["param"]),
            status: status_in(members),
            details: members.get("details").filter(|details| details.is_object()).cloned().map(Box::new),
            nested: nested::members(members),
        };
        nested::with_diagnosis(read, members).with_status()
    }

    fn with_status(mut self) -> Self {
        self.status = self.status.or_else(|| {
            let words = [self.code.as_deref(), self.kind.as_deref()];
            words.into_iter().flatten().find_map(meant_status)
        });
        self
    }

    /// Returns the error without credentials and with its texts cut to their maximum lengths.
    pub fn sanitized(&self, known: &[&str]) -> Self {
        let name = |text: &Option<String>| text.as_deref().map(|text| clean(text, known, NAME_BYTES_MAX));
        Self {
            message: clean(&self.message, known, MESSAGE_BYTES_MAX),
            kind: name(&self.kind),
            code: name(&self.code),
            param: name(&self.param),
            status: self.status,
            details: self.details.clone().and_then(|mut details| {
                sanitize_value(&mut details, known);
                (details.to_string().len() <= DETAILS_BYTES_MAX).then_some(details)
            }),
            nested: self.nested.as_deref().and_then(|nested| {
                let mut nested = Value::from(nested.clone());
                sanitize_value(&mut nested, known);
                let is_short = nested.to_string().len() <= DETAILS_BYTES_MAX;
                nested.as_object().filter(|_| is_short).cloned().map(Box::new)
            }),
        }
    }

    /// Returns the error with Anthropic's types replaced by OpenAI's equivalents. Other types are kept.
    pub(crate) fn in_open_ai_words(&self) -> Self {
        let kind = match self.kind.as_deref() {
            Some("not_found_error" | "request_too_large" | "conflict_error") => "invalid_request_error",
            Some("billing_error") => "insufficient_quota",
            Some("api_error" | "overloaded_error" | "timeout_error") => "server_error",
            Some(_) | None => return self.clone(),
        };
        Self {
            kind: Some(kind.to_owned()),
            code: self.code.clone().or_else(|| self.kind.clone()),
            ..self.clone()
        }
    }

    /// Returns the error as OpenAI's SDKs expect it.
    pub(crate) fn to_value(&self) -> Value {
        let error = self.in_words_of(EnvelopeFamily::OpenAi, self.status.unwrap_or(500));
        let kind = error.kind.as_deref().unwrap_or("server_error");
        json!({"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}})
    }
}

/// Returns `text` without credentials, cut to about `bytes_max`.
pub(super) fn clean(text: &str, known: &[&str], bytes_max: usize) -> String {
    let clean = diagnostic(text, known);
    if clean.len() <= bytes_max {
        return clean.into_owned();
    }
    let end = (0..=bytes_max).rev().find(|&at| clean.is_char_boundary(at)).unwrap_or(0);
    format!("{}…", clean.get(..end).unwrap_or_default())
}

/// Sanitizes every text in `value`, member names included. Returns true if a text changed.
pub(crate) fn sanitize_value(value: &mut Value, known: &[&str]) -> bool {
    match value {
        Value::String(text) => match diagnostic(text, known) {
            std::borrow::Cow::Borrowed(_) => false,
            std::borrow::Cow::Owned(clean) => {
                *text = clean;
                true
            }
        },
        Value::Array(items) => {
            let mut changed = false;
            for item in items {
                changed |= sanitize_value(item, known);
            }
            changed
        }
        Value::Object(members) => {
            let mut changed = false;
            for item in members.values_mut() {
                changed |= sanitize_value(item, known);
            }
            if members.keys().any(|key| matches!(diagnostic(key, known), std::borrow::Cow::Owned(_))) {
                let named = std::mem::take(members).into_iter();
                *members = named.map(|(key, item)| (diagnostic(&key, known).into_owned(), item)).collect();
                changed = true;
            }
            changed
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn message_in(members: &Map<String, Value>) -> Option<String> {
    const NAMES: [&str; 10] = [
        "message",
        "msg",
        "detail",
        "error",
        "error_message",
        "error_msg",
        "err_msg",
        "Message",
        "error_description",
        "title",
    ];
    NAMES.iter().find_map(|name| match members.get(*name)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Object(inner) => message_in(inner),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    })
}

fn status_in(members: &Map<String, Value>) -> Option<u16> {
    ["code", "status", "status_code", "http_status"].iter().find_map(|name| {
        let status = u16::try_from(members.get(*name)?.as_u64()?).ok()?;
        (400..=599).contains(&status).then_some(status)
    })
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// True if the official SDKs treat the value as an error.
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is) => *is,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// Returns the HTTP status for a vendor's type or code.
fn meant_status(word: &str) -> Option<u16> {
    let word = word.to_ascii_lowercase();
    let has = |part: &str| word.contains(part);
    let rows: [(bool, u16); 12] = [
        (word.len() == 3 && (has("4") || has("5")), word.parse().unwrap_or(0)),
        (has("rate_limit") || has("quota") || has("resource_exhausted") || has("too_many"), 429),
        (has("throttl"), 429),
        (word == "requests" || word == "tokens", 429),
        (has("overloaded") || has("unavailable") || has("capacity"), 503),
        (has("timeout") || has("deadline"), 504),
        (has("authentication") || has("invalid_api_key") || has("unauthenticated"), 401),
        (has("permission") || has("forbidden") || has("accessdenied"), 403),
        (has("not_found") || has("notfound"), 404),
        (has("validationexception") || has("failed_precondition") || has("out_of_range"), 400),
        (
            has("invalid_request") || has("invalid_argument") || has("bad_request") || has("context_length"),
            400,
        ),
        (has("server_error") || has("api_error") || has("internal"), 500),
    ];
    rows.iter().find(|(fits, status)| *fits && (400..=599).contains(status)).map(|(_, status)| *status)
}
