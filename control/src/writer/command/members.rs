//! Commands that change memberships. A project that has an owner always keeps at least one.

use serde::Serialize;
use serde_json::json;
use shared::error_kind::ErrorKind;

use super::{Command, CommandRefusal, Done, Write, projects};
use crate::db::audit::AuditEntry;
use crate::db::engine::{Db, DbResult};
use crate::db::members::{self, MemberRole, ProjectMember};
use crate::db::names::{Labels, NameLabel, NamedKind};
use crate::db::{keys, principals};
use crate::routing::publish::Touched;

/// Adds a human to a project, or changes a member's role.
#[derive(Debug)]
pub(crate) struct PutMember {
    pub(crate) project: String,
    pub(crate) principal: String,
    pub(crate) role: MemberRole,
    pub(crate) owners: OwnerChanges,
}

/// The caller's permission to make, change and remove owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerChanges {
    Permitted,
    Refused,
}

impl OwnerChanges {
    /// Refuses a change from or to an owner without the permission.
    fn check(self, roles: [Option<MemberRole>; 2]) -> Result<(), CommandRefusal> {
        if self == Self::Permitted || !roles.contains(&Some(MemberRole::Owner)) {
            return Ok(());
        }
        let message = "Only an owner of the project or an administrator makes, changes and removes owners.";
        Err(CommandRefusal::new(ErrorKind::Forbidden, message))
    }
}

/// Removes a human from a project. Refused while a key of the project acts as them.
#[derive(Debug)]
pub(crate) struct RemoveMember {
    pub(crate) project: String,
    pub(crate) principal: String,
    pub(crate) owners: OwnerChanges,
}

/// A membership, with the human's name.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Member"))]
pub(crate) struct ShownMember {
    #[serde(flatten)]
    pub(crate) member: ProjectMember,
    principal_name: Option<String>,
    principal_email: Option<String>,
}

impl ShownMember {
    /// Adds the name to `member`.
    pub(crate) fn of(db: &Db, labels: &mut Labels, member: ProjectMember) -> DbResult<Self> {
        let NameLabel { name, email } = labels.find(db, NamedKind::Principal, &member.principal)?;
        Ok(Self { member, principal_name: name, principal_email: email })
    }
}

impl Command for PutMember {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        projects::known(write, &self.project)?;
        let principal = principals::find(write.db, &self.principal)?;
        principal.ok_or_else(|| CommandRefusal::not_found("principal", &self.principal))?;
        let before = members::find(write.db, &self.project, &self.principal)?;
        self.owners.check([before.as_ref().map(|before| before.role), Some(self.role)])?;
        if let Some(before) = &before
            && self.role != MemberRole::Owner
        {
            keep_an_owner(write, before)?;
        }
        let after = ProjectMember {
            project: self.project.clone(),
            principal: self.principal.clone(),
            role: self.role,
            created_at_ms: before.as_ref().map_or(write.now_ms, |before| before.created_at_ms),
        };
        members::put(write.db, &after)?;
        let audit =
            AuditEntry::done("member.put", "member", &name(&after)).before(json!(before)).after(json!(after));
        Done::new(&ShownMember::of(write.db, &mut Labels::default(), after)?, audit, Touched::NOTHING)
    }
}

impl Command for RemoveMember {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        projects::known(write, &self.project)?;
        let before = members::find(write.db, &self.project, &self.principal)?
            .ok_or_else(|| CommandRefusal::not_found("member", &self.principal))?;
        self.owners.check([Some(before.role), None])?;
        keep_an_owner(write, &before)?;
        let keys = keys::living(write.db, &before.project, Some(&before.principal))?;
        if keys > 0 {
            return Err(CommandRefusal::conflict(format!(
                "Keys of this project that act as this principal: {keys}. Revoke them first, or let them \
                 act as another principal."
            )));
        }
        members::delete(write.db, &before.project, &before.principal)?;
        let audit = AuditEntry::done("member.remove", "member", &name(&before)).before(json!(before));
        Ok(Done::without_output(audit, Touched::NOTHING))
    }
}

/// Refuses to remove the last owner of a project.
pub(super) fn keep_an_owner(write: &Write<'_>, member: &ProjectMember) -> Result<(), CommandRefusal> {
    if member.role == MemberRole::Owner && members::owners(write.db, &member.project)? <= 1 {
        return Err(CommandRefusal::conflict(format!(
            "This principal is the last owner of project '{}'. Add another owner first.",
            member.project
        )));
    }
    Ok(())
}

fn name(member: &ProjectMember) -> String {
    format!("{}/{}", member.project, member.principal)
}
