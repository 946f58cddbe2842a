//! The table `projects`.

use std::collections::HashMap;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, named_params};
use serde::Serialize;
use shared::access::Allowlist;

use super::allowlist;
use super::quotas::KeyLimit;

/// A project, which owns keys and quotas, as stored and as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Project"))]
pub(crate) struct StoredProject {
    pub(crate) id: String,
    pub(crate) name: String,
    /// True if its keys are rejected.
    pub(crate) disabled: bool,
    /// The models, endpoints and routes to which all of its keys are restricted, whatever their own allowlists contain.
    #[serde(flatten)]
    #[cfg_attr(test, schemars(with = "crate::shared_shapes::Allowlist"))]
    pub(crate) allowlist: Allowlist,
    /// The limits that each new key gets.
    pub(crate) key_defaults: Vec<KeyLimit>,
    /// Grows with each change; the `ETag` of the object.
    pub(crate) version: u64,
    /// In milliseconds since the Unix epoch.
    pub(crate) created_at_ms: u64,
    /// In milliseconds since the Unix epoch.
    pub(crate) updated_at_ms: u64,
}

impl StoredProject {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            name: row.get("name")?,
            disabled: row.get("disabled")?,
            allowlist: allowlist::of(row)?,
            key_defaults: key_defaults(row)?,
            version: row.get("version")?,
            created_at_ms: row.get("created_at_ms")?,
            updated_at_ms: row.get("updated_at_ms")?,
        })
    }
}

fn key_defaults(row: &Row<'_>) -> rusqlite::Result<Vec<KeyLimit>> {
    let place = row.as_ref().column_index("key_defaults")?;
    let Some(text) = row.get_ref(place)?.as_str_or_null()? else { return Ok(Vec::new()) };
    let failed = |error| rusqlite::Error::FromSqlConversionFailure(place, Type::Text, Box::new(error));
    serde_json::from_str(text).map_err(failed)
}

/// A filter for lists of projects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProjectFilter {
    /// A human who must be a member, besides `principal`.
    pub(crate) member: Option<String>,
    /// A member.
    pub(crate) principal: Option<String>,
    /// A part of the name or id; case is ignored for ASCII letters.
    pub(crate) text: Option<String>,
}

/// Returns up to `rows` projects with ids after `after`.
pub(crate) fn page(
    db: &Connection,
    filter: &ProjectFilter,
    after: &str,
    rows: i64,
) -> rusqlite::Result<Vec<StoredProject>> {
    let values = named_params! {
        ":member": filter.member,
        ":principal": filter.principal,
        ":q": filter.text.as_deref().map(str::to_ascii_lowercase),
        ":after": after,
        ":rows": rows,
    };
    db.prepare_cached(PAGE)?.query_map(values, StoredProject::of)?.collect()
}

/// What belongs to a project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProjectCounts {
    pub(crate) members: u64,
    /// Keys that are not revoked.
    pub(crate) keys: u64,
}

/// Returns the counts of every project that has a member or a key.
pub(crate) fn counts(db: &Connection) -> rusqlite::Result<HashMap<String, ProjectCounts>> {
    let mut counts = HashMap::<String, ProjectCounts>::new();
    let mut statement = db.prepare_cached(COUNTS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let count = ProjectCounts { members: row.get("members")?, keys: row.get("keys")? };
        counts.insert(row.get("project")?, count);
    }
    Ok(counts)
}

pub(crate) fn find(db: &Connection, id: &str) -> rusqlite::Result<Option<StoredProject>> {
    db.prepare_cached(FIND)?.query_row([id], StoredProject::of).optional()
}

/// Returns every project that is not disabled, for the snapshot.
pub(crate) fn enabled(db: &Connection) -> rusqlite::Result<Vec<StoredProject>> {
    db.prepare_cached(ENABLED)?.query_map([], StoredProject::of)?.collect()
}

/// True if another project has this name.
pub(crate) fn name_is_taken(db: &Connection, name: &str, by_other_than: &str) -> rusqlite::Result<bool> {
    db.prepare_cached(TAKEN)?.exists([name, by_other_than])
}

/// Inserts a new row, or stores the next version of one.
pub(crate) fn put(tx: &Connection, project: &StoredProject) -> rusqlite::Result<()> {
    let [models, endpoints, routes] = allowlist::columns(&project.allowlist)?;
    let failed = |error| rusqlite::Error::ToSqlConversionFailure(Box::new(error));
    let key_defaults =
        (!project.key_defaults.is_empty()).then(|| serde_json::to_string(&project.key_defaults));
    tx.prepare_cached(PUT)?.execute(named_params! {
        ":id": project.id,
        ":name": project.name,
        ":disabled": project.disabled,
        ":models": models,
        ":endpoints": endpoints,
        ":routes": routes,
        ":key_defaults": key_defaults.transpose().map_err(failed)?,
        ":version": project.version,
        ":created": project.created_at_ms,
        ":updated": project.updated_at_ms,
    })?;
    Ok(())
}

/// Deletes a project and its memberships.
pub(crate) fn delete(tx: &Connection, id: &str) -> rusqlite::Result<()> {
    tx.prepare_cached(DELETE)?.execute([id])?;
    Ok(())
}

const PAGE: &str = "SELECT * FROM projects WHERE id > :after AND (:principal IS NULL OR EXISTS \
     (SELECT 1 FROM members WHERE members.project = projects.id AND members.principal = :principal)) \
     AND (:member IS NULL OR EXISTS \
     (SELECT 1 FROM members WHERE members.project = projects.id AND members.principal = :member)) \
     AND (:q IS NULL OR instr(lower(name), :q) OR instr(lower(id), :q)) ORDER BY id LIMIT :rows";
const COUNTS: &str = "SELECT project, sum(member) AS members, sum(key) AS keys FROM \
     (SELECT project, 1 AS member, 0 AS key FROM members \
     UNION ALL SELECT project, 0, 1 FROM keys WHERE state <> 'revoked') GROUP BY project";
const FIND: &str = "SELECT * FROM projects WHERE id = ?";
const ENABLED: &str = "SELECT * FROM projects WHERE NOT disabled";
const TAKEN: &str = "SELECT 1 FROM projects WHERE name = ? AND id <> ?";
const PUT: &str = "INSERT INTO projects \
     (id, name, disabled, models, endpoints, routes, key_defaults, version, created_at_ms, updated_at_ms) VALUES \
     (:id, :name, :disabled, :models, :endpoints, :routes, :key_defaults, :version, :created, :updated) \
     ON CONFLICT (id) DO UPDATE SET name = excluded.name, disabled = excluded.disabled, \
     models = excluded.models, endpoints = excluded.endpoints, routes = excluded.routes, \
     key_defaults = excluded.key_defaults, \
     version = excluded.version, updated_at_ms = excluded.updated_at_ms";
const DELETE: &str = "DELETE FROM projects WHERE id = ?";
