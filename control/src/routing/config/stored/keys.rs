//! The keys of a written provider instance, if it has several: a patch names those that it keeps by their IDs, because their
//! texts are never shown.

use serde_json::{Map, Value, json};
use shared::id::CredentialNumber;

use super::{FieldFault, WrittenProvider};

/// The member with one key, and the one with several.
pub(crate) const API_KEY: &str = "api_key";
pub(crate) const API_KEYS: &str = "api_keys";

impl WrittenProvider {
    /// Resolves the list of keys of a patch for `before`: `{"id"}` stands for the key of that ID, a text or `{"key"}` adds
    /// one. A list that leaves one key becomes `api_key`; either member replaces the other.
    pub(crate) fn resolve_keys(&mut self, before: &mut Self) -> Result<(), FieldFault> {
        let known = before.known_keys();
        if let Some(Value::Array(items)) = self.0.get(API_KEYS) {
            let mut keys = resolved(items, &known)?;
            if let ([only], false) = (&mut *keys, known.is_empty())
                && let Some(key) = only.get_mut("key").map(Value::take)
            {
                self.0.insert(API_KEYS.to_owned(), Value::Null);
                self.0.insert(API_KEY.to_owned(), key);
            } else {
                self.0.insert(API_KEYS.to_owned(), Value::Array(keys));
            }
        }
        let sets = |name: &str| self.0.get(name).is_some_and(|value| !value.is_null());
        for (one, other) in [(API_KEY, API_KEYS), (API_KEYS, API_KEY)] {
            if sets(one) && !sets(other) {
                before.0.remove(other);
            }
        }
        Ok(())
    }

    /// Returns the ID and the text of each key. A single key is `c1`.
    fn known_keys(&self) -> Vec<(CredentialNumber, String)> {
        let listed = self.0.get(API_KEYS).and_then(Value::as_array);
        let listed = listed.into_iter().flatten().filter_map(|item| {
            let number = item.get("id").and_then(Value::as_str).and_then(CredentialNumber::named)?;
            Some((number, item.get("key")?.as_str()?.to_owned()))
        });
        let single =
            self.0.get(API_KEY).and_then(Value::as_str).map(|key| (CredentialNumber(1), key.to_owned()));
        listed.chain(single).collect()
    }
}

/// Returns the keys of a list with their IDs; new ones get the numbers after the highest.
fn resolved(items: &[Value], known: &[(CredentialNumber, String)]) -> Result<Vec<Value>, FieldFault> {
    let written = items.iter().filter_map(|item| CredentialNumber::named(item.get("id")?.as_str()?));
    let known_numbers = known.iter().map(|(number, _)| *number);
    let mut highest = known_numbers.chain(written).map(|number| number.0).max().unwrap_or(0);
    let mut added = |key: &Value| {
        highest = highest.saturating_add(1);
        json!({"id": CredentialNumber(highest), "key": key})
    };
    let resolve = |(place, item): (usize, &Value)| match item {
        Value::String(_) => Ok(added(item)),
        Value::Object(members) if members.contains_key("key") && !members.contains_key("id") => {
            Ok(added(members.get("key").unwrap_or(&Value::Null)))
        }
        Value::Object(members) if !members.contains_key("key") => kept(place, members, known),
        // The schema describes what is wrong with others.
        other => Ok(other.clone()),
    };
    items.iter().enumerate().map(resolve).collect()
}

fn kept(
    place: usize,
    members: &Map<String, Value>,
    known: &[(CredentialNumber, String)],
) -> Result<Value, FieldFault> {
    let id = members.get("id").and_then(Value::as_str).unwrap_or_default();
    let found = known.iter().find(|(number, _)| CredentialNumber::named(id) == Some(*number));
    let (number, key) = found.ok_or_else(|| {
        let ids: Vec<String> = known.iter().map(|(number, _)| number.to_string()).collect();
        let ids = if ids.is_empty() { "none".to_owned() } else { ids.join(", ") };
        let message =
            format!("names no key of this provider (it has {ids}); add a key with {{\"key\": \"...\"}}");
        FieldFault { field: format!("{API_KEYS}[{place}].id"), message }
    })?;
    Ok(json!({"id": number, "key": key}))
}
