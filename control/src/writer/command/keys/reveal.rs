//! Reveals a key again. Every attempt is audited, whether it succeeds or not.

use serde::Serialize;
use shared::error_kind::ErrorKind;
use shared::secret::Secret;

use super::expect;
use super::issued::PlainKey;
use super::lifecycle::{KeyOperation, follow};
use crate::common::actor::Who;
use crate::common::vault::SealError;
use crate::db::audit::AuditEntry;
use crate::db::keys::{self, StoredKey};
use crate::routing::publish::Touched;
use crate::writer::command::{Command, CommandRefusal, Done, Write};

/// Opens the sealed copy of a key, for an administrator or the human that the key acts as (AUTH-5).
#[derive(Debug)]
pub(crate) struct Reveal {
    pub(crate) id: String,
}

/// A key in plain text.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "RevealedKey"))]
pub(crate) struct Revealed {
    id: String,
    /// The key itself.
    #[cfg_attr(test, schemars(with = "String"))]
    key: PlainKey,
}

impl Command for Reveal {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let audit = AuditEntry::done("key.reveal", "key", &self.id);
        match open(write, &self.id) {
            Ok(key) => {
                let output = Revealed { id: self.id.clone(), key: PlainKey(key) };
                Done::new(&output, audit, Touched::NOTHING)
            }
            Err(refusal) => Err(refusal.audited(audit.refused())),
        }
    }
}

/// Returns the key from its sealed copy, if the caller may see it.
pub(super) fn open(write: &Write<'_>, id: &str) -> Result<Secret<String>, CommandRefusal> {
    let key = expect(write, id, None)?;
    if !is_for(&key, &write.actor.who) {
        return Err(CommandRefusal::new(
            ErrorKind::Forbidden,
            "Only an administrator and the human that a key acts as may reveal it.",
        ));
    }
    follow(key.state, KeyOperation::Reveal)?;
    let Some(sealed) = keys::sealed(write.db, id)? else {
        return Err(CommandRefusal::conflict(
            "No sealed copy of this key was stored, so it cannot be revealed. Rotate the key, or create a \
             new one.",
        ));
    };
    let plain = write.keys.open(&StoredKey::place(id), &sealed)?;
    let text = std::str::from_utf8(plain.expose()).map_err(|_| SealError)?;
    Ok(Secret::new(text.to_owned()))
}

fn is_for(key: &StoredKey, who: &Who) -> bool {
    match who {
        Who::Administrator(_) | Who::GroupAdministrator(_) => true,
        Who::Human(principal) => key.acts_as.as_deref() == Some(principal.as_str()),
        Who::Unknown | Who::Arriving | Who::Gateway => false,
    }
}
