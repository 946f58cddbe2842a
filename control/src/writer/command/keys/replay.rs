//! The answer to a repeated request that created a key. The stored answer does not contain the key, because that copy
//! would outlive a revocation and would exist even if no copy may be stored. The key is added on replay if it may be
//! revealed at that time.

use serde::Serialize;
use serde_json::{Value, json};

use super::issued::Issued;
use super::reveal::open;
use super::shown::ShownKey;
use crate::db::audit::AuditEntry;
use crate::writer::command::quotas::QuotaStanding;
use crate::writer::command::{CommandRefusal, Write};

/// An [`Issued`] without the key.
#[derive(Debug, Serialize)]
pub(super) struct ReplayedKey<'a> {
    #[serde(flatten)]
    shown: &'a ShownKey,
    key: Option<()>,
    #[serde(skip_serializing_if = "<[QuotaStanding]>::is_empty")]
    limits: &'a [QuotaStanding],
}

/// Returns the answer in its stored form, without the key.
pub(super) fn kept(issued: &Issued) -> ReplayedKey<'_> {
    ReplayedKey { shown: &issued.shown, key: None, limits: &issued.limits }
}

/// Returns the answer to a repeated request, and its audit record.
pub(super) fn replayed(
    write: &Write<'_>,
    kept: Vec<u8>,
) -> Result<(Vec<u8>, Option<AuditEntry>), CommandRefusal> {
    let Ok(mut answer) = serde_json::from_slice::<Value>(&kept) else { return Ok((kept, None)) };
    let id = answer.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let key = match open(write, &id) {
        Ok(key) => Some(key),
        Err(CommandRefusal::Reported { .. }) => None,
        Err(failed) => return Err(failed),
    };
    let entry = AuditEntry::done("key.replay", "key", &id).after(json!({"revealed": key.is_some()}));
    let Some(key) = key else { return Ok((kept, Some(entry))) };
    if let Some(place) = answer.get_mut("key") {
        *place = key.expose().as_str().into();
    }
    let body = serde_json::to_vec(&answer).unwrap_or(kept);
    Ok((body, Some(entry)))
}
