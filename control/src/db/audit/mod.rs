//! The table `audit`: the log of actions, each row a link of the [chain](super::chain).

use serde_json::{Value, json};

use super::chain::{self, ChainLink, ChainSigner, Ends};
use crate::common::actor::Actor;
use crate::common::vault::VaultKeys;
use crate::db::engine::{Db, DbResult, named_params};

/// The description of one action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuditEntry {
    /// The action, such as `key.create`.
    pub(crate) action: &'static str,
    /// The kind of the object that the action changed.
    pub(crate) object_kind: &'static str,
    pub(crate) object_id: String,
    pub(crate) outcome: AuditOutcome,
    /// The object before and after, with secrets masked; null if it did not exist.
    pub(crate) before: Value,
    pub(crate) after: Value,
}

/// The outcome of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuditOutcome {
    Done,
    Refused,
}

impl AuditOutcome {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
        }
    }
}

impl AuditEntry {
    /// Creates the entry of a completed action.
    pub(crate) fn done(action: &'static str, object_kind: &'static str, object_id: &str) -> Self {
        Self {
            action,
            object_kind,
            object_id: object_id.to_owned(),
            outcome: AuditOutcome::Done,
            before: Value::Null,
            after: Value::Null,
        }
    }

    pub(crate) fn before(self, before: Value) -> Self {
        Self { before, ..self }
    }

    pub(crate) fn after(self, after: Value) -> Self {
        Self { after, ..self }
    }

    pub(crate) fn refused(self) -> Self {
        Self { outcome: AuditOutcome::Refused, ..self }
    }
}

/// Appends a row to the chain.
pub(crate) fn append(
    tx: &Db,
    keys: &VaultKeys,
    actor: &Actor,
    now_ms: u64,
    entry: &AuditEntry,
) -> DbResult<()> {
    let ends = chain::ends(tx, keys)?;
    if ends.is_none() {
        // The next row must not hide the damage to the ends of the chain, so the ends stay unchanged.
        tracing::error!("the audit log was tampered with; run 'llmgw audit verify'");
    }
    let before = ends.map_or_else(|| chain::newest(tx), |ends| Ok(ends.last))?;
    let id = before.id.saturating_add(1);
    let at_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
    let address = actor.address.map(|address| address.to_string());
    let detail = json!({"before": entry.before, "after": entry.after}).to_string();
    let texts = [
        Some(actor.who.name()),
        Some(entry.action),
        Some(entry.object_kind),
        Some(entry.object_id.as_str()),
        Some(entry.outcome.name()),
        address.as_deref(),
        actor.request_id.as_deref(),
        Some(detail.as_str()),
    ];
    let mac = ChainSigner::new(keys).sign(&before, id, at_ms, &texts.map(|text| text.map(str::as_bytes)));
    tx.execute(
        APPEND,
        named_params! {
            ":id": id,
            ":at": at_ms,
            ":actor": actor.who.name(),
            ":action": entry.action,
            ":kind": entry.object_kind,
            ":object": entry.object_id,
            ":outcome": entry.outcome.name(),
            ":address": address,
            ":request": actor.request_id,
            ":detail": detail,
            ":mac": mac,
        },
    )?;
    match ends {
        Some(ends) => chain::set_ends(tx, keys, Ends { last: ChainLink { id, mac }, ..ends }),
        None => Ok(()),
    }
}

/// Deletes the oldest rows from before `before_ms`, up to `rows_max` of them, and returns their number. The chain then
/// begins after them and can still be verified. Deletes nothing if one of these rows or the ends of the chain were
/// tampered with.
pub(crate) fn forget(tx: &Db, keys: &VaultKeys, before_ms: u64, rows_max: u32) -> DbResult<u64> {
    let Some(ends) = chain::ends(tx, keys)? else { return Ok(0) };
    let before_ms = i64::try_from(before_ms).unwrap_or(i64::MAX);
    let before_first = match chain::oldest(tx, keys, &ends, before_ms, rows_max)? {
        Ok(link) => link,
        Err(broken) => {
            tracing::error!("old rows of the audit log are kept, because {broken}; run 'llmgw audit verify'");
            return Ok(0);
        }
    };
    if before_first == ends.before_first {
        return Ok(0);
    }
    let forgotten = tx.execute(FORGET, [before_first.id])?;
    chain::set_ends(tx, keys, Ends { before_first, ..ends })?;
    Ok(u64::try_from(forgotten).unwrap_or(u64::MAX))
}

const APPEND: &str = "INSERT INTO audit \
     (id, at_ms, actor, action, object_kind, object_id, outcome, address, request_id, detail, mac) VALUES \
     (:id, :at, :actor, :action, :kind, :object, :outcome, :address, :request, :detail, :mac)";
const FORGET: &str = "DELETE FROM audit WHERE id <= :last";

#[cfg(test)]
mod tests;
