//! Commands that change and delete keys.

use std::collections::BTreeMap;

use serde_json::json;
use shared::quota::Subject;

use super::issue::check_acts_as;
use super::lifecycle::{KeyOperation, follow};
use super::shown::ShownKey;
use super::{expect, refuse_others};
use crate::common::change::{AllowlistEdit, FieldChange};
use crate::db::audit::AuditEntry;
use crate::db::keys::{self, KeyState, StoredKey};
use crate::db::names::Labels;
use crate::db::quotas::Of;
use crate::routing::publish::{DeletedParts, Touched};
use crate::writer::command::{Command, CommandRefusal, Done, Write, quotas};

/// Changes a key: its settings first, then its state.
#[derive(Debug)]
pub(crate) struct EditKey {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
    pub(crate) name: Option<String>,
    pub(crate) acts_as: FieldChange<String>,
    pub(crate) expires_at_ms: FieldChange<u64>,
    pub(crate) allowlist: AllowlistEdit,
    /// Replaces the default tags of its requests.
    pub(crate) tags: Option<BTreeMap<String, String>>,
    /// `false` deletes the sealed copy, and so does another `acts_as`: the copy was made for the human before.
    pub(crate) recoverable: Option<bool>,
    /// Enable, disable or revoke.
    pub(crate) edge: Option<KeyOperation>,
}

impl EditKey {
    /// Revokes a key, and changes nothing else.
    pub(crate) fn revoke(id: String) -> Self {
        Self {
            id,
            if_version: None,
            name: None,
            acts_as: FieldChange::Keep,
            expires_at_ms: FieldChange::Keep,
            allowlist: AllowlistEdit::default(),
            tags: None,
            recoverable: None,
            edge: Some(KeyOperation::Revoke),
        }
    }
}

/// Deletes a revoked key, and with the last key of a family, the limits of the family. Usage records keep the key's
/// id.
#[derive(Debug)]
pub(crate) struct DeleteKey {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
}

impl Command for EditKey {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.id, self.if_version)?;
        let edge = self.edge;
        let edited = self.settings(write, &before)?;
        let after =
            edge.map_or_else(|| Ok(edited.clone()), |edge| moved(edited.clone(), edge, write.now_ms))?;
        let after = StoredKey { version: before.version + 1, updated_at_ms: write.now_ms, ..after };
        keys::update(write.db, &after)?;
        let action = match edge {
            Some(KeyOperation::Enable) => "key.enable",
            Some(KeyOperation::Disable) => "key.disable",
            Some(KeyOperation::Revoke) => "key.revoke",
            _ => "key.edit",
        };
        let audit = AuditEntry::done(action, "key", &after.id).before(json!(before)).after(json!(after));
        let touched = Touched::keys([before.id]);
        let version = after.version;
        let shown = ShownKey::of(write.db, &mut Labels::default(), after)?;
        Ok(Done::new(&shown, audit, touched)?.version(version))
    }
}

impl EditKey {
    /// Returns the key with its new settings.
    fn settings(&self, write: &Write<'_>, before: &StoredKey) -> Result<StoredKey, CommandRefusal> {
        let expires_at_ms = self.expires_at_ms.of(before.expires_at_ms);
        let acts_as = self.acts_as.of(before.acts_as.clone());
        let is_handed_over = acts_as != before.acts_as;
        let after = StoredKey {
            name: self.name.clone().unwrap_or_else(|| before.name.clone()),
            acts_as,
            state: before.state.at(write.now_ms, expires_at_ms),
            expires_at_ms,
            allowlist: self.allowlist.of(before.allowlist.clone()),
            tags: self.tags.clone().unwrap_or_else(|| before.tags.clone()),
            recoverable: self.recoverable.unwrap_or(before.recoverable && !is_handed_over),
            ..before.clone()
        };
        if after != *before {
            follow(before.state, KeyOperation::Edit)?;
        }
        if after.recoverable && !before.recoverable {
            return Err(CommandRefusal::conflict(
                "No sealed copy of this key was stored, and it cannot be created now. Rotate the key, or \
                 create a new one.",
            ));
        }
        if is_handed_over {
            check_handover(write, before, &after)?;
        }
        Ok(after)
    }
}

/// Checks a change of the human that a key acts as. The caller must be allowed to have the key of both, and the copy of the
/// old one's key is not kept for the new one.
fn check_handover(write: &Write<'_>, before: &StoredKey, after: &StoredKey) -> Result<(), CommandRefusal> {
    refuse_others(write, before.acts_as.as_deref())?;
    refuse_others(write, after.acts_as.as_deref())?;
    if after.recoverable {
        return Err(CommandRefusal::conflict(
            "A change of acts_as erases the sealed copy of the key. Leave recoverable out, or send false.",
        ));
    }
    after.acts_as.as_ref().map_or(Ok(()), |human| check_acts_as(write, &before.project, human))
}

/// Returns the key after `edge`. A revoked key keeps no sealed copy.
fn moved(key: StoredKey, edge: KeyOperation, now_ms: u64) -> Result<StoredKey, CommandRefusal> {
    let state = follow(key.state, edge)?.at(now_ms, key.expires_at_ms);
    Ok(StoredKey { state, recoverable: key.recoverable && state != KeyState::Revoked, ..key })
}

impl Command for DeleteKey {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.id, self.if_version)?;
        follow(before.state, KeyOperation::Delete)?;
        let quotas = if keys::delete(write.db, &before)? {
            quotas::delete_of(write, &Of { kind: Subject::Key, id: before.family.clone() })?
        } else {
            Vec::new()
        };
        // A revoked key is no longer in the snapshot.
        let touched = Touched::NOTHING.without_quotas(quotas.iter().map(|quota| quota.id.clone()));
        let deleted = DeletedParts { quotas: quotas.len(), ..DeletedParts::default() };
        let audit = AuditEntry::done("key.delete", "key", &before.id)
            .before(json!({"key": before, "quotas": quotas}));
        Ok(Done::without_output(audit, touched).deleting(deleted))
    }
}
