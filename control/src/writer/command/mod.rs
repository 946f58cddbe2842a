//! Admin writes. The admin API queues an [`AdminWrite`]: a [`Command`], whose fields are already valid, and its caller.
//! Only [`execute`] opens a write transaction for commands, writes their audit records, and publishes what they touched,
//! so that no command can omit a step. The outcome goes back to the caller.
//!
//! ```text
//!  AdminWrites that wait -> BEGIN IMMEDIATE
//!                             each:  SAVEPOINT, replay or apply, audit row, RELEASE   (refused, failed: ROLLBACK TO)
//!                           COMMIT -> publish -> WriteOutcomes
//! ```
//!
//! If nodes share the database, the transaction locks the order of their changes first, and ends with a row for the others
//! (`db/cluster/changes.rs`).
//!
//! Writes that are queued at the same time share one commit. A [`dry_run`] applies a command in a transaction of its own
//! and rolls it back.

pub(crate) mod alerts;
pub(crate) mod anonymous;
pub(crate) mod audit_only;
pub(crate) mod bindings;
pub(crate) mod cancels;
pub(crate) mod catalog;
pub(crate) mod device_sign_ins;
pub(crate) mod endpoints;
pub(crate) mod extensions;
pub(crate) mod first_endpoint;
pub(crate) mod keys;
pub(crate) mod lookup;
pub(crate) mod members;
pub(crate) mod nodes;
pub(crate) mod oauth;
pub(crate) mod outbox;
pub(crate) mod principals;
pub(crate) mod projects;
pub(crate) mod providers;
pub(crate) mod quotas;
mod refusal;
pub(crate) mod sessions;
pub(crate) mod sign_in_flows;
pub(crate) mod sso;
pub(crate) mod webhooks;

#[cfg(test)]
mod execute_tests;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use http::StatusCode;
use serde::Serialize;
use shared::error_kind::ErrorKind;
use shared::quota::Counters;
use tokio::sync::oneshot;

pub(crate) use refusal::{CommandRefusal, UNSEALED};

use crate::cluster::follow::{Awaited, Follower, OwnChange};
use crate::common::actor::Actor;
use crate::common::vault::{SealPlace, VaultKeys};
use crate::db::audit::{self, AuditEntry};
use crate::db::engine::{Db, DbError, DbErrorKind, DbResult, Transaction};
use crate::db::error::QueryError;
use crate::db::idempotency::{self, StoredAnswer};
use crate::routing::catalog::cache::CatalogCache;
use crate::routing::config::{Environment, Routing};
use crate::routing::publish::{
    ChangePreview, DeletedParts, EffectWarning, Publisher, Touched, TouchedAccess,
};

/// A change of the state, and its caller.
#[derive(Debug)]
pub(crate) struct AdminWrite {
    pub(crate) command: Box<dyn Command>,
    pub(crate) actor: Actor,
    /// The response status on success.
    pub(crate) status: StatusCode,
    pub(crate) idempotency: Option<Idempotency>,
}

impl AdminWrite {
    /// Returns a change that is made in the background, whose outcome is not awaited.
    pub(crate) fn unanswered(command: impl Command, actor: Actor) -> Self {
        Self { command: Box::new(command), actor, status: StatusCode::NO_CONTENT, idempotency: None }
    }
}

/// The outcome of an [`AdminWrite`], after its commit.
pub(crate) type WriteOutcome = Result<Answer, CommandRefusal>;

/// A change of the state, as a value.
pub(crate) trait Command: Debug + Send + 'static {
    /// Changes rows. On a refusal, all its changes are rolled back. May be called again after a rollback.
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal>;

    /// Completes a stored answer for a repeated request. Returns an audit entry if that reveals a secret.
    fn replayed(
        &self,
        _write: &Write<'_>,
        kept: Vec<u8>,
    ) -> Result<(Vec<u8>, Option<AuditEntry>), CommandRefusal> {
        Ok((kept, None))
    }
}

/// The open write in which a command runs.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    /// The savepoint of the write. Commands access it only through `db/` and `usage/`.
    pub(crate) db: &'a Db,
    /// Seals and opens secrets.
    pub(crate) keys: &'a VaultKeys,
    /// The current providers and endpoints of the configuration file.
    pub(crate) file: &'a Routing,
    /// The environment that `${ENV:NAME}` refers to.
    pub(crate) environment: &'a Environment,
    /// The models that upstreams list.
    pub(crate) catalog: &'a CatalogCache,
    /// The counters of limits in memory.
    pub(crate) counters: &'a Counters,
    /// The caller.
    pub(crate) actor: &'a Actor,
    /// The current time in milliseconds since the Unix epoch.
    pub(crate) now_ms: u64,
}

/// The result of a command that was applied.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// The output for the caller as JSON; empty if there is no content.
    body: Vec<u8>,
    /// The output for repeated requests, if it differs.
    kept: Option<Vec<u8>>,
    version: Option<u64>,
    /// `None` for a step whose result has a record.
    audit: Option<AuditEntry>,
    /// The parts that the next snapshot must rebuild.
    touched: Touched,
    /// The objects that were deleted with the object, for dry runs.
    deleted: DeletedParts,
    /// A consequence that a comparison of routing does not find, for dry runs.
    warning: Option<EffectWarning>,
}

impl Done {
    pub(crate) fn new(
        output: &impl Serialize,
        audit: AuditEntry,
        touched: Touched,
    ) -> Result<Self, CommandRefusal> {
        Ok(Self { body: json(output)?, ..Self::without_output(audit, touched) })
    }

    pub(crate) fn without_output(audit: AuditEntry, touched: Touched) -> Self {
        Self::of(Some(audit), touched)
    }

    /// Creates the result of a step whose result gets a record later.
    pub(crate) fn unrecorded(touched: Touched) -> Self {
        Self::of(None, touched)
    }

    fn of(audit: Option<AuditEntry>, touched: Touched) -> Self {
        let (deleted, warning) = (DeletedParts::default(), None);
        Self { body: Vec::new(), kept: None, version: None, audit, touched, deleted, warning }
    }

    /// Counts the objects that were deleted with the object.
    pub(crate) fn deleting(self, deleted: DeletedParts) -> Self {
        Self { deleted, ..self }
    }

    /// Adds a warning for dry runs.
    pub(crate) fn warning(self, warning: Option<EffectWarning>) -> Self {
        Self { warning, ..self }
    }

    /// Sets the object's version after the change, which is sent as the `ETag`.
    pub(crate) fn version(self, version: impl Into<Option<u64>>) -> Self {
        Self { version: version.into(), ..self }
    }

    /// Sets the output that is stored for repeated requests, without secrets that are shown only once.
    pub(crate) fn kept(self, output: &impl Serialize) -> Result<Self, CommandRefusal> {
        Ok(Self { kept: Some(json(output)?), ..self })
    }
}

fn json(output: &impl Serialize) -> Result<Vec<u8>, CommandRefusal> {
    serde_json::to_vec(output)
        .map_err(|_| CommandRefusal::new(ErrorKind::Internal, "The response could not be serialized."))
}

/// The identity of a request that may be repeated and then gets the answer of its first run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Idempotency {
    /// The client's name for the request.
    pub(crate) key: String,
    /// SHA-256 of the request's path and body.
    pub(crate) fingerprint: [u8; 32],
}

/// The answer to a write that was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// JSON; empty if there is no content.
    pub(crate) body: Vec<u8>,
    /// The object's version, sent as the `ETag`.
    pub(crate) version: Option<u64>,
    /// True if this is the stored answer to an earlier request with the same idempotency key.
    pub(crate) replayed: bool,
    /// False if the change is stored but not yet in force.
    pub(crate) published: bool,
    /// The change that other nodes must see too; `None` if there are none.
    pub(crate) awaited: Option<Awaited>,
}

/// A write in the queue of the writer thread, and the receiver of its outcome.
pub(crate) type QueuedWrite = (AdminWrite, oneshot::Sender<WriteOutcome>);

/// Executes the queued writes in one commit and sends each outcome. A write that fails is rolled back alone. Returns
/// the keys whose access was changed. `follower` orders the change among those of other nodes.
pub(crate) fn execute(
    db: &mut Db,
    keys: &VaultKeys,
    publisher: &mut Publisher,
    follower: Option<&mut Follower>,
    queued: Vec<QueuedWrite>,
) -> TouchedAccess {
    let (writes, callers): (Vec<_>, Vec<_>) = queued.into_iter().unzip();
    let (outcomes, access) = match commit(db, (keys, publisher), follower.as_deref(), &writes) {
        Ok(Committed { mut outcomes, touched, change }) => {
            let access = touched.access.clone();
            let own = follower.as_deref().zip(change.as_ref());
            let awaited = own.map(|(follower, change)| follower.awaited(change, &touched));
            let published = publish(db, publisher, follower, touched, change.as_ref());
            if let Err(error) = &published {
                tracing::error!("a change was stored but not yet published: {error}");
            }
            for answer in outcomes.iter_mut().flatten() {
                answer.published = published.is_ok();
                answer.awaited = awaited.filter(|_| published.is_ok());
            }
            (outcomes, published.unwrap_or(access))
        }
        Err(error) => {
            tracing::error!("a change could not be made: {error}");
            let failed = || Err(CommandRefusal::Failed(QueryError::of(&error)));
            (callers.iter().map(|_| failed()).collect(), TouchedAccess::Nothing)
        }
    };
    for (caller, outcome) in callers.into_iter().zip(outcomes) {
        // A caller that has left needs no outcome.
        let _ = caller.send(outcome);
    }
    access
}

/// Publishes what `touched` names; beside other nodes also what they have changed. `own` is the committed change that touched it,
/// if it was one. Returns the keys whose access changed.
pub(crate) fn publish(
    db: &Db,
    publisher: &mut Publisher,
    follower: Option<&mut Follower>,
    touched: Touched,
    own: Option<&OwnChange>,
) -> DbResult<TouchedAccess> {
    match follower {
        Some(follower) => follower.publish(db, publisher, touched, own),
        None => {
            let access = touched.access.clone();
            publisher.touch(touched, db).map(|()| access)
        }
    }
}

/// The result of a command that was applied and rolled back.
#[derive(Debug)]
pub(crate) struct DryRun {
    /// The output for the caller as JSON, without secrets; empty if there is no content.
    pub(crate) output: Vec<u8>,
    /// The snapshot that the change would lead to.
    pub(crate) preview: Box<ChangePreview>,
    /// The objects that would be deleted with the object.
    pub(crate) deleted: DeletedParts,
    /// A consequence that the preview does not show.
    pub(crate) warning: Option<EffectWarning>,
}

/// A command to apply and roll back, and the receiver of its result.
pub(crate) type QueuedDryRun = (Box<dyn Command>, Actor, oneshot::Sender<Result<DryRun, CommandRefusal>>);

/// Applies a command, reads the snapshot that it would lead to, and rolls everything back. Nothing is audited or
/// published.
pub(crate) fn dry_run(
    db: &mut Db,
    keys: &VaultKeys,
    publisher: &Publisher,
    (command, actor): (Box<dyn Command>, &Actor),
) -> Result<DryRun, CommandRefusal> {
    let tx = db.transaction()?;
    let write = Write::of(&tx, keys, publisher, actor);
    let Done { body, kept, touched, deleted, warning, .. } = command.apply(&write)?;
    let preview = Box::new(publisher.preview(&touched, &tx)?);
    tx.rollback()?;
    Ok(DryRun { output: kept.unwrap_or(body), preview, deleted, warning })
}

/// Writes that were made in one commit.
struct Committed {
    outcomes: Vec<WriteOutcome>,
    /// What they touched together.
    touched: Touched,
    /// The change among those of all nodes.
    change: Option<OwnChange>,
}

/// Why writes were not made, and whether they can be repeated.
enum NotCommitted {
    /// Nothing happened, and nothing will.
    RolledBack(DbError),
    /// It is unknown what happened.
    Unknown(DbError),
}

impl From<DbError> for NotCommitted {
    fn from(error: DbError) -> Self {
        Self::RolledBack(error)
    }
}

/// Runs the writes in one transaction. With a database that nodes share it is repeated once if its connection ended, or if
/// another transaction was in the way.
fn commit(
    db: &mut Db,
    with: (&VaultKeys, &Publisher),
    follower: Option<&Follower>,
    writes: &[AdminWrite],
) -> DbResult<Committed> {
    let may_pass = |error: &DbError| matches!(error.kind(), DbErrorKind::Unreachable | DbErrorKind::Busy);
    match try_commit(db, with, follower, writes) {
        Err(NotCommitted::RolledBack(error)) if follower.is_some() && may_pass(&error) => {
            tracing::warn!("a change is repeated: {error}");
            try_commit(db, with, follower, writes)
        }
        outcome => outcome,
    }
    .map_err(|(NotCommitted::RolledBack(error) | NotCommitted::Unknown(error))| error)
}

fn try_commit(
    db: &mut Db,
    with: (&VaultKeys, &Publisher),
    follower: Option<&Follower>,
    writes: &[AdminWrite],
) -> Result<Committed, NotCommitted> {
    if writes.is_empty() {
        return Ok(Committed { outcomes: Vec::new(), touched: Touched::NOTHING, change: None });
    }
    let mut tx = db.transaction()?;
    let before = follower.map(|_| Follower::begin(&tx)).transpose()?;
    let (outcomes, touched) = apply_all(&mut tx, with, writes)?;
    let change = match (follower, before) {
        (Some(follower), Some(before)) => Some(follower.note(&tx, before, &touched)?),
        _ => None,
    };
    let committed = Committed { outcomes, touched, change };
    let Err(error) = tx.commit() else { return Ok(committed) };
    let Some(change) = &committed.change else { return Err(error.into()) };
    match change.was_made(db) {
        Some(true) => Ok(committed),
        Some(false) => Err(error.into()),
        None => Err(NotCommitted::Unknown(error)),
    }
}

/// Applies the writes. Returns their outcomes, and what they touched together.
fn apply_all(
    tx: &mut Transaction<'_>,
    (keys, publisher): (&VaultKeys, &Publisher),
    writes: &[AdminWrite],
) -> DbResult<(Vec<WriteOutcome>, Touched)> {
    let (mut outcomes, mut touched) = (Vec::with_capacity(writes.len()), Touched::NOTHING);
    for AdminWrite { command, actor, status, idempotency } in writes {
        let savepoint = tx.savepoint()?;
        let write = Write::of(&savepoint, keys, publisher, actor);
        let now_ms = write.now_ms;
        outcomes.push(match write.run(&**command, *status, idempotency.as_ref()) {
            Ok((answer, more)) => {
                touched = touched.and(more);
                savepoint.commit()?;
                Ok(answer)
            }
            Err(CommandRefusal::Failed(QueryError::Sql(error))) => {
                // An error such as a full disk rolls back the whole transaction, so nothing can be continued.
                if !savepoint.is_in_transaction() {
                    return Err(error);
                }
                tracing::error!("a change could not be made: {error}");
                // After a lost connection this fails too.
                savepoint.rollback()?;
                Err(CommandRefusal::Failed(QueryError::of(&error)))
            }
            Err(mut refusal) => {
                savepoint.rollback()?;
                if let Some(entry) = refusal.take_audit() {
                    audit::append(tx, keys, actor, now_ms, &entry)?;
                }
                Err(refusal)
            }
        });
    }
    Ok((outcomes, touched))
}

impl<'a> Write<'a> {
    fn of(db: &'a Db, keys: &'a VaultKeys, publisher: &'a Publisher, actor: &'a Actor) -> Self {
        Self {
            db,
            keys,
            file: publisher.file(),
            environment: publisher.environment(),
            catalog: publisher.catalog(),
            counters: publisher.counters(),
            actor,
            now_ms: shared::clock::unix_ms(),
        }
    }
}

impl Write<'_> {
    /// Replays the answer to an earlier request, or applies the command.
    fn run(
        &self,
        command: &dyn Command,
        status: StatusCode,
        idempotency: Option<&Idempotency>,
    ) -> Result<(Answer, Touched), CommandRefusal> {
        if let Some(idempotency) = idempotency
            && let Some(answer) = replay(self, idempotency)?
        {
            let (body, entry) = command.replayed(self, answer.body)?;
            if let Some(entry) = entry {
                self.record(&entry)?;
            }
            return Ok((Answer { body, ..answer }, Touched::NOTHING));
        }
        let Done { body, kept, version, audit, touched, .. } = command.apply(self)?;
        if let Some(audit) = audit {
            self.record(&audit)?;
        }
        let answer = Answer { status, body, version, replayed: false, published: true, awaited: None };
        if let Some(idempotency) = idempotency {
            keep(self, idempotency, &answer, kept.as_deref().unwrap_or(&answer.body))?;
        }
        Ok((answer, touched))
    }

    fn record(&self, entry: &AuditEntry) -> DbResult<()> {
        audit::append(self.db, self.keys, self.actor, self.now_ms, entry)
    }
}

/// Returns the answer to an earlier request with the same key. Using the same key for a different request is a
/// conflict.
fn replay(write: &Write<'_>, idempotency: &Idempotency) -> Result<Option<Answer>, CommandRefusal> {
    let kept = idempotency::find(write.db, write.actor.who.name(), &idempotency.key, write.now_ms)?;
    let Some(kept) = kept else { return Ok(None) };
    if kept.fingerprint != idempotency.fingerprint {
        return Err(CommandRefusal::new(
            ErrorKind::Conflict,
            "This Idempotency-Key was used for another request. Use a new one.",
        ));
    }
    let body = write.keys.open(&place(&idempotency.key), &kept.body)?;
    Ok(Some(Answer {
        status: StatusCode::from_u16(kept.status).unwrap_or(StatusCode::OK),
        body: body.expose().clone(),
        version: kept.version,
        replayed: true,
        published: true,
        awaited: None,
    }))
}

/// Stores an answer for repeated requests, sealed, with `body` in place of its own.
fn keep(
    write: &Write<'_>,
    idempotency: &Idempotency,
    answer: &Answer,
    body: &[u8],
) -> Result<(), CommandRefusal> {
    let kept = StoredAnswer {
        fingerprint: idempotency.fingerprint.to_vec(),
        status: answer.status.as_u16(),
        version: answer.version,
        body: write.keys.seal(&place(&idempotency.key), body)?,
    };
    idempotency::keep(write.db, write.actor.who.name(), &idempotency.key, &kept, write.now_ms)?;
    Ok(())
}

/// The place of a stored answer, to which it is sealed.
fn place(key: &str) -> SealPlace<'_> {
    SealPlace { table: "idempotency", column: "body", id: key }
}
