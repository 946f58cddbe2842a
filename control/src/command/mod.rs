//! Admin writes. A write is a [`Command`], a value whose fields are already valid; [`execute`] is the only place
//! that opens a write transaction for one, writes its audit record, and publishes what it touched, so that no
//! command can forget them.
//!
//! ```text
//!  orders that wait -> BEGIN IMMEDIATE
//!                        each:  SAVEPOINT, replay or apply, audit row, RELEASE   (refused, failed: ROLLBACK TO)
//!                      COMMIT -> publish -> replies
//! ```
//!
//! Orders that wait at the same time share one commit.

pub(crate) mod allowlist;
pub(crate) mod backups;
pub(crate) mod bindings;
pub(crate) mod catalog;
pub(crate) mod endpoints;
mod idempotency;
pub(crate) mod keys;
pub(crate) mod lookup;
pub(crate) mod members;
pub(crate) mod note;
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
use crate::catalog::shelf::CatalogShelf;
use crate::config::{Environment, Routing};
use crate::publish::{Publisher, Touched, TouchedAccess};
use crate::store::audit;
use crate::vault::VaultKeys;

/// What a change of the state means.
pub(crate) trait Command: Send + 'static {
    /// What the caller of the API gets, as JSON.
    type Output: Serialize;

    /// Changes rows. Whatever it has changed before a refusal is undone.
    fn apply(self, write: &Write<'_>) -> Result<Done<Self::Output>, CommandRefusal>;

    /// Returns the answer as it is kept for a repeated request: without what is shown once.
    fn kept(output: &Self::Output) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(output)
    }

    /// Completes a kept answer for a repeated request. Returns an entry for the audit if that shows a secret.
    fn replayed(
        _write: &Write<'_>,
        kept: Vec<u8>,
    ) -> Result<(Vec<u8>, Option<audit::AuditEntry>), CommandRefusal> {
        Ok((kept, None))
    }
}

/// What a command works with.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    /// The open transaction. Commands touch it through `store/` alone.
    pub(crate) db: &'a Connection,
    /// Seals and opens secrets.
    pub(crate) keys: &'a VaultKeys,
    /// Providers and endpoints of the configuration file as it is now.
    pub(crate) file: &'a Routing,
    /// What `${ENV:NAME}` refers to.
    pub(crate) environment: &'a Environment,
    /// What upstreams list.
    pub(crate) catalog: &'a CatalogShelf,
    /// Who asked for it.
    pub(crate) actor: &'a Actor,
    /// When, in milliseconds since the Unix epoch.
    pub(crate) now_ms: u64,
}

/// A change that has been made.
#[derive(Debug)]
pub(crate) struct Done<T> {
    /// What the caller gets.
    pub(crate) output: T,
    /// The object's version after the change, where it has one; the `ETag`.
    pub(crate) version: Option<u64>,
    /// What is written into the audit.
    pub(crate) audit: audit::AuditEntry,
    /// What the next snapshot has to take in.
    pub(crate) touched: Touched,
}

/// Where orders are carried out: on the writer thread.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    pub(crate) db: &'a mut Connection,
    pub(crate) keys: &'a VaultKeys,
    pub(crate) publisher: &'a mut Publisher,
}

/// Carries out `orders` in one commit and answers each. One that fails is undone alone. Returns the keys whose access
/// was changed.
pub(crate) fn execute(bench: &mut Bench<'_>, mut orders: Vec<Box<dyn Order>>) -> TouchedAccess {
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

fn publish(bench: &mut Bench<'_>, touched: Touched) -> CommitOutcome {
    match bench.publisher.touch(touched, bench.db) {
        Ok(()) => CommitOutcome::Published,
        Err(error) => {
            tracing::error!("a change was made and could not be put in force yet: {error}");
            CommitOutcome::Unpublished
        }
    }
}

fn write(bench: &mut Bench<'_>, orders: &mut [Box<dyn Order>]) -> rusqlite::Result<Touched> {
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
            order::Ran::Changed(more) => {
                touched = touched.and(more);
                savepoint.commit()?;
            }
            order::Ran::Refused(entry) => {
                savepoint.finish()?;
                if let Some((actor, entry)) = entry {
                    audit::append(&tx, bench.keys, &actor, now_ms, &entry)?;
                }
            }
            order::Ran::Failed(error) => {
                // A full disk and the like end the whole transaction; then nothing is left to go on with.
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
