//! Audit records of administrators' operations on usage. The operations themselves run in many steps
//! (`usage/reprice.rs`).

use serde::Serialize;
use serde_json::Value;

use super::{Command, CommandRefusal, Done, Write};
use crate::publish::Touched;
use crate::store::audit::AuditEntry;

/// An audit record without output.
#[derive(Debug)]
pub(crate) struct NoteUsage {
    pub(crate) action: &'static str,
    pub(crate) after: Value,
}

/// An audit record and the output for the caller.
#[derive(Debug)]
pub(crate) struct NoteWith<T>(NoteUsage, T);

impl NoteUsage {
    pub(crate) fn with<T>(self, output: T) -> NoteWith<T> {
        NoteWith(self, output)
    }
}

impl<T: Serialize + Send + 'static> Command for NoteWith<T> {
    type Output = T;

    fn apply(self, _: &Write<'_>) -> Result<Done<T>, CommandRefusal> {
        let Self(NoteUsage { action, after }, output) = self;
        let audit = AuditEntry::done(action, "usage", "").after(after);
        Ok(Done { output, version: None, audit, touched: Touched::NOTHING })
    }
}

impl Command for NoteUsage {
    type Output = ();

    fn apply(self, write: &Write<'_>) -> Result<Done<()>, CommandRefusal> {
        self.with(()).apply(write)
    }
}
