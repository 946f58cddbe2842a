//! Parses provider instances of the database by the same rules as those of the file, and builds the API view of a
//! provider instance from either ([`shown`]).

mod keys;
pub(crate) mod shown;

use std::fmt;
use std::path::Path;

use serde_json::{Map, Value};

use super::env::Environment;
use super::file::Notes;
use super::model::{ConnectionAuth, Provider};
use super::provider::{ProviderReader, WrittenIn, key};
use super::raw;
use super::schema;
use super::yaml::YamlStep;

/// A provider instance in the shape of an entry of the file's `providers`, secrets included.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct WrittenProvider(pub(crate) Map<String, Value>);

impl fmt::Debug for WrittenProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WrittenProvider(••••)")
    }
}

impl WrittenProvider {
    /// Applies `patch`: null removes a field, maps are merged, all other values are replaced (RFC 7396). The mask of a model's
    /// header keeps its value, because the list of models is replaced as a whole.
    pub(crate) fn merge(&mut self, mut patch: Self) {
        patch.keep_headers_of_models(self);
        merge(&mut self.0, patch.0);
    }

    fn keep_headers_of_models(&mut self, before: &Self) {
        for model in self.0.get_mut("models").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(earlier) = model.get("id").and_then(|id| before.headers_of_model(id)) else { continue };
            let headers = model.get_mut("headers").and_then(Value::as_object_mut).into_iter().flatten();
            for (name, value) in headers.filter(|(_, value)| *value == DOTS) {
                let kept = earlier.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
                if let Some((_, kept)) = kept {
                    *value = kept.clone();
                }
            }
        }
    }

    fn headers_of_model(&self, id: &Value) -> Option<&Map<String, Value>> {
        let mut models = self.0.get("models")?.as_array()?.iter();
        models.find(|model| model.get("id") == Some(id))?.get("headers")?.as_object()
    }

    /// Returns the paths of the headers, also of models, whose value is the mask that responses show in place of a secret.
    fn masked_headers(&self) -> impl Iterator<Item = Vec<YamlStep>> {
        let models = self.0.get("models").and_then(Value::as_array).into_iter().flatten().enumerate();
        let of_models = models.filter_map(|(place, model)| {
            Some((vec![key("models"), YamlStep::Item(place)], model.as_object()?))
        });
        std::iter::once((Vec::new(), &self.0)).chain(of_models).flat_map(|(above, settings)| {
            let headers = settings.get("headers").and_then(Value::as_object).into_iter().flatten();
            let masked = headers.filter(|(_, value)| *value == DOTS);
            masked.map(move |(name, _)| [&above[..], &[key("headers"), key(name)]].concat())
        })
    }

    /// Removes null fields, which count as left out.
    pub(crate) fn without_nulls(mut self) -> Self {
        self.0.retain(|_, value| !value.is_null());
        self
    }
}

fn merge(target: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, value) in patch {
        match (value, target.get_mut(&name)) {
            (Value::Null, _) => {
                target.remove(&name);
            }
            (Value::Object(patch), Some(Value::Object(target))) => merge(target, patch),
            (value, _) => {
                target.insert(name, value);
            }
        }
    }
}

/// A fault in one field of the written settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldFault {
    /// The path, as `models[1].prices.input`; empty for the whole.
    pub(crate) field: String,
    pub(crate) message: String,
}

/// Parses the instance called `id` from `written`, or returns all its faults.
pub(crate) fn provider_of(
    id: &str,
    written: &WrittenProvider,
    auth: Option<ConnectionAuth>,
    environment: &Environment,
) -> Result<Provider, Vec<FieldFault>> {
    let place = [key("providers"), key(id)];
    let mut notes = Notes::new(Path::new(""));
    let mut tree = Value::Object(written.0.clone());
    for header in written.masked_headers() {
        let message = "is the placeholder of a secret; send the secret, or omit this header";
        notes.add(&[&place[..], &header].concat(), message);
    }
    let faults = schema::check_provider(&tree);
    notes.take_out(&mut tree, &place, faults);
    let raw: raw::Provider = serde_json::from_value(tree).unwrap_or_else(|_| {
        notes.add(&place, "does not fit the schema of a provider");
        raw::Provider::default()
    });
    // Discarded: warnings concern what the file tolerates, which is a fault here.
    let mut warnings = Vec::new();
    let reader = ProviderReader {
        id,
        raw: &raw,
        environment,
        notes: &mut notes,
        warnings: &mut warnings,
        place: WrittenIn::Database(auth),
    };
    let provider = reader.read();
    let faults: Vec<_> =
        notes.into_fields(&place).into_iter().map(|(field, message)| FieldFault { field, message }).collect();
    match provider {
        Some(mut provider) if faults.is_empty() => {
            provider.models.sort_by(|a, b| a.id.cmp(&b.id));
            Ok(provider)
        }
        Some(_) | None if !faults.is_empty() => Err(faults),
        Some(_) | None => {
            let message = "is not complete".to_owned();
            Err(vec![FieldFault { field: String::new(), message }])
        }
    }
}

pub(crate) use keys::{API_KEY, API_KEYS};

/// The mask shown in place of a secret.
pub(crate) const DOTS: &str = "••••";

#[cfg(test)]
mod tests;
