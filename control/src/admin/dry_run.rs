//! `?dry_run=true` on writes: the command is applied and rolled back, and the answer shows what it would have done. Nothing
//! is kept, published, audited or stored under an `Idempotency-Key`.

use std::time::{Duration, Instant};

use http::{Method, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::clock::unix_ms;
use shared::error_kind::ErrorKind;
use shared::port::Body;

use super::query::Query;
use super::{ApiError, Call, json};
use crate::db::engine::{Db, DbResult};
use crate::db::keys;
use crate::db::names::{Labels, NamedKind};
use crate::routing::publish::Effects;
use crate::usage::scope::UsageScope;
use crate::writer::command::{Command, DryRun};

/// The answer to a dry run.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "DryRun"))]
pub(super) struct DryRunAnswer {
    /// The object as the write would have returned it; null if the write has no content. IDs of new objects differ from
    /// those of the write. A new key is null.
    object: Value,
    effects: Effects,
}

/// The parameter of writes.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DryRunQuery {
    /// If true, the answer is what the write would do, and nothing is kept.
    dry_run: Option<bool>,
}

/// True if a write asks for a dry run. Fails if its route has none.
pub(super) fn is_wanted(method: &Method, query: &str, has_dry_run: bool) -> Result<bool, ApiError> {
    if *method == Method::GET {
        return Ok(false);
    }
    let DryRunQuery { dry_run } = Query::parse(query)?.take()?;
    let is_wanted = dry_run.unwrap_or(false);
    if is_wanted && !has_dry_run {
        let message =
            "dry_run: this route acts on more than the stored objects, so it has no dry run. Omit dry_run.";
        return Err(ApiError::parameter("dry_run", message));
    }
    Ok(is_wanted)
}

/// Answers with the effects of `command` instead of executing it.
pub(super) async fn answer(call: &Call<'_>, command: impl Command) -> Result<Response<Body>, ApiError> {
    let DryRun { output, preview, deleted, warning } =
        call.app.writer.dry_run(Box::new(command), call.actor.clone()).await?;
    let failed = || ApiError::new(ErrorKind::Internal, "The effects could not be computed.");
    let compare = move || preview.effects(Instant::now() + COMPARING_TIME_MAX);
    let mut effects = tokio::task::spawn_blocking(compare).await.map_err(|_| failed())?;
    effects.deletes = deleted;
    effects.warnings.extend(warning);
    let scope = call.standing.human().map(|_| call.usage_scope());
    let effects = call.app.readers.ask(move |db| named(db, own_keys(db, effects, scope.as_ref())?)).await?;
    let object = if output.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&output).map_err(|_| failed())?
    };
    json(&DryRunAnswer { object, effects })
}

/// Answers with the result of a write that affects neither callers nor endpoints.
pub(super) fn without_effects(object: &impl Serialize) -> Result<Response<Body>, ApiError> {
    let failed = |_| ApiError::new(ErrorKind::Internal, "The response could not be serialized.");
    let object = serde_json::to_value(object).map_err(failed)?;
    json(&DryRunAnswer { object, effects: Effects { complete: true, ..Effects::default() } })
}

/// Leaves to a human the new keys and those of their projects: a connection may still be shared with a project that they left.
fn own_keys(db: &Db, mut effects: Effects, scope: Option<&UsageScope>) -> DbResult<Effects> {
    let Some(scope) = scope else { return Ok(effects) };
    for affected in [&mut effects.loses, &mut effects.gains] {
        let mut own = Vec::new();
        for effect in affected.drain(..) {
            let key = keys::find(db, &effect.key, unix_ms())?;
            own.extend(key.is_none_or(|key| scope.has_project(&key.project)).then_some(effect));
        }
        *affected = own;
    }
    effects.keys_losing = effects.loses.len();
    effects.keys_gaining = effects.gains.len();
    Ok(effects)
}

/// Adds the names of the keys.
fn named(db: &Db, mut effects: Effects) -> DbResult<Effects> {
    let mut labels = Labels::default();
    for effect in effects.loses.iter_mut().chain(&mut effects.gains) {
        effect.key_name = labels.find(db, NamedKind::Key, &effect.key)?.name;
    }
    Ok(effects)
}

/// The maximum time for comparing callers.
const COMPARING_TIME_MAX: Duration = Duration::from_secs(1);
