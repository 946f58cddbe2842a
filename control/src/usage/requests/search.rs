//! A search text, compared with everything that identifies exchanges by an exact name.

use records::{Record, RecordName};
use rusqlite::{Connection, named_params};

use crate::db::names::ADMINISTRATOR;
use crate::usage::request_index;

/// A text that is the id of a request, or the exact name or id of something that exchanges refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Search {
    text: String,
    /// The ids of the keys, projects and humans with this name.
    ids: Vec<String>,
    /// The rows of `usage` that may contain a request with this id.
    rows: Vec<i64>,
}

impl Search {
    pub(crate) fn new(text: String) -> Self {
        Self { text, ..Self::default() }
    }

    /// Looks up the ids of what the text names, and the rows of a request with this id. Names of deleted objects are not
    /// found.
    pub(super) fn resolved(&self, db: &Connection) -> rusqlite::Result<Self> {
        let mut statement = db.prepare_cached(NAMED)?;
        let named = statement.query_map(named_params! {":name": self.text}, |row| row.get("id"))?;
        let mut ids = named.collect::<rusqlite::Result<Vec<String>>>()?;
        ids.push(format!("{ADMINISTRATOR}{}", self.text));
        Ok(Self { text: self.text.clone(), ids, rows: request_index::rows_with(db, &self.text)? })
    }

    pub(super) fn fits(&self, record: &Record<'_>) -> bool {
        record.request_id == self.text
            || NAMES.into_iter().any(|name| record.name(name) == self.text)
            || OWNERS.into_iter().any(|name| self.ids.iter().any(|id| id == record.name(name)))
    }

    /// True if the block `row` with these names may contain an exchange that fits.
    pub(super) fn may_fit(&self, row: i64, names: &[&str]) -> bool {
        let is_named = |name: &&str| *name == self.text || self.ids.iter().any(|id| id == name);
        self.rows.contains(&row) || names.iter().any(is_named)
    }
}

const NAMES: [RecordName; 7] = [
    RecordName::Selector,
    RecordName::Endpoint,
    RecordName::Provider,
    RecordName::Model,
    RecordName::Key,
    RecordName::Project,
    RecordName::Principal,
];
const OWNERS: [RecordName; 3] = [RecordName::Key, RecordName::Project, RecordName::Principal];

/// Names of keys and humans are not unique; a search considers at most 1,000 objects.
const NAMED: &str = "SELECT id FROM keys WHERE name = :name UNION ALL SELECT id FROM projects WHERE name = :name \
     UNION ALL SELECT id FROM principals WHERE name = :name OR email = :name LIMIT 1000";
