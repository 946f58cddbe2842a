//! `llmgw doctor`: examines a state directory and reports what is wrong with it, and the command that repairs it. It
//! changes nothing, and works while a gateway runs on the state.
//!
//! The checks of a state are here; those of the environment, the configuration, the address and the clock, which need no
//! state, are added by the command.

mod backups;
mod database;
mod finding;
mod folder;
mod server;

use std::path::Path;

use shared::secret::Secret;

pub use finding::{Finding, Level, Subject, quoted, report_json, report_text, seconds_of};

use self::finding::Findings;
use super::StatePlace;
use crate::db::engine::postgres::DatabaseAddress;
use crate::db::sqlite_state::lock::{self, LockState};

/// The state to examine.
#[derive(Clone, Copy, Debug)]
pub struct StateToExamine<'a> {
    /// The state directory.
    pub dir: &'a Path,
    /// `LLMGW_CREDENTIAL_ENCRYPTION_KEY`, if it is known.
    pub encryption_key: Option<&'a Secret<[u8; 32]>>,
    /// True if `LLMGW_USAGE_DB` is on.
    pub usage_db: bool,
    /// `LLMGW_DATABASE_URL`, if the state is in a database of PostgreSQL.
    pub database: Option<&'a DatabaseAddress>,
}

impl<'a> StateToExamine<'a> {
    fn place(self) -> StatePlace<'a> {
        StatePlace { dir: self.dir, database: self.database }
    }
}

/// The result of [`examine_state`].
#[derive(Debug)]
pub struct ExaminedState {
    /// What was found, in the order of the checks.
    pub findings: Vec<Finding>,
    /// True if a process holds the lock of the state.
    pub is_in_use: bool,
}

/// Examines the state: directory, lock, disk, databases, secrets, audit, journal and backups.
pub fn examine_state(state: StateToExamine<'_>) -> ExaminedState {
    let mut found = Findings::default();
    let is_in_use = examine_lock(state.dir, &mut found);
    let has_folder = folder::examine(state.dir, is_in_use, &mut found);
    if let Some(address) = state.database {
        server::examine(state, address, &mut found);
        if has_folder {
            folder::examine_disk(state.dir, &mut found);
            if !is_in_use {
                database::examine_journal(state.dir, &mut found);
            }
        }
    } else if has_folder {
        folder::examine_disk(state.dir, &mut found);
        let backups = backups::examine(state.dir, &mut found);
        database::examine(state, backups.newest.as_deref(), &mut found);
        if !is_in_use {
            database::examine_journal(state.dir, &mut found);
        }
        if backups.newest.is_none() && state.dir.join(crate::db::sqlite_state::open::DATABASE).exists() {
            found.warning(
                Subject::Backups,
                "there is no intact archive of this state in its directory",
                "llmgw backup create",
            );
        }
    }
    ExaminedState { findings: found.0, is_in_use }
}

fn examine_lock(dir: &Path, found: &mut Findings) -> bool {
    match lock::look(dir) {
        Ok(LockState::Free) => {
            found.good(Subject::Lock, "no process holds the state");
            false
        }
        Ok(LockState::Held(pid)) => {
            let by = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
            found.good(Subject::Lock, format!("a running process holds the state{by}"));
            true
        }
        Err(error) => {
            let file = dir.join(lock::FILE);
            found.fault(
                Subject::Lock,
                format!("{} cannot be read: {error}", file.display()),
                format!("chown \"$(id -u)\" {}", quoted(&file)),
            );
            false
        }
    }
}
