//! Opens the state in a database of PostgreSQL, and creates its tables in an empty one.

use std::thread;
use std::time::{Duration, Instant};

use shared::clock::unix_ms;
use shared::secret::Secret;

use super::checks;
use crate::common::vault::VaultKeys;
use crate::db::chain;
use crate::db::cluster::{changes, nodes};
use crate::db::engine::postgres::{DatabaseAddress, partitions, schema};
use crate::db::engine::{Db, DbError, DbErrorKind};
use crate::db::error::OpenError;
use crate::db::key_check::{KeysError, OpenedKeys, make_keys, open_keys, open_sealed_keys};
use crate::db::sqlite_state::migrate::{self, MIGRATIONS, newest};

/// Opens the state at `address`. Creates its tables if there are none, and migrates those of an earlier release, if `migrates` is
/// true. Waits for a server that cannot be reached, after it has called `waits`. The session writes rows of no node.
pub(crate) fn open(
    address: &DatabaseAddress,
    encryption_key: &Secret<[u8; 32]>,
    (migrates, waits): (bool, &dyn Fn()),
) -> Result<(Db, OpenedKeys), OpenError> {
    let failed = |source| database_error(address, &source);
    let mut db = address.connect(0).map_err(failed)?;
    wait_for(&db, address, waits)?;
    expect_fit(&db, address)?;
    if schema::version(&db).map_err(failed)?.is_none() {
        if !migrates {
            return Err(not_migrated(address, "it has no tables yet".to_owned()));
        }
        make(&mut db, address, encryption_key)?;
    }
    let found = check(&db, address)?;
    let keys = open_sealed_keys(&db, encryption_key).map_err(|error| keys_error(address, error))?;
    if found < newest() {
        if !migrates {
            return Err(not_migrated(
                address,
                format!("its tables have version {found}, and this release needs {}", newest()),
            ));
        }
        upgrade(&mut db, address)?;
    }
    if let Err(error) = partitions::make_ahead(&mut db, unix_ms()) {
        tracing::warn!("cannot create the partitions of usage ahead; retrying later: {error}");
    }
    Ok((db, keys))
}

fn not_migrated(address: &DatabaseAddress, detail: String) -> OpenError {
    let remedy = "run 'llmgw migrate' of this release, or start a node without LLMGW_MIGRATE=false";
    OpenError::Database { place: address.to_string(), detail, remedy }
}

/// Returns the version of the tables at `address`; `None` if there are none. Waits for a server that cannot be reached.
pub(crate) fn version(address: &DatabaseAddress) -> Result<Option<i64>, OpenError> {
    let failed = |source| database_error(address, &source);
    let db = address.connect(0).map_err(failed)?;
    wait_for(&db, address, &|| ())?;
    schema::version(&db).map_err(failed)
}

/// Opens the state at `address` for reading. Changes nothing.
pub(crate) fn open_to_read(
    address: &DatabaseAddress,
    encryption_key: &Secret<[u8; 32]>,
) -> Result<(Db, VaultKeys), OpenError> {
    let failed = |source| database_error(address, &source);
    let db = address.connect(0).map_err(failed)?;
    let Some(found) = schema::version(&db).map_err(failed)? else {
        return Err(OpenError::Absent { path: address.to_string().into() });
    };
    if found > newest() {
        return Err(too_new(address, found));
    }
    let keys = open_keys(&db, encryption_key).map_err(|error| keys_error(address, error))?;
    if found < newest() {
        return Err(OpenError::Older { path: address.to_string().into(), found, known: newest() });
    }
    Ok((db, keys))
}

/// Waits until the server answers and accepts changes. A node that starts while it is away, or is a standby that is being
/// promoted, serves as soon as it does.
fn wait_for(db: &Db, address: &DatabaseAddress, waits: &dyn Fn()) -> Result<(), OpenError> {
    let mut told: Option<Instant> = None;
    loop {
        match accepts_changes(db) {
            Err(error) if matches!(error.kind(), DbErrorKind::Unreachable | DbErrorKind::ReadOnly) => {
                if told.is_none() {
                    waits();
                }
                if told.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
                    told = Some(Instant::now());
                    tracing::warn!("waiting for the database {address}: {error}");
                }
                thread::park_timeout(RETRY);
            }
            answer => return answer.map_err(|source| database_error(address, &source)),
        }
    }
}

fn accepts_changes(db: &Db) -> Result<(), DbError> {
    if checks::examine(db)?.is_read_only {
        let text = "it accepts no changes: it is a standby, or was set to be read-only";
        return Err(DbError::new(DbErrorKind::ReadOnly, text));
    }
    Ok(())
}

fn expect_fit(db: &Db, address: &DatabaseAddress) -> Result<(), OpenError> {
    let fitness = checks::examine(db).map_err(|source| database_error(address, &source))?;
    for (text, remedy) in fitness.warnings() {
        tracing::warn!("{text}; {remedy}");
    }
    match fitness.fault() {
        Some((detail, remedy)) => Err(OpenError::Database { place: address.to_string(), detail, remedy }),
        None => Ok(()),
    }
}

/// Creates the tables and the keys in one transaction, unless another node does so at the same time.
fn make(db: &mut Db, address: &DatabaseAddress, encryption_key: &Secret<[u8; 32]>) -> Result<(), OpenError> {
    let failed = |source| database_error(address, &source);
    let model = model().map_err(failed)?;
    let tx = db.transaction().map_err(failed)?;
    if let Err(error) = schema::claim(&tx) {
        tx.rollback().map_err(failed)?;
        return match schema::version(db) {
            Ok(Some(_)) => Ok(()),
            Ok(None) | Err(_) => Err(failed(error)),
        };
    }
    schema::create(&model, &tx).map_err(failed)?;
    make_keys(&tx, encryption_key).map_err(|error| keys_error(address, error))?;
    let keys = open_keys(&tx, encryption_key).map_err(|error| keys_error(address, error))?;
    chain::begin(&tx, &keys, unix_ms()).map_err(failed)?;
    tx.commit().map_err(failed)?;
    tracing::info!("the tables of the state were created in the database {address}");
    Ok(())
}

/// Returns a database with the tables of this release.
pub(crate) fn model() -> Result<Db, DbError> {
    let mut model = Db::in_memory()?;
    migrate::migrate(&mut model)?;
    Ok(model)
}

/// Returns the version of the tables, which may be that of a newer release that lets this one run beside it.
fn check(db: &Db, address: &DatabaseAddress) -> Result<i64, OpenError> {
    let failed = |source| database_error(address, &source);
    let found = schema::version(db).map_err(failed)?.unwrap_or(0);
    if found > newest() && schema::oldest(db).map_err(failed)? > newest() {
        return Err(too_new(address, found));
    }
    Ok(found)
}

fn too_new(address: &DatabaseAddress, found: i64) -> OpenError {
    let detail =
        format!("its tables have version {found}, and this release knows versions up to {}", newest());
    OpenError::Database { place: address.to_string(), detail, remedy: START_NEWER }
}

/// Returns the error of a release that may not run beside the one that has migrated the database since this one opened it.
pub(crate) fn too_old(address: &DatabaseAddress) -> OpenError {
    let detail = "a newer release has migrated its tables meanwhile".to_owned();
    OpenError::Database { place: address.to_string(), detail, remedy: START_NEWER }
}

/// Migrates the tables to this release. Of several nodes that start at the same time, one does it. Nodes of earlier releases
/// go on, unless a migration does not let them: then nothing is changed until they have stopped.
fn upgrade(db: &mut Db, address: &DatabaseAddress) -> Result<(), OpenError> {
    let failed = |source| database_error(address, &source);
    let until = Instant::now() + KILLED_MAX;
    loop {
        let nodes = upgrade_unless_running(db).map_err(failed)?;
        if nodes.is_empty() {
            return Ok(());
        }
        if Instant::now() >= until {
            let detail = format!(
                "nodes run whose releases cannot run beside this one, so that its tables were not migrated: {}",
                nodes.join(", ")
            );
            let remedy = "stop these nodes, and then start this one again";
            return Err(OpenError::Database { place: address.to_string(), detail, remedy });
        }
        thread::park_timeout(RETRY);
    }
}

/// Migrates the tables in one transaction, in which no node begins to run. Returns the live nodes that may not run beside this
/// release; if there are any, nothing is changed.
pub(super) fn upgrade_unless_running(db: &mut Db) -> Result<Vec<String>, DbError> {
    let tx = db.transaction()?;
    changes::lock(&tx)?;
    let version = schema::lock_version(&tx)?;
    let done = usize::try_from(version).unwrap_or(usize::MAX);
    let pending = || (1_i64..).zip(MIGRATIONS).skip(done);
    let oldest = pending().map(|(number, (_, sql))| migrate::oldest_beside(number, sql)).max().unwrap_or(0);
    let nodes = nodes::live_before(&tx, oldest, version)?;
    if !nodes.is_empty() {
        return Ok(nodes);
    }
    for (number, (name, sql)) in pending() {
        schema::migrate(&tx, number, sql)?;
        tracing::info!(migration = name, "database migrated");
    }
    schema::raise_oldest(&tx, oldest)?;
    nodes::end_before(&tx, oldest)?;
    tx.commit().map(|()| Vec::new())
}

/// Returns the error of opening the database at `address`.
pub(crate) fn database_error(address: &DatabaseAddress, source: &DbError) -> OpenError {
    let remedy = match source.kind() {
        DbErrorKind::Unreachable => "check LLMGW_DATABASE_URL, the server and the way to it",
        DbErrorKind::Refused => {
            "check the user, the password, the database and the parameters of encryption in LLMGW_DATABASE_URL, and \
             what the user may do"
        }
        DbErrorKind::ReadOnly => {
            "name the primary server in LLMGW_DATABASE_URL, or let this one accept changes"
        }
        DbErrorKind::DiskFull => "free space on the server's disk",
        _ => "see the log of the server; nothing was changed",
    };
    OpenError::Database { place: address.to_string(), detail: source.to_string(), remedy }
}

pub(crate) fn keys_error(address: &DatabaseAddress, error: KeysError) -> OpenError {
    match error {
        KeysError::WrongKey => OpenError::WrongKey { path: address.to_string().into() },
        KeysError::NoRandom => OpenError::NoRandom,
        KeysError::Sql(source) => database_error(address, &source),
        KeysError::Unreadable(_) | KeysError::Seal(_) => OpenError::Database {
            place: address.to_string(),
            detail: error.to_string(),
            remedy: "restore it from a backup of the server, or name an empty database",
        },
    }
}

const START_NEWER: &str = "start the newer release that it belongs to";
/// A node that was killed is no longer live after this time.
const KILLED_MAX: Duration = Duration::from_secs(7);
/// The pause between two attempts to reach the server.
const RETRY: Duration = Duration::from_secs(1);
/// The pause between two lines of the log that say so.
const TOLD_EVERY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use postgres_server::{installed, shared};

    use super::*;
    use crate::db::testing::connect;

    fn key() -> Secret<[u8; 32]> {
        Secret::new([1; 32])
    }

    #[test]
    fn nodes_that_start_at_once_on_an_empty_database_create_one_state() {
        if !installed() {
            return;
        }
        let database = shared().create_database();
        let address = DatabaseAddress::parse(&database.url()).unwrap();
        let hashes: Vec<Vec<u8>> = thread::scope(|scope| {
            let open = || {
                let opened = open(&address, &key(), (true, &|| ()));
                opened.map(|(_, opened)| opened.keys.derived_bytes("test").expose().to_vec())
            };
            let nodes = [(); 4].map(|()| scope.spawn(open));
            nodes.into_iter().map(|node| node.join().unwrap().unwrap()).collect()
        });
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "each node has opened the same keys");
    }

    #[test]
    fn another_key_an_older_and_a_newer_schema_are_told_apart() {
        if !installed() {
            return;
        }
        let database = shared().create_database();
        let address = DatabaseAddress::parse(&database.url()).unwrap();
        assert!(matches!(open_to_read(&address, &key()), Err(OpenError::Absent { .. })));
        let refused = open(&address, &key(), (false, &|| ())).unwrap_err().to_string();
        assert!(refused.contains("run 'llmgw migrate'"), "{refused}");
        open(&address, &key(), (true, &|| ())).unwrap();
        open_to_read(&address, &key()).unwrap();
        let wrong = open(&address, &Secret::new([2; 32]), (true, &|| ()));
        assert!(matches!(wrong, Err(OpenError::WrongKey { .. })), "{wrong:?}");
        let db = connect(&database.url());
        db.execute("UPDATE schema_version SET version = :version", [newest() - 1]).unwrap();
        assert!(matches!(open_to_read(&address, &key()), Err(OpenError::Older { .. })));
        db.execute("UPDATE schema_version SET version = :version", [newest() + 1]).unwrap();
        // The newer release lets this one run beside it.
        open(&address, &key(), (true, &|| ())).unwrap();
        db.execute("UPDATE schema_version SET oldest = :version", [newest() + 1]).unwrap();
        let newer = open(&address, &key(), (true, &|| ())).unwrap_err().to_string();
        assert!(newer.contains("start the newer release"), "{newer}");
        db.batch("ALTER TABLE schema_version DROP COLUMN oldest").unwrap();
        open(&address, &key(), (true, &|| ())).unwrap_err();
        db.batch("DROP TABLE vault").unwrap();
        db.execute("UPDATE schema_version SET version = :version", [newest()]).unwrap();
        let broken = open(&address, &key(), (true, &|| ())).unwrap_err().to_string();
        assert!(broken.contains("vault") && broken.contains(&address.to_string()), "{broken}");
    }
}
