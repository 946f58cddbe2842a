//! Examines the database of PostgreSQL that `LLMGW_DATABASE_URL` names.

use shared::clock::unix_ms;

use super::StateToExamine;
use super::database;
use super::finding::{Findings, Subject};
use crate::db::engine::postgres::{DatabaseAddress, partitions};
use crate::db::engine::{Db, DbErrorKind};
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
        Ok((db, _)) => {
            examine_partitions(&db, found);
            database::examine_contents(state.place(), key, found);
        }
        Err(OpenError::Absent { .. }) => {
            found.good(Subject::Database, "it has no tables yet; 'llmgw serve' creates them");
        }
        Err(error) => database::report(state.dir, &error, None, found),
    }
}

/// Examines whether the next days have their partitions of usage. Today has none if its rows were there before.
fn examine_partitions(db: &Db, found: &mut Findings) {
    let today = unix_ms() / DAY_MS;
    match partitions::missing(db, unix_ms()) {
        Ok(days) if days.iter().all(|day| *day == today) => {}
        Ok(days) => {
            let text = format!(
                "the table usage has no partition for {} of the next days; their records go to usage_rest, from which \
                 retention deletes them one by one",
                days.len()
            );
            let repair = "start a node, whose user owns the table, and look for 'partition' in its log";
            found.warning(Subject::Database, text, repair);
        }
        Err(error) => {
            let repair = "let the user read pg_inherits and pg_class";
            found.warning(
                Subject::Database,
                format!("the partitions of usage cannot be listed: {error}"),
                repair,
            );
        }
    }
}

const DAY_MS: u64 = 24 * 3_600_000;
