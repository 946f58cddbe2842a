//! A node stores its journal in a real PostgreSQL whose answers, or last commits, are lost.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use postgres_server::{
    PostgresProxy, PostgresServer, ProxyMode, Replication, ServerOptions, installed, shared,
};
use shared::id::ProjectId;
use shared::quota::Counters;
use shared::usage::{UsageEvent, UsageLog as _};
use tempfile::TempDir;

use super::{event, large, paths, requests};
use crate::db::engine::Db;
use crate::db::testing::{ClusterDatabase, process_of};
use crate::usage::gauge::read;
use crate::usage::ingest::{Meter, Round};
use crate::usage::journal::{Journal, WorkerLog};
use crate::usage::metrics::Figure;

const NODE: u32 = 1;

/// A process of a node that reaches its database through a proxy.
pub(super) struct Node {
    home: TempDir,
    journal: Journal,
    meter: Meter,
    log: WorkerLog,
    proxy: PostgresProxy,
}

impl Node {
    pub(super) fn start(database: &ClusterDatabase<'_>, server: &PostgresServer) -> Self {
        let (home, proxy) = (TempDir::new().unwrap(), PostgresProxy::start(server.address()));
        let process = process_of(&mut database.connect(), NODE.into());
        database.connect().batch(LIMIT).unwrap();
        let (journal, inbox) = Journal::open(home.path().join("journal")).unwrap();
        let db = database.connect_node_at(proxy.address(), NODE);
        let counters = Arc::new(Counters::of_node(NODE));
        let mut meter = Meter::new(db, inbox, Arc::clone(journal.gauge()), counters);
        meter.with_fence(process, Arc::default());
        let log = journal.log().unwrap();
        Self { home, journal, meter, log, proxy }
    }

    /// Appends an exchange that the limit counts.
    pub(super) fn append(&mut self, event: UsageEvent) {
        assert!(self.log.append(&UsageEvent { project: Some(ProjectId::new("prj")), ..event }));
    }

    fn append_large(&mut self, numbers: std::ops::Range<u64>) {
        for n in numbers {
            self.append(large(n));
            // Each file has some records of several transactions.
            if n % 7 == 0 {
                self.settle();
            }
        }
    }

    /// Runs rounds until nothing is left to do, also while storing fails.
    pub(super) fn settle(&mut self) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.meter.round() != Round::Idle {
            assert!(Instant::now() < until, "still not stored: {:?}", self.journal.gauge().failing());
            thread::yield_now();
        }
    }

    /// Returns the number of exchanges that the metrics count.
    fn counted(&self) -> u64 {
        let sums = self.meter.metrics().read();
        sums.distributions(Figure::Duration).iter().map(|(.., distribution)| distribution.count()).sum()
    }

    /// Returns the number of journal files that are not empty.
    fn files(&self) -> usize {
        paths(&self.home.path().join("journal")).iter().filter(|path| !super::is_blank(path)).count()
    }
}

/// See [`Process::stored`](super::Process::stored).
pub(super) fn stored_in(db: &Db) -> [i64; 3] {
    let sum = |sql: &str| db.row(sql, (), |row| row.get(0)).unwrap();
    let ids: HashSet<String> = requests(db).into_iter().collect();
    [
        sum("SELECT CAST(coalesce(sum(exchanges), 0) AS BIGINT) FROM usage"),
        i64::try_from(ids.len()).unwrap(),
        sum("SELECT CAST(coalesce(sum(requests), 0) AS BIGINT) FROM usage_hour"),
    ]
}

fn used(db: &Db) -> i64 {
    db.row("SELECT CAST(sum(used) AS BIGINT) FROM quota_share", (), |row| row.get(0)).unwrap()
}

const LIMIT: &str = "INSERT INTO quotas (id, kind, subject, metric, period, amount, hard, version, created_at_ms, updated_at_ms) \
     VALUES ('q', 'gateway', '', 'requests', 'total', 9, 1, 1, 0, 0)";

#[test]
fn records_that_a_failover_has_lost_are_stored_again_once() {
    if !installed() {
        return;
    }
    let primary = PostgresServer::start_with(ServerOptions::default().with("wal_sender_timeout", "1s"));
    let database = ClusterDatabase::on(&primary);
    let mut node = Node::start(&database, &primary);
    let link = PostgresProxy::start(primary.address());
    let standby = primary.standby_through(link.address(), Replication::Asynchronous);
    node.append_large(0..40);
    node.settle();
    standby.catch_up_with(&primary);
    link.set(ProxyMode::Cut);
    // Whole files of these are stored, and rest.
    node.append_large(40..90);
    node.settle();
    assert_eq!(stored_in(&database.connect()), [90; 3]);
    primary.kill();
    standby.promote();
    node.proxy.lead_to(standby.address());

    let db = database.connect_node_at(standby.address(), NODE);
    let behind = stored_in(&db)[0];
    assert!((40..90).contains(&behind), "{behind}: the standby lacks commits");
    // An idle node notices it too.
    let until = Instant::now() + Duration::from_secs(30);
    while stored_in(&db)[0] < 90 {
        assert!(Instant::now() < until, "{:?}", stored_in(&db));
        if node.meter.is_due() {
            node.meter.round();
        }
        thread::yield_now();
    }
    node.append_large(90..100);
    node.settle();
    assert_eq!((stored_in(&db), used(&db)), ([100; 3], 100));
    let counted = node.counted();
    assert_eq!(counted, 100, "metrics count each once");
}

#[test]
fn a_batch_whose_answer_is_lost_is_stored_and_counted_once() {
    let Some(database) = crate::db::testing::shared_database() else { return };
    let mut node = Node::start(&database, shared());
    node.settle();
    let after = Duration::from_secs(1);
    let modes =
        [ProxyMode::LoseCommitAnswer { nth: 1 }, ProxyMode::LateCommit { nth: 1, after }, ProxyMode::Cut];
    for (times, mode) in (1..).zip(modes) {
        (times * 10..times * 10 + 10).for_each(|n| node.append(event(n)));
        node.proxy.set(mode);
        assert!(matches!(node.meter.round(), Round::Failing(_)), "{mode:?}");
        node.proxy.set(ProxyMode::Pass);
        node.settle();
        let total = i64::try_from(times).unwrap() * 10;
        assert_eq!(
            (stored_in(&database.connect()), used(&database.connect())),
            ([total; 3], total),
            "{mode:?}"
        );
        let counted = (node.counted(), read(&node.journal.gauge().stored));
        assert_eq!(counted, (times * 10, times * 10), "{mode:?}");
    }
}

#[test]
fn a_process_that_another_one_has_superseded_stores_nothing() {
    let Some(database) = crate::db::testing::shared_database() else { return };
    let mut node = Node::start(&database, shared());
    (0..10).for_each(|n| node.append(event(n)));
    node.settle();
    process_of(&mut database.connect(), NODE.into());
    (10..20).for_each(|n| node.append(event(n)));
    assert_eq!(node.meter.round(), Round::Superseded);
    assert_eq!(node.meter.round(), Round::Superseded);
    assert_eq!((stored_in(&database.connect()), node.meter.unstored()), ([10; 3], 10));
}

#[test]
fn a_stored_file_is_not_reused_while_the_database_acknowledges_nothing() {
    let Some(database) = crate::db::testing::shared_database() else { return };
    let mut node = Node::start(&database, shared());
    node.append_large(0..40);
    node.settle();
    assert_eq!(node.files(), 3);
    node.meter.sweep(Instant::now() + Duration::from_secs(3_600));
    assert_eq!(node.files(), 3, "nothing was acknowledged since");
}
