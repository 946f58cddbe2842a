//! Something that changes no row and is written into the audit all the same: a sign-in, an export.

use super::{Command, Done, Refusal, Write};
use crate::publish::Touched;
use crate::store::audit::Entry;

/// Writes the entry.
#[derive(Debug)]
pub(crate) struct Note(pub(crate) Entry);

impl Command for Note {
    type Output = ();

    fn apply(self, _write: &Write<'_>) -> Result<Done<()>, Refusal> {
        Ok(Done { output: (), version: None, audit: self.0, touched: Touched::NOTHING })
    }
}
