//! The three allowlists of keys and projects, validated on input.

use std::collections::BTreeSet;

use shared::id::is_name;
use shared::operation::Operation;

use super::ApiError;
use crate::change::FieldChange;
use crate::command::allowlist::AllowlistEdit;

/// The allowlists as a client sends them.
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
                .ok_or("'provider/model', or 'provider/*' for all of a provider")
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
        return Err(ApiError::parameter(field, format!("{field} takes up to {ENTRIES_MAX} entries.")));
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
        "one of chat_completions, responses, messages, count_tokens, embeddings, transcription, speech, images, \
         videos, models",
    )
}

const ENTRIES_MAX: usize = 1_000;
const MODEL_BYTES_MAX: usize = 512;
const SHOWN_CHARS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_about_routes_names_them_all() {
        let advice = operation("no such route").unwrap_err();
        let listed: Vec<&str> = advice.trim_start_matches("one of ").split(", ").collect();
        assert_eq!(listed, Operation::GRANTABLE.map(Operation::name));
    }

    #[test]
    fn model_entries_are_told_from_others() {
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
