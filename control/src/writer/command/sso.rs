//! The sign-in of a human whom a trusted proxy has authenticated (AUTH-7): finds their entry by the stable subject, and
//! connects or creates it at the first sign-in. An e-mail address never gives access to the entry of another subject.

use serde_json::json;
use shared::error_kind::ErrorKind;

use super::{Command, CommandRefusal, Done, Write};
use crate::db::audit::AuditEntry;
use crate::db::ids::new_id;
use crate::db::principals::{self, Principal};
use crate::routing::publish::Touched;

/// Signs a human in.
#[derive(Debug)]
pub(crate) struct SignInHuman {
    /// The name by which the identity provider knows the human.
    pub(crate) subject: String,
    /// Case-folded.
    pub(crate) email: Option<String>,
    pub(crate) name: Option<String>,
    /// True if an unknown human gets an entry.
    pub(crate) auto_provision: bool,
}

impl Command for SignInHuman {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let (before, after, action) = self.entry(write).map_err(|refusal| self.audited(refusal))?;
        if after.disabled {
            let message = "This account is disabled. Ask an administrator.";
            return Err(self.audited(CommandRefusal::new(ErrorKind::Forbidden, message)));
        }
        let after = match &before {
            Some(before) if *before != after => {
                Principal { version: before.version + 1, updated_at_ms: write.now_ms, ..after }
            }
            Some(_) | None => after,
        };
        principals::put(write.db, &after)?;
        let audit =
            AuditEntry::done(action, "principal", &after.id).before(json!(before)).after(json!(after));
        Ok(Done::new(&after, audit, Touched::NOTHING)?.version(after.version))
    }
}

/// The entry of a human before and after a sign-in, and the name of the change.
type SignedInEntry = (Option<Principal>, Principal, &'static str);

impl SignInHuman {
    fn entry(&self, write: &Write<'_>) -> Result<SignedInEntry, CommandRefusal> {
        if let Some(known) = principals::with_subject(write.db, &self.subject)? {
            return Ok((Some(known.clone()), self.updated(write, known)?, "principal.sign_in"));
        }
        let same_email = match &self.email {
            Some(email) => principals::with_email(write.db, email)?,
            None => Vec::new(),
        };
        match same_email.as_slice() {
            [] if self.auto_provision => Ok((None, self.new_entry(write)?, "principal.create")),
            [] => Err(refused(
                "You are not known to this gateway. Ask an administrator to add you with your e-mail address.",
            )),
            [known] if known.sso_subject.is_none() => {
                let connected = Principal { sso_subject: Some(self.subject.clone()), ..known.clone() };
                Ok((Some(known.clone()), self.updated(write, connected)?, "principal.connect"))
            }
            [_] => Err(refused(
                "Your e-mail address belongs to the account of another sign-in. Ask an administrator: if it is yours, \
                 they clear its sso_subject.",
            )),
            _ => Err(refused("Several accounts have your e-mail address. Ask an administrator.")),
        }
    }

    /// Returns an entry with the e-mail address of the sign-in, unless another entry has it.
    fn updated(&self, write: &Write<'_>, entry: Principal) -> Result<Principal, CommandRefusal> {
        let others = match &self.email {
            Some(email) => principals::with_email(write.db, email)?,
            None => Vec::new(),
        };
        let is_free = others.iter().all(|other| other.id == entry.id);
        let email = self.email.clone().filter(|_| is_free).or_else(|| entry.email.clone());
        Ok(Principal { email, ..entry })
    }

    fn new_entry(&self, write: &Write<'_>) -> Result<Principal, CommandRefusal> {
        let name = self.name.as_ref().or(self.email.as_ref()).unwrap_or(&self.subject);
        Ok(Principal {
            id: new_id("prn", write.now_ms)?,
            name: name.chars().take(NAME_CHARS_MAX).collect(),
            email: self.email.clone(),
            sso_subject: Some(self.subject.clone()),
            disabled: false,
            version: 1,
            created_at_ms: write.now_ms,
            updated_at_ms: write.now_ms,
        })
    }

    fn audited(&self, refusal: CommandRefusal) -> CommandRefusal {
        let entry = AuditEntry::done("principal.sign_in", "principal", &self.subject);
        refusal.audited(entry.after(json!({"email": self.email})).refused())
    }
}

fn refused(message: &'static str) -> CommandRefusal {
    CommandRefusal::new(ErrorKind::Forbidden, message)
}

const NAME_CHARS_MAX: usize = 200;
