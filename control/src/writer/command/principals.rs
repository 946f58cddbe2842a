//! Commands that change principals.

use serde_json::json;
use shared::quota::Subject;

use super::members::keep_an_owner;
use super::{Command, CommandRefusal, Done, Write, quotas};
use crate::common::change::FieldChange;
use crate::db::audit::AuditEntry;
use crate::db::ended_sessions::{self, SessionEnd};
use crate::db::ids::new_id;
use crate::db::principals::{self, Principal};
use crate::db::quotas::Of;
use crate::db::{keys, members, oauth, providers};
use crate::routing::publish::{DeletedParts, Touched};

/// Creates a human principal.
#[derive(Debug)]
pub(crate) struct CreatePrincipal {
    pub(crate) name: String,
    pub(crate) email: Option<String>,
}

/// Changes a human's attributes. Ends their sessions if it disables them or sets their `sso_subject`.
#[derive(Debug)]
pub(crate) struct EditPrincipal {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
    pub(crate) name: Option<String>,
    pub(crate) email: FieldChange<String>,
    pub(crate) sso_subject: FieldChange<String>,
    pub(crate) disabled: Option<bool>,
}

/// Deletes a human with their memberships and limits, and ends their sessions. Refused while a key that is not revoked acts as them, or if a
/// project would be left without an owner.
#[derive(Debug)]
pub(crate) struct DeletePrincipal {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
}

impl Command for CreatePrincipal {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let principal = Principal {
            id: new_id("prn", write.now_ms)?,
            name: self.name.clone(),
            email: self.email.clone(),
            sso_subject: None,
            disabled: false,
            version: 1,
            created_at_ms: write.now_ms,
            updated_at_ms: write.now_ms,
        };
        store(write, &principal)?;
        let audit = AuditEntry::done("principal.create", "principal", &principal.id).after(json!(principal));
        Ok(Done::new(&principal, audit, Touched::NOTHING)?.version(1))
    }
}

impl Command for EditPrincipal {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.id, self.if_version)?;
        let after = Principal {
            name: self.name.clone().unwrap_or_else(|| before.name.clone()),
            email: self.email.of(before.email.clone()),
            sso_subject: self.sso_subject.of(before.sso_subject.clone()),
            disabled: self.disabled.unwrap_or(before.disabled),
            version: before.version + 1,
            updated_at_ms: write.now_ms,
            ..before.clone()
        };
        store(write, &after)?;
        let audit = AuditEntry::done("principal.edit", "principal", &after.id)
            .before(json!(before))
            .after(json!(after));
        let is_same = before.disabled == after.disabled;
        let touched = if is_same { Touched::NOTHING } else { Touched::principal(&after.id) };
        let ends_sessions = self.disabled == Some(true) || self.sso_subject != FieldChange::Keep;
        let touched = if ends_sessions { touched.and(end_sessions(write, &after.id)?) } else { touched };
        Ok(Done::new(&after, audit, touched)?.version(after.version))
    }
}

impl Command for DeletePrincipal {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.id, self.if_version)?;
        let keys = keys::living_as(write.db, &before.id)?;
        if keys > 0 {
            return Err(CommandRefusal::conflict(format!(
                "Keys that act as this principal: {keys}. Disable the principal, or let those keys act as \
                 another one first."
            )));
        }
        let memberships = members::of_principal(write.db, &before.id)?;
        memberships.iter().try_for_each(|member| keep_an_owner(write, member))?;
        let mut owned = providers::owned_by(write.db, &before.id)?;
        owned.extend(oauth::of_owner(write.db, &before.id)?);
        owned.sort();
        owned.dedup();
        if !owned.is_empty() {
            return Err(CommandRefusal::conflict(format!(
                "This principal owns providers: {}. Delete them, disconnect them, or change their owner \
                 first.",
                owned.join(", ")
            )));
        }
        let quotas = quotas::delete_of(write, &Of { kind: Subject::Principal, id: before.id.clone() })?;
        principals::delete(write.db, &before.id)?;
        let audit = AuditEntry::done("principal.delete", "principal", &before.id)
            .before(json!({"principal": before, "memberships": memberships, "quotas": quotas}));
        let deleted =
            DeletedParts { quotas: quotas.len(), memberships: memberships.len(), ..DeletedParts::default() };
        let touched = Touched::principal(&before.id).without_quotas(quotas.into_iter().map(|quota| quota.id));
        let touched = touched.and(end_sessions(write, &before.id)?);
        Ok(Done::without_output(audit, touched).deleting(deleted))
    }
}

/// Ends all sessions of a human.
fn end_sessions(write: &Write<'_>, principal: &str) -> Result<Touched, CommandRefusal> {
    Ok(Touched::ended(ended_sessions::put(write.db, &SessionEnd::of_human(principal, write.now_ms))?))
}

fn expect(write: &Write<'_>, id: &str, if_version: Option<u64>) -> Result<Principal, CommandRefusal> {
    let found = principals::find(write.db, id)?.ok_or_else(|| CommandRefusal::not_found("principal", id))?;
    CommandRefusal::if_stale(if_version, found.version)?;
    Ok(found)
}

fn store(write: &Write<'_>, principal: &Principal) -> Result<(), CommandRefusal> {
    if let Some(subject) = &principal.sso_subject
        && principals::subject_is_taken(write.db, subject, &principal.id)?
    {
        return Err(CommandRefusal::conflict("Another principal has this sso_subject."));
    }
    if let Some(email) = &principal.email
        && principals::email_is_taken(write.db, email, &principal.id)?
    {
        return Err(CommandRefusal::conflict(format!("Another principal has the email address {email}.")));
    }
    Ok(principals::put(write.db, principal)?)
}
