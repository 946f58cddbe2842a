//! Databases for the unit tests of modules that run SQL of the state.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use postgres_server::{Database, PostgresServer, installed, shared};
use shared::quota::share::Fence;

use super::cluster::changes::{self, CHANNEL, Mark};
use super::cluster::fences;
use super::engine::Db;
use super::engine::postgres::{DatabaseAddress, Listener, schema};
use super::record_id::NodeId;
use super::sqlite_state::migrate::migrate;
use super::storage::Storage;

/// Returns a database of its own with all tables: in memory, or on a real PostgreSQL if `LLMGW_TEST_ENGINE` is `postgres`.
#[expect(clippy::disallowed_methods, reason = "the tests are asked, not the gateway")]
pub(crate) fn migrated() -> Db {
    match std::env::var("LLMGW_TEST_ENGINE").as_deref() {
        Ok("postgres") => on_postgres(),
        Ok(other) => panic!("LLMGW_TEST_ENGINE={other} is not known; postgres is"),
        Err(_) => in_memory(),
    }
}

/// Returns a database of SQLite in memory with all tables.
pub(crate) fn in_memory() -> Db {
    let mut db = Db::in_memory().unwrap();
    db.set_pragma(None, "foreign_keys", true).unwrap();
    migrate(&mut db).unwrap();
    db
}

/// Returns a database of the server that ends with this process, and is deleted with it.
fn on_postgres() -> Db {
    let copy = postgres_database();
    let db = connect(&copy.url());
    std::mem::forget(copy);
    db
}

/// Returns a database with all tables on the PostgreSQL that all unit tests use. It is deleted when it is dropped.
pub(crate) fn postgres_database() -> Database<'static> {
    static FILLED: OnceLock<Database<'static>> = OnceLock::new();
    let filled = FILLED.get_or_init(|| {
        let database = shared().create_database();
        create_tables(&mut connect(&database.url()));
        database
    });
    filled.copy()
}

/// Creates all tables in an empty database.
fn create_tables(db: &mut Db) {
    let tx = db.transaction().unwrap();
    schema::claim(&tx).unwrap();
    schema::create(&in_memory(), &tx).unwrap();
    tx.commit().unwrap();
}

/// Returns a session with the database at this URL.
pub(crate) fn connect(url: &str) -> Db {
    DatabaseAddress::parse(url).unwrap().connect(0).unwrap()
}

/// Makes the table `usage` one without partitions and without rows, as previews had it.
pub(crate) fn without_partitions(db: &Db) {
    let sql = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = 'usage'";
    let create: String = in_memory().row(sql, (), |row| row.get(0)).unwrap();
    let (create, index) =
        (schema::translated(&create), "CREATE INDEX usage_by_time ON usage (last_ms, first_ms)");
    db.batch(&format!("DROP TABLE usage; {create}; {index}")).unwrap();
}

/// Registers a node without a process.
pub(crate) fn add_node(db: &Db, node: u64) {
    let sql = "INSERT INTO nodes (node, identity, alive_until_ms, seen_version, release, file_digest, name) \
               VALUES (:node, :identity, 0, 0, '', '', '') ON CONFLICT (node) DO NOTHING";
    db.execute(sql, (node, node.to_string())).unwrap();
}

/// Registers a process of a node, and returns its fences before their first transaction.
pub(crate) fn process_of(db: &mut Db, node: u64) -> Fence {
    add_node(db, node);
    let tx = db.transaction().unwrap();
    let incarnation = fences::take(&tx, NodeId::new(node.try_into().unwrap())).unwrap();
    tx.commit().unwrap();
    Fence { node, incarnation, seq: 0 }
}

/// A database of PostgreSQL with all tables, for tests with several sessions. It is deleted when it is dropped.
#[derive(Debug)]
pub(crate) struct ClusterDatabase<'server>(Database<'server>);

/// Returns a database of the shared server; `None` if PostgreSQL is not installed.
pub(crate) fn shared_database() -> Option<ClusterDatabase<'static>> {
    installed().then(|| ClusterDatabase::on(shared()))
}

impl<'server> ClusterDatabase<'server> {
    /// Creates a database on a server.
    pub(crate) fn on(server: &'server PostgresServer) -> Self {
        let database = server.create_database();
        create_tables(&mut connect(&database.url()));
        Self(database)
    }

    /// Runs SQL as the superuser, and returns the rows.
    pub(crate) fn query(&self, sql: &str) -> Vec<Vec<String>> {
        self.0.query(sql)
    }

    /// Returns the name of the database, which standbys have too.
    pub(crate) fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns a session.
    pub(crate) fn connect(&self) -> Db {
        connect(&self.0.url())
    }

    /// Returns the place of the state of this node.
    pub(crate) fn storage(&self, node: NodeId) -> Storage {
        Storage::Server { address: Box::new(self.address()), node }
    }

    /// Returns a session of a node.
    pub(crate) fn connect_as(&self, node: u32) -> Db {
        self.address().connect(node).unwrap()
    }

    pub(crate) fn address(&self) -> DatabaseAddress {
        DatabaseAddress::parse(&self.0.url()).unwrap()
    }

    /// Returns a session through a proxy.
    pub(crate) fn connect_at(&self, address: SocketAddr) -> Db {
        connect(&self.0.url_at(address))
    }

    /// Returns a session that waits for notifications of changes.
    pub(crate) fn listener(&self) -> Listener {
        DatabaseAddress::parse(&self.0.url()).unwrap().listen(CHANNEL).unwrap()
    }

    /// Returns a session of a node through a proxy.
    pub(crate) fn connect_node_at(&self, address: SocketAddr, node: u32) -> Db {
        DatabaseAddress::parse(&self.0.url_at(address)).unwrap().connect(node).unwrap()
    }

    /// Waits until a session waits for a lock.
    pub(crate) fn await_a_lock(&self) {
        let (db, until) = (self.connect(), Instant::now() + LOCK_TIME_MAX);
        while !db.exists(WAITS_FOR_A_LOCK, ()).unwrap() {
            assert!(Instant::now() < until, "no session waits for a lock");
            thread::yield_now();
        }
    }

    /// Makes a change that touches `touched`.
    pub(crate) fn change(&self, db: &mut Db, node: NodeId, touched: &str) -> Mark {
        let tx = db.transaction().unwrap();
        let before = changes::lock(&tx).unwrap();
        let mark = changes::put(&tx, &before, node, touched).unwrap();
        tx.commit().unwrap();
        mark
    }
}

/// A bound for a session that another thread starts, however busy the machine is.
const LOCK_TIME_MAX: Duration = Duration::from_secs(30);
const WAITS_FOR_A_LOCK: &str =
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
