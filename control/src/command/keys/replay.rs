//! The answer to a repeated request that made a key. What is kept of the answer does not hold the key: a copy would
//! outlive its revocation, and exist where none may be kept. A key that may be revealed at the time is put in.

use serde::Serialize;
use serde_json::{Value, json};

use super::issue::Issued;
use super::reveal::open;
use crate::command::{Refusal, Write};
use crate::store::audit::Entry;
use crate::store::keys::Key;
use crate::store::quotas::Row;

/// An [`Issued`] without the key.
#[derive(Serialize)]
struct Kept<'a> {
    #[serde(flatten)]
    shown: &'a Key,
    key: Option<()>,
    #[serde(skip_serializing_if = "<[Row]>::is_empty")]
    limits: &'a [Row],
}

/// Returns the answer as it is kept.
pub(super) fn kept(issued: &Issued) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Kept { shown: &issued.shown, key: None, limits: &issued.limits })
}

/// Returns the answer to a repetition, and its audit record.
pub(super) fn replayed(write: &Write<'_>, kept: Vec<u8>) -> Result<(Vec<u8>, Option<Entry>), Refusal> {
    let Ok(mut answer) = serde_json::from_slice::<Value>(&kept) else { return Ok((kept, None)) };
    let id = answer.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let key = match open(write, &id) {
        Ok(key) => Some(key),
        Err(Refusal::Told { .. }) => None,
        Err(failed) => return Err(failed),
    };
    let entry = Entry::done("key.replay", "key", &id).after(json!({"revealed": key.is_some()}));
    let Some(key) = key else { return Ok((kept, Some(entry))) };
    if let Some(place) = answer.get_mut("key") {
        *place = key.expose().as_str().into();
    }
    let body = serde_json::to_vec(&answer).unwrap_or(kept);
    Ok((body, Some(entry)))
}
