//! Backups, as far as the audit is concerned: that one was asked for, and what came of it.

use serde::Serialize;
use serde_json::json;

use super::{Command, CommandRefusal, Done, Write};
use crate::publish::Touched;
use crate::store::audit::AuditEntry;

/// Somebody asks for a backup.
#[derive(Debug)]
pub(crate) struct Begin;

/// What whoever asked gets.
#[derive(Debug, Serialize)]
pub(crate) struct BackupStarted {
    status: &'static str,
    started_at_ms: u64,
}

/// A backup was made, or was not.
#[derive(Debug)]
pub(crate) struct Finish {
    /// The archive's name, or why there is none.
    pub(crate) outcome: Result<String, String>,
}

impl Command for Begin {
    type Output = BackupStarted;

    fn apply(self, write: &Write<'_>) -> Result<Done<BackupStarted>, CommandRefusal> {
        let output = BackupStarted { status: "running", started_at_ms: write.now_ms };
        let audit = AuditEntry::done("backup.begin", "backup", "");
        Ok(Done { output, version: None, audit, touched: Touched::NOTHING })
    }
}

impl Command for Finish {
    type Output = ();

    fn apply(self, _: &Write<'_>) -> Result<Done<()>, CommandRefusal> {
        let audit = match self.outcome {
            Ok(name) => AuditEntry::done("backup.finish", "backup", &name),
            Err(why) => {
                AuditEntry::done("backup.finish", "backup", "").refused().after(json!({"error": why}))
            }
        };
        Ok(Done { output: (), version: None, audit, touched: Touched::NOTHING })
    }
}
