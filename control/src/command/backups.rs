//! Audit records of backups: the request for one and its result.

use serde::Serialize;
use serde_json::json;

use super::{Command, CommandRefusal, Done, Write};
use crate::publish::Touched;
use crate::store::audit::AuditEntry;

/// Records the request for a backup.
#[derive(Debug)]
pub(crate) struct RequestBackup;

/// The response to a request for a backup.
#[derive(Debug, Serialize)]
pub(crate) struct BackupStarted {
    status: &'static str,
    started_at_ms: u64,
}

/// Records the result of a backup.
#[derive(Debug)]
pub(crate) struct RecordBackupEnd {
    /// The archive's name, or the error.
    pub(crate) outcome: Result<String, String>,
}

impl Command for RequestBackup {
    type Output = BackupStarted;

    fn apply(self, write: &Write<'_>) -> Result<Done<BackupStarted>, CommandRefusal> {
        let output = BackupStarted { status: "running", started_at_ms: write.now_ms };
        let audit = AuditEntry::done("backup.begin", "backup", "");
        Ok(Done { output, version: None, audit, touched: Touched::NOTHING })
    }
}

impl Command for RecordBackupEnd {
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
