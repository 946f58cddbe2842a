//! Validation of fields that several resources share.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use shared::characters::needless_invisible;
use shared::clock::unix_ms;
use shared::id::is_name;
use shared::operation::Operation;
use shared::tags::{self, TAGS_MAX};

use super::ApiError;
use super::query::moment;
use crate::common::change::{AllowlistEdit, FieldChange};

/// Validates a display name: 1 to 200 characters on one line, without control characters, and without invisible ones, by
/// which two names could differ that look the same. Trims surrounding spaces.
pub(crate) fn name(field: &str, text: &str) -> Result<String, ApiError> {
    let text = line(field, text)?;
    expect_visible(field, &text)?;
    Ok(text)
}

/// Validates a text: 1 to 200 characters on one line, without control characters. Trims surrounding spaces.
pub(crate) fn line(field: &str, text: &str) -> Result<String, ApiError> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > NAME_CHARS_MAX || text.chars().any(char::is_control) {
        let message = format!(
            "{field} must be 1 to {NAME_CHARS_MAX} characters on one line, without control characters."
        );
        return Err(ApiError::parameter(field, message));
    }
    Ok(text.to_owned())
}

fn expect_visible(field: &str, text: &str) -> Result<(), ApiError> {
    let Some(c) = needless_invisible(text) else { return Ok(()) };
    let message = format!(
        "{field} contains the invisible character U+{:04X}, which may make it look like another one. Remove it.",
        u32::from(c)
    );
    Err(ApiError::parameter(field, message))
}

/// Validates an e-mail address as far as possible without sending mail: a non-empty local part, `@`, and a domain
/// without spaces.
pub(crate) fn email(text: &str) -> Result<String, ApiError> {
    let text = text.trim();
    let parts = text.rsplit_once('@');
    let good = parts.is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty());
    if !good || text.len() > 254 || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(ApiError::parameter("email", "email must be an address such as name@example.com."));
    }
    expect_visible("email", text)?;
    Ok(text.to_owned())
}

/// Validates tags, as a key's requests may have them.
pub(crate) fn tags(
    field: &str,
    tags: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ApiError> {
    let invalid = |why: &str| ApiError::parameter(field, format!("{field} is invalid: {why}."));
    if tags.len() > TAGS_MAX {
        return Err(invalid(&format!("there are more than {TAGS_MAX} tags")));
    }
    for (name, value) in &tags {
        tags::check(name, value).map_err(|why| invalid(&why))?;
    }
    Ok(tags)
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
        return Err(ApiError::parameter(field, format!("{field} must be a time in the future.")));
    }
    Ok(at)
}

/// The three allowlists of a key or project, as a client sends them.
#[derive(Debug)]
pub(super) struct Lists {
    pub(super) models: FieldChange<Vec<String>>,
    pub(super) endpoints: FieldChange<Vec<String>>,
    pub(super) routes: FieldChange<Vec<String>>,
}

impl Lists {
    /// Validates every entry and returns the lists as typed values.
    pub(super) fn check(self) -> Result<AllowlistEdit, ApiError> {
        let models = checked("models", self.models, |entry| {
            is_model(entry)
                .then(|| entry.into())
                .ok_or("'provider/model', or 'provider/*' for all models of a provider")
        })?;
        let endpoints = checked("endpoints", self.endpoints, |entry| {
            is_name(entry).then(|| entry.into()).ok_or("the name of an endpoint")
        })?;
        let routes = checked("routes", self.routes, operation)?;
        Ok(AllowlistEdit {
            models: mapped(models, BTreeSet::from_iter),
            endpoints: mapped(endpoints, BTreeSet::from_iter),
            routes: mapped(routes, |mut routes| {
                routes.sort_by_key(|route| route.name());
                routes.dedup();
                routes
            }),
        })
    }
}

/// Validates the entries of one list and converts each with `check`.
fn checked<T>(
    field: &str,
    list: FieldChange<Vec<String>>,
    check: impl Fn(&str) -> Result<T, &'static str>,
) -> Result<FieldChange<Vec<T>>, ApiError> {
    let FieldChange::Set(entries) = list else { return Ok(mapped(list, |_| Vec::new())) };
    if entries.len() > ENTRIES_MAX {
        return Err(ApiError::parameter(field, format!("{field} must have at most {ENTRIES_MAX} entries.")));
    }
    let check = |entry: &String| {
        check(entry).map_err(|wanted| {
            let shown: String = entry.chars().take(SHOWN_CHARS_MAX).collect();
            ApiError::parameter(field, format!("{field}: '{shown}' is not {wanted}."))
        })
    };
    entries.iter().map(check).collect::<Result<_, _>>().map(FieldChange::Set)
}

fn mapped<T, U>(change: FieldChange<T>, map: impl FnOnce(T) -> U) -> FieldChange<U> {
    match change {
        FieldChange::Keep => FieldChange::Keep,
        FieldChange::Clear => FieldChange::Clear,
        FieldChange::Set(value) => FieldChange::Set(map(value)),
    }
}

/// True if `entry` is a provider id, a slash, and a model id or `*`.
fn is_model(entry: &str) -> bool {
    entry.split_once('/').is_some_and(|(provider, model)| {
        let plain = |c: char| !c.is_control() && !c.is_whitespace();
        is_name(provider) && !model.is_empty() && entry.len() <= MODEL_BYTES_MAX && model.chars().all(plain)
    })
}

fn operation(name: &str) -> Result<Operation, &'static str> {
    Operation::GRANTABLE.into_iter().find(|operation| operation.name() == name).ok_or(
        "one of chat_completions, responses, messages, count_tokens, generate_content, embeddings, transcription, \
         speech, images, videos, models",
    )
}

const NAME_CHARS_MAX: usize = 200;
const ENTRIES_MAX: usize = 1_000;
const MODEL_BYTES_MAX: usize = 512;
const SHOWN_CHARS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_route_error_lists_every_route() {
        let advice = operation("no such route").unwrap_err();
        let listed: Vec<&str> = advice.trim_start_matches("one of ").split(", ").collect();
        assert_eq!(listed, Operation::GRANTABLE.map(Operation::name));
    }

    #[test]
    fn model_entries_of_an_allowlist_are_recognized() {
        for (entry, good) in [
            ("openai/gpt-4o", true),
            ("openai/*", true),
            ("router/org/model:free", true),
            ("gpt-4o", false),
            ("/gpt-4o", false),
            ("openai/", false),
            ("*/*", false),
            ("open ai/x", false),
            ("openai/a b", false),
            ("openai/a\n", false),
        ] {
            assert_eq!(is_model(entry), good, "{entry:?}");
        }
    }
}
