//! `llmgw audit`: verifies that the audit is unchanged.

use std::sync::Arc;

use control::config::{self, Environment};

use super::{CliFailure, exit, place, print};

/// Verifies the hash chain and reports the first invalid row.
pub(super) fn verify(environment: &Arc<Environment>) -> Result<(), CliFailure> {
    let failed = |error| CliFailure::new(exit::CONFIG, error);
    let offline = config::offline(environment).map_err(failed)?;
    let key = offline.key().map_err(failed)?;
    let verified = control::verify_audit(place(&offline), key)
        .map_err(|error| CliFailure::new(error.exit_code(), error))?;
    match verified {
        Ok(holds) => {
            print(&format!("the audit log is intact: {} rows, the last is {}\n", holds.rows, holds.last_id))
        }
        Err(broken) => Err(CliFailure::new(
            exit::UNSOUND,
            format!("the audit log was tampered with: {broken}; compare it with an export or a backup"),
        )),
    }
}
