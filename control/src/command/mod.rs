//! Admin writes. A write is a [`Command`], a value whose fields are already valid. Only [`execute`] opens a write
//! transaction for commands, writes their audit records, and publishes what they touched, so that no command can omit
//! a step.
//!
//! ```text
//!  orders that wait -> BEGIN IMMEDIATE
//!                        each:  SAVEPOINT, replay or apply, audit row, RELEASE   (refused, failed: ROLLBACK TO)
//!                      COMMIT -> publish -> replies
//! ```
//!
//! Orders that are queued at the same time share one commit.

pub(crate) mod allowlist;
pub(crate) mod audit_only;
pub(crate) mod backups;
pub(crate) mod bindings;
pub(crate) mod catalog;
pub(crate) mod endpoints;
mod idempotency;
pub(crate) mod keys;
pub(crate) mod lookup;
pub(crate) mod members;
mod order;
pub(crate) mod principals;
pub(crate) mod projects;
pub(crate) mod providers;
pub(crate) mod quotas;
mod refusal;
pub(crate) mod refusals;
pub(crate) mod usage;

#[cfg(test)]
mod execute_tests;
#[cfg(test)]
mod tests;

use rusqlite::{Connection, TransactionBehavior};
use serde::Serialize;

pub(crate) use order::{CommitOutcome, Idempotency, Order, OrderAnswer, OrderContext, OrderOf, Reply, Stage};
pub(crate) use refusal::CommandRefusal;

use crate::actor::Actor;
use crate::catalog::cache::CatalogCache;
use crate::config::{Environment, Routing};
use crate::publish::{Publisher, Touched, TouchedAccess};
use crate::store::audit;
use crate::vault::VaultKeys;

/// A change of the state.
pub(crate) trait Command: Send + 'static {
    /// The response body, serialized as JSON.
    type Output: Serialize;

    /// Changes rows. On a refusal, all its changes are rolled back.
    fn apply(self, write: &Write<'_>) -> Result<Done<Self::Output>, CommandRefusal>;

    /// Returns the answer in the form that is stored for repeated requests: without secrets that are shown only once.
    fn kept(output: &Self::Output) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(output)
    }

    /// Completes a stored answer for a repeated request. Returns an audit entry if that reveals a secret.
    fn replayed(
        _write: &Write<'_>,
        kept: Vec<u8>,
    ) -> Result<(Vec<u8>, Option<audit::AuditEntry>), CommandRefusal> {
        Ok((kept, None))
    }
}

/// The context of a command.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    /// The open transaction. Commands access it only through `store/`.
    pub(crate) db: &'a Connection,
    /// Seals and opens secrets.
    pub(crate) keys: &'a VaultKeys,
    /// The current providers and endpoints of the configuration file.
    pub(crate) file: &'a Routing,
    /// The environment that `${ENV:NAME}` refers to.
    pub(crate) environment: &'a Environment,
    /// The models that upstreams list.
    pub(crate) catalog: &'a CatalogCache,
    /// The caller.
    pub(crate) actor: &'a Actor,
    /// The current time in milliseconds since the Unix epoch.
    pub(crate) now_ms: u64,
}

/// The result of a command that was applied.
#[derive(Debug)]
pub(crate) struct Done<T> {
    /// The output for the caller.
    pub(crate) output: T,
    /// The object's version after the change, if it has one; sent as the `ETag`.
    pub(crate) version: Option<u64>,
    /// The audit record.
    pub(crate) audit: audit::AuditEntry,
    /// The parts that the next snapshot must rebuild.
    pub(crate) touched: Touched,
}

/// The resources with which the writer thread executes orders.
#[derive(Debug)]
pub(crate) struct WriterResources<'a> {
    pub(crate) db: &'a mut Connection,
    pub(crate) keys: &'a VaultKeys,
    pub(crate) publisher: &'a mut Publisher,
}

/// Executes `orders` in one commit and replies to each. An order that fails is rolled back alone. Returns the keys
/// whose access was changed.
pub(crate) fn execute(bench: &mut WriterResources<'_>, mut orders: Vec<Box<dyn Order>>) -> TouchedAccess {
    let (settled, access) = match write(bench, &mut orders) {
        Ok(touched) => {
            let access = touched.access.clone();
            (publish(bench, touched), access)
        }
        Err(error) => {
            tracing::error!("a change could not be made: {error}");
            (CommitOutcome::Failed(error.sqlite_error_code()), TouchedAccess::Nothing)
        }
    };
    for order in orders {
        order.settle(settled);
    }
    access
}

fn publish(bench: &mut WriterResources<'_>, touched: Touched) -> CommitOutcome {
    match bench.publisher.touch(touched, bench.db) {
        Ok(()) => CommitOutcome::Published,
        Err(error) => {
            tracing::error!("a change was made and could not be put in force yet: {error}");
            CommitOutcome::Unpublished
        }
    }
}

fn write(bench: &mut WriterResources<'_>, orders: &mut [Box<dyn Order>]) -> rusqlite::Result<Touched> {
    let now_ms = shared::clock::unix_ms();
    let mut tx = bench.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut touched = Touched::NOTHING;
    for order in orders {
        let savepoint = tx.savepoint()?;
        let stage = Stage {
            db: &savepoint,
            keys: bench.keys,
            file: bench.publisher.file(),
            environment: bench.publisher.environment(),
            catalog: bench.publisher.catalog(),
            now_ms,
        };
        match order.run(&stage) {
            order::OrderResult::Changed(more) => {
                touched = touched.and(more);
                savepoint.commit()?;
            }
            order::OrderResult::Refused(entry) => {
                savepoint.finish()?;
                if let Some((actor, entry)) = entry {
                    audit::append(&tx, bench.keys, &actor, now_ms, &entry)?;
                }
            }
            order::OrderResult::Failed(error) => {
                // An error such as a full disk rolls back the whole transaction, so nothing can be continued.
                if savepoint.is_autocommit() {
                    return Err(error);
                }
                tracing::error!("a change could not be made: {error}");
                savepoint.finish()?;
            }
        }
    }
    tx.commit()?;
    Ok(touched)
}
