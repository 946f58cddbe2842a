//! Error bodies for clients. Every error that the gateway sends is built here, in one of two envelopes, and all
//! upstream text in it is sanitized.

mod diagnosis;
mod google;
mod nested;
mod upstream;
mod wording;

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use shared::error_kind::ErrorRow;
use shared::operation::Dialect;

pub use diagnosis::StreamError;
pub(crate) use diagnosis::sanitize_value;
pub(crate) use google::{google_event, google_frame, google_stream_error, google_trouble};
pub use upstream::{UpstreamAnswer, diagnosed, upstream_error, with_error_type};

/// The error envelope that a client expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvelopeFamily {
    /// `{"error":{"message","type","code","param","request_id"}}`
    OpenAi,
    /// `{"type":"error","error":{"type","message","details"?},"request_id"}`
    Anthropic,
    /// `{"error":{"code","message","status","details"}}`
    Google,
}

/// An error that the gateway itself reports.
#[derive(Clone, Copy, Debug)]
pub struct GatewayError<'a> {
    /// The row of its kind.
    pub row: ErrorRow,
    /// The message, sent to the client unchanged.
    pub message: &'a str,
    /// The member of the request that it refers to.
    pub param: Option<&'a str>,
    /// The time after which a retry may succeed.
    pub retry_after: Option<Duration>,
    /// The name of the quota that is used up, which contains its window.
    pub quota: Option<&'a str>,
    /// The request's id.
    pub request_id: &'a str,
}

impl<'a> GatewayError<'a> {
    /// Returns an error of which only the row and the message are known.
    pub fn new(row: ErrorRow, message: &'a str) -> Self {
        Self { row, message, param: None, retry_after: None, quota: None, request_id: "" }
    }
}

impl EnvelopeFamily {
    /// Returns the envelope of a dialect.
    pub fn of(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Messages => Self::Anthropic,
            Dialect::Gemini | Dialect::GeminiEmbeddings => Self::Google,
            Dialect::Chat
            | Dialect::Responses
            | Dialect::Embeddings
            | Dialect::Speech
            | Dialect::Transcription
            | Dialect::Images
            | Dialect::Videos
            | Dialect::Bedrock => Self::OpenAi,
        }
    }

    /// Returns the status for a client of this family.
    pub fn client_status(self, status: u16) -> u16 {
        match self {
            Self::OpenAi | Self::Anthropic => status,
            Self::Google => google::client_status(status),
        }
    }
}

/// Returns the body of an error that the gateway itself reports.
pub fn error_body(family: EnvelopeFamily, error: &GatewayError<'_>) -> Bytes {
    let GatewayError { row, message, param, request_id, .. } = *error;
    match family {
        EnvelopeFamily::OpenAi => open_ai(message, &row.kind.into(), &row.code.into(), param, request_id),
        EnvelopeFamily::Anthropic => anthropic(message, row.anthropic, details_of(param), request_id),
        EnvelopeFamily::Google => google::body(error).to_string().into(),
    }
}

/// Returns an error as an event of a chat stream. No `[DONE]` may follow it.
pub fn chat_stream_error(row: ErrorRow, message: &str, request_id: &str) -> Bytes {
    let error = GatewayError { request_id, ..GatewayError::new(row, message) };
    let body = error_body(EnvelopeFamily::OpenAi, &error);
    [b"data: ".as_slice(), &body, b"\n\n"].concat().into()
}

/// Returns an error as an event of a Messages stream. No `message_stop` may follow it.
pub(crate) fn messages_stream_error(row: ErrorRow, message: &str, request_id: &str) -> Bytes {
    let error = GatewayError { request_id, ..GatewayError::new(row, message) };
    let body = error_body(EnvelopeFamily::Anthropic, &error);
    [b"event: error\ndata: ".as_slice(), &body, b"\n\n"].concat().into()
}

/// Returns a sanitized upstream error as an event of a Messages stream.
pub(crate) fn error_event(error: &StreamError) -> Bytes {
    named_event("error", &upstream::anthropic_error(error).to_string())
}

/// Formats a named event. `data` must not contain a line end.
pub(crate) fn named_event(name: &str, data: &str) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// Formats `value` as an event without a name.
pub(crate) fn event_of(value: &Value) -> Bytes {
    format!("data: {value}\n\n").into()
}

fn open_ai(message: &str, kind: &Value, code: &Value, param: Option<&str>, request_id: &str) -> Bytes {
    open_ai_with(Map::new(), (message, kind, code), param, request_id)
}

/// Returns an error in OpenAI's envelope that also has the members of `error`.
fn open_ai_with(
    mut error: Map<String, Value>,
    (message, kind, code): (&str, &Value, &Value),
    param: Option<&str>,
    request_id: &str,
) -> Bytes {
    error.insert("message".to_owned(), message.into());
    error.insert("type".to_owned(), kind.clone());
    error.insert("param".to_owned(), param.into());
    error.insert("code".to_owned(), code.clone());
    error.insert("request_id".to_owned(), request_id.into());
    json!({ "error": error }).to_string().into()
}

fn anthropic(message: &str, kind: &str, details: Option<Value>, request_id: &str) -> Bytes {
    let mut error = Map::new();
    error.insert("type".to_owned(), kind.into());
    error.insert("message".to_owned(), message.into());
    if let Some(details) = details {
        error.insert("details".to_owned(), details);
    }
    json!({"type": "error", "error": error, "request_id": request_id}).to_string().into()
}

/// Returns the details that Anthropic's SDKs need in order to continue without a member that cannot be translated:
/// their tool runners use a thread unless an error reports that threads are unsupported, and then send the whole
/// conversation.
fn details_of(param: Option<&str>) -> Option<Value> {
    param
        .filter(|param| *param == "thread")
        .map(|_| json!({"error_code": "thread_unsupported_request", "unsupported": ["thread"]}))
}

#[cfg(test)]
mod tests;
