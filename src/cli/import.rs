//! `llmgw import`: converts the configuration of another gateway.

use std::path::PathBuf;

use clap::Subcommand;
use control::import_litellm;

use super::{CliFailure, exit, logs, print};

#[derive(Subcommand)]
pub(super) enum ImportCommand {
    /// Print a config.yaml of LiteLLM as a configuration file of llmgw
    ///
    /// stdout receives a file that `llmgw config check` accepts when its variables are set. stderr receives a finding for
    /// each key of the source that has no exact counterpart, with its line. Valid is not equal: the file serves, but not in
    /// all respects as before; read the findings. No variable is read and no secret is printed.
    ///
    /// Exits 0 if every key has an exact counterpart, and 1 if there are findings.
    Litellm {
        /// The configuration of LiteLLM
        file: PathBuf,
        /// Print the findings as one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Prints the configuration to stdout and the findings to stderr.
pub(super) fn run(command: ImportCommand) -> Result<(), CliFailure> {
    let ImportCommand::Litellm { file, json } = command;
    let imported = import_litellm(&file)
        .map_err(|error| CliFailure::new(error.exit_code(), format!("{}: {error}", file.display())))?;
    print(&imported.configuration)?;
    logs::report(&if json { imported.findings_json(&file) } else { imported.findings_text(&file) });
    match imported.findings.len() {
        0 => Ok(()),
        _ if json => Err(CliFailure::reported(exit::UNSOUND)),
        1 => Err(CliFailure::new(exit::UNSOUND, "1 finding; valid is not equal")),
        more => Err(CliFailure::new(exit::UNSOUND, format!("{more} findings; valid is not equal"))),
    }
}
