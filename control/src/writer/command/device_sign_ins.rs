//! Commands that begin, decide and complete sign-ins of clients.

use std::collections::BTreeMap;

use serde_json::json;
use shared::error_kind::ErrorKind;
use shared::tags;

use super::keys::IssueKey;
use super::{Command, CommandRefusal, Done, Write};
use crate::common::change::AllowlistEdit;
use crate::db::audit::AuditEntry;
use crate::db::device_sign_ins::{self, Approval, DeviceSignIn};
use crate::routing::publish::Touched;

/// Stores a sign-in that has begun.
#[derive(Debug)]
pub(crate) struct BeginDeviceSignIn {
    pub(crate) row: DeviceSignIn,
}

/// Approves a sign-in, or denies it.
#[derive(Debug)]
pub(crate) struct DecideDeviceSignIn {
    pub(crate) user_code: String,
    /// `None` denies it.
    pub(crate) approval: Option<Approval>,
}

/// Ends an approved sign-in and issues its key. Refused as "not found" if it has ended, so that its key is issued once.
#[derive(Debug)]
pub(crate) struct CompleteDeviceSignIn {
    pub(crate) code_hash: Vec<u8>,
    pub(crate) approval: Approval,
    /// The expiry of the key, in milliseconds since the Unix epoch.
    pub(crate) expires_at_ms: u64,
}

impl Command for BeginDeviceSignIn {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        match device_sign_ins::begin(write.db, &self.row)? {
            // The audit records decisions and keys. Anyone can begin a sign-in.
            true => Ok(Done::unrecorded(Touched::NOTHING)),
            false => Err(CommandRefusal::new(ErrorKind::RateLimited, "Too many sign-ins are under way.")),
        }
    }
}

impl Command for DecideDeviceSignIn {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let Self { user_code, approval } = self;
        if !device_sign_ins::decide(write.db, user_code, approval.as_ref(), write.now_ms)? {
            return Err(CommandRefusal::conflict("This sign-in has ended or was decided already."));
        }
        let action = if approval.is_some() { "device_sign_in.approve" } else { "device_sign_in.deny" };
        let audit = AuditEntry::done(action, "device_sign_in", user_code);
        let audit = match approval {
            Some(Approval { project, acts_as, .. }) => {
                audit.after(json!({"project": project, "acts_as": acts_as}))
            }
            None => audit,
        };
        Ok(Done::without_output(audit, Touched::NOTHING))
    }
}

impl Command for CompleteDeviceSignIn {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        if !device_sign_ins::end(write.db, &self.code_hash)? {
            return Err(CommandRefusal::not_found("device sign-in", "with this code"));
        }
        let (tag, value) = tags::SIGNED_IN;
        let issue = IssueKey {
            name: KEY_NAME.to_owned(),
            project: self.approval.project.clone(),
            acts_as: self.approval.acts_as.clone(),
            expires_at_ms: Some(self.expires_at_ms),
            allowlist: AllowlistEdit::default(),
            tags: BTreeMap::from([(tag.to_owned(), value.to_owned())]),
            // The key need not be readable later: its client can sign in again.
            recoverable: false,
            limits: Vec::new(),
        };
        issue.apply(write)
    }
}

/// The name of the keys that Claude Code gets.
const KEY_NAME: &str = "Claude Code";
