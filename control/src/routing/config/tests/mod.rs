//! The configuration as a whole: faults with their positions, layers, and the meaning of a valid file.

mod faults;
mod layers;
mod meaning;
mod oauth;

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::*;

/// A state directory with a configuration file, or without one.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn empty() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn with(yaml: &str) -> Self {
        let place = Self::empty();
        std::fs::write(place.file(), yaml).unwrap();
        place
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("config.yaml")
    }

    /// Loads with good secrets and `further` variables.
    fn load(&self, further: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
        let key = BASE64_STANDARD.encode([1; 32]);
        let mut pairs = vec![
            ("LLMGW_API_KEY", "admin-key-0123456789"),
            ("LLMGW_CREDENTIAL_ENCRYPTION_KEY", key.as_str()),
            ("LLMGW_STATE_DIR", self.folder.path().to_str().unwrap()),
        ];
        pairs.extend_from_slice(further);
        load(&environment(&pairs))
    }

    fn config(&self, further: &[(&str, &str)]) -> Config {
        match self.load(further) {
            Ok(loaded) => loaded.config,
            Err(error) => panic!("{:?}", error.faults().map(ToString::to_string).collect::<Vec<_>>()),
        }
    }

    /// Returns every fault as `line:column: rest`, without the file's name.
    fn faults(&self, further: &[(&str, &str)]) -> Vec<String> {
        let Err(error) = self.load(further) else { return Vec::new() };
        let prefix = format!("{}:", self.file().display());
        error
            .faults()
            .map(|fault| {
                let text = fault.to_string();
                text.strip_prefix(&prefix).map_or_else(|| text.clone(), ToOwned::to_owned)
            })
            .collect()
    }
}

fn environment(pairs: &[(&str, &str)]) -> Arc<Environment> {
    Arc::new(Environment::read(pairs.iter().map(|(name, value)| (name.into(), value.into()))))
}

#[test]
fn the_committed_schema_is_current() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config.schema.json");
    let current = schema_text();
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == current, "run `llmgw config schema > control/config.schema.json`");
}
