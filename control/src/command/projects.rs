//! What changes of a project mean.

use serde_json::json;
use shared::access::Allowlist;
use shared::quota::Subject;

use super::allowlist::AllowlistEdit;
use super::{Command, Done, Refusal, Write, quotas};
use crate::publish::Touched;
use crate::store::audit::Entry;
use crate::store::ids::new_id;
use crate::store::projects::{self, Project};
use crate::store::quotas::{KeyLimit, Of};
use crate::store::{keys, members, providers};

/// Makes a project.
#[derive(Debug)]
pub(crate) struct Create {
    pub(crate) name: String,
    pub(crate) allowlist: AllowlistEdit,
    pub(crate) key_defaults: Vec<KeyLimit>,
}

/// Changes one. The keys of a disabled project are refused.
#[derive(Debug)]
pub(crate) struct Edit {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
    pub(crate) name: Option<String>,
    pub(crate) disabled: Option<bool>,
    pub(crate) allowlist: AllowlistEdit,
    /// For keys that are made from now on.
    pub(crate) key_defaults: Option<Vec<KeyLimit>>,
}

/// Deletes one, with its memberships, limits and revoked keys, as long as it has no other keys.
#[derive(Debug)]
pub(crate) struct Delete {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
}

impl Command for Create {
    type Output = Project;

    fn apply(self, write: &Write<'_>) -> Result<Done<Project>, Refusal> {
        quotas::check_key_limits(write, "key_defaults", &self.key_defaults)?;
        let project = Project {
            id: new_id("prj", write.now_ms)?,
            name: self.name,
            disabled: false,
            allowlist: self.allowlist.of(Allowlist::default()),
            key_defaults: self.key_defaults,
            version: 1,
            created_at_ms: write.now_ms,
            updated_at_ms: write.now_ms,
        };
        store(write, &project)?;
        let audit = Entry::done("project.create", "project", &project.id).after(json!(project));
        Ok(Done { version: Some(1), output: project, audit, touched: Touched::NOTHING })
    }
}

impl Command for Edit {
    type Output = Project;

    fn apply(self, write: &Write<'_>) -> Result<Done<Project>, Refusal> {
        let before = expect(write, &self.id, self.if_version)?;
        quotas::check_key_limits(write, "key_defaults", self.key_defaults.as_deref().unwrap_or_default())?;
        let after = Project {
            name: self.name.unwrap_or_else(|| before.name.clone()),
            disabled: self.disabled.unwrap_or(before.disabled),
            allowlist: self.allowlist.of(before.allowlist.clone()),
            key_defaults: self.key_defaults.unwrap_or_else(|| before.key_defaults.clone()),
            version: before.version + 1,
            updated_at_ms: write.now_ms,
            ..before.clone()
        };
        store(write, &after)?;
        let audit =
            Entry::done("project.edit", "project", &after.id).before(json!(before)).after(json!(after));
        Ok(Done { version: Some(after.version), output: after, audit, touched: Touched::ACCESS })
    }
}

impl Command for Delete {
    type Output = ();

    fn apply(self, write: &Write<'_>) -> Result<Done<()>, Refusal> {
        let before = expect(write, &self.id, self.if_version)?;
        let keys = keys::living(write.db, &before.id, None)?;
        if keys > 0 {
            return Err(Refusal::conflict(format!(
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
        let audit = Entry::done("project.delete", "project", &before.id).before(json!({
            "project": before, "memberships": memberships, "bindings": bindings, "keys": keys, "quotas": quotas,
        }));
        // Provider instances may have been shared with it.
        Ok(Done { output: (), version: None, audit, touched: Touched::ACCESS.and(Touched::ROUTING) })
    }
}

/// The project called `id`, which must be there.
pub(super) fn known(write: &Write<'_>, id: &str) -> Result<Project, Refusal> {
    projects::find(write.db, id)?.ok_or_else(|| Refusal::not_found("project", id))
}

fn expect(write: &Write<'_>, id: &str, if_version: Option<u64>) -> Result<Project, Refusal> {
    let found = known(write, id)?;
    Refusal::if_stale(if_version, found.version)?;
    Ok(found)
}

fn store(write: &Write<'_>, project: &Project) -> Result<(), Refusal> {
    if projects::name_is_taken(write.db, &project.name, &project.id)? {
        return Err(Refusal::conflict(format!("Another project is called '{}'.", project.name)));
    }
    Ok(projects::put(write.db, project)?)
}
