//! Examines the database of PostgreSQL that `LLMGW_DATABASE_URL` names.

use super::StateToExamine;
use super::database;
use super::finding::{Findings, Subject};
use crate::db::engine::DbErrorKind;
use crate::db::engine::postgres::DatabaseAddress;
use crate::db::error::OpenError;
use crate::db::postgres_state::{self, database_error};

/// Examines the server and its settings, and the state in the database.
pub(super) fn examine(state: StateToExamine<'_>, address: &DatabaseAddress, found: &mut Findings) {
    let fitness = address.connect(0).and_then(|db| postgres_state::examine(&db));
    let fitness = match fitness {
        Ok(fitness) => fitness,
        Err(error) => {
            if error.kind() == DbErrorKind::Unreachable {
                let text = format!("the database {address} cannot be reached: {error}");
                let repair = "start the server, or correct LLMGW_DATABASE_URL; running nodes go on with what they hold";
                return found.fault(Subject::Database, text, repair);
            }
            return database::report(state.dir, &database_error(address, &error), None, found);
        }
    };
    if let Some((text, repair)) = fitness.fault() {
        return found.fault(
            Subject::Database,
            format!("the database {address} cannot be used: {text}"),
            repair,
        );
    }
    let encryption = if fitness.is_encrypted { "encrypted" } else { "not encrypted" };
    let standbys = fitness.standbys.map_or_else(|| "unknown".to_owned(), |count| count.to_string());
    let text = format!(
        "PostgreSQL {} at {address} answers; sessions are {encryption}, isolation is {}, synchronous_commit is {}, \
         standbys: {standbys}",
        fitness.version_text(),
        fitness.isolation,
        fitness.synchronous_commit
    );
    found.good(Subject::Database, text);
    for (text, repair) in fitness.warnings() {
        found.warning(Subject::Database, text, repair);
    }
    let Some(key) = state.encryption_key else { return };
    match postgres_state::open_to_read(address, key) {
        Ok(_) => database::examine_contents(state.place(), key, found),
        Err(OpenError::Absent { .. }) => {
            found.good(Subject::Database, "it has no tables yet; 'llmgw serve' creates them");
        }
        Err(error) => database::report(state.dir, &error, None, found),
    }
}
