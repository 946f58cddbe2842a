//! Permissions of the admin API (AUTH-3, AUTH-7, AUTH-8). Each route names a [`Permission`]; [`may`] is the only function
//! that decides about one, and the [matrix](matrix) the only place that grants one. A project key has no permission: it
//! is refused before its request is matched with a route.

pub(crate) mod matrix;

use std::collections::BTreeMap;

use serde::Serialize;

use self::matrix::{Extent, grant};
use crate::db::human_scope::HumanScope;
use crate::db::members::MemberRole;

/// A permission of the admin API. The matrix lists the callers that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Permission {
    /// Everything that no other permission names: settings, providers, endpoints, quotas, people, audit, backups.
    Administer,
    /// The caller's own session.
    OwnSession,
    /// The caller's own entry among the humans, and what it may call.
    SeeSelf,
    /// Projects, their members, and what they may call.
    SeeProjects,
    /// Adding members to a project, changing their roles and removing them, except owners.
    ChangeMembers,
    /// Making a member an owner, and changing or removing an owner.
    ChangeOwners,
    /// Project keys without their secrets, and what they may call.
    SeeKeys,
    /// Minting and rotating project keys, which shows a new key in plain text.
    MintKeys,
    /// Changing, revoking and deleting project keys.
    ChangeKeys,
    /// Reading a key again in plain text.
    RevealKeys,
    /// Usage, its costs, and the records of requests.
    SeeUsage,
    /// Limits and what is used of them.
    SeeQuotas,
    /// Sending requests of the data plane with a key, without its secret.
    RunRequests,
    /// Finding objects by name or ID, among those that the caller may see.
    Search,
    /// Private provider instances.
    SeeConnections,
    /// Connecting and disconnecting a private provider instance, and sharing it with projects.
    ChangeConnections,
}

impl Permission {
    /// Every permission, in the order of the matrix.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        matrix::MATRIX.iter().map(|grant| grant.permission)
    }

    /// The name in answers and errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Administer => "administer",
            Self::OwnSession => "own_session",
            Self::SeeSelf => "see_self",
            Self::SeeProjects => "see_projects",
            Self::ChangeMembers => "change_members",
            Self::ChangeOwners => "change_owners",
            Self::SeeKeys => "see_keys",
            Self::MintKeys => "mint_keys",
            Self::ChangeKeys => "change_keys",
            Self::RevealKeys => "reveal_keys",
            Self::SeeUsage => "see_usage",
            Self::SeeQuotas => "see_quotas",
            Self::RunRequests => "run_requests",
            Self::Search => "search",
            Self::SeeConnections => "see_connections",
            Self::ChangeConnections => "change_connections",
        }
    }
}

/// The authority of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// An administrator, by key or by group.
    Administrator,
    /// A human without the administrators' group.
    Human {
        /// The ID of the human.
        principal: String,
        /// The human's role in each of their projects, by the ID of the project.
        roles: BTreeMap<String, MemberRole>,
    },
}

impl Standing {
    /// Returns the ID of a human; `None` for an administrator, who is not restricted to anything.
    pub(crate) fn human(&self) -> Option<&str> {
        match self {
            Self::Administrator => None,
            Self::Human { principal, .. } => Some(principal),
        }
    }

    /// Returns a human's roles by the ID of the project; `None` for an administrator.
    pub(crate) fn roles(&self) -> Option<&BTreeMap<String, MemberRole>> {
        match self {
            Self::Administrator => None,
            Self::Human { roles, .. } => Some(roles),
        }
    }

    /// Returns the extent of each permission in the projects of a human, by the name of the human's role there.
    pub(crate) fn extents(&self) -> BTreeMap<&'static str, BTreeMap<&'static str, Extent>> {
        let roles = self.roles().into_iter().flat_map(BTreeMap::values);
        let named =
            roles.flat_map(|role| MemberRole::NAMES.into_iter().filter(move |(_, other)| other == role));
        named
            .map(|(name, role)| {
                let of = |permission: Permission| (permission.name(), grant(permission).of(Some(role)));
                (name, Permission::all().map(of).collect())
            })
            .collect()
    }

    /// Returns the permissions that the caller has for some objects at least.
    pub(crate) fn permissions(&self) -> Vec<Permission> {
        Permission::all().filter(|permission| may(self, *permission, &Object::Many).is_ok()).collect()
    }

    /// Returns the IDs of the projects to which the caller is restricted; `None` for an administrator.
    pub(crate) fn projects(&self) -> Option<Vec<String>> {
        match self {
            Self::Administrator => None,
            Self::Human { roles, .. } => Some(roles.keys().cloned().collect()),
        }
    }

    /// Returns the restriction of lists to what a human may see; `None` for an administrator.
    pub(crate) fn scope(&self) -> Option<HumanScope> {
        Some(HumanScope::of(self.human()?, &self.projects()?))
    }
}

/// The object of a request, as far as a decision depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// No single object: a list, or figures over many objects, which are restricted to what the caller may see.
    Many,
    /// An object that does not exist.
    Missing,
    /// An existing object.
    One {
        /// The ID of the project to which it belongs.
        project: Option<String>,
        /// The ID of the human to whom it belongs.
        owner: Option<String>,
    },
}

/// A refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The caller may not know of the object: the answer is that of an object that does not exist.
    Hidden,
    /// The caller lacks the permission.
    Forbidden,
    /// The caller has the permission for some of the objects only, and not for this one.
    Foreign(Extent),
}

/// Decides whether a caller may use a permission on an object.
pub(crate) fn may(standing: &Standing, permission: Permission, object: &Object) -> Result<(), Denial> {
    let Standing::Human { principal, roles } = standing else { return Ok(()) };
    let grant = grant(permission);
    let (project, owner) = match object {
        Object::Many => {
            let mut extents = roles.values().map(|role| grant.of(Some(*role))).chain([grant.of(None)]);
            let is_granted = extents.any(|extent| extent != Extent::Nothing);
            return if is_granted { Ok(()) } else { Err(Denial::Forbidden) };
        }
        Object::Missing if grant.is_for_humans() => return Err(Denial::Hidden),
        Object::Missing => return Err(Denial::Forbidden),
        Object::One { project, owner } => (project, owner),
    };
    let role = project.as_ref().and_then(|project| roles.get(project)).copied();
    let is_own = owner.as_deref() == Some(principal.as_str());
    match grant.of(role) {
        Extent::All => Ok(()),
        Extent::Own | Extent::Free if is_own => Ok(()),
        Extent::Free if owner.is_none() => Ok(()),
        extent @ (Extent::Own | Extent::Free) if role.is_some() => Err(Denial::Foreign(extent)),
        _ if role.is_some() || is_own || !grant.is_for_humans() => Err(Denial::Forbidden),
        _ => Err(Denial::Hidden),
    }
}

#[cfg(test)]
mod tests;
