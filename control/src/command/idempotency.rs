//! Repeated requests: the stored, sealed answer to an earlier request with the same `Idempotency-Key`. A stored
//! answer never contains a secret that is shown only once.

use http::StatusCode;
use shared::error_kind::ErrorKind;

use super::{CommandRefusal, Idempotency, OrderAnswer, Stage};
use crate::actor::Actor;
use crate::store::idempotency::{self, StoredAnswer};
use crate::vault::SealPlace;

/// Returns the answer to an earlier request with the same key. Using the same key for a different request is a
/// conflict.
pub(super) fn replay(
    stage: &Stage<'_>,
    actor: &Actor,
    asked: &Idempotency,
) -> Result<Option<OrderAnswer>, CommandRefusal> {
    let kept = idempotency::find(stage.db, actor.who.name(), &asked.key, stage.now_ms)?;
    let Some(kept) = kept else { return Ok(None) };
    if kept.fingerprint != asked.fingerprint {
        return Err(CommandRefusal::new(
            ErrorKind::Conflict,
            "This Idempotency-Key was used for another request. Take a new one.",
        ));
    }
    let body = stage.keys.open(&place(&asked.key), &kept.body)?;
    let status = StatusCode::from_u16(kept.status).unwrap_or(StatusCode::OK);
    Ok(Some(OrderAnswer {
        status,
        body: body.expose().clone(),
        version: kept.version,
        replayed: true,
        published: true,
    }))
}

/// Stores an answer for repeated requests.
pub(super) fn keep(
    stage: &Stage<'_>,
    actor: &Actor,
    asked: &Idempotency,
    answer: &OrderAnswer,
) -> Result<(), CommandRefusal> {
    let kept = StoredAnswer {
        fingerprint: asked.fingerprint.to_vec(),
        status: answer.status.as_u16(),
        version: answer.version,
        body: stage.keys.seal(&place(&asked.key), &answer.body)?,
    };
    idempotency::keep(stage.db, actor.who.name(), &asked.key, &kept, stage.now_ms)?;
    Ok(())
}

fn place(key: &str) -> SealPlace<'_> {
    SealPlace { table: "idempotency", column: "body", id: key }
}
