//! Commands that change project keys. [`edges`] defines which of them a key's state allows.

mod edit;
mod issue;
mod lifecycle;
mod replay;
mod reveal;
mod rotate;
mod shown;

#[cfg(test)]
mod tests;

pub(crate) use edit::{DeleteKey, EditKey};
pub(crate) use issue::{IssueKey, Issued};
pub(crate) use lifecycle::KeyOperation;
pub(crate) use reveal::{Reveal, Revealed};
pub(crate) use rotate::Rotate;
pub(crate) use shown::ShownKey;

use super::{CommandRefusal, Write};
use crate::db::keys::{self, StoredKey};

fn expect(write: &Write<'_>, id: &str, if_version: Option<u64>) -> Result<StoredKey, CommandRefusal> {
    let found =
        keys::find(write.db, id, write.now_ms)?.ok_or_else(|| CommandRefusal::not_found("key", id))?;
    CommandRefusal::if_stale(if_version, found.version)?;
    Ok(found)
}
