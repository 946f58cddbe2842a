//! The command that ends console sessions before their time.

use super::{Command, CommandRefusal, Done, Write};
use crate::db::audit::AuditEntry;
use crate::db::ended_sessions::{self, SessionEnd};
use crate::routing::publish::Touched;

/// Ends sessions, and records the sign-in or sign-out that does.
#[derive(Debug)]
pub(crate) struct EndSessions {
    /// None for a sign-in that replaces no session.
    pub(crate) ends: Vec<SessionEnd>,
    pub(crate) audit: AuditEntry,
}

impl Command for EndSessions {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let mut ended = Vec::new();
        for end in &self.ends {
            ended.extend(ended_sessions::put(write.db, end)?);
        }
        Ok(Done::without_output(self.audit.clone(), Touched::ended(ended)))
    }
}
