//! A search text, compared with the names of everything that exchanges refer to.

use std::collections::HashSet;

use records::{Record, RecordName};

use crate::db::engine::{Db, DbResult, named_params};
use crate::db::record_id::RecordId;
use crate::usage::request_index;

/// A text that is the id of a request, or a part of the name or id of something that exchanges refer to. Case is ignored
/// for ASCII letters of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Search {
    text: String,
    /// The ids of the keys, projects and humans whose names contain the text.
    ids: HashSet<String>,
    /// The rows of `usage` that may contain a request with this id.
    rows: Vec<RecordId>,
}

impl Search {
    pub(crate) fn new(text: String) -> Self {
        Self { text, ..Self::default() }
    }

    /// Looks up the ids of what the text is a part of, and the rows of a request with this id. Names of deleted objects
    /// are not found.
    pub(super) fn resolved(&self, db: &Db) -> DbResult<Self> {
        let values = named_params! {":q": self.text.to_ascii_lowercase(), ":rows": NAMED_MAX};
        let ids = db.rows(NAMED, values, |row| row.get("id"))?;
        Ok(Self { text: self.text.clone(), ids, rows: request_index::rows_with(db, &self.text)? })
    }

    pub(super) fn fits(&self, record: &Record<'_>) -> bool {
        record.request_id == self.text
            || NAMES.into_iter().any(|name| self.is_part_of(record.name(name)))
            || OWNERS.into_iter().any(|name| self.ids.contains(record.name(name)))
    }

    /// True if the block `row` with these names may contain an exchange that fits.
    pub(super) fn may_fit(&self, row: RecordId, names: &[&str]) -> bool {
        let is_named = |name: &&str| self.is_part_of(name) || self.ids.contains(*name);
        self.rows.contains(&row) || names.iter().any(is_named)
    }

    fn is_part_of(&self, name: &str) -> bool {
        let (name, text) = (name.as_bytes(), self.text.as_bytes());
        name.windows(text.len().max(1)).any(|part| part.eq_ignore_ascii_case(text))
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

/// The maximum number of keys, projects and humans that a search considers.
const NAMED_MAX: u32 = 100_000;
const NAMED: &str = "SELECT id FROM keys WHERE instr(lower(name), :q) > 0 \
     UNION ALL SELECT id FROM projects WHERE instr(lower(name), :q) > 0 \
     UNION ALL SELECT id FROM principals WHERE instr(lower(name), :q) > 0 OR instr(lower(email), :q) > 0 LIMIT :rows";
