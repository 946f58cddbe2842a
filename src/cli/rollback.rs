//! `llmgw rollback`: puts the state back as it was before the last upgrade.

use std::sync::Arc;

use control::RolledBack;
use control::config::{self, Environment};

use super::{CliFailure, exit, print};

/// Puts the state back, and prints what remains for the operator.
pub(super) fn run(environment: &Arc<Environment>) -> Result<(), CliFailure> {
    let offline = config::offline(environment).map_err(|error| CliFailure::new(exit::CONFIG, error))?;
    let instead = "restore the database with PostgreSQL's tools";
    offline.expect_files(instead).map_err(|error| CliFailure::new(exit::CONFIG, error))?;
    let dir = &offline.state_dir;
    let done = control::rollback(dir).map_err(|error| CliFailure::new(error.exit_code(), error))?;
    let RolledBack { version, replaced_version, upgraded_at, upgraded_by, replaced } = done;
    print(&format!(
        "the state in {} has version {version} again, as before its upgrade to version {replaced_version} by llmgw \
         {upgraded_by} at {upgraded_at}.\nWhat was written since then is not in it: the replaced files are in {}.\n\
         next: start the release that you used before. A start of llmgw {upgraded_by} upgrades the state again.\nKeys that \
         were revoked and secrets that were changed after the upgrade are as they were before: revoke and change them \
         again.\n",
        dir.display(),
        replaced.display()
    ))
}
