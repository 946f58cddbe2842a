//! `llmgw migrate`: brings the tables of the database of PostgreSQL to this release.

use std::sync::Arc;

use control::config::{self, Environment};
use control::{Migrated, migrate_database};

use super::{CliFailure, exit, print};

/// Migrates the database of `LLMGW_DATABASE_URL`.
pub(super) fn run(environment: &Arc<Environment>) -> Result<(), CliFailure> {
    let failed = |error| CliFailure::new(exit::CONFIG, error);
    let offline = config::offline(environment).map_err(failed)?;
    let key = offline.key().map_err(failed)?;
    let Some(address) = &offline.database else {
        let text = "LLMGW_DATABASE_URL is required; a state in files is migrated by 'llmgw serve'";
        return Err(CliFailure::new(exit::CONFIG, text));
    };
    let migrated =
        migrate_database(address, key).map_err(|error| CliFailure::new(error.exit_code(), error))?;
    print(&match migrated {
        Migrated { from: None, to } => {
            format!("the tables were created in the database {address}, with version {to}\n")
        }
        Migrated { from: Some(from), to } if from == to => {
            format!("the tables of the database {address} have version {to} already; nothing was changed\n")
        }
        Migrated { from: Some(from), to } => {
            format!("the tables of the database {address} were migrated from version {from} to {to}\n")
        }
    })
}
