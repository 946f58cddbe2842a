//! What administrators do to usage: the work itself goes in many steps (`store/reprice.rs`); here it is audited.

use serde::Serialize;
use serde_json::Value;

use super::{Command, Done, Refusal, Write};
use crate::publish::Touched;
use crate::store::audit::Entry;

/// A line in the audit.
#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) action: &'static str,
    pub(crate) after: Value,
}

/// A line in the audit, and what the caller gets.
#[derive(Debug)]
pub(crate) struct NoteWith<T>(Note, T);

impl Note {
    pub(crate) fn with<T>(self, output: T) -> NoteWith<T> {
        NoteWith(self, output)
    }
}

impl<T: Serialize + Send + 'static> Command for NoteWith<T> {
    type Output = T;

    fn apply(self, _: &Write<'_>) -> Result<Done<T>, Refusal> {
        let Self(Note { action, after }, output) = self;
        let audit = Entry::done(action, "usage", "").after(after);
        Ok(Done { output, version: None, audit, touched: Touched::NOTHING })
    }
}

impl Command for Note {
    type Output = ();

    fn apply(self, write: &Write<'_>) -> Result<Done<()>, Refusal> {
        self.with(()).apply(write)
    }
}
