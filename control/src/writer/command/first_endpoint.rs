//! The endpoint of quickstart: made once, from the providers of the configuration file, and then like any other.

use std::sync::Arc;

use shared::provider::{Inside, Reach};

use super::endpoints::{CreateEndpoint, exists};
use super::{Command, CommandRefusal, Done, Write};
use crate::db::endpoints::{self, EndpointContent, StoredMember};
use crate::routing::config::{Provider, Routing};
use crate::routing::detect::Detected;
use crate::routing::publish::Touched;

/// The name of the endpoint. No coding agent has an alias of this name.
pub(crate) const FIRST_ENDPOINT: &str = "smart";

/// Creates the endpoint [`FIRST_ENDPOINT`] if there is no endpoint; succeeds without a change if it exists. Its targets are
/// one chat model of each provider of the configuration file, those of `echo` last.
#[derive(Debug)]
pub(crate) struct CreateFirstEndpoint {
    /// The servers that were found on this machine. Of their models the first in the order of the server is taken, which
    /// is often the newest; of other providers the first by name.
    pub(crate) found: Vec<Detected>,
}

impl Command for CreateFirstEndpoint {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        if exists(write, FIRST_ENDPOINT)? {
            return Ok(Done::unrecorded(Touched::NOTHING));
        }
        if !write.file.endpoints.is_empty() || !endpoints::all(write.db)?.is_empty() {
            return Err(CommandRefusal::conflict("There are other endpoints already."));
        }
        let failover = self.targets(write.file);
        if failover.is_empty() {
            return Err(CommandRefusal::conflict("The configuration file has no provider of chat models."));
        }
        let create = CreateEndpoint {
            name: FIRST_ENDPOINT.to_owned(),
            content: EndpointContent { failover, ..EndpointContent::default() },
        };
        create.apply(write)
    }
}

impl CreateFirstEndpoint {
    fn targets(&self, file: &Routing) -> Vec<StoredMember> {
        let mut providers: Vec<_> = file.providers.iter().filter(|provider| !provider.disabled).collect();
        providers.sort_by_key(|provider| inside(provider) == Some(Inside::Echo));
        let target = |provider: &Arc<Provider>| {
            let model = self.chat_model(provider)?;
            Some(StoredMember::new(provider.id.to_string(), model))
        };
        providers.into_iter().filter_map(target).collect()
    }

    /// Returns a model for chat; `None` for a provider that has none.
    fn chat_model(&self, provider: &Provider) -> Option<String> {
        if inside(provider) == Some(Inside::Speech) {
            return None;
        }
        let found = self.found.iter().find(|server| provider.id.as_str() == server.registry_id);
        let listed = found.into_iter().flat_map(|server| server.models.iter().map(String::as_str));
        let mut models = listed.chain(provider.models.iter().map(|model| model.id.as_str()));
        models.find(|model| chats(model)).map(str::to_owned)
    }
}

fn inside(provider: &Provider) -> Option<Inside> {
    match provider.kind.reach {
        Reach::InProcess(inside) => Some(inside),
        _ => None,
    }
}

/// True if the name of a model does not suggest a purpose other than chat.
fn chats(model: &str) -> bool {
    const OTHERS: &[&str] = &["embed", "rerank", "whisper", "tts"];
    let model = model.to_ascii_lowercase();
    !OTHERS.iter().any(|other| model.contains(other))
}

#[cfg(test)]
mod tests {
    use crate::db::engine::Db;
    use shared::secret::Secret;
    use tokio::sync::oneshot;

    use super::*;
    use crate::common::actor::Actor;
    use crate::db::key_check::open_keys;
    use crate::routing::publish::tests::{KEY, config, started};
    use crate::writer::command::{AdminWrite, execute};

    const SERVERS: &str = "
  voice: {type: builtin_speech, models: [pico]}
  echo: {type: echo, models: [echo]}
  ollama: {registry_id: ollama, models: [\"codellama:7b\", nomic-embed-text, \"qwen3:8b\"]}
  vllm: {registry_id: vllm, models: [m], disabled: true}
";

    fn found(models: &[&str]) -> Detected {
        let models = models.iter().map(|&model| model.to_owned()).collect();
        Detected {
            registry_id: "ollama",
            name: "Ollama",
            base_url: "http://127.0.0.1:11434/v1",
            models,
            models_omitted: 0,
        }
    }

    /// Runs the command `times` times with a file of these providers and further text; returns the stored endpoints and
    /// whether the last run succeeded.
    fn created(file: &str, found: &[Detected], times: usize) -> (Vec<String>, bool) {
        let folder = tempfile::tempdir().unwrap();
        let (out, _reader) = shared::snapshot::channel();
        let (mut publisher, mut db): (_, Db) = started(&config(folder.path(), file, &[]), out);
        let keys = open_keys(&db, &Secret::new(KEY)).unwrap();
        let mut succeeded = false;
        for _ in 0..times {
            let create = CreateFirstEndpoint { found: found.to_vec() };
            let (caller, mut outcome) = oneshot::channel();
            let write = AdminWrite::unanswered(create, Actor::gateway());
            execute(&mut db, &keys, &mut publisher, None, vec![(write, caller)]);
            succeeded = outcome.try_recv().unwrap().is_ok();
        }
        let shown = |row: endpoints::EndpointRow| {
            let targets: Vec<_> = row
                .content
                .failover
                .iter()
                .map(|target| format!("{}/{}", target.provider, target.model))
                .collect();
            format!("{}: {}", row.name, targets.join(", "))
        };
        (endpoints::all(&db).unwrap().into_iter().map(shown).collect(), succeeded)
    }

    #[test]
    fn the_first_endpoint_has_a_chat_model_of_each_provider_and_is_created_once() {
        let providers = format!("providers:{SERVERS}");
        let newest_first = found(&["nomic-embed-text", "qwen3:8b", "codellama:7b"]);
        let other =
            format!("{providers}endpoints:\n  mine: {{failover: [{{provider: echo, model: echo}}]}}\n");
        let cases: [(&str, &[Detected], &[&str], bool); 5] = [
            (&providers, &[newest_first], &["smart: ollama/qwen3:8b, echo/echo"], true),
            (&providers, &[found(&["nomic-embed-text"])], &["smart: ollama/codellama:7b, echo/echo"], true),
            (&providers, &[], &["smart: ollama/codellama:7b, echo/echo"], true),
            (&other, &[], &[], false),
            ("providers: {voice: {type: builtin_speech, models: [pico]}}", &[], &[], false),
        ];
        for (file, found, endpoints, succeeds) in cases {
            let want = (endpoints.iter().map(|&text| text.to_owned()).collect(), succeeds);
            assert_eq!(created(file, found, 2), want, "{file}");
        }
    }
}
