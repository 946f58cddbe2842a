//! `GET /v1/models` and `/v1/models/{id}` (SEL-2, SEL-3, ROUTE-4), in the shape of the client's SDK: OpenAI's, Anthropic's or
//! Google's.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use shared::access::Access;
use shared::error_kind::ErrorKind;
use shared::id::EndpointName;
use shared::operation::Dialect;
use shared::routing::{Model, Target};
use shared::snapshot::{Route, Snapshot};

use crate::error::Fault;
use crate::relay::ResponseBody;
use crate::route::Named;
use crate::route::google::is_google;

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// Lists every selector that the caller may use, or returns the one that the path names.
pub(crate) fn serve(
    snapshot: &Snapshot,
    access: &Access,
    named: Named<'_>,
    request: &Parts,
) -> Result<Response<ResponseBody>, Fault> {
    let shape = match request.headers.contains_key(ANTHROPIC_VERSION) {
        _ if is_google(request) => ModelShape::Google,
        true => ModelShape::Anthropic,
        false => ModelShape::OpenAi,
    };
    let listing = ModelListing { snapshot, access, shape };
    let body = match named {
        Named::Nothing | Named::Call(_) | Named::ResponsesInput | Named::Stored(_) => listing.all(),
        Named::Model(encoded) => {
            let id = percent_decode_str(encoded).decode_utf8().ok();
            let unknown = || Fault::new(ErrorKind::ModelNotFound, "There is no such model.").param("model");
            id.and_then(|id| listing.one(&id)).ok_or_else(unknown)?
        }
    };
    let mut response = Response::new(ResponseBody::full(Bytes::from(body.to_string())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Builds the entries that the caller may see, in the requested shape.
struct ModelListing<'a> {
    snapshot: &'a Snapshot,
    access: &'a Access,
    shape: ModelShape,
}

/// The vendor whose SDK reads the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelShape {
    OpenAi,
    Anthropic,
    Google,
}

impl ModelListing<'_> {
    fn all(&self) -> Value {
        let mut ids: Vec<&str> = self.snapshot.routes.keys().map(|id| &**id).collect();
        ids.sort_unstable();
        let data: Vec<_> = ids.into_iter().filter_map(|id| self.one(id)).collect();
        match self.shape {
            ModelShape::Anthropic => {
                let id = |entry: Option<&Value>| entry.map(|entry| entry["id"].clone());
                let (first, last) = (id(data.first()), id(data.last()));
                json!({"data": data, "has_more": false, "first_id": first, "last_id": last})
            }
            // Without a token of a next page, the list is complete.
            ModelShape::Google => json!({ "models": data }),
            ModelShape::OpenAi => json!({"object": "list", "data": data}),
        }
    }

    fn one(&self, id: &str) -> Option<Value> {
        let route = self.snapshot.routes.get(id)?.usable(self.access)?;
        route.targets().iter().any(|target| self.serves(&route, target)).then(|| self.entry(id, &route))
    }

    /// True if a request by the caller through `route` could be sent to `target` (SEL-2).
    fn serves(&self, route: &Route, target: &Target) -> bool {
        let endpoint = route.endpoint().map(EndpointName::as_str);
        target.provider.unready.is_none() && self.access.refusal(endpoint, target).is_none()
    }

    /// Returns the methods of Google's API that a request through `route` may call.
    fn methods(&self, route: &Route) -> Value {
        let is_served = |dialect: Dialect| {
            route.targets().iter().any(|target| target.serves(dialect) && self.serves(route, target))
        };
        let answers = ["generateContent", "streamGenerateContent", "countTokens"];
        let answers = answers.into_iter().filter(|_| is_served(Dialect::Gemini));
        let embeddings = ["embedContent", "batchEmbedContents"].into_iter();
        answers.chain(embeddings.filter(|_| is_served(Dialect::GeminiEmbeddings))).collect()
    }

    fn entry(&self, id: &str, route: &Route) -> Value {
        let mut entry = Map::new();
        let mut put = |name: &str, value: Value| {
            if !value.is_null() {
                entry.insert(name.to_owned(), value);
            }
        };
        let model = match route {
            Route::Endpoint(_) | Route::Ambiguous(_) => None,
            Route::Model(target) | Route::Alias(target) => Some(&*target.model),
        };
        let name = model.and_then(|model| model.display_name.as_deref());
        if self.shape == ModelShape::Google {
            put("name", json!(format!("models/{id}")));
            put("version", json!(""));
            put("displayName", json!(name.unwrap_or(id)));
            put("inputTokenLimit", json!(model.and_then(|model| model.context_window)));
            put("outputTokenLimit", json!(model.and_then(|model| model.output_tokens_max)));
            put("thinking", json!(model.and_then(|model| model.reasoning)));
            put("supportedGenerationMethods", self.methods(route));
            return Value::Object(entry);
        }
        put("id", json!(id));
        if self.shape == ModelShape::Anthropic {
            put("type", json!("model"));
            put("display_name", json!(name.unwrap_or(id)));
            put("created_at", json!(rfc3339(self.snapshot.created)));
            put("lifecycle", json!("active"));
            put("max_input_tokens", json!(model.and_then(|model| model.context_window)));
            return Value::Object(entry);
        }
        put("object", json!("model"));
        put("created", json!(self.snapshot.created));
        match route {
            Route::Endpoint(endpoint) => {
                put("owned_by", json!("endpoint"));
                let target =
                    |target: &Target| json!({"provider": target.provider.id, "model": target.model.id});
                let serving = endpoint.targets.iter().filter(|target| self.serves(route, target));
                put("failover", serving.map(target).collect());
            }
            Route::Model(target) | Route::Alias(target) => put("owned_by", json!(target.provider.id)),
            Route::Ambiguous(_) => {}
        }
        put("display_name", json!(name));
        if let Some(model) = model {
            known(model, &mut put);
        }
        Value::Object(entry)
    }
}

/// Adds the known properties of a model; unknown ones are omitted, never guessed.
fn known(model: &Model, put: &mut dyn FnMut(&str, Value)) {
    put("context_window", json!(model.context_window));
    if let Some(vision) = model.vision {
        put("input_modalities", if vision { json!(["text", "image"]) } else { json!(["text"]) });
    }
    let capability = |name: &str, has: Option<bool>| (has == Some(true)).then(|| json!(name));
    let capabilities: Vec<_> = [
        capability("vision", model.vision),
        capability("tools", model.tools),
        capability("reasoning", model.reasoning),
    ]
    .into_iter()
    .flatten()
    .collect();
    if model.vision.or(model.tools).or(model.reasoning).is_some() {
        put("capabilities", Value::Array(capabilities));
    }
    if let Some(prices) = &model.prices {
        put("prices", json!(prices));
    }
}

/// Formats seconds since the epoch as RFC 3339 in UTC.
fn rfc3339(seconds: u64) -> String {
    let at = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    at.unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339() {
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_219_199, "2026-11-20T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds), want);
        }
    }
}
