//! `llmgw completions` and `llmgw manual`: what packages of the binary contain besides it.

use std::path::Path;

use clap::Command;
use clap_complete::{Shell, generate};

use super::{CliFailure, exit, print};

/// Prints the script that completes commands and options in `shell`.
pub(super) fn completions(shell: Shell, mut command: Command) -> Result<(), CliFailure> {
    let mut script = Vec::new();
    generate(shell, &mut command, "llmgw", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes a manual page for the program and for each command into `folder`, which is created if it does not exist.
pub(super) fn pages(folder: &Path, command: Command) -> Result<(), CliFailure> {
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    written.map_err(|error| CliFailure::new(exit::IO, format!("{}: {error}", folder.display())))
}
