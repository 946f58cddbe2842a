//! What changes of a project key mean. Which of them a key's state allows stands in [`edges`].

mod edges;
mod edit;
mod issue;
mod replay;
mod reveal;
mod rotate;

#[cfg(test)]
mod tests;

pub(crate) use edges::Edge;
pub(crate) use edit::{Delete, Edit};
pub(crate) use issue::Create;
pub(crate) use reveal::Reveal;
pub(crate) use rotate::Rotate;

use super::{Refusal, Write};
use crate::store::keys::{self, Key};

fn expect(write: &Write<'_>, id: &str, if_version: Option<u64>) -> Result<Key, Refusal> {
    let found = keys::find(write.db, id, write.now_ms)?.ok_or_else(|| Refusal::not_found("key", id))?;
    Refusal::if_stale(if_version, found.version)?;
    Ok(found)
}
