//! Commands that begin, complete, cancel and fail sign-ins at the vendors of provider instances.

use serde_json::json;
use shared::error_kind::ErrorKind;

use super::{Command, CommandRefusal, Done, Write};
use crate::db::audit::AuditEntry;
use crate::db::sign_in_flows::{self, SignInFlowRow};
use crate::routing::publish::Touched;

/// Stores a sign-in that has begun, in place of an earlier one of the provider instance.
#[derive(Debug)]
pub(crate) struct BeginSignIn {
    pub(crate) row: SignInFlowRow,
    /// The human who signs in.
    pub(crate) owner: String,
}

/// Takes the right to complete a sign-in. Refused as "not found" if it was taken, cancelled or replaced.
#[derive(Debug)]
pub(crate) struct TakeSignIn {
    /// The name of the flow.
    pub(crate) id: String,
}

/// Ends the sign-in of a provider instance that is under way, if any, and forgets the failure of the last one.
#[derive(Debug)]
pub(crate) struct CancelSignIn {
    pub(crate) provider: String,
}

/// Stores the reason why a sign-in failed.
#[derive(Debug)]
pub(crate) struct FailSignIn {
    pub(crate) provider: String,
    /// The name of the flow.
    pub(crate) id: String,
    pub(crate) failure: String,
}

impl Command for BeginSignIn {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        sign_in_flows::begin(write.db, &self.row)?;
        let audit = AuditEntry::done("provider.connect_begin", "provider", &self.row.provider);
        Ok(Done::without_output(audit.after(json!({"owner": self.owner})), Touched::SIGN_INS))
    }
}

impl Command for TakeSignIn {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        match sign_in_flows::end(write.db, &self.id)? {
            true => Ok(Done::unrecorded(Touched::SIGN_INS)),
            false => Err(CommandRefusal::new(ErrorKind::NotFound, "There is no such sign-in.")),
        }
    }
}

impl Command for CancelSignIn {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let had_one = sign_in_flows::cancel(write.db, &self.provider)?;
        Ok(Done::unrecorded(if had_one { Touched::SIGN_INS } else { Touched::NOTHING }))
    }
}

impl Command for FailSignIn {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let Self { provider, id, failure } = self;
        sign_in_flows::fail(write.db, (provider, id), write.now_ms, failure)?;
        let refused = AuditEntry::done("provider.connect", "provider", provider).refused();
        let refused = refused.after(json!({"failure": failure}));
        Ok(Done::without_output(refused, Touched::SIGN_INS))
    }
}
