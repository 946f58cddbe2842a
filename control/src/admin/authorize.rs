//! Decides whether a caller may send a request, before its body is read.

use std::collections::BTreeMap;

use shared::clock::unix_ms;
use shared::error_kind::ErrorKind;
use shared::quota::Subject;

use super::{ApiError, FoundRoute};
use crate::admin::permission::matrix::Extent;
use crate::admin::permission::{Denial, Object, Permission, Standing, may};
use crate::common::actor::{Actor, Who};
use crate::db::engine::{Db, DbResult};
use crate::db::quotas::Of;
use crate::db::readers::{WeakReaders, asking_as};
use crate::db::{keys, members, oauth, principals, projects, providers, quotas};

/// An authenticated caller, with its authority.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) actor: Actor,
    pub(crate) standing: Standing,
}

/// Decides about a request by its route. A path or method that does not exist is left to the handler, which reports it.
pub(crate) async fn authorize(
    readers: &WeakReaders,
    actor: Actor,
    found: Option<&FoundRoute>,
) -> Result<Caller, ApiError> {
    let permission = found.map(|found| found.route.permission);
    let (standing, object) = match &actor.who {
        Who::Administrator(_) => (Standing::Administrator, Object::Many),
        Who::Arriving => (Standing::Human { principal: String::new(), roles: BTreeMap::new() }, Object::Many),
        Who::GroupAdministrator(principal) => {
            let principal = principal.to_string();
            readers.get()?.ask(move |db| enabled(db, &principal)).await??;
            (Standing::Administrator, Object::Many)
        }
        Who::Human(principal) => {
            let principal = principal.to_string();
            let id = found.and_then(|found| found.arguments.first().cloned());
            let (readers, asking) = (readers.get()?, Some(principal.as_str().into()));
            let read = readers.ask(move |db| human(db, principal, permission, id.as_deref()));
            asking_as(asking, read).await??
        }
        Who::Unknown | Who::Gateway => return Err(forbidden(Permission::Administer)),
    };
    if let Some(permission) = permission {
        may(&standing, permission, &object).map_err(|denial| refusal(denial, permission))?;
    }
    Ok(Caller { actor, standing })
}

/// Returns the error for a refused request.
pub(crate) fn refusal(denial: Denial, permission: Permission) -> ApiError {
    match denial {
        Denial::Hidden => {
            let object = match permission {
                // The head of a run names its key.
                Permission::RunRequests => Some(ObjectKind::Key),
                other => ObjectKind::of(other),
            };
            let object = object.map_or("object", ObjectKind::name);
            ApiError::new(ErrorKind::NotFound, format!("There is no such {object}."))
        }
        Denial::Forbidden => forbidden(permission),
        Denial::Foreign(extent) => {
            let extent = match extent {
                Extent::Free => {
                    "belongs to no human or to you, such as a key that acts as no human or as you"
                }
                _ => "belongs to you, such as a key that acts as you",
            };
            let message = format!("Your role permits this only for what {extent} ({}).", permission.name());
            ApiError::new(ErrorKind::Forbidden, message)
        }
    }
}

fn forbidden(permission: Permission) -> ApiError {
    let message = match permission {
        Permission::Administer => "This needs an administrator.".to_owned(),
        other => format!("Your role does not permit this: it lacks the permission {}.", other.name()),
    };
    ApiError::new(ErrorKind::Forbidden, message)
}

/// Refuses a human who is disabled or deleted.
fn enabled(db: &Db, principal: &str) -> DbResult<Result<(), ApiError>> {
    if principals::find(db, principal)?.is_some_and(|human| !human.disabled) {
        return Ok(Ok(()));
    }
    let message = "This account is disabled or deleted. Ask an administrator.";
    Ok(Err(ApiError::new(ErrorKind::Forbidden, message)))
}

/// Reads the authority of a human, and the object of their request.
fn human(
    db: &Db,
    principal: String,
    permission: Option<Permission>,
    id: Option<&str>,
) -> DbResult<Result<(Standing, Object), ApiError>> {
    let standing = match standing(db, principal)? {
        Ok(standing) => standing,
        Err(error) => return Ok(Err(error)),
    };
    let kind = permission.and_then(ObjectKind::of);
    let object = match kind.zip(id) {
        Some((kind, id)) => kind.find(db, id)?.unwrap_or(Object::Missing),
        None => Object::Many,
    };
    Ok(Ok((standing, object)))
}

/// Reads the authority of a human.
pub(super) fn standing(db: &Db, principal: String) -> DbResult<Result<Standing, ApiError>> {
    if let Err(error) = enabled(db, &principal)? {
        return Ok(Err(error));
    }
    let roles = members::of_principal(db, &principal)?;
    let roles = roles.into_iter().map(|member| (member.project, member.role)).collect();
    Ok(Ok(Standing::Human { principal, roles }))
}

/// Returns a key as the object of a decision.
pub(super) fn key_object(db: &Db, id: &str) -> DbResult<Object> {
    Ok(ObjectKind::Key.find(db, id)?.unwrap_or(Object::Missing))
}

/// The kind of object that the first `{}` of a route's pattern names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectKind {
    Human,
    Project,
    Key,
    Provider,
    Quota,
}

impl ObjectKind {
    /// Returns the kind of object about which a permission is decided; `None` for permissions that are decided
    /// without an object.
    fn of(permission: Permission) -> Option<Self> {
        match permission {
            Permission::Administer
            | Permission::OwnSession
            | Permission::SeeUsage
            | Permission::RunRequests
            | Permission::Search => None,
            Permission::SeeSelf => Some(Self::Human),
            Permission::SeeProjects | Permission::ChangeMembers | Permission::ChangeOwners => {
                Some(Self::Project)
            }
            Permission::SeeKeys | Permission::MintKeys | Permission::ChangeKeys | Permission::RevealKeys => {
                Some(Self::Key)
            }
            Permission::SeeConnections | Permission::ChangeConnections => Some(Self::Provider),
            Permission::SeeQuotas => Some(Self::Quota),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Human => "principal",
            Self::Project => "project",
            Self::Key => "key",
            Self::Provider => "provider",
            Self::Quota => "quota",
        }
    }

    fn find(self, db: &Db, id: &str) -> DbResult<Option<Object>> {
        let one = |project, owner| Object::One { project, owner };
        Ok(match self {
            Self::Human => principals::find(db, id)?.map(|human| one(None, Some(human.id))),
            Self::Project => projects::find(db, id)?.map(|project| one(Some(project.id), None)),
            Self::Key => keys::find(db, id, unix_ms())?.map(|key| one(Some(key.project), key.acts_as)),
            Self::Provider => match providers::find(db, id)? {
                Some(provider) => Some(one(None, provider.owner)),
                // A provider of the file belongs to the human who has signed in to it.
                None => oauth::owner(db, id)?.map(|owner| one(None, Some(owner))),
            },
            Self::Quota => match quotas::find(db, id)? {
                Some(quota) => Some(Self::counted(db, &quota.counted.subject)?),
                None => None,
            },
        })
    }

    /// Returns the object that a limit belongs to: its subject. A limit of the gateway belongs to no human.
    fn counted(db: &Db, subject: &Of) -> DbResult<Object> {
        let kind = match subject.kind {
            Subject::Key => {
                let keys = keys::in_family(db, &subject.id)?;
                return keys.first().map_or(Ok(Object::Missing), |key| key_object(db, key));
            }
            Subject::Project => Self::Project,
            Subject::Principal => Self::Human,
            Subject::Provider => Self::Provider,
            Subject::Gateway => return Ok(Object::Missing),
        };
        Ok(kind.find(db, &subject.id)?.unwrap_or(Object::Missing))
    }
}
