//! The table `projects`.

use serde::Serialize;
use shared::access::Allowlist;

use super::allowlist;
use super::members::MemberRole;
use super::quotas::KeyLimit;
use crate::db::engine::{Db, DbError, DbResult, Row, named_params};

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
    fn of(row: Row<'_>) -> DbResult<Self> {
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

fn key_defaults(row: Row<'_>) -> DbResult<Vec<KeyLimit>> {
    let Some(text) = row.get::<Option<&str>>("key_defaults")? else { return Ok(Vec::new()) };
    serde_json::from_str(text).map_err(DbError::bad_value)
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
    fn of(row: Row<'_>) -> DbResult<Self> {
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
pub(crate) fn page(db: &Db, filter: &ProjectFilter, after: &str, rows: i64) -> DbResult<Vec<ProjectSummary>> {
    let values = named_params! {
        ":member": filter.member,
        ":principal": filter.principal,
        ":disabled": filter.disabled,
        ":q": filter.text.as_deref().map(str::to_ascii_lowercase),
        ":after": after,
        ":rows": rows,
    };
    db.rows(PAGE, values, ProjectSummary::of)
}

pub(crate) fn find(db: &Db, id: &str) -> DbResult<Option<StoredProject>> {
    db.optional_row(FIND, [id], StoredProject::of)
}

/// Returns every project that is not disabled, for the snapshot.
pub(crate) fn enabled(db: &Db) -> DbResult<Vec<StoredProject>> {
    db.rows(ENABLED, (), StoredProject::of)
}

/// True if another project has this name.
pub(crate) fn name_is_taken(db: &Db, name: &str, by_other_than: &str) -> DbResult<bool> {
    db.exists(TAKEN, [name, by_other_than])
}

/// Inserts a new row, or stores the next version of one.
pub(crate) fn put(tx: &Db, project: &StoredProject) -> DbResult<()> {
    let [models, endpoints, routes] = allowlist::columns(&project.allowlist)?;
    let key_defaults =
        (!project.key_defaults.is_empty()).then(|| serde_json::to_string(&project.key_defaults));
    tx.execute(
        PUT,
        named_params! {
            ":id": project.id,
            ":name": project.name,
            ":disabled": project.disabled,
            ":models": models,
            ":endpoints": endpoints,
            ":routes": routes,
            ":key_defaults": key_defaults.transpose().map_err(DbError::bad_value)?,
            ":version": project.version,
            ":created": project.created_at_ms,
            ":updated": project.updated_at_ms,
        },
    )?;
    Ok(())
}

/// Deletes a project and its memberships.
pub(crate) fn delete(tx: &Db, id: &str) -> DbResult<()> {
    tx.execute(DELETE, [id])?;
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
     AND (:q IS NULL OR instr(lower(name), :q) > 0 OR instr(lower(id), :q) > 0) ORDER BY id LIMIT :rows";
const FIND: &str = "SELECT * FROM projects WHERE id = :id";
const ENABLED: &str = "SELECT * FROM projects WHERE disabled = 0";
const TAKEN: &str = "SELECT 1 FROM projects WHERE name = :name AND id <> :other";
const PUT: &str = "INSERT INTO projects \
     (id, name, disabled, models, endpoints, routes, key_defaults, version, created_at_ms, updated_at_ms) VALUES \
     (:id, :name, :disabled, :models, :endpoints, :routes, :key_defaults, :version, :created, :updated) \
     ON CONFLICT (id) DO UPDATE SET name = excluded.name, disabled = excluded.disabled, \
     models = excluded.models, endpoints = excluded.endpoints, routes = excluded.routes, \
     key_defaults = excluded.key_defaults, \
     version = excluded.version, updated_at_ms = excluded.updated_at_ms";
const DELETE: &str = "DELETE FROM projects WHERE id = :id";
