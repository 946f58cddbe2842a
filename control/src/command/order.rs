//! A command in the queue of the writer thread, with its reply slot.

use std::borrow::Cow;

use http::StatusCode;
use rusqlite::Connection;
use shared::error_kind::ErrorKind;
use tokio::sync::oneshot;

use super::refusal::UNSEALED;
use super::{Command, CommandRefusal, Write, idempotency};
use crate::actor::Actor;
use crate::catalog::cache::CatalogCache;
use crate::config::{Environment, Routing};
use crate::publish::Touched;
use crate::store::audit;
use crate::store::error::StoreError;
use crate::vault::VaultKeys;

/// A command of any type whose caller waits for a reply.
pub(crate) trait Order: Send {
    /// Runs the command inside a savepoint.
    fn run(&mut self, stage: &Stage<'_>) -> OrderResult;

    /// Sends the reply.
    fn settle(self: Box<Self>, settled: CommitOutcome);
}

/// The result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitOutcome {
    /// Committed and published.
    Published,
    /// Committed; a later publication will include it.
    Unpublished,
    /// Not committed.
    Failed(Option<rusqlite::ErrorCode>),
}

/// The context in which an order runs.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) keys: &'a VaultKeys,
    pub(crate) file: &'a Routing,
    pub(crate) environment: &'a Environment,
    pub(crate) catalog: &'a CatalogCache,
    pub(crate) now_ms: u64,
}

/// The result of running an order.
#[derive(Debug)]
pub(crate) enum OrderResult {
    /// Keep its changes.
    Changed(Touched),
    /// Roll back, except for this audit record.
    Refused(Option<(Actor, audit::AuditEntry)>),
    /// The database failed.
    Failed(rusqlite::Error),
}

/// The caller of an order, and how to reply.
#[derive(Debug)]
pub(crate) struct OrderContext {
    pub(crate) actor: Actor,
    /// The response status on success.
    pub(crate) status: StatusCode,
    pub(crate) idempotency: Option<Idempotency>,
}

/// The identity of a request that may be repeated and then gets the answer of its first run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Idempotency {
    /// The client's name for the request.
    pub(crate) key: String,
    /// SHA-256 of the request's path and body.
    pub(crate) fingerprint: [u8; 32],
}

/// The answer to an order that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OrderAnswer {
    pub(crate) status: StatusCode,
    /// JSON; empty if there is no content.
    pub(crate) body: Vec<u8>,
    /// The object's version, sent as the `ETag`.
    pub(crate) version: Option<u64>,
    /// True if this is the stored answer to an earlier request with the same idempotency key.
    pub(crate) replayed: bool,
    /// False if the change is stored but not yet in force.
    pub(crate) published: bool,
}

/// A reply from the writer thread.
#[derive(Debug)]
pub(crate) enum Reply {
    Answer(OrderAnswer),
    Refused { kind: ErrorKind, message: Cow<'static, str>, param: Option<Cow<'static, str>> },
    Failed(StoreError),
}

/// An order for a command of type `C`.
#[derive(Debug)]
pub(crate) struct OrderOf<C> {
    command: Option<C>,
    context: OrderContext,
    reply: Reply,
    slot: oneshot::Sender<Reply>,
}

impl<C: Command> OrderOf<C> {
    /// Creates an order and the receiver of its reply.
    pub(crate) fn new(command: C, context: OrderContext) -> (Self, oneshot::Receiver<Reply>) {
        let (slot, reply) = oneshot::channel();
        let order =
            Self { command: Some(command), context, reply: Reply::Failed(StoreError::Stopping), slot };
        (order, reply)
    }

    fn apply(&mut self, stage: &Stage<'_>, command: C) -> Result<Touched, CommandRefusal> {
        let Stage { db, keys, file, environment, catalog, now_ms } = *stage;
        let context = &self.context;
        let write = Write { db, keys, file, environment, catalog, actor: &context.actor, now_ms };
        if let Some(asked) = &context.idempotency
            && let Some(answer) = idempotency::replay(stage, &context.actor, asked)?
        {
            let (body, entry) = C::replayed(&write, answer.body)?;
            if let Some(entry) = entry {
                audit::append(db, keys, &context.actor, now_ms, &entry)?;
            }
            self.reply = Reply::Answer(OrderAnswer { body, ..answer });
            return Ok(Touched::NOTHING);
        }
        let done = command.apply(&write)?;
        audit::append(db, keys, &context.actor, now_ms, &done.audit)?;
        let (body, kept) = if context.status == StatusCode::NO_CONTENT {
            (Vec::new(), Vec::new())
        } else {
            let unwritten =
                |_| CommandRefusal::new(ErrorKind::Internal, "The answer could not be written as JSON.");
            let kept = context.idempotency.as_ref().map(|_| C::kept(&done.output)).transpose();
            let body = serde_json::to_vec(&done.output).map_err(unwritten)?;
            (body, kept.map_err(unwritten)?.unwrap_or_default())
        };
        let answer = OrderAnswer {
            status: context.status,
            body,
            version: done.version,
            replayed: false,
            published: true,
        };
        if let Some(asked) = &context.idempotency {
            idempotency::keep(stage, &context.actor, asked, &OrderAnswer { body: kept, ..answer.clone() })?;
        }
        self.reply = Reply::Answer(answer);
        Ok(done.touched)
    }
}

impl<C: Command> Order for OrderOf<C> {
    fn run(&mut self, stage: &Stage<'_>) -> OrderResult {
        let Some(command) = self.command.take() else { return OrderResult::Refused(None) };
        match self.apply(stage, command) {
            Ok(touched) => OrderResult::Changed(touched),
            Err(CommandRefusal::Told { kind, message, param, audit }) => {
                self.reply = Reply::Refused { kind, message, param };
                OrderResult::Refused(audit.map(|entry| (self.context.actor.clone(), *entry)))
            }
            Err(CommandRefusal::Seal) => {
                let message = UNSEALED.into();
                self.reply = Reply::Refused { kind: ErrorKind::Internal, message, param: None };
                OrderResult::Refused(None)
            }
            Err(CommandRefusal::Sql(error)) => {
                self.reply = Reply::Failed(StoreError::of(&error));
                OrderResult::Failed(error)
            }
        }
    }

    fn settle(self: Box<Self>, settled: CommitOutcome) {
        let reply = match (settled, self.reply) {
            (CommitOutcome::Failed(code), _) => Reply::Failed(StoreError::Shared(code)),
            (CommitOutcome::Unpublished, Reply::Answer(answer)) => {
                Reply::Answer(OrderAnswer { published: false, ..answer })
            }
            (CommitOutcome::Published | CommitOutcome::Unpublished, reply) => reply,
        };
        let _ = self.slot.send(reply);
    }
}
