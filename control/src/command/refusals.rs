//! Refused requests to the admin API, as rows of the audit.

use serde_json::json;

use super::{Command, Done, Refusal, Write};
use crate::publish::Touched;
use crate::store::audit::Entry;

/// Writes down that requests were refused.
#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) reason: &'static str,
    /// The route of the last of them.
    pub(crate) route: String,
    pub(crate) count: u64,
}

impl Command for Note {
    type Output = ();

    fn apply(self, _: &Write<'_>) -> Result<Done<()>, Refusal> {
        let audit = Entry::done("access.refuse", "route", &self.route)
            .refused()
            .after(json!({"reason": self.reason, "count": self.count}));
        Ok(Done { output: (), version: None, audit, touched: Touched::NOTHING })
    }
}
