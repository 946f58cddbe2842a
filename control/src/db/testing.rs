//! Databases for the unit tests of modules that run SQL of the state.

use std::sync::OnceLock;

use postgres_server::{Database, shared};

use super::engine::Db;
use super::engine::postgres::{DatabaseAddress, schema};
use super::sqlite_state::migrate::migrate;

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
    static FILLED: OnceLock<Database<'static>> = OnceLock::new();
    let filled = FILLED.get_or_init(|| {
        let database = shared().create_database();
        let mut db = connect(&database.url());
        let tx = db.transaction().unwrap();
        schema::claim(&tx).unwrap();
        schema::create(&in_memory(), &tx).unwrap();
        tx.commit().unwrap();
        database
    });
    let copy = filled.copy();
    let db = connect(&copy.url());
    std::mem::forget(copy);
    db
}

/// Returns a session with the database at this URL.
pub(crate) fn connect(url: &str) -> Db {
    DatabaseAddress::parse(url).unwrap().connect(0).unwrap()
}
