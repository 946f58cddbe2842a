//! The initial configuration file: the model servers found on this machine, plus `echo` and `voice`, which need no
//! setup.

use std::fmt::Write as _;

use super::Detected;

/// Returns the text of the file, with a provider for each server in `found`, in order. It has no endpoint: quickstart
/// stores one in the database, where the console can change it.
pub fn first_file(found: &[Detected]) -> String {
    let mut text = String::from(HEAD);
    for server in found {
        let models: Vec<_> = server.models.iter().map(|model| quoted(model)).collect();
        // Writing into a string cannot fail.
        let _ = write!(
            text,
            "\n  # {}, found on this machine\n  {}:\n    registry_id: {}\n    models: [{}]\n",
            server.name,
            server.registry_id,
            server.registry_id,
            models.join(", ")
        );
    }
    text
}

/// Quotes an untrusted model id; JSON string syntax is valid in YAML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

const HEAD: &str = "\
# Configuration of llmgw. Providers and endpoints reload when this file changes; a bad edit changes nothing.
# `llmgw config check` lists every fault, `llmgw config schema` prints a JSON Schema for your editor.

providers:
  # Repeats the prompt inside the process; its options simulate failures.
  echo:
    type: echo
    models: [echo]
    echo: {chunk_delay_ms: 40}

  # Speaks inside the process, without a network: POST /v1/audio/speech with the model voice/pico.
  voice:
    type: builtin_speech
    models: [pico]
";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::routing::config::{Environment, load};

    fn detected(registry_id: &'static str, models: &[&str]) -> Detected {
        let models = models.iter().map(|&model| model.to_owned()).collect();
        Detected {
            registry_id,
            name: registry_id,
            base_url: "http://127.0.0.1:1/v1",
            models,
            models_omitted: 0,
        }
    }

    #[test]
    fn the_first_file_is_valid_for_any_detected_providers() {
        let strange = ["a\"b: {c}", "#x", "- y", "é☃", "true", "12"];
        let cases = [
            vec![],
            vec![detected("ollama", &["nomic-embed-text", "qwen3:8b"]), detected("vllm", &["m"])],
            vec![detected("lmstudio", &strange[3..])],
        ];
        for found in cases {
            let folder = tempfile::tempdir().unwrap();
            let text = first_file(&found);
            std::fs::write(folder.path().join("config.yaml"), &text).unwrap();
            let variables = [
                ("LLMGW_API_KEY", "admin-key-0123456789"),
                ("LLMGW_CREDENTIAL_ENCRYPTION_KEY", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="),
                ("LLMGW_STATE_DIR", folder.path().to_str().unwrap()),
            ];
            let variables = variables.map(|(name, value)| (name.into(), value.into()));
            let loaded =
                load(&Arc::new(Environment::read(variables))).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let routing = loaded.config.routing;
            assert_eq!(routing.providers.len(), found.len() + 2);
            for server in &found {
                let provider =
                    routing.providers.iter().find(|p| p.id.as_str() == server.registry_id).unwrap();
                let models: Vec<_> = provider.models.iter().map(|model| model.id.as_str()).collect();
                assert!(server.models.iter().all(|model| models.contains(&model.as_str())), "{models:?}");
            }
            assert!(loaded.warnings.is_empty());
        }
    }
}
