//! Rotation: a new key replaces an old one, which remains valid for an overlap.

use serde_json::json;

use super::issue::{check_place, issue};
use super::lifecycle::{KeyOperation, follow};
use super::{expect, replay};
use crate::db::audit::AuditEntry;
use crate::db::ids::new_id;
use crate::db::keys::{self, KeyState, StoredKey};
use crate::routing::publish::Touched;
use crate::writer::command::{Command, CommandRefusal, Done, Write};

/// Creates a key with the settings of an existing one, and ends the existing one after an overlap.
#[derive(Debug)]
pub(crate) struct Rotate {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
    /// The time for which the old key remains valid; 0 ends it immediately.
    pub(crate) overlap_ms: u64,
    /// The expiry of the new key; defaults to the old key's.
    pub(crate) expires_at_ms: Option<u64>,
}

impl Command for Rotate {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.id, self.if_version)?;
        follow(before.state, KeyOperation::Rotate)?;
        if let Some(successor) = keys::successor(write.db, &before.id)? {
            return Err(CommandRefusal::conflict(format!(
                "The key has already been rotated: its successor is '{successor}'. Rotate that one."
            )));
        }
        check_place(write, &before.project, before.acts_as.as_deref())?;
        let issued = issue(
            write,
            StoredKey {
                id: new_id("key", write.now_ms)?,
                expires_at_ms: self.expires_at_ms.or(before.expires_at_ms),
                state: KeyState::Active,
                last_used_hour_ms: None,
                rotated_from: Some(before.id.clone()),
                version: 1,
                created_at_ms: write.now_ms,
                updated_at_ms: write.now_ms,
                ..before.clone()
            },
        )?;
        let end = write.now_ms.saturating_add(self.overlap_ms);
        let end = before.expires_at_ms.map_or(end, |expires| expires.min(end));
        let after = StoredKey {
            expires_at_ms: Some(end),
            state: before.state.at(write.now_ms, Some(end)),
            version: before.version + 1,
            updated_at_ms: write.now_ms,
            ..before.clone()
        };
        keys::update(write.db, &after)?;
        let audit = AuditEntry::done("key.rotate", "key", &before.id)
            .before(json!(before))
            .after(json!({"old": after, "new": issued.shown.key}));
        let touched = Touched::keys([before.id, issued.shown.key.id.clone()]);
        Done::new(&issued, audit, touched)?.version(1).kept(&replay::kept(&issued))
    }

    fn replayed(
        &self,
        write: &Write<'_>,
        kept: Vec<u8>,
    ) -> Result<(Vec<u8>, Option<AuditEntry>), CommandRefusal> {
        replay::replayed(write, kept)
    }
}
