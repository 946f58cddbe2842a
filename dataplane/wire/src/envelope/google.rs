//! Google's error envelope, `{"error":{"code","message","status","details"}}`, and its form in streams. Gemini's clients
//! choose a retry, its delay, or another model by the details.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use shared::error_kind::ErrorRow;

use super::{EnvelopeFamily, GatewayError, StreamError};

/// The prefix of the types of details.
const TYPE: &str = "type.googleapis.com/google.rpc.";
/// The domain of reasons that are the gateway's own.
const DOMAIN: &str = "llmgw";

/// Returns the body of an error that the gateway itself reports.
pub(super) fn body(error: &GatewayError<'_>) -> Value {
    let mut details = vec![reason(error.row.code, error.request_id)];
    if let Some(param) = error.param {
        details.push(violation(param, error.message));
    }
    if let Some(quota) = error.quota {
        let violation = json!({"quotaId": quota, "quotaMetric": format!("{DOMAIN}/{quota}")});
        details.push(json!({"@type": type_of("QuotaFailure"), "violations": [violation]}));
    }
    details.extend(error.retry_after.map(retry));
    envelope(error.row.status, None, error.message, details)
}

/// Returns the body of a sanitized upstream error with this status for the client. Google's own details are kept.
pub(super) fn upstream(
    status: u16,
    error: &StreamError,
    retry_after: Option<Duration>,
    request_id: &str,
) -> Value {
    let theirs = error.nested.as_ref().and_then(|nested| nested.get("details")).and_then(Value::as_array);
    let mut details = theirs.cloned().unwrap_or_default();
    if details.is_empty() {
        details.push(reason(error.code.as_deref().unwrap_or("upstream_error"), request_id));
        details.extend(error.param.as_deref().map(|param| violation(param, &error.message)));
    }
    let has_retry = details.iter().any(|detail| detail["@type"] == type_of("RetryInfo"));
    details.extend(retry_after.filter(|_| !has_retry).map(retry));
    let word = error.kind.as_deref().filter(|kind| is_status(kind));
    envelope(status, word, &error.message, details)
}

/// Returns a sanitized upstream error as an event of a stream.
pub(crate) fn google_stream_error(error: &StreamError) -> Bytes {
    let status = error.status.unwrap_or(500);
    let error = error.in_words_of(EnvelopeFamily::Google, status);
    let status = error.client_status(status);
    google_event(&upstream(status, &error, None, ""))
}

/// Returns a failure that the gateway detected as an event of a stream.
pub(crate) fn google_trouble(row: ErrorRow, message: &str, request_id: &str) -> Bytes {
    google_event(&body(&GatewayError { request_id, ..GatewayError::new(row, message) }))
}

/// Formats `value` as an event as Google sends it.
pub(crate) fn google_event(value: &Value) -> Bytes {
    google_frame(&value.to_string()).into()
}

/// Formats one line of JSON as an event as Google sends it. Some SDKs take U+2028 and U+2029 for line ends.
pub(crate) fn google_frame(json: &str) -> String {
    let json = json.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    format!("data: {json}\r\n\r\n")
}

/// Returns the status for a Gemini client, whose SDKs know no 502 and no 529.
pub(super) fn client_status(status: u16) -> u16 {
    if matches!(status, 502 | 529) { 503 } else { status }
}

fn envelope(status: u16, word: Option<&str>, message: &str, details: Vec<Value>) -> Value {
    let code = client_status(status);
    let mut error = Map::new();
    error.insert("code".to_owned(), code.into());
    error.insert("message".to_owned(), message.into());
    error.insert("status".to_owned(), word.unwrap_or_else(|| status_word(code)).into());
    error.insert("details".to_owned(), details.into());
    json!({ "error": error })
}

/// Returns the name of an error code of gRPC for an HTTP status.
fn status_word(status: u16) -> &'static str {
    match status {
        401 => "UNAUTHENTICATED",
        402 | 429 => "RESOURCE_EXHAUSTED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        405 | 501 => "UNIMPLEMENTED",
        408 | 504 => "DEADLINE_EXCEEDED",
        409 => "ABORTED",
        412 | 426 => "FAILED_PRECONDITION",
        499 => "CANCELLED",
        503 => "UNAVAILABLE",
        ..=499 => "INVALID_ARGUMENT",
        500.. => "INTERNAL",
    }
}

/// True if `word` is the name of an error code of gRPC.
fn is_status(word: &str) -> bool {
    word.contains('_') && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
        || matches!(
            word,
            "ABORTED"
                | "CANCELLED"
                | "INTERNAL"
                | "UNAUTHENTICATED"
                | "UNAVAILABLE"
                | "UNIMPLEMENTED"
                | "UNKNOWN"
        )
}

fn reason(code: &str, request_id: &str) -> Value {
    // Google's own word, by which clients recognise a wrong key.
    let reason = match code {
        "invalid_api_key" => "API_KEY_INVALID".to_owned(),
        code => code.to_ascii_uppercase(),
    };
    match request_id {
        "" => json!({"@type": type_of("ErrorInfo"), "reason": reason, "domain": DOMAIN}),
        id => {
            let metadata = json!({ "requestId": id });
            json!({"@type": type_of("ErrorInfo"), "reason": reason, "domain": DOMAIN, "metadata": metadata})
        }
    }
}

fn violation(field: &str, description: &str) -> Value {
    let violation = json!({"field": field, "description": description});
    json!({"@type": type_of("BadRequest"), "fieldViolations": [violation]})
}

fn retry(wait: Duration) -> Value {
    let (seconds, ms) = (wait.as_secs(), wait.subsec_millis());
    let delay = if ms == 0 { format!("{seconds}s") } else { format!("{seconds}.{ms:03}s") };
    json!({"@type": type_of("RetryInfo"), "retryDelay": delay})
}

fn type_of(detail: &str) -> String {
    [TYPE, detail].concat()
}
