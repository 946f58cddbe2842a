//! The table `projects`.

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, named_params};
use serde::Serialize;
use shared::access::Allowlist;

use super::allowlist;
use super::members::MemberRole;
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
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::Allowlist"))]
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

/// A project with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ProjectSummary {
    #[serde(flatten)]
    pub(crate) project: StoredProject,
    /// The number of its members.
    pub(crate) members: u64,
    /// The number of its keys that are not revoked.
    pub(crate) keys: u64,
    /// The role of the human that the filter `principal` names; null without that filter.
    role: Option<MemberRole>,
}

impl ProjectSummary {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            project: StoredProject::of(row)?,
            members: row.get("members")?,
            keys: row.get("keys")?,
            role: row.get("role")?,
        })
    }
}

/// A filter for lists of projects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProjectFilter {
    /// A human who must be a member, besides `principal`.
    pub(crate) member: Option<String>,
    /// A member.
    pub(crate) principal: Option<String>,
    pub(crate) disabled: Option<bool>,
    /// A part of the name or id; case is ignored for ASCII letters.
    pub(crate) text: Option<String>,
}

/// Returns up to `rows` projects with ids after `after`.
pub(crate) fn page(
    db: &Connection,
    filter: &ProjectFilter,
    after: &str,
    rows: i64,
) -> rusqlite::Result<Vec<ProjectSummary>> {
    let values = named_params! {
        ":member": filter.member,
        ":principal": filter.principal,
        ":disabled": filter.disabled,
        ":q": filter.text.as_deref().map(str::to_ascii_lowercase),
        ":after": after,
        ":rows": rows,
    };
    db.prepare_cached(PAGE)?.query_map(values, ProjectSummary::of)?.collect()
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

const PAGE: &str = "SELECT *, (SELECT count(*) FROM members WHERE members.project = projects.id) AS members, \
     (SELECT count(*) FROM keys WHERE keys.project = projects.id AND keys.state <> 'revoked') AS keys, \
     (SELECT role FROM members WHERE members.project = projects.id AND members.principal = :principal) AS role \
     FROM projects WHERE id > :after AND (:principal IS NULL OR EXISTS \
     (SELECT 1 FROM members WHERE members.project = projects.id AND members.principal = :principal)) \
     AND (:member IS NULL OR EXISTS \
     (SELECT 1 FROM members WHERE members.project = projects.id AND members.principal = :member)) \
     AND (:disabled IS NULL OR disabled = :disabled) \
     AND (:q IS NULL OR instr(lower(name), :q) OR instr(lower(id), :q)) ORDER BY id LIMIT :rows";
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
