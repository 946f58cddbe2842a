//! Audit records of refused requests to the admin API.

use serde_json::json;

use super::{Command, CommandRefusal, Done, Write};
use crate::publish::Touched;
use crate::store::audit::AuditEntry;

/// Records that requests were refused.
#[derive(Debug)]
pub(crate) struct NoteRefusals {
    pub(crate) reason: &'static str,
    /// The route of the latest refused request.
    pub(crate) route: String,
    pub(crate) count: u64,
}

impl Command for NoteRefusals {
    type Output = ();

    fn apply(self, _: &Write<'_>) -> Result<Done<()>, CommandRefusal> {
        let audit = AuditEntry::done("access.refuse", "route", &self.route)
            .refused()
            .after(json!({"reason": self.reason, "count": self.count}));
        Ok(Done { output: (), version: None, audit, touched: Touched::NOTHING })
    }
}
