//! The claim on the daily check of an anonymous provider.

use serde_json::Value;

use super::providers::CreateProvider;
use super::{Command, CommandRefusal, Done, Write};
use crate::db::anonymous;
use crate::db::audit::AuditEntry;
use crate::db::providers::{self, ProviderRow};
use crate::routing::config::WrittenProvider;
use crate::routing::connection::shadow_of;
use crate::routing::publish::Touched;

/// Claims the check of a provider for a day. The first claim creates the provider. Refused if the last claim is less than
/// a day old, or the provider is an operator's: deleted, disabled, changed to one with a credential, or of another origin.
#[derive(Debug)]
pub(crate) struct ClaimCheck {
    pub(crate) id: String,
    /// The settings of a new provider.
    pub(crate) settings: WrittenProvider,
}

impl Command for ClaimCheck {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let Some(claimed_at_ms) = anonymous::claimed_at(write.db, &self.id)? else {
            return self.connect(write);
        };
        if write.now_ms.abs_diff(claimed_at_ms) < DAY_MS {
            return Err(CommandRefusal::conflict("it was checked within the last day"));
        }
        let row = providers::find(write.db, &self.id)?.filter(|row| row.is_anonymous);
        let row = row.ok_or_else(|| CommandRefusal::conflict("an operator has deleted or replaced it"))?;
        if is_disabled(&row) {
            return Err(CommandRefusal::conflict("an operator has disabled it"));
        }
        if shadow_of(write.file, &self.id).is_some() {
            return Err(CommandRefusal::conflict("the configuration file uses its name"));
        }
        anonymous::claim(write.db, &self.id, write.now_ms)?;
        let audit = AuditEntry::done("provider.check", "provider", &self.id);
        Ok(Done::without_output(audit, Touched::NOTHING))
    }
}

impl ClaimCheck {
    fn connect(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        anonymous::claim(write.db, &self.id, write.now_ms)?;
        let (id, written) = (self.id.clone(), self.settings.clone());
        CreateProvider { id, auth: None, owner: None, written, is_anonymous: true }.apply(write)
    }
}

/// True if the row is disabled; a row that cannot be read counts as disabled.
fn is_disabled(row: &ProviderRow) -> bool {
    let settings = serde_json::from_str::<Value>(&row.settings);
    settings.map_or(true, |settings| settings.get("disabled") == Some(&Value::Bool(true)))
}

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
