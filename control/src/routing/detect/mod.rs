//! Detects model servers on this machine by requesting the model list on the usual loopback ports.
//!
//! The process that answers is untrusted: its response is bounded, parsed leniently, and only ids that could be
//! configured are returned.

mod first_file;

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use shared::port::{HttpClient, HttpLimits};
use tokio::task::JoinSet;

use crate::common::bounds::DETECTED_MODELS;
use crate::routing::config::{RegistryEntry, is_model_id, registry_entries};

pub use first_file::first_file;

/// A model server that responded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detected {
    /// The id of its registry entry.
    pub registry_id: &'static str,
    /// Its display name.
    pub name: &'static str,
    /// Its base URL.
    pub base_url: &'static str,
    /// The ids of its models, in the order of its response.
    pub models: Vec<String>,
    /// The number of further models.
    pub models_omitted: usize,
}

/// Queries all local servers of the registry concurrently. Skips those that do not respond in time or list no model.
pub async fn local_servers(http: &dyn HttpClient) -> Vec<Detected> {
    let mut probes = JoinSet::new();
    for (place, entry) in registry_entries().iter().filter(|entry| entry.kind == "local_server").enumerate() {
        let Some(base_url) = entry.base_url.as_deref() else { continue };
        let Ok(request) = http::Request::get(format!("{base_url}/models")).body(Bytes::new()) else {
            continue;
        };
        let answer = http.send(request, LIMITS);
        probes.spawn(async move { (place, entry, base_url, answer.await) });
    }
    let mut found = Vec::new();
    while let Some(done) = probes.join_next().await {
        let Ok((place, entry, base_url, Ok(response))) = done else { continue };
        if response.status().is_success() {
            let models = model_ids(response.body());
            if !models.0.is_empty() {
                found.push((place, detected(entry, base_url, models)));
            }
        }
    }
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, detected)| detected).collect()
}

fn detected(
    entry: &'static RegistryEntry,
    base_url: &'static str,
    (models, models_omitted): (Vec<String>, usize),
) -> Detected {
    Detected { registry_id: &entry.id, name: &entry.name, base_url, models, models_omitted }
}

/// Returns the model ids in a list of any of the usual shapes: `{data: [..]}`, `{models: [..]}` or a bare array, of
/// objects with `id`, `model` or `name`, or of plain strings; and the number of those beyond the bound.
fn model_ids(body: &[u8]) -> (Vec<String>, usize) {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else { return (Vec::new(), 0) };
    let list = [answer.get("data"), answer.get("models"), Some(&answer)];
    let list = list.into_iter().flatten().find_map(|list| list.as_array().filter(|list| !list.is_empty()));
    let mut ids: Vec<String> = Vec::new();
    for entry in list.into_iter().flatten() {
        let fields = [entry.get("id"), entry.get("model"), entry.get("name"), Some(entry)];
        let id =
            fields.into_iter().flatten().find_map(Value::as_str).map(|id| id.trim_start_matches("models/"));
        if let Some(id) = id.filter(|id| is_model_id(id) && !ids.iter().any(|earlier| earlier == id)) {
            ids.push(id.to_owned());
        }
    }
    let omitted = DETECTED_MODELS.cut(&mut ids);
    (ids, omitted)
}

const LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_millis(700), body_bytes_max: 1 << 20 };

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use shared::port::{BoxError, BoxFuture};

    use super::*;
    use crate::common::bounds::tests::passes;

    #[test]
    fn model_ids_are_read_from_the_known_shapes_only() {
        let long = "x".repeat(300);
        let cases: &[(&str, &[&str])] = &[
            (
                r#"{"object":"list","data":[{"id":"qwen3:8b","object":"model"},{"id":"b"}]}"#,
                &["qwen3:8b", "b"],
            ),
            (r#"{"models":[{"name":"models/gemma"},{"model":"m2"}],"data":[]}"#, &["gemma", "m2"]),
            (r#"[{"id":"a"},{"id":"a"},"plain"]"#, &["a", "plain"]),
            (r#"{"data":[{"id":7},{"id":""},{"id":"with blank"},{"id":null,"name":"n"}]}"#, &["n"]),
            (&format!(r#"{{"data":[{{"id":"{long}"}}]}}"#), &[]),
            (r#"{"data":{"id":"a"}}"#, &[]),
            (r#"{"error":"no"}"#, &[]),
            ("<html>", &[]),
            ("", &[]),
        ];
        for (body, want) in cases {
            assert_eq!(model_ids(body.as_bytes()).0, *want, "{body:.80}");
        }
        let many: Vec<_> = (0..500).map(|n| format!("m{n}")).collect();
        let (ids, omitted) = passes(&DETECTED_MODELS, || model_ids(&serde_json::to_vec(&many).unwrap()));
        assert_eq!((ids.len(), omitted), (DETECTED_MODELS.max(), 300));
    }

    /// Responds by port; refuses connections to all other ports.
    #[derive(Debug)]
    struct Machine(HashMap<u16, (u16, &'static str)>);

    impl HttpClient for Machine {
        fn send(
            &self,
            request: http::Request<Bytes>,
            limits: HttpLimits,
        ) -> BoxFuture<Result<http::Response<Bytes>, BoxError>> {
            assert_eq!((request.uri().host(), request.uri().path()), (Some("127.0.0.1"), "/v1/models"));
            assert!(limits.timeout <= Duration::from_secs(1) && limits.body_bytes_max <= 1 << 20);
            let answer = request.uri().port_u16().and_then(|port| self.0.get(&port).copied());
            Box::pin(async move {
                let (status, body) = answer.ok_or("connection refused")?;
                Ok(http::Response::builder().status(status).body(Bytes::from(body))?)
            })
        }
    }

    #[test]
    fn local_servers_that_list_models_are_found() {
        let machine = Machine(HashMap::from([
            (11434, (200, r#"{"data":[{"id":"qwen3"}]}"#)),
            (8080, (200, "<html>an unrelated page</html>")),
            (8000, (401, r#"{"data":[{"id":"locked"}]}"#)),
            (1234, (200, r#"{"data":[]}"#)),
            (30000, (200, r#"{"data":[{"id":"a"},{"id":"b"}]}"#)),
        ]));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let found = runtime.block_on(local_servers(&machine));
        let brief: Vec<_> = found.iter().map(|server| (server.registry_id, server.models.len())).collect();
        assert_eq!(brief, [("ollama", 1), ("sglang", 2)]);
        assert_eq!(found[0].base_url, "http://127.0.0.1:11434/v1");
    }
}
