//! Commands that change project keys. `lifecycle` defines which of them a key's state allows. No command shows a human the
//! plain text of a key that acts as another human.

mod edit;
mod issue;
mod issued;
mod lifecycle;
mod replay;
mod reveal;
mod rotate;
mod shown;

#[cfg(test)]
mod tests;

pub(crate) use edit::{DeleteKey, EditKey};
pub(crate) use issue::IssueKey;
pub(crate) use issued::Issued;
pub(crate) use lifecycle::KeyOperation;
pub(crate) use reveal::{Reveal, Revealed};
pub(crate) use rotate::Rotate;
pub(crate) use shown::ShownKey;

use shared::error_kind::ErrorKind;

use super::{CommandRefusal, Write};
use crate::common::actor::Who;
use crate::db::keys::{self, StoredKey};

fn expect(write: &Write<'_>, id: &str, if_version: Option<u64>) -> Result<StoredKey, CommandRefusal> {
    let found =
        keys::find(write.db, id, write.now_ms)?.ok_or_else(|| CommandRefusal::not_found("key", id))?;
    CommandRefusal::if_stale(if_version, found.version)?;
    Ok(found)
}

/// Refuses a human to whom the change would give a key that acts as another human, whose private connections it can use.
/// Decided here as well as in the admin API, because the key may have changed since its request was admitted.
fn refuse_others(write: &Write<'_>, acts_as: Option<&str>) -> Result<(), CommandRefusal> {
    match (&write.actor.who, acts_as) {
        (Who::Human(human), Some(acts_as)) if acts_as != human.as_str() => {
            Err(CommandRefusal::new(ErrorKind::Forbidden, OF_ANOTHER))
        }
        _ => Ok(()),
    }
}

const OF_ANOTHER: &str = "The key acts as another human. Only an administrator or that human may change whom it acts as, or rotate it.";
