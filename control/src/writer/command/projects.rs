//! Commands that change projects.

use serde_json::json;
use shared::access::Allowlist;
use shared::quota::Subject;

use super::{Command, CommandRefusal, Done, Write, quotas};
use crate::common::change::AllowlistEdit;
use crate::db::audit::AuditEntry;
use crate::db::ids::new_id;
use crate::db::projects::{self, StoredProject};
use crate::db::quotas::{KeyLimit, Of};
use crate::db::{keys, members, providers};
use crate::routing::publish::{DeletedParts, Touched};

/// Creates a project.
#[derive(Debug)]
pub(crate) struct CreateProject {
    pub(crate) name: String,
    pub(crate) allowlist: AllowlistEdit,
    pub(crate) key_defaults: Vec<KeyLimit>,
}

/// Changes a project. The keys of a disabled project are rejected.
#[derive(Debug)]
pub(crate) struct EditProject {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
    pub(crate) name: Option<String>,
    pub(crate) disabled: Option<bool>,
    pub(crate) allowlist: AllowlistEdit,
    /// The default limits of keys that are created from now on.
    pub(crate) key_defaults: Option<Vec<KeyLimit>>,
}

/// Deletes a project with its memberships, limits and revoked keys. Refused while it has other keys.
#[derive(Debug)]
pub(crate) struct DeleteProject {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
}

impl Command for CreateProject {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        quotas::check_key_limits(write, "key_defaults", &self.key_defaults)?;
        let project = StoredProject {
            id: new_id("prj", write.now_ms)?,
            name: self.name.clone(),
            disabled: false,
            allowlist: self.allowlist.of(Allowlist::default()),
            key_defaults: self.key_defaults.clone(),
            version: 1,
            created_at_ms: write.now_ms,
            updated_at_ms: write.now_ms,
        };
        store(write, &project)?;
        let audit = AuditEntry::done("project.create", "project", &project.id).after(json!(project));
        Ok(Done::new(&project, audit, Touched::NOTHING)?.version(1))
    }
}

impl Command for EditProject {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.id, self.if_version)?;
        quotas::check_key_limits(write, "key_defaults", self.key_defaults.as_deref().unwrap_or_default())?;
        let after = StoredProject {
            name: self.name.clone().unwrap_or_else(|| before.name.clone()),
            disabled: self.disabled.unwrap_or(before.disabled),
            allowlist: self.allowlist.of(before.allowlist.clone()),
            key_defaults: self.key_defaults.clone().unwrap_or_else(|| before.key_defaults.clone()),
            version: before.version + 1,
            updated_at_ms: write.now_ms,
            ..before.clone()
        };
        store(write, &after)?;
        let audit =
            AuditEntry::done("project.edit", "project", &after.id).before(json!(before)).after(json!(after));
        let is_same = before.disabled == after.disabled && before.allowlist == after.allowlist;
        let touched = if is_same { Touched::NOTHING } else { Touched::project(&after.id) };
        Ok(Done::new(&after, audit, touched)?.version(after.version))
    }
}

impl Command for DeleteProject {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.id, self.if_version)?;
        let keys = keys::living(write.db, &before.id, None)?;
        if keys > 0 {
            return Err(CommandRefusal::conflict(format!(
                "Keys of this project that are not revoked: {keys}. Revoke them first, or disable the project."
            )));
        }
        let memberships = members::of_project(write.db, &before.id)?;
        let bindings = providers::bound_to(write.db, &before.id)?;
        let mut quotas = quotas::delete_of(write, &Of { kind: Subject::Project, id: before.id.clone() })?;
        let (keys, families) = keys::delete_of(write.db, &before.id)?;
        for id in families {
            quotas.extend(quotas::delete_of(write, &Of { kind: Subject::Key, id })?);
        }
        projects::delete(write.db, &before.id)?;
        let deleted = DeletedParts {
            keys: keys.len(),
            quotas: quotas.len(),
            memberships: memberships.len(),
            bindings: bindings.len(),
        };
        let audit = AuditEntry::done("project.delete", "project", &before.id).before(json!({
            "project": before, "memberships": memberships, "bindings": bindings, "keys": keys, "quotas": quotas,
        }));
        // Provider instances may have been shared with it, so routing must be rebuilt as well.
        let touched = Touched::project(&before.id)
            .without_quotas(quotas.iter().map(|quota| quota.id.clone()))
            .and(Touched::ROUTING);
        Ok(Done::without_output(audit, touched).deleting(deleted))
    }
}

/// Returns the project `id`, or an error if it does not exist.
pub(super) fn known(write: &Write<'_>, id: &str) -> Result<StoredProject, CommandRefusal> {
    projects::find(write.db, id)?.ok_or_else(|| CommandRefusal::not_found("project", id))
}

fn expect(write: &Write<'_>, id: &str, if_version: Option<u64>) -> Result<StoredProject, CommandRefusal> {
    let found = known(write, id)?;
    CommandRefusal::if_stale(if_version, found.version)?;
    Ok(found)
}

fn store(write: &Write<'_>, project: &StoredProject) -> Result<(), CommandRefusal> {
    if projects::name_is_taken(write.db, &project.name, &project.id)? {
        return Err(CommandRefusal::conflict(format!("Another project is called '{}'.", project.name)));
    }
    Ok(projects::put(write.db, project)?)
}
