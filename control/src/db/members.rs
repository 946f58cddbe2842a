//! The table `members`: the humans of each project, and their roles.

use serde::{Deserialize, Serialize};

use super::principals::PrincipalFilter;
use crate::db::engine::{Db, DbResult, FromValue, Mismatch, Row, Value, named_params};

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

impl FromValue<'_> for MemberRole {
    fn from_value(value: Value<'_>) -> Result<Self, Mismatch> {
        let text = <&str>::from_value(value)?;
        let known = Self::NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, role)| *role).ok_or(Mismatch)
    }
}

impl ProjectMember {
    fn of(row: Row<'_>) -> DbResult<Self> {
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
    db: &Db,
    project: &str,
    filter: &PrincipalFilter,
    after: &str,
    rows: i64,
) -> DbResult<Vec<ProjectMember>> {
    let values = named_params! {
        ":project": project,
        ":disabled": filter.disabled,
        ":q": filter.text.as_deref().map(str::to_ascii_lowercase),
        ":after": after,
        ":rows": rows,
    };
    db.rows(PAGE, values, ProjectMember::of)
}

pub(crate) fn find(db: &Db, project: &str, principal: &str) -> DbResult<Option<ProjectMember>> {
    db.optional_row(FIND, [project, principal], ProjectMember::of)
}

/// Returns every membership of a human.
pub(crate) fn of_principal(db: &Db, principal: &str) -> DbResult<Vec<ProjectMember>> {
    db.rows(OF_PRINCIPAL, [principal], ProjectMember::of)
}

/// Returns every member of a project.
pub(crate) fn of_project(db: &Db, project: &str) -> DbResult<Vec<ProjectMember>> {
    db.rows(OF_PROJECT, [project], ProjectMember::of)
}

/// Returns the number of owners of a project.
pub(crate) fn owners(db: &Db, project: &str) -> DbResult<u64> {
    db.row(OWNERS, [project], |row| row.get("owners"))
}

/// Stores a membership, or changes the role of an existing one.
pub(crate) fn put(tx: &Db, member: &ProjectMember) -> DbResult<()> {
    tx.execute(
        PUT,
        named_params! {
            ":project": member.project,
            ":principal": member.principal,
            ":role": member.role.name(),
            ":created": member.created_at_ms,
        },
    )?;
    Ok(())
}

pub(crate) fn delete(tx: &Db, project: &str, principal: &str) -> DbResult<()> {
    tx.execute(DELETE, [project, principal])?;
    Ok(())
}

const PAGE: &str = "SELECT members.* FROM members JOIN principals ON principals.id = members.principal \
     WHERE members.project = :project AND members.principal > :after \
     AND (:disabled IS NULL OR principals.disabled = :disabled) \
     AND (:q IS NULL OR instr(lower(principals.name), :q) > 0 OR instr(lower(principals.email), :q) > 0 \
     OR instr(lower(principals.id), :q) > 0) ORDER BY members.principal LIMIT :rows";
const FIND: &str = "SELECT * FROM members WHERE project = :project AND principal = :principal";
const OF_PRINCIPAL: &str = "SELECT * FROM members WHERE principal = :principal ORDER BY project";
const OF_PROJECT: &str = "SELECT * FROM members WHERE project = :project ORDER BY principal";
const OWNERS: &str = "SELECT count(*) AS owners FROM members WHERE project = :project AND role = 'owner'";
const PUT: &str = "INSERT INTO members (project, principal, role, created_at_ms) \
     VALUES (:project, :principal, :role, :created) \
     ON CONFLICT (project, principal) DO UPDATE SET role = excluded.role";
const DELETE: &str = "DELETE FROM members WHERE project = :project AND principal = :principal";
