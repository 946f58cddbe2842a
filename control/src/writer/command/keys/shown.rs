//! A key as the API shows it in answers of reads and of writes.

use serde::Serialize;

use crate::db::engine::{Db, DbResult};
use crate::db::keys::StoredKey;
use crate::db::names::{Labels, NamedKind};

/// A key, with the names of its project and human.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Key"))]
pub(crate) struct ShownKey {
    #[serde(flatten)]
    pub(crate) key: StoredKey,
    /// Null if it is unknown.
    project_name: Option<String>,
    /// The name of the human that the key acts as; null if it acts as no human.
    acts_as_name: Option<String>,
}

impl ShownKey {
    /// Adds the names to `key`.
    pub(crate) fn of(db: &Db, labels: &mut Labels, key: StoredKey) -> DbResult<Self> {
        let project_name = labels.find(db, NamedKind::Project, &key.project)?.name;
        let human = key.acts_as.as_deref().map(|id| labels.find(db, NamedKind::Principal, id)).transpose()?;
        Ok(Self { key, project_name, acts_as_name: human.and_then(|human| human.name) })
    }
}
