//! The table `members`: the humans of each project, and their roles.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, Row, named_params};
use serde::{Deserialize, Serialize};

use super::principals::PrincipalFilter;

/// The membership of a human in a project, as stored and as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Member"))]
pub(crate) struct ProjectMember {
    /// The ID of the project.
    pub(crate) project: String,
    /// The ID of the human.
    pub(crate) principal: String,
    pub(crate) role: MemberRole,
    /// In milliseconds since the Unix epoch.
    pub(crate) created_at_ms: u64,
}

/// The role of a human in a project (AUTH-8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Role"))]
#[serde(rename_all = "snake_case")]
pub(crate) enum MemberRole {
    Owner,
    Admin,
    Member,
    Viewer,
}

impl MemberRole {
    /// Every role by name.
    pub(crate) const NAMES: [(&'static str, Self); 4] =
        [("owner", Self::Owner), ("admin", Self::Admin), ("member", Self::Member), ("viewer", Self::Viewer)];

    fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Admin => "admin",
            Self::Member => "member",
            Self::Viewer => "viewer",
        }
    }
}

impl FromSql for MemberRole {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let text = value.as_str()?;
        let known = Self::NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, role)| *role).ok_or(FromSqlError::InvalidType)
    }
}

impl ProjectMember {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            project: row.get("project")?,
            principal: row.get("principal")?,
            role: row.get("role")?,
            created_at_ms: row.get("created_at_ms")?,
        })
    }
}

/// Returns up to `rows` members of a project with principal ids after `after`, of the humans that match the filter.
pub(crate) fn page(
    db: &Connection,
    project: &str,
    filter: &PrincipalFilter,
    after: &str,
    rows: i64,
) -> rusqlite::Result<Vec<ProjectMember>> {
    let values = named_params! {
        ":project": project,
        ":disabled": filter.disabled,
        ":q": filter.text.as_deref().map(str::to_ascii_lowercase),
        ":after": after,
        ":rows": rows,
    };
    db.prepare_cached(PAGE)?.query_map(values, ProjectMember::of)?.collect()
}

pub(crate) fn find(
    db: &Connection,
    project: &str,
    principal: &str,
) -> rusqlite::Result<Option<ProjectMember>> {
    db.prepare_cached(FIND)?.query_row([project, principal], ProjectMember::of).optional()
}

/// Returns every membership of a human.
pub(crate) fn of_principal(db: &Connection, principal: &str) -> rusqlite::Result<Vec<ProjectMember>> {
    db.prepare_cached(OF_PRINCIPAL)?.query_map([principal], ProjectMember::of)?.collect()
}

/// Returns every member of a project.
pub(crate) fn of_project(db: &Connection, project: &str) -> rusqlite::Result<Vec<ProjectMember>> {
    db.prepare_cached(OF_PROJECT)?.query_map([project], ProjectMember::of)?.collect()
}

/// Returns the number of owners of a project.
pub(crate) fn owners(db: &Connection, project: &str) -> rusqlite::Result<u64> {
    db.prepare_cached(OWNERS)?.query_row([project], |row| row.get("owners"))
}

/// Stores a membership, or changes the role of an existing one.
pub(crate) fn put(tx: &Connection, member: &ProjectMember) -> rusqlite::Result<()> {
    tx.prepare_cached(PUT)?.execute(named_params! {
        ":project": member.project,
        ":principal": member.principal,
        ":role": member.role.name(),
        ":created": member.created_at_ms,
    })?;
    Ok(())
}

pub(crate) fn delete(tx: &Connection, project: &str, principal: &str) -> rusqlite::Result<()> {
    tx.prepare_cached(DELETE)?.execute([project, principal])?;
    Ok(())
}

const PAGE: &str = "SELECT members.* FROM members JOIN principals ON principals.id = members.principal \
     WHERE members.project = :project AND members.principal > :after \
     AND (:disabled IS NULL OR principals.disabled = :disabled) \
     AND (:q IS NULL OR instr(lower(principals.name), :q) OR instr(lower(principals.email), :q) \
     OR instr(lower(principals.id), :q)) ORDER BY members.principal LIMIT :rows";
const FIND: &str = "SELECT * FROM members WHERE project = ? AND principal = ?";
const OF_PRINCIPAL: &str = "SELECT * FROM members WHERE principal = ? ORDER BY project";
const OF_PROJECT: &str = "SELECT * FROM members WHERE project = ? ORDER BY principal";
const OWNERS: &str = "SELECT count(*) AS owners FROM members WHERE project = ? AND role = 'owner'";
const PUT: &str = "INSERT INTO members (project, principal, role, created_at_ms) \
     VALUES (:project, :principal, :role, :created) \
     ON CONFLICT (project, principal) DO UPDATE SET role = excluded.role";
const DELETE: &str = "DELETE FROM members WHERE project = ? AND principal = ?";
