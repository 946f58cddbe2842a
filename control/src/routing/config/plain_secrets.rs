//! `secrets.json` in the state directory: keys of the configuration file's provider instances in plain text, in the
//! format of other gateways (STATE-6). It is only read, and removed by `credentials import`; it is never written to.
//!
//! No message quotes a value: every value is a secret.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};
use shared::id::is_name;
use shared::secret::Secret;

use super::model::{KeptKey, Provider, Routing};
use super::registry;
use crate::common::credential::fits_header;
use crate::common::regular_file;

/// The paths of the file.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    pub(crate) file: PathBuf,
    /// The path to which `credentials import` renames the file after sealing its keys, until the file is removed.
    pub(crate) spent: PathBuf,
}

/// The content of the file.
#[derive(Debug, Default)]
pub(crate) struct PlainKeys {
    /// By provider id.
    pub(crate) keys: BTreeMap<String, Secret<String>>,
    /// Entries that cannot be used, with reasons.
    pub(crate) faults: Vec<String>,
    mode: u32,
}

impl Plain {
    pub(crate) fn of(state_dir: &Path) -> Self {
        Self { file: state_dir.join("secrets.json"), spent: state_dir.join("secrets.json.imported") }
    }

    /// Reads the file; `None` if it does not exist.
    pub(crate) fn read(&self) -> io::Result<Option<PlainKeys>> {
        let path = self.file.clone();
        let read: io::Result<_> = regular_file::in_time(move || {
            let file = regular_file::open(&path)?;
            let mode = file.metadata()?.permissions().mode() & 0o777;
            let mut bytes = Vec::new();
            file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
            Ok((mode, Secret::new(bytes)))
        })?;
        match read {
            Ok((mode, bytes)) => Ok(Some(PlainKeys { mode, ..PlainKeys::of(bytes.expose()) })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl PlainKeys {
    fn of(bytes: &[u8]) -> Self {
        let mut reading = Self::default();
        if u64::try_from(bytes.len()).is_ok_and(|len| len > BYTES_MAX) {
            reading.faults.push(format!("is larger than {BYTES_MAX} bytes"));
            return reading;
        }
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(map)) => reading.take(map),
            Ok(_) => reading.faults.push(SHAPE.to_owned()),
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                reading.faults.push(format!("is not JSON (line {line}, column {column})"));
            }
        }
        reading
    }

    fn take(&mut self, mut map: Map<String, Value>) {
        if map.len() == 1
            && let Some(Value::Object(providers)) = map.get_mut("providers")
        {
            map = std::mem::take(providers);
        }
        for (id, value) in map {
            if !is_name(&id) {
                // The name may itself be a misplaced key, so do not quote it.
                self.faults.push("has an entry whose name is not a provider ID".to_owned());
                continue;
            }
            match key(value) {
                Ok(key) => _ = self.keys.insert(id, key),
                Err(why) => self.faults.push(format!("'{id}' {why}")),
            }
        }
    }
}

/// Parses the key of one entry: text, or text under `api_key`.
fn key(value: Value) -> Result<Secret<String>, &'static str> {
    let text = match value {
        Value::String(text) => Secret::new(text),
        Value::Object(mut map) if map.len() == 1 => match map.remove("api_key") {
            Some(Value::String(text)) => Secret::new(text),
            Some(_) | None => return Err(ENTRY_SHAPE),
        },
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            return Err(ENTRY_SHAPE);
        }
    };
    let trimmed = text.expose().trim();
    if trimmed.is_empty() {
        Err("is empty")
    } else if trimmed.contains("${") {
        Err("is a reference to the environment; write it as api_key in the configuration file")
    } else if !fits_header(trimmed) {
        Err("contains characters that are invalid in a header")
    } else {
        Ok(Secret::new(trimmed.to_owned()))
    }
}

/// Sets the keys of the file on the provider instances that use them.
pub(super) fn fill(routing: &mut Routing, state_dir: &Path, warnings: &mut Vec<String>) {
    let plain = Plain::of(state_dir);
    let file = plain.file.display();
    if regular_file::is_there(&plain.spent) {
        warnings.push(format!(
            "{} is the rest of an interrupted import and may contain keys in plain text; stop the gateway \
             and run 'llmgw credentials import' again",
            plain.spent.display()
        ));
    }
    let reading = match plain.read() {
        Ok(Some(reading)) => reading,
        Ok(None) => return,
        Err(error) => {
            return warnings.push(format!("{file} cannot be read, so its keys are not used: {error}"));
        }
    };
    warnings.push(format!(
        "{file} contains keys in plain text; stop the gateway and run 'llmgw credentials import', which \
         seals them in the database and removes the file"
    ));
    if reading.mode & 0o077 != 0 {
        warnings
            .push(format!("other users can read {file} (mode {:04o}); run chmod 600 on it", reading.mode));
    }
    warnings.extend(reading.faults.iter().map(|fault| format!("{file}: {fault}; it is not used")));
    let mut unused = reading.keys;
    for provider in &mut routing.providers {
        let Some(key) = unused.remove(provider.id.as_str()) else { continue };
        if provider.kept_key == KeptKey::Ignored {
            let id = &provider.id;
            warnings.push(format!("{file}: '{id}' has no effect: the configuration file has its credential"));
        } else {
            Arc::make_mut(provider).api_key = Some(key);
        }
    }
    let stray =
        |id: &String| format!("{file}: '{id}' has no effect: the configuration file has no such provider");
    warnings.extend(unused.keys().map(stray));
}

/// Returns one sentence for each provider instance that lacks a required key, with the remedy.
pub fn missing_keys(routing: &Routing) -> Vec<String> {
    let lacking_one = routing.providers.iter().filter(|provider| provider.lacks_key());
    lacking_one
        .map(|provider| {
            format!(
                "providers.{}: {} Unless 'llmgw credentials import' has stored one, it is not used.",
                provider.id,
                lacking(provider)
            )
        })
        .collect()
}

/// Returns the remedy for a missing key.
pub(crate) fn lacking(provider: &Provider) -> String {
    let entry = provider.registry_id.as_deref().and_then(registry::entry);
    let name = entry.and_then(|entry| entry.api_key_env.as_deref()).unwrap_or("NAME");
    format!("api_key is missing; write it as ${{ENV:{name}}} in the configuration file.")
}

const BYTES_MAX: u64 = 1 << 20;
const SHAPE: &str = "is not an object of provider ids and keys, as {\"groq\": \"gsk-...\"}";
const ENTRY_SHAPE: &str = "must be text or {\"api_key\": text}";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<(String, String)>, Vec<String>) {
        let reading = PlainKeys::of(text.as_bytes());
        let keys = reading.keys.into_iter().map(|(id, key)| (id, key.expose().clone())).collect();
        (keys, reading.faults)
    }

    #[test]
    fn both_shapes_of_a_secrets_file_are_read() {
        let want = vec![("a".to_owned(), "sk-1".to_owned()), ("b".to_owned(), "sk-2".to_owned())];
        for text in [
            r#"{"a": "sk-1", "b": " sk-2\n"}"#,
            r#"{"providers": {"a": {"api_key": "sk-1"}, "b": {"api_key": "sk-2"}}}"#,
            r#"{"providers": {"a": "sk-1", "b": {"api_key": "sk-2"}}}"#,
        ] {
            assert_eq!(read(text), (want.clone(), vec![]), "{text}");
        }
        assert_eq!(read("{}"), (vec![], vec![]));
    }

    #[test]
    fn an_unusable_secrets_file_is_reported_without_its_values() {
        for (text, want) in [
            ("", "is not JSON (line 1, column 0)"),
            (r#"{"a": "planted"#, "is not JSON (line 1, column 14)"),
            (r#"["planted"]"#, "is not an object"),
            (r#"{"a": ["planted"]}"#, "'a' must be text or"),
            (r#"{"a": {"api_key": "planted", "organization": "o"}}"#, "'a' must be text or"),
            (r#"{"a": {"token": "planted"}}"#, "'a' must be text or"),
            (r#"{"a": "  "}"#, "'a' is empty"),
            (r#"{"a": "planted two"}"#, "'a' contains characters"),
            (r#"{"a": "${ENV:planted}"}"#, "'a' is a reference"),
            (r#"{"planted planted": "a"}"#, "has an entry whose name"),
        ] {
            let (keys, faults) = read(text);
            assert!(keys.is_empty() && faults.len() == 1, "{text}: {faults:?}");
            assert!(faults[0].starts_with(want) && !faults[0].contains("planted"), "{text}: {faults:?}");
        }
        let large = format!(r#"{{"a": "{}"}}"#, "x".repeat(1 << 20));
        assert!(read(&large).1[0].starts_with("is larger"));
    }
}
