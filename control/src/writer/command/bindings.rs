//! Commands that share a human's provider instance with a project (AUTH-4).

use serde_json::json;

use super::projects::known;
use super::providers::expect;
use super::{Command, CommandRefusal, Done, Write};
use crate::db::audit::AuditEntry;
use crate::db::providers;
use crate::routing::connection::ShownProvider;
use crate::routing::publish::Touched;

/// Allows the keys of a project to use a private provider instance.
#[derive(Debug)]
pub(crate) struct Bind {
    pub(crate) provider: String,
    pub(crate) project: String,
    pub(crate) if_version: Option<u64>,
}

/// Revokes the access of a project's keys to a private provider instance.
#[derive(Debug)]
pub(crate) struct Unbind {
    pub(crate) provider: String,
    pub(crate) project: String,
    pub(crate) if_version: Option<u64>,
}

impl Command for Bind {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.provider, self.if_version, false)?;
        if before.held.as_ref().is_none_or(|held| held.row.owner.is_none()) {
            return Err(CommandRefusal::conflict(format!(
                "The provider '{}' has no owner, so every project can use it already.",
                self.provider
            )));
        }
        known(write, &self.project)?;
        providers::bind(write.db, &self.provider, &self.project, write.now_ms)?;
        changed(write, &self.provider, "provider.bind", &before.shown())
    }
}

impl Command for Unbind {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.provider, self.if_version, false)?;
        if !providers::unbind(write.db, &self.provider, &self.project)? {
            return Err(CommandRefusal::not_found("binding to project", &self.project));
        }
        changed(write, &self.provider, "provider.unbind", &before.shown())
    }
}

/// Increments the version of the instance, whose representation includes its bindings.
fn changed(
    write: &Write<'_>,
    provider: &str,
    action: &'static str,
    before: &ShownProvider,
) -> Result<Done, CommandRefusal> {
    let found = providers::find(write.db, provider)?;
    let mut row = found.ok_or_else(|| CommandRefusal::not_found("provider", provider))?;
    row.version += 1;
    row.updated_at_ms = write.now_ms;
    providers::put(write.db, &row)?;
    let after = expect(write, provider, None, false)?;
    let shown = after.shown();
    let audit = AuditEntry::done(action, "provider", provider).before(json!(before)).after(json!(shown));
    Ok(Done::new(&shown, audit, Touched::ROUTING)?.version(after.version()))
}
