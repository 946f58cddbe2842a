//! The steps of the set-up whose results are rows of the database.

use crate::db::engine::{Db, DbResult, named_params};

/// The steps that are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredSteps {
    /// There is a human who is not disabled.
    pub(crate) human: bool,
    /// There is a project that is not disabled.
    pub(crate) project: bool,
    /// Such a human owns such a project.
    pub(crate) owner: bool,
    /// A key of such a project can be used.
    pub(crate) key: bool,
}

/// Returns the steps that are done at `now_ms`.
pub(crate) fn steps(db: &Db, now_ms: u64) -> DbResult<StoredSteps> {
    db.row(STEPS, named_params! {":now": now_ms}, |row| {
        Ok(StoredSteps {
            human: row.get("human")?,
            project: row.get("project")?,
            owner: row.get("owner")?,
            key: row.get("key")?,
        })
    })
}

const STEPS: &str = "SELECT \
     EXISTS (SELECT 1 FROM principals WHERE disabled = 0) AS human, \
     EXISTS (SELECT 1 FROM projects WHERE disabled = 0) AS project, \
     EXISTS (SELECT 1 FROM members JOIN projects ON projects.id = project JOIN principals ON principals.id = principal \
     WHERE role = 'owner' AND projects.disabled = 0 AND principals.disabled = 0) AS owner, \
     EXISTS (SELECT 1 FROM keys JOIN projects ON projects.id = project \
     LEFT JOIN principals ON principals.id = acts_as WHERE state = 'active' AND projects.disabled = 0 \
     AND (expires_at_ms IS NULL OR expires_at_ms > :now) AND coalesce(principals.disabled, 0) = 0) AS key";
