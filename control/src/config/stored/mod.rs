//! Parses provider instances of the database by the same rules as those of the file, and builds the API view of a
//! provider instance from either.

use std::fmt;
use std::path::Path;

use serde_json::{Map, Value, json};
use shared::operation::Dialect;
use shared::provider::{Inside, Reach};
use shared::routing::{EchoOptions, HttpVersion, Model};

use super::env::Environment;
use super::file::Notes;
use super::model::{ConnectionAuth, Provider};
use super::provider::{ProviderReader, WrittenIn, key};
use super::raw;
use super::schema;

/// A provider instance in the shape of an entry of the file's `providers`, secrets included.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct WrittenProvider(pub(crate) Map<String, Value>);

impl fmt::Debug for WrittenProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WrittenProvider(••••)")
    }
}

impl WrittenProvider {
    /// Applies `patch`: null removes a field, maps are merged, all other values are replaced (RFC 7396).
    pub(crate) fn merge(&mut self, patch: Self) {
        merge(&mut self.0, patch.0);
    }

    /// Returns the headers whose value is the mask that responses show in place of a secret.
    fn masked_headers(&self) -> impl Iterator<Item = &str> {
        let headers = self.0.get("headers").and_then(Value::as_object).into_iter().flatten();
        headers.filter(|(_, value)| *value == DOTS).map(|(name, _)| name.as_str())
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
        notes.add(&[&place[..], &[key("headers"), key(header)]].concat(), message);
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

/// Returns the effective settings of an instance, without its secrets.
pub(crate) fn shown_provider(provider: &Provider) -> Map<String, Value> {
    let mut shown = Map::new();
    let mut put = |name: &str, value: Value| shown.insert(name.to_owned(), value);
    put("type", json!(provider.kind.name));
    put("registry_id", json!(provider.registry_id));
    put("base_url", json!(provider.base_url));
    put("timeout", json!(provider.timeout.as_secs_f64()));
    put("stream_idle_timeout", json!(provider.stream_idle_timeout.as_secs_f64()));
    put("region", json!(provider.region));
    put("project", json!(provider.project));
    put("location", json!(provider.location));
    put("api_version", json!(provider.api_version));
    put("default_voice", json!(provider.default_voice));
    put("disabled", json!(provider.disabled));
    put("force_api_support", json!(provider.force_api_support));
    put("models", provider.models.iter().map(|shown| model(shown)).collect());
    let headers = provider.headers.iter().map(|(name, _)| (name.to_string(), json!(DOTS)));
    put("headers", headers.collect());
    put("protocols", dialects(&provider.dialects));
    let version = provider.origin.as_ref().map(|origin| match origin.http {
        HttpVersion::Auto => "auto",
        HttpVersion::Http1 => "1.1",
        HttpVersion::Http2 => "2",
    });
    put("http_version", json!(version));
    if matches!(provider.kind.reach, Reach::InProcess(Inside::Echo)) {
        put("echo", echo(&provider.echo));
    }
    shown
}

fn model(model: &Model) -> Value {
    let known = [
        ("display_name", json!(model.display_name)),
        ("vision", json!(model.vision)),
        ("tools", json!(model.tools)),
        ("reasoning", json!(model.reasoning)),
        ("protocols", model.dialects.as_deref().map_or(Value::Null, dialects)),
        (
            "lacks",
            Some(&model.lacks).filter(|lacks| !lacks.is_empty()).map_or(Value::Null, |lacks| json!(lacks)),
        ),
        ("context_window", json!(model.context_window)),
        ("max_output_tokens", json!(model.output_tokens_max)),
        ("prices", json!(model.prices)),
    ];
    let mut shown = Map::from_iter([("id".to_owned(), json!(model.id))]);
    let known = known.into_iter().filter(|(_, value)| !value.is_null());
    shown.extend(known.map(|(name, value)| (name.to_owned(), value)));
    Value::Object(shown)
}

fn dialects(dialects: &[Dialect]) -> Value {
    dialects.iter().map(|dialect| dialect.name()).collect()
}

fn echo(echo: &EchoOptions) -> Value {
    json!({
        "delay_ms": u64::try_from(echo.delay.as_millis()).unwrap_or(u64::MAX),
        "chunk_delay_ms": u64::try_from(echo.chunk_delay.as_millis()).unwrap_or(u64::MAX),
        "status": echo.status,
        "retry_after": echo.retry_after,
        "cut_after_chunks": echo.cut_after_chunks,
        "error_after_chunks": echo.error_after_chunks,
        "fail_every": echo.fail_every,
        "hang": echo.hang,
    })
}

/// The mask shown in place of a secret.
pub(crate) const DOTS: &str = "••••";

#[cfg(test)]
mod tests;
