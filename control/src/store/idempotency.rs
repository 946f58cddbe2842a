//! The table `idempotency`: answers that a repeated request gets again, sealed. A secret that is shown once is in
//! none of them.

use http::StatusCode;
use rusqlite::{OptionalExtension as _, named_params};
use shared::error_kind::ErrorKind;

use crate::actor::Actor;
use crate::command::{Answer, Idempotency, Refusal, Stage};
use crate::vault::Place;

/// The answer to an earlier request with the same key, if there was one. The same key for another request is a
/// conflict.
pub(crate) fn replay(
    stage: &Stage<'_>,
    actor: &Actor,
    asked: &Idempotency,
) -> Result<Option<Answer>, Refusal> {
    stage.db.prepare_cached(FORGET)?.execute([stage.now_ms.saturating_sub(KEPT_MS)])?;
    let row = stage
        .db
        .prepare_cached(FIND)?
        .query_row(named_params! {":actor": actor.who.name(), ":key": asked.key}, |row| {
            let fingerprint: Vec<u8> = row.get("fingerprint")?;
            let (status, version): (u16, Option<u64>) = (row.get("status")?, row.get("version")?);
            Ok((fingerprint, status, version, row.get::<_, Vec<u8>>("body")?))
        })
        .optional()?;
    let Some((fingerprint, status, version, body)) = row else { return Ok(None) };
    if fingerprint != asked.fingerprint {
        return Err(Refusal::new(
            ErrorKind::Conflict,
            "This Idempotency-Key was used for another request. Take a new one.",
        ));
    }
    let body = stage.keys.open(&place(&asked.key), &body)?;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    Ok(Some(Answer { status, body: body.expose().clone(), version, replayed: true, published: true }))
}

/// Keeps an answer for the next time.
pub(crate) fn keep(
    stage: &Stage<'_>,
    actor: &Actor,
    asked: &Idempotency,
    answer: &Answer,
) -> Result<(), Refusal> {
    let body = stage.keys.seal(&place(&asked.key), &answer.body)?;
    stage.db.prepare_cached(KEEP)?.execute(named_params! {
        ":actor": actor.who.name(),
        ":key": asked.key,
        ":fingerprint": asked.fingerprint,
        ":status": answer.status.as_u16(),
        ":version": answer.version,
        ":body": body,
        ":now": stage.now_ms,
    })?;
    Ok(())
}

fn place(key: &str) -> Place<'_> {
    Place { table: "idempotency", column: "body", id: key }
}

/// How long a key is remembered: a day.
pub(crate) const KEPT_MS: u64 = 86_400_000;

const FORGET: &str = "DELETE FROM idempotency WHERE created_at_ms < ?";
const FIND: &str = "SELECT fingerprint, status, version, body FROM idempotency \
     WHERE actor = :actor AND key = :key";
const KEEP: &str = "INSERT INTO idempotency (actor, key, fingerprint, status, version, body, created_at_ms) \
     VALUES (:actor, :key, :fingerprint, :status, :version, :body, :now)";
