//! The matrix of permissions: the extent of each permission by the role of a human. Administrators have all permissions.

use serde::Serialize;

use super::Permission;
use crate::db::members::MemberRole;

/// The extent of a permission in a project, or outside of projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Extent {
    /// No object.
    Nothing,
    /// Objects that belong to the caller: their entry, keys that act as them, connections of which they are the owner.
    Own,
    /// Objects that belong to the caller or to no human, but not those of other humans.
    Free,
    /// All objects of the project.
    All,
}

use Extent::{All, Free, Nothing, Own};

/// One row of the matrix.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(super) permission: Permission,
    /// The extents of an owner, an admin, a member and a viewer of the object's project.
    roles: [Extent; 4],
    /// The extent of a human for objects of no project of theirs.
    human: Extent,
}

impl Grant {
    const fn of_row(permission: Permission, roles: [Extent; 4], human: Extent) -> Self {
        Self { permission, roles, human }
    }

    /// Returns the extent of a human with this role in the object's project.
    pub(crate) fn of(&self, role: Option<MemberRole>) -> Extent {
        let [owner, admin, member, viewer] = self.roles;
        match role {
            Some(MemberRole::Owner) => owner,
            Some(MemberRole::Admin) => admin,
            Some(MemberRole::Member) => member,
            Some(MemberRole::Viewer) => viewer,
            None => self.human,
        }
    }

    /// True if any human can have the permission.
    pub(crate) fn is_for_humans(&self) -> bool {
        self.human != Nothing || self.roles.iter().any(|extent| *extent != Nothing)
    }
}

/// Returns the row of a permission. A permission without a row is granted to administrators only.
pub(crate) fn grant(permission: Permission) -> &'static Grant {
    MATRIX.iter().find(|grant| grant.permission == permission).unwrap_or(&ADMINISTRATORS_ONLY)
}

/// The rows: owner, admin, member and viewer of a project, and a human outside of their projects. `Own` in the last
/// column also permits the list, which then contains nothing of others.
pub(crate) static MATRIX: &[Grant] = &[
    Grant::of_row(Permission::Administer, [Nothing; 4], Nothing),
    Grant::of_row(Permission::OwnSession, [All; 4], All),
    Grant::of_row(Permission::SeeSelf, [Own; 4], Own),
    Grant::of_row(Permission::SeeProjects, [All; 4], Own),
    Grant::of_row(Permission::ChangeMembers, [All, All, Nothing, Nothing], Nothing),
    Grant::of_row(Permission::ChangeOwners, [All, Nothing, Nothing, Nothing], Nothing),
    Grant::of_row(Permission::SeeKeys, [All; 4], Own),
    Grant::of_row(Permission::MintKeys, [Free, Free, Own, Nothing], Nothing),
    Grant::of_row(Permission::ChangeKeys, [All, All, Own, Nothing], Nothing),
    Grant::of_row(Permission::RevealKeys, [Own; 4], Nothing),
    Grant::of_row(Permission::SeeUsage, [All; 4], Own),
    Grant::of_row(Permission::SeeQuotas, [All; 4], Own),
    Grant::of_row(Permission::RunRequests, [Free, Free, Own, Own], Nothing),
    Grant::of_row(Permission::Search, [All; 4], Own),
    Grant::of_row(Permission::SeeConnections, [Own; 4], Own),
    Grant::of_row(Permission::ChangeConnections, [Own; 4], Own),
];

const ADMINISTRATORS_ONLY: Grant = Grant::of_row(Permission::Administer, [Nothing; 4], Nothing);
