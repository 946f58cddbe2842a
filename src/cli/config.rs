//! `llmgw config`: prints and checks the configuration without starting anything.

use std::fmt::Write as _;
use std::sync::Arc;

use control::UsageStore;
use control::config::{self, Config, Environment, SettingSource, Version};

use super::{CliFailure, exit, logs, print};

/// Checks the configuration; prints the warnings, or each error on its own line. A file that a variable names must exist.
pub(super) fn check(environment: &Arc<Environment>) -> Result<(), CliFailure> {
    match config::load(environment) {
        Ok(loaded) => {
            let mut text = String::new();
            let missing = config::missing_keys(&loaded.config.routing);
            for warning in loaded.warnings.iter().chain(&missing) {
                let _ = writeln!(text, "warning: {warning}");
            }
            if loaded.config.version == Version::Absent && is_named(&loaded.config) {
                logs::report(&text);
                return Err(CliFailure::new(exit::CONFIG, "there is no file to check"));
            }
            let routing = &loaded.config.routing;
            let state = if loaded.config.version == Version::Absent {
                "file not found; defaults apply"
            } else {
                "good"
            };
            let _ = writeln!(
                text,
                "{}: {state}; providers: {}, endpoints: {}",
                loaded.config.file.display(),
                routing.providers.len(),
                routing.endpoints.len()
            );
            print(&text)
        }
        Err(error) => {
            let mut count = 0_usize;
            for fault in error.faults() {
                logs::report(&format!("{fault}\n"));
                count += 1;
            }
            let noun = if count == 1 { "fault" } else { "faults" };
            Err(CliFailure::new(exit::CONFIG, format!("{count} {noun}")))
        }
    }
}

/// True if a variable names the file.
fn is_named(config: &Config) -> bool {
    config
        .settings
        .iter()
        .any(|setting| setting.name == "LLMGW_CONFIG" && setting.source == SettingSource::Environment)
}

/// Prints the effective values with their sources.
pub(super) fn show(environment: &Arc<Environment>) -> Result<(), CliFailure> {
    let loaded = config::load(environment).map_err(|error| CliFailure::new(exit::CONFIG, error))?;
    let mut text = config::show(&loaded.config);
    if let Some(store) = UsageStore::of_state(&loaded.config.state_dir) {
        let bytes = store.bytes.unwrap_or_default();
        let _ = writeln!(text, "\nusage:  # the current state\n  in {}, {bytes} bytes", store.file);
    }
    print(&text)
}

/// Prints the JSON Schema of the file.
pub(super) fn schema() -> Result<(), CliFailure> {
    print(&config::schema_text())
}
