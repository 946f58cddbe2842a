//! Searches by name, id and prefix over the tables of extensions, people, projects, keys and limits. Case is ignored for ASCII letters.

use super::human_scope::HumanScope;
use crate::db::engine::{Db, DbResult, Row, named_params};

/// The text to search for, and the bounds of a search.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) text: String,
    /// The maximum number of rows of each kind.
    pub(crate) rows: usize,
    /// The human who searches: among themselves, their projects and the keys of these. `None` for an administrator.
    pub(crate) scope: Option<HumanScope>,
}

/// A found row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundRow {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) subtitle: Option<String>,
    /// How well it fits: 0 for an exact name or id, 1 for the beginning of a name, 2 for anything else.
    pub(crate) rank: u8,
}

impl FoundRow {
    fn of(row: Row<'_>) -> DbResult<Self> {
        Ok(Self {
            id: row.get("id")?,
            title: row.get("title")?,
            subtitle: row.get("subtitle")?,
            rank: row.get("rank")?,
        })
    }
}

/// Returns the humans whose name, e-mail address or id contains the text, best first.
pub(crate) fn humans(db: &Db, wanted: &Wanted) -> DbResult<Vec<FoundRow>> {
    found(db, HUMANS, wanted)
}

/// Returns the extensions whose name or address contains the text, best first.
pub(crate) fn extensions(db: &Db, wanted: &Wanted) -> DbResult<Vec<FoundRow>> {
    found(db, EXTENSIONS, wanted)
}

/// Returns the projects whose name or id contains the text, best first.
pub(crate) fn projects(db: &Db, wanted: &Wanted) -> DbResult<Vec<FoundRow>> {
    found(db, PROJECTS, wanted)
}

/// Returns the keys whose name, prefix or id contains the text, or whose prefix the text begins with, best first.
pub(crate) fn keys(db: &Db, wanted: &Wanted) -> DbResult<Vec<FoundRow>> {
    found(db, KEYS, wanted)
}

/// Returns the limits whose id or subject's name contains the text, best first.
pub(crate) fn quotas(db: &Db, wanted: &Wanted) -> DbResult<Vec<FoundRow>> {
    found(db, QUOTAS, wanted)
}

fn found(db: &Db, sql: &str, wanted: &Wanted) -> DbResult<Vec<FoundRow>> {
    let Wanted { text, rows, scope } = wanted;
    let (human, projects) = scope.as_ref().map(|scope| (&scope.human, &scope.projects)).unzip();
    let values = named_params! {
        ":q": text.to_ascii_lowercase(), ":raw": text, ":rows": rows, ":human": human, ":projects": projects,
    };
    db.rows(sql, values, FoundRow::of)
}

const HUMANS: &str = "SELECT id, name AS title, email AS subtitle, \
     CASE WHEN :q IN (lower(name), lower(id), lower(email)) THEN 0 WHEN instr(lower(name), :q) = 1 THEN 1 ELSE 2 END \
     AS rank FROM principals WHERE :raw IS NOT NULL AND (:projects IS NULL OR id = :human) AND (instr(lower(name), :q) > 0 OR instr(lower(email), :q) > 0 \
     OR instr(lower(id), :q) > 0) ORDER BY rank, name, id LIMIT :rows";
const EXTENSIONS: &str = "SELECT name AS id, name AS title, url AS subtitle, \
     CASE WHEN :q = lower(name) THEN 0 WHEN instr(lower(name), :q) = 1 THEN 1 ELSE 2 END AS rank \
     FROM extensions WHERE :raw IS NOT NULL AND :human IS NULL AND :projects IS NULL AND (instr(lower(name), :q) > 0 OR instr(lower(url), :q) > 0) \
     ORDER BY rank, name LIMIT :rows";
const PROJECTS: &str = "SELECT id, name AS title, NULL AS subtitle, \
     CASE WHEN :q IN (lower(name), lower(id)) THEN 0 WHEN instr(lower(name), :q) = 1 THEN 1 ELSE 2 END AS rank \
     FROM projects WHERE :raw IS NOT NULL \
     AND (:human IS NULL OR id IN (SELECT value FROM json_each(:projects))) AND (instr(lower(name), :q) > 0 OR instr(lower(id), :q) > 0) \
     ORDER BY rank, name, id LIMIT :rows";
const KEYS: &str = "SELECT keys.id, keys.name AS title, prefix || '…, ' || projects.name AS subtitle, \
     CASE WHEN :q IN (lower(keys.name), lower(keys.id)) OR instr(:raw, prefix) = 1 THEN 0 \
     WHEN instr(lower(keys.name), :q) = 1 OR instr(prefix, :raw) = 1 THEN 1 ELSE 2 END AS rank \
     FROM keys JOIN projects ON projects.id = keys.project \
     WHERE (:human IS NULL OR keys.project IN (SELECT value FROM json_each(:projects))) \
     AND (instr(lower(keys.name), :q) > 0 OR instr(lower(keys.id), :q) > 0 OR instr(prefix, :raw) > 0 OR instr(:raw, prefix) = 1) \
     ORDER BY rank, keys.name, keys.id LIMIT :rows";
const QUOTAS: &str = "SELECT quotas.id, coalesce(keys.name, projects.name, principals.name, nullif(subject, ''), \
     quotas.kind) AS title, quotas.kind || ', ' || metric || coalesce(' per ' || period, '') AS subtitle, \
     CASE WHEN lower(quotas.id) = :q THEN 0 ELSE 2 END AS rank \
     FROM quotas LEFT JOIN keys ON quotas.kind = 'key' AND keys.id = subject \
     LEFT JOIN projects ON quotas.kind = 'project' AND projects.id = subject \
     LEFT JOIN principals ON quotas.kind = 'principal' AND principals.id = subject \
     WHERE :raw IS NOT NULL AND :human IS NULL AND :projects IS NULL AND (instr(lower(quotas.id), :q) > 0 OR instr(lower(coalesce(keys.name, projects.name, \
     principals.name, nullif(subject, ''), quotas.kind)), :q) > 0) ORDER BY rank, title, quotas.id LIMIT :rows";
