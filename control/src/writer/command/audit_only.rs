//! Audit records of actions that change no rows, such as a sign-in, a backup or the test of a connection.

use super::{Command, CommandRefusal, Done, Write};
use crate::db::audit::AuditEntry;
use crate::routing::publish::Touched;

/// The known result of an action; the write only records it.
#[derive(Debug)]
pub(crate) struct AuditOnly(pub(crate) Done);

impl AuditOnly {
    /// An audit record without output.
    pub(crate) fn of(audit: AuditEntry) -> Self {
        Self(Done::without_output(audit, Touched::NOTHING))
    }
}

impl Command for AuditOnly {
    fn apply(&self, _: &Write<'_>) -> Result<Done, CommandRefusal> {
        Ok(self.0.clone())
    }
}
