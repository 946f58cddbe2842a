//! The table `audit`: who did what, chained so that no row can be changed, removed or put in unnoticed.

use ring::hmac;
use rusqlite::{Connection, OptionalExtension as _, named_params};
use serde_json::{Value, json};

use crate::actor::Actor;
use crate::vault::Keys;

/// What is written about one action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// What was done, as `key.create`.
    pub(crate) action: &'static str,
    /// What sort of object it was done to.
    pub(crate) object_kind: &'static str,
    pub(crate) object_id: String,
    pub(crate) outcome: AuditOutcome,
    /// The object before and after, secrets masked; null where there is none.
    pub(crate) before: Value,
    pub(crate) after: Value,
}

/// Whether it was done.
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

impl Entry {
    /// Something that was done.
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
    tx: &Connection,
    keys: &Keys,
    actor: &Actor,
    now_ms: u64,
    entry: &Entry,
) -> rusqlite::Result<()> {
    let last: Option<(i64, Vec<u8>)> =
        tx.prepare_cached(LAST)?.query_row([], |row| Ok((row.get("id")?, row.get("mac")?))).optional()?;
    let (last_id, last_mac) = last.unwrap_or_default();
    let id = last_id.saturating_add(1);
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
    let mac = mac(&keys.derived(CHAIN), &last_mac, id, now_ms, &texts);
    tx.prepare_cached(APPEND)?.execute(named_params! {
        ":id": id,
        ":at": now_ms,
        ":actor": actor.who.name(),
        ":action": entry.action,
        ":kind": entry.object_kind,
        ":object": entry.object_id,
        ":outcome": entry.outcome.name(),
        ":address": address,
        ":request": actor.request_id,
        ":detail": detail,
        ":mac": mac.as_ref(),
    })?;
    Ok(())
}

/// The link of a row: every field with its length before it, so that no two rows read alike.
fn mac(key: &hmac::Key, last: &[u8], id: i64, at_ms: u64, texts: &[Option<&str>]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    let mut field = |bytes: &[u8]| {
        context.update(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
        context.update(bytes);
    };
    field(last);
    field(&id.to_be_bytes());
    field(&at_ms.to_be_bytes());
    for text in texts {
        field(&[u8::from(text.is_some())]);
        field(text.unwrap_or_default().as_bytes());
    }
    context.sign()
}

/// What the key of the chain is derived for.
const CHAIN: &str = "audit chain";

const LAST: &str = "SELECT id, mac FROM audit ORDER BY id DESC LIMIT 1";
const APPEND: &str = "INSERT INTO audit \
     (id, at_ms, actor, action, object_kind, object_id, outcome, address, request_id, detail, mac) VALUES \
     (:id, :at, :actor, :action, :kind, :object, :outcome, :address, :request, :detail, :mac)";
