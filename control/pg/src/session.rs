//! A session: connects when it is first needed, and again after its connection ended.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{Error, ErrorKind};
use crate::settings::Settings;
use crate::tls;
use crate::value::{Field, Kind, Row, wrong_count};

/// A session with the server. Its statements block the calling thread.
pub struct Session {
    settings: Settings,
    connector: MakeRustlsConnect,
    runtime: Runtime,
    live: RefCell<Option<Live>>,
    /// The state of the transaction that the session has begun.
    transaction: Cell<Transaction>,
    until: Cell<Option<Instant>>,
}

/// A connection, and the statements that the server has prepared on it.
struct Live {
    client: Client,
    statements: HashMap<Box<str>, Vec<Prepared>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transaction {
    None,
    Open,
    /// A statement failed: the server refuses all others until the transaction, or its newest part, is rolled back.
    Failed,
}

/// A statement that the server has prepared, for values of some types.
#[derive(Clone, Debug)]
pub struct Prepared(Statement);

impl Session {
    /// Makes a session, which connects at its first statement. Fails if a file of the settings cannot be used.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::new(ErrorKind::Other, format!("cannot start a runtime: {error}")))?;
        let connector = tls::connector(&settings.encryption)?;
        let transaction = Cell::new(Transaction::None);
        Ok(Self {
            settings,
            connector,
            runtime,
            live: RefCell::default(),
            transaction,
            until: Cell::new(None),
        })
    }

    /// Lets statements fail with [`ErrorKind::TooSlow`] from this time on.
    pub fn limit_time(&self, until: Instant) {
        self.until.set(Some(until));
    }

    /// Prepares a statement for values of these types, unless that has been done.
    pub fn prepare(&self, sql: &str, kinds: &[Kind]) -> Result<Prepared, Error> {
        self.connect()?;
        let types: Vec<_> = kinds.iter().map(|kind| kind.type_of()).collect();
        let known = |live: &Live| {
            let prepared = live.statements.get(sql)?;
            prepared.iter().find(|prepared| prepared.0.params() == types).cloned()
        };
        let found = self.live.borrow().as_ref().and_then(known);
        if let Some(found) = found {
            return Ok(found);
        }
        let live = self.live.borrow();
        let client = &live.as_ref().ok_or_else(not_connected)?.client;
        let prepared = Prepared(self.run(client.prepare_typed(sql, &types))?);
        drop(live);
        if let Some(live) = &mut *self.live.borrow_mut() {
            if live.statements.len() >= STATEMENTS_MAX {
                live.statements.clear();
            }
            live.statements.entry(sql.into()).or_default().push(prepared.clone());
        }
        Ok(prepared)
    }

    /// Runs a statement and returns all rows that it finds.
    pub fn query(&self, statement: &Prepared, values: &[Field<'_>]) -> Result<Vec<Row>, Error> {
        let values = parameters(statement, values)?;
        let live = self.live.borrow();
        let client = &live.as_ref().ok_or_else(not_connected)?.client;
        let outcome = self.run(client.query(&statement.0, &values));
        drop(live);
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Stale) {
            self.forget_statements();
        }
        Ok(outcome?.into_iter().map(Row).collect())
    }

    /// Lets all statements be prepared again: a migration has changed a table of one, and perhaps those of others.
    fn forget_statements(&self) {
        if let Some(live) = &mut *self.live.borrow_mut() {
            live.statements.clear();
        }
    }

    /// Runs a statement and returns the number of rows that it changed.
    pub fn execute(&self, statement: &Prepared, values: &[Field<'_>]) -> Result<u64, Error> {
        let values = parameters(statement, values)?;
        let live = self.live.borrow();
        let client = &live.as_ref().ok_or_else(not_connected)?.client;
        self.run(client.execute(&statement.0, &values))
    }

    /// Runs several statements without parameters in one round trip.
    pub fn batch(&self, sql: &str) -> Result<(), Error> {
        self.with_client(async |client| client.batch_execute(sql).await)
    }

    /// Begins a transaction; `how` stands behind `BEGIN`.
    pub fn begin(&self, how: &str) -> Result<(), Error> {
        self.batch(&format!("BEGIN {how}"))?;
        self.transaction.set(Transaction::Open);
        Ok(())
    }

    /// Commits the transaction. After a statement that failed it is rolled back, and the commit fails: the server would
    /// say that it had ended, but not how.
    pub fn commit(&self) -> Result<(), Error> {
        if self.transaction.get() == Transaction::Failed {
            self.rollback()?;
            return Err(Error::new(
                ErrorKind::Other,
                "the transaction was rolled back: one of its statements failed",
            ));
        }
        let committed = self.batch("COMMIT");
        self.transaction.set(Transaction::None);
        if committed.as_ref().is_err_and(|error| error.kind() == ErrorKind::TooSlow) {
            self.disconnect();
        }
        committed
    }

    /// Rolls the transaction back.
    pub fn rollback(&self) -> Result<(), Error> {
        let rolled_back = if self.is_connected() { self.batch("ROLLBACK") } else { Ok(()) };
        self.transaction.set(Transaction::None);
        if rolled_back.is_err() {
            self.disconnect();
        }
        rolled_back
    }

    /// Rolls back to a savepoint, and releases it.
    pub fn rollback_to(&self, savepoint: &str) -> Result<(), Error> {
        self.batch(&format!("ROLLBACK TO {savepoint}; RELEASE {savepoint}"))?;
        self.transaction.set(Transaction::Open);
        Ok(())
    }

    /// True from [`Self::begin`] to [`Self::commit`] or [`Self::rollback`], also after the connection ended.
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.get() != Transaction::None
    }

    /// Calls the server, and connects first if there is no connection.
    pub(crate) fn with_client<T>(
        &self,
        call: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Error> {
        self.connect()?;
        let live = self.live.borrow();
        let client = &live.as_ref().ok_or_else(not_connected)?.client;
        self.run(call(client))
    }

    /// True if there is a connection that is not known to have ended.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.live.borrow().as_ref().is_some_and(|live| !live.client.is_closed())
    }

    /// Connects unless that has been done. A connection that ended inside a transaction is not replaced before the
    /// transaction has been rolled back.
    fn connect(&self) -> Result<(), Error> {
        if self.is_connected() {
            return Ok(());
        }
        if self.transaction.get() != Transaction::None {
            return Err(not_connected());
        }
        *self.live.borrow_mut() = None;
        let connecting = self.settings.config.connect(self.connector.clone());
        let (client, connection) = self.block(connecting)?;
        self.runtime.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection to PostgreSQL ended: {error}");
            }
        });
        *self.live.borrow_mut() = Some(Live { client, statements: HashMap::new() });
        Ok(())
    }

    /// Ends the connection, on which a transaction may still be open. The next statement makes another one.
    pub fn disconnect(&self) {
        *self.live.borrow_mut() = None;
    }

    /// Waits for the answer to a statement.
    pub(crate) fn run<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Error> {
        let outcome = self.block(answer);
        if outcome.is_err() && self.transaction.get() == Transaction::Open {
            self.transaction.set(Transaction::Failed);
        }
        outcome
    }

    /// Waits for the answers to several statements of the open transaction.
    pub(crate) fn run_each<T>(
        &self,
        call: impl AsyncFnOnce(&Client) -> Vec<Result<T, tokio_postgres::Error>>,
    ) -> Result<Vec<Result<T, Error>>, Error> {
        let live = self.live.borrow();
        let client = &live.as_ref().ok_or_else(not_connected)?.client;
        let answers = self.run(async { Ok(call(client).await) })?;
        if answers.iter().any(Result::is_err) && self.transaction.get() == Transaction::Open {
            self.transaction.set(Transaction::Failed);
        }
        Ok(answers.into_iter().map(|answer| Ok(answer?)).collect())
    }

    /// Waits for an answer until the time limit, or for [`STATEMENT_TIME_MAX`], and then asks the server to cancel the statement.
    /// A server that is frozen, or whose disk is, thus blocks its caller for a bounded time.
    fn block<T>(&self, answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Error> {
        let until = self.until.get().unwrap_or_else(|| Instant::now() + STATEMENT_TIME_MAX);
        let outcome = self.runtime.block_on(async { tokio::time::timeout_at(until.into(), answer).await });
        if let Ok(outcome) = outcome {
            return Ok(outcome?);
        }
        if let Some(live) = self.live.borrow().as_ref() {
            let cancel = live.client.cancel_token();
            let sent = self.runtime.block_on(async {
                tokio::time::timeout(CANCEL_TIMEOUT, cancel.cancel_query(self.connector.clone())).await
            });
            tracing::debug!(is_sent = sent.is_ok_and(|sent| sent.is_ok()), "a slow statement was cancelled");
        }
        Err(Error::too_slow())
    }
}

impl Prepared {
    pub(crate) fn inner(&self) -> &Statement {
        &self.0
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Returns the values in the form that tokio-postgres takes.
pub(crate) fn parameters<'a>(
    statement: &Prepared,
    values: &'a [Field<'a>],
) -> Result<Vec<&'a (dyn ToSql + Sync)>, Error> {
    let expected = statement.0.params().len();
    if expected != values.len() {
        return Err(wrong_count(expected, values.len()));
    }
    Ok(values.iter().map(|value| value as &(dyn ToSql + Sync)).collect())
}

fn not_connected() -> Error {
    Error::new(ErrorKind::Unreachable, "the connection to the database ended")
}

/// The number of statements that are kept prepared; a few texts are made for each call.
const STATEMENTS_MAX: usize = 512;
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest time of a statement without another limit.
const STATEMENT_TIME_MAX: Duration = Duration::from_secs(30);
