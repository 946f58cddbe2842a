//! Audit records of actions that change no rows, such as a sign-in or an export.

use super::{Command, CommandRefusal, Done, Write};
use crate::publish::Touched;
use crate::store::audit::AuditEntry;

/// Writes an audit entry.
#[derive(Debug)]
pub(crate) struct AuditNote(pub(crate) AuditEntry);

impl Command for AuditNote {
    type Output = ();

    fn apply(self, _write: &Write<'_>) -> Result<Done<()>, CommandRefusal> {
        Ok(Done { output: (), version: None, audit: self.0, touched: Touched::NOTHING })
    }
}
