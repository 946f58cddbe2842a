//! Diagnoses inside of errors: what a vendor behind an aggregator said, which filter refused, which field is wrong.

use serde_json::{Map, Value};

use super::diagnosis::StreamError;

/// The members that contain a diagnosis.
const MEMBERS: [&str; 3] = ["metadata", "innererror", "details"];
/// The maximum number of Google's details, or of their violations, that are read.
const ITEMS_MAX: usize = 8;
/// The maximum length of JSON in a text that is read, in bytes.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Returns the members of an error that contain a diagnosis, for clients that read them. Anthropic's `details` have a
/// place of their own.
pub(super) fn members(error: &Map<String, Value>) -> Option<Box<Map<String, Value>>> {
    let is_nested = |value: &Value| value.is_object() || value.is_array();
    let found = MEMBERS.into_iter().filter_map(|name| Some((name, error.get(name)?)));
    let found = found.filter(|(name, value)| is_nested(value) && !(*name == "details" && value.is_object()));
    let members: Map<String, Value> = found.map(|(name, value)| (name.to_owned(), value.clone())).collect();
    (!members.is_empty()).then(|| Box::new(members))
}

/// Adds the diagnosis inside of `error`, whose members are `members`, to its message and its names.
pub(super) fn with_diagnosis(error: StreamError, members: &Map<String, Value>) -> StreamError {
    let error = match in_text(&error.message) {
        Some(inner) => names_of(StreamError { message: inner.message.clone(), ..error }, &inner),
        None => error,
    };
    let error = with_provider(error, members.get("metadata"));
    let error = with_filters(error, members.get("innererror"));
    match members.get("details") {
        Some(Value::Array(details)) => with_google(error, details),
        Some(_) | None => error,
    }
}

/// Returns the error that a text contains as JSON.
fn in_text(text: &str) -> Option<StreamError> {
    let text = text.trim();
    let is_json = text.len() <= TEXT_BYTES_MAX && text.starts_with(['{', '[']);
    let document: Value = serde_json::from_str(text).ok().filter(|_| is_json)?;
    StreamError::of_document(&document)
}

/// OpenRouter: `raw` is the answer of the provider behind it, which `provider_name` names.
fn with_provider(error: StreamError, metadata: Option<&Value>) -> StreamError {
    let Some(Value::Object(metadata)) = metadata else { return error };
    let inner = match metadata.get("raw") {
        Some(Value::String(text)) if !text.trim().is_empty() => {
            in_text(text).unwrap_or_else(|| StreamError::of_words(text.trim()))
        }
        Some(raw @ Value::Object(_)) => StreamError::of_document(raw).unwrap_or_default(),
        Some(_) | None => StreamError::default(),
    };
    let provider = metadata.get("provider_name").and_then(Value::as_str).unwrap_or_default();
    let message = match (provider, inner.message.as_str()) {
        ("", "") => return error,
        ("", words) => format!("{}: {words}", error.message),
        (provider, "") => format!("{} ({provider})", error.message),
        (provider, words) => format!("{} ({provider}): {words}", error.message),
    };
    names_of(StreamError { message, ..error }, &inner)
}

/// Azure: the filters that refused, and how sure they were.
fn with_filters(error: StreamError, inner: Option<&Value>) -> StreamError {
    let Some(Value::Object(inner)) = inner else { return error };
    let results = inner.get("content_filter_result").or_else(|| inner.get("content_filter_results"));
    let refused = results.and_then(Value::as_object).into_iter().flatten();
    let refused = refused.filter(|(_, result)| result.get("filtered").and_then(Value::as_bool) == Some(true));
    let refused: Vec<String> = refused
        .take(ITEMS_MAX)
        .map(|(filter, result)| match result.get("severity").and_then(Value::as_str) {
            Some(severity) => format!("{filter} ({severity})"),
            None => filter.clone(),
        })
        .collect();
    let code = error.code.clone().or_else(|| inner.get("code").and_then(Value::as_str).map(str::to_owned));
    match refused.as_slice() {
        [] => StreamError { code, ..error },
        refused => {
            let message = format!("{} Filtered: {}.", error.message, refused.join(", "));
            StreamError { message, code, ..error }
        }
    }
}

/// Google: the fields that are wrong, and the reason as a stable name.
fn with_google(error: StreamError, details: &[Value]) -> StreamError {
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let mut said = Vec::new();
    let mut reason = None;
    for detail in details.iter().take(ITEMS_MAX) {
        reason = reason.or_else(|| text(detail, "reason"));
        let violations = ["fieldViolations", "violations"].into_iter().filter_map(|name| detail.get(name));
        for violation in violations.filter_map(Value::as_array).flatten().take(ITEMS_MAX) {
            let subject = text(violation, "field").or_else(|| text(violation, "quotaMetric"));
            let description = text(violation, "description").or_else(|| text(violation, "quotaId"));
            said.extend(match (subject, description) {
                (Some(subject), Some(description)) => Some(format!("{subject}: {description}")),
                (subject, description) => description.or(subject),
            });
        }
    }
    said.retain(|words| !error.message.contains(words.as_str()));
    let code = reason.or_else(|| error.code.clone());
    match said.as_slice() {
        [] => StreamError { code, ..error },
        said => StreamError { message: format!("{} ({})", error.message, said.join("; ")), code, ..error },
    }
}

/// Takes the names of the inner error where the outer one has only its status.
fn names_of(error: StreamError, inner: &StreamError) -> StreamError {
    let is_name = |code: &String| code.parse::<u16>().is_err();
    let code = error.code.clone().filter(is_name).or_else(|| inner.code.clone().filter(is_name));
    StreamError {
        code: code.or_else(|| error.code.clone()),
        kind: error.kind.clone().or_else(|| inner.kind.clone()),
        param: error.param.clone().or_else(|| inner.param.clone()),
        ..error
    }
}
