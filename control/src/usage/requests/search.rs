//! A search text, compared with the names of everything that exchanges refer to.

use std::collections::HashSet;

use records::{Record, RecordName};

use crate::common::bounds::SEARCHED_NAMES;
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
        let values = named_params! {":q": self.text.to_ascii_lowercase(), ":rows": SEARCHED_NAMES.max() + 1};
        let mut ids: Vec<String> = db.rows(NAMED, values, |row| row.get("id"))?;
        SEARCHED_NAMES.cut(&mut ids);
        let ids = ids.into_iter().collect();
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

const NAMED: &str = "SELECT id FROM keys WHERE instr(lower(name), :q) > 0 \
     UNION ALL SELECT id FROM projects WHERE instr(lower(name), :q) > 0 \
     UNION ALL SELECT id FROM principals WHERE instr(lower(name), :q) > 0 OR instr(lower(email), :q) > 0 LIMIT :rows";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::bounds::tests::passes;
    use crate::db::testing::in_memory;

    #[test]
    fn names_beyond_the_maximum_are_not_searched_and_that_is_counted() {
        let db = in_memory();
        db.execute(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :count) \
             INSERT INTO projects (id, name, disabled, version, created_at_ms, updated_at_ms) \
             SELECT printf('project_%06d', i), 'Blue ' || i, 0, 1, 1, 1 FROM n",
            [SEARCHED_NAMES.max()],
        )
        .unwrap();
        let search = |text: &str| Search::new(text.to_owned()).resolved(&db).unwrap();
        assert_eq!(search("blue 77").ids.len(), 1_111);
        assert_eq!(passes(&SEARCHED_NAMES, || search("blue")).ids.len(), SEARCHED_NAMES.max());
    }
}
