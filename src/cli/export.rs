//! `llmgw export`: prints the providers and endpoints of the database as a configuration file without secrets.

use std::sync::Arc;

use control::config::{self, Environment};

use super::{CliFailure, exit, place, print};

/// Prints the file. A gateway may run on the state.
pub(super) fn run(environment: &Arc<Environment>) -> Result<(), CliFailure> {
    let failed = |error| CliFailure::new(exit::CONFIG, error);
    let offline = config::offline(environment).map_err(failed)?;
    let key = offline.key().map_err(failed)?;
    let text =
        control::export(place(&offline), key).map_err(|error| CliFailure::new(error.exit_code(), error))?;
    print(&text)
}
