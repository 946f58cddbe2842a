//! Something that changes no row and is written into the audit all the same: a sign-in, an export.

use super::{Command, CommandRefusal, Done, Write};
use crate::publish::Touched;
use crate::store::audit::AuditEntry;

/// Writes the entry.
#[derive(Debug)]
pub(crate) struct AuditNote(pub(crate) AuditEntry);

impl Command for AuditNote {
    type Output = ();

    fn apply(self, _write: &Write<'_>) -> Result<Done<()>, CommandRefusal> {
        Ok(Done { output: (), version: None, audit: self.0, touched: Touched::NOTHING })
    }
}
