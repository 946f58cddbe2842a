//! Two nodes with writer threads of their own on one PostgreSQL.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use postgres_server::{PostgresProxy, ProxyMode, shared};
use serde_json::Value;
use shared::alarm::Alarm;
use shared::error_kind::ErrorKind;
use shared::freshness::Freshness;
use shared::quota::Counters;
use shared::secret::Secret;
use shared::snapshot::{SnapshotReader, channel};
use tempfile::TempDir;
use tokio::sync::oneshot::{self, Receiver};

use super::follow::Follower;
use super::join::{JoinParams, Joined, join};
use super::listen::ListenThread;
use crate::common::actor::{Actor, Who};
use crate::common::change::AllowlistEdit;
use crate::common::credential::AccessTokens;
use crate::common::node_figures::NodeFigures;
use crate::common::vault::VaultKeys;
use crate::db::chain;
use crate::db::cluster::nodes::Registered;
use crate::db::cluster::{changes, nodes};
use crate::db::engine::Db;
use crate::db::key_check::{make_keys, open_keys};
use crate::db::record_id::NodeId;
use crate::db::testing::{ClusterDatabase, shared_database};
use crate::routing::config::Config;
use crate::routing::publish::tests::{KEY, config};
use crate::routing::publish::{Publisher, PublisherParams};
use crate::usage::ingest::Meter;
use crate::usage::journal::Journal;
use crate::usage::retention::RetentionPass;
use crate::writer::command::keys::{DeleteKey, EditKey, IssueKey};
use crate::writer::command::projects::{CreateProject, EditProject};
use crate::writer::command::{
    AdminWrite, Answer, Command, CommandRefusal, Idempotency, WriteOutcome, execute,
};
use crate::writer::{Writer, WriterHandle, WriterState};

const STALE: Duration = Duration::from_secs(300);

/// A node without a data plane.
struct Node {
    number: NodeId,
    writer: Option<Writer>,
    snapshots: SnapshotReader,
    keys: Arc<VaultKeys>,
    freshness: Freshness,
    _home: TempDir,
}

/// A node before the start of its writer thread.
struct Joining {
    db: Db,
    registered: Registered,
    follower: Follower,
    figures: Arc<NodeFigures>,
    publisher: Publisher,
    counters: Arc<Counters>,
    config: Arc<Config>,
    snapshots: SnapshotReader,
    keys: Arc<VaultKeys>,
    freshness: Freshness,
    home: TempDir,
}

impl Joining {
    /// Registers a node with the session `db`, and publishes its first snapshot.
    fn start(name: &str, mut db: Db) -> Self {
        let home = tempfile::tempdir().unwrap();
        let start = JoinParams {
            state_dir: home.path(),
            release: "1",
            file_digest: "",
            name,
            key_seal: "",
            stale_after: STALE,
        };
        let Joined { registered, mut follower, freshness, figures, warning: _ } =
            join(&mut db, &start).unwrap();
        // Nothing renews it here, and a slow machine must not make it silent.
        db.batch("UPDATE nodes SET alive_until_ms = now_ms() + 600000").unwrap();
        let keys = Arc::new(open_keys(&db, &Secret::new(KEY)).unwrap());
        let config = config(home.path(), "", &[]);
        let (out, snapshots) = channel();
        let counters = Arc::<Counters>::default();
        let params = PublisherParams {
            config: Arc::clone(&config),
            keys: Arc::clone(&keys),
            catalog: Arc::default(),
            tokens: AccessTokens::default(),
            counters: Arc::clone(&counters),
            freshness: freshness.clone(),
            out,
        };
        let (publisher, _) = follower.publish_first(&db, params).unwrap();
        Self {
            db,
            registered,
            follower,
            figures,
            publisher,
            counters,
            config,
            snapshots,
            keys,
            freshness,
            home,
        }
    }

    /// Runs a command as the writer thread does.
    fn run(&mut self, command: impl Command) -> Answer {
        let (caller, outcome) = oneshot::channel();
        let queued = vec![(write(command, None), caller)];
        execute(&mut self.db, &self.keys, &mut self.publisher, Some(&mut self.follower), queued);
        outcome.blocking_recv().unwrap().unwrap()
    }

    /// Looks for changes of other nodes.
    fn follow(&mut self) {
        self.follower.follow(&self.db, &mut self.publisher);
    }

    fn admits(&self, key: &str) -> bool {
        admits(&self.snapshots, key)
    }
}

impl Node {
    /// Starts a node whose writer has the session `db`.
    fn start(name: &str, db: Db) -> Self {
        let joining = Joining::start(name, db);
        let retention = RetentionPass::new(&joining.config.lifetimes, Arc::default());
        let (journal, inbox) = Journal::open(joining.home.path().join("journal")).unwrap();
        let mut meter = Meter::new(joining.db, inbox, Arc::clone(journal.gauge()), joining.counters);
        meter.with_fence(joining.registered.fence(), joining.figures);
        let state = WriterState {
            meter,
            publisher: joining.publisher,
            keys: Arc::clone(&joining.keys),
            retention,
            follower: Some(joining.follower),
        };
        Self {
            number: joining.registered.node,
            writer: Some(Writer::start(state, &Alarm::default()).unwrap()),
            snapshots: joining.snapshots,
            keys: joining.keys,
            freshness: joining.freshness,
            _home: joining.home,
        }
    }

    fn handle(&self) -> WriterHandle {
        self.writer.as_ref().unwrap().handle()
    }

    fn queue(&self, command: impl Command, idempotency: Option<Idempotency>) -> Receiver<WriteOutcome> {
        self.handle().queue(write(command, idempotency)).unwrap()
    }

    fn run(&self, command: impl Command) -> Answer {
        self.queue(command, None).blocking_recv().unwrap().unwrap()
    }

    /// Runs a command and returns the member `name` of its output, and the answer.
    fn made(&self, command: impl Command, name: &str) -> (String, Answer) {
        let answer = self.run(command);
        (member(&answer, name), answer)
    }

    fn refused(&self, command: impl Command) -> ErrorKind {
        match self.queue(command, None).blocking_recv().unwrap() {
            Err(CommandRefusal::Reported { kind, .. }) => kind,
            other => panic!("{other:?}"),
        }
    }

    /// True if the node admits a key.
    fn admits(&self, key: &str) -> bool {
        admits(&self.snapshots, key)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.stop();
        }
    }
}

/// True if the newest snapshot admits a key.
fn admits(snapshots: &SnapshotReader, key: &str) -> bool {
    let snapshot = snapshots.load();
    snapshot.access.keys.get(&snapshot.key_hasher.hash(key.as_bytes())).is_some()
}

/// Returns an administrator's change.
fn write(command: impl Command, idempotency: Option<Idempotency>) -> AdminWrite {
    let actor = Actor { who: Who::admin(), address: None, request_id: None };
    AdminWrite { command: Box::new(command), actor, status: StatusCode::CREATED, idempotency }
}

/// Waits for changes that were queued at once.
fn outcomes(queued: Vec<Receiver<WriteOutcome>>) -> Vec<WriteOutcome> {
    queued.into_iter().map(|outcome| outcome.blocking_recv().unwrap()).collect()
}

fn member(answer: &Answer, name: &str) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    body[name].as_str().unwrap().to_owned()
}

/// Returns a database with the keys of a new state.
fn database() -> Option<ClusterDatabase<'static>> {
    let database = shared_database()?;
    let mut db = database.connect();
    let key = Secret::new(KEY);
    make_keys(&db, &key).unwrap();
    let keys = open_keys(&db, &key).unwrap();
    let tx = db.transaction().unwrap();
    chain::begin(&tx, &keys, 1).unwrap();
    tx.commit().unwrap();
    Some(database)
}

/// Waits as the answer to a change does, until all other live nodes have reported it.
fn wait_until_seen(db: &Db, answer: &Answer) {
    let awaited = answer.awaited.unwrap();
    let version = awaited.version.expect("a change that nodes serve by");
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let unseen = nodes::unseen(db, version, awaited.node, awaited.stale_after).unwrap();
        if unseen.live.is_empty() && unseen.silent.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "{unseen:?}");
        thread::yield_now();
    }
}

fn project(name: &str) -> CreateProject {
    CreateProject { name: name.into(), allowlist: AllowlistEdit::default(), key_defaults: Vec::new() }
}

fn key(name: &str, project: &str) -> IssueKey {
    IssueKey {
        name: name.into(),
        project: project.into(),
        acts_as: None,
        expires_at_ms: None,
        allowlist: AllowlistEdit::default(),
        tags: std::collections::BTreeMap::new(),
        recoverable: false,
        limits: Vec::new(),
    }
}

fn revoke(id: &str) -> EditKey {
    EditKey::revoke(id.into())
}

fn renamed(project: &str, name: &str, if_version: Option<u64>) -> EditProject {
    EditProject {
        id: project.into(),
        if_version,
        name: Some(name.into()),
        disabled: None,
        allowlist: AllowlistEdit::default(),
        key_defaults: None,
    }
}

fn disabled(project: &str) -> EditProject {
    EditProject { name: None, disabled: Some(true), ..renamed(project, "", None) }
}

#[test]
fn a_key_is_admitted_and_refused_at_the_other_node_once_it_has_seen_the_change() {
    let Some(database) = database() else { return };
    let watch = database.connect();
    let (a, b) = (Node::start("a", database.connect()), Node::start("b", database.connect()));
    let (prj, _) = a.made(project("p"), "id");
    let issued = a.run(key("k", &prj));
    let (secret, id) = (member(&issued, "key"), member(&issued, "id"));
    assert!(a.admits(&secret));
    wait_until_seen(&watch, &issued);
    assert!(b.admits(&secret), "a node that has seen the change admits the key");
    // Changes at both nodes are seen by both.
    let (other, made) = b.made(key("other", &prj), "key");
    wait_until_seen(&watch, &made);
    assert!(a.admits(&other) && b.admits(&other));
    let revoked = b.run(revoke(&id));
    wait_until_seen(&watch, &revoked);
    assert!(!a.admits(&secret) && !b.admits(&secret));
    let deleted = a.run(DeleteKey { id, if_version: None });
    wait_until_seen(&watch, &deleted);
    // All keys of a project.
    let off = a.run(disabled(&prj));
    wait_until_seen(&watch, &off);
    assert!(!a.admits(&other) && !b.admits(&other));
    assert_eq!((a.freshness.doubt(), b.freshness.doubt()), (None, None));
}

#[test]
fn a_node_that_was_away_for_too_many_changes_rereads_everything() {
    let Some(database) = database() else { return };
    let watch = database.connect();
    let (a, b) = (Node::start("a", database.connect()), Node::start("b", database.connect()));
    let (prj, _) = a.made(project("p"), "id");
    let (secret, made) = a.made(key("k", &prj), "key");
    wait_until_seen(&watch, &made);
    // The rows that tell what was touched are gone, and so is one change after a failover.
    let lost = "UPDATE changes SET token = 'other'; UPDATE cluster SET token = 'other'";
    watch.batch(&format!("BEGIN; UPDATE keys SET state = 'disabled'; {lost}; COMMIT")).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while a.admits(&secret) || b.admits(&secret) {
        assert!(Instant::now() < until, "both nodes serve by a change that was lost");
        thread::yield_now();
    }
}

/// A node makes a change before it has followed that of another one, and a failover loses both.
#[test]
fn a_node_that_was_ahead_of_what_it_followed_notices_that_a_failover_lost_it() {
    for goes_on in [false, true] {
        let Some(database) = database() else { return };
        let mut other = database.connect();
        let mut node = Joining::start("a", database.connect());
        let prj = member(&node.run(project("p")), "id");
        let issued = node.run(key("k", &prj));
        let (secret, id) = (member(&issued, "key"), member(&issued, "id"));
        let kept = changes::newest(&other, node.registered.node).unwrap().mark;

        database.change(&mut other, NodeId::FIRST, "{}");
        node.run(revoke(&id));
        assert!(!node.admits(&secret));
        let lost = format!(
            "BEGIN; UPDATE keys SET state = 'active'; DELETE FROM changes WHERE version > {0}; \
             UPDATE cluster SET version = {0}, token = '{1}'; COMMIT",
            kept.version, kept.token
        );
        other.batch(&lost).unwrap();
        if goes_on {
            database.change(&mut other, NodeId::FIRST, "{}");
        }
        node.follow();
        assert!(node.admits(&secret), "it serves by a change that was lost; goes on: {goes_on}");
    }
}

#[test]
fn the_audit_chain_of_two_nodes_that_write_at_once_is_whole() {
    let Some(database) = database() else { return };
    let nodes = ["a", "b"].map(|name| Node::start(name, database.connect()));
    let queued = (0..30).flat_map(|n| nodes.iter().map(move |node| (node, n)));
    let queued = queued.map(|(node, n)| node.queue(project(&format!("{}-{n}", node.number.number())), None));
    assert!(outcomes(queued.collect()).iter().all(Result::is_ok));
    let db = database.connect();
    let holds = chain::verify(&db, &nodes[0].keys).unwrap().unwrap();
    assert_eq!(holds.rows, 60);
    let changes: Vec<u64> =
        db.rows("SELECT version FROM changes ORDER BY version", (), |row| row.get(0)).unwrap();
    assert!(changes.iter().copied().eq(1..=changes.len() as u64), "{changes:?}");
    let authors: u64 = db.row("SELECT count(DISTINCT node) FROM changes", (), |row| row.get(0)).unwrap();
    assert_eq!(authors, 2);
}

#[test]
fn an_idempotency_key_and_a_version_hold_at_both_nodes() {
    let Some(database) = database() else { return };
    let nodes = ["a", "b"].map(|name| Node::start(name, database.connect()));
    let once = || Some(Idempotency { key: "once".to_owned(), fingerprint: [1; 32] });
    let at_once = outcomes(nodes.iter().map(|node| node.queue(project("p"), once())).collect());
    let answers: Vec<_> = at_once.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers[0].body, answers[1].body);
    assert_eq!(answers.iter().filter(|answer| answer.replayed).count(), 1);
    let db = database.connect();
    let projects: u64 = db.row("SELECT count(*) FROM projects", (), |row| row.get(0)).unwrap();
    assert_eq!(projects, 1);

    let id = member(&answers[0], "id");
    let edit = |node: &Node| node.queue(renamed(&id, &format!("of {}", node.number.number()), Some(1)), None);
    let edits = outcomes(nodes.iter().map(edit).collect());
    assert_eq!(edits.iter().filter(|outcome| outcome.is_ok()).count(), 1, "one of both is refused");
    for node in &nodes {
        assert_eq!(node.refused(renamed(&id, "late", Some(1))), ErrorKind::PreconditionFailed);
    }
}

#[test]
fn a_lost_answer_to_a_commit_changes_nothing_twice() {
    let Some(database) = database() else { return };
    let watch = database.connect();
    let proxy = PostgresProxy::start(shared().address());
    let (a, b) =
        (Node::start("a", database.connect_at(proxy.address())), Node::start("b", database.connect()));
    let late = ProxyMode::LateCommit { nth: 1, after: Duration::from_millis(700) };
    for (number, mode) in [ProxyMode::LoseCommitAnswer { nth: 1 }, late].into_iter().enumerate() {
        proxy.set(mode);
        let name = format!("p{number}");
        let (prj, made) = a.made(project(&name), "id");
        assert!(proxy.struck(), "{mode:?}");
        let count = |sql: &str| -> u64 { watch.row(sql, (), |row| row.get(0)).unwrap() };
        assert_eq!(count("SELECT count(*) FROM projects"), number as u64 + 1, "{mode:?}");
        assert_eq!(count("SELECT count(*) FROM audit"), number as u64 + 1, "{mode:?}");
        assert_eq!(made.awaited.unwrap().version, None, "no node serves by a project without keys");
        let newest = count("SELECT version FROM cluster");
        assert_eq!(count("SELECT count(*) FROM changes"), newest, "{mode:?}");
        assert_eq!(b.refused(project(&name)), ErrorKind::Conflict, "{prj} is there");
    }
    // A connection that ends before the commit: the change is repeated.
    proxy.set(ProxyMode::Cut);
    proxy.set(ProxyMode::Pass);
    a.run(project("again"));
    assert!(chain::verify(&watch, &a.keys).unwrap().is_ok());
}

#[test]
fn a_node_that_cannot_reach_the_database_refuses_changes_and_follows_again_afterwards() {
    let Some(database) = database() else { return };
    let watch = database.connect();
    let proxy = PostgresProxy::start(shared().address());
    let (a, b) =
        (Node::start("a", database.connect()), Node::start("b", database.connect_at(proxy.address())));
    let (prj, _) = a.made(project("p"), "id");
    let (secret, made) = a.made(key("k", &prj), "key");
    wait_until_seen(&watch, &made);
    proxy.set(ProxyMode::Cut);
    let refused = b.queue(project("q"), None).blocking_recv().unwrap().unwrap_err();
    let CommandRefusal::Failed(error) = refused else { panic!("{refused:?}") };
    assert_eq!(error.answer().0, ErrorKind::DatabaseUnreachable);
    let off = a.run(disabled(&prj));
    let awaited = off.awaited.unwrap();
    let unseen = nodes::unseen(&watch, awaited.version.unwrap(), a.number, STALE).unwrap();
    assert_eq!([unseen.live, unseen.silent].concat(), [b.number]);
    assert!(b.admits(&secret), "it serves on");
    proxy.set(ProxyMode::Pass);
    wait_until_seen(&watch, &off);
    assert!(!b.admits(&secret));
}

#[test]
fn a_dry_run_does_not_wait_for_changes_of_other_nodes() {
    let Some(database) = database() else { return };
    let mut other = database.connect();
    let node = Node::start("a", database.connect());
    let tx = other.transaction().unwrap();
    // The dry run may take longer on a busy machine than the server lets a transaction do nothing.
    tx.batch("SET LOCAL idle_in_transaction_session_timeout = 0").unwrap();
    let before = changes::lock(&tx).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let actor = Actor { who: Who::admin(), address: None, request_id: None };
    let dry_run = runtime.block_on(node.handle().dry_run(Box::new(project("p")), actor)).unwrap();
    assert!(!dry_run.output.is_empty());
    changes::put(&tx, &before, node.number, "{}").unwrap();
    tx.commit().unwrap();
    let projects: u64 = other.row("SELECT count(*) FROM projects", (), |row| row.get(0)).unwrap();
    assert_eq!(projects, 0);
}

#[test]
fn a_node_that_hears_of_a_change_serves_by_it_before_its_next_look() {
    const CHANGES: u32 = 20;
    let Some(database) = database() else { return };
    let watch = database.connect();
    let (a, b) = (Node::start("a", database.connect()), Node::start("b", database.connect()));
    let (prj, _) = a.made(project("p"), "id");
    let mean = |name: &str| {
        let times = (0..CHANGES).map(|n| {
            let began = Instant::now();
            wait_until_seen(&watch, &a.run(key(&format!("{name}{n}"), &prj)));
            began.elapsed()
        });
        times.sum::<Duration>() / CHANGES
    };
    let looks = mean("looks");
    let writer = b.handle();
    let listening =
        ListenThread::start(database.listener(), Box::new(move || writer.look()), &Alarm::default());
    let subscribed = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() \
                      AND query LIKE 'LISTEN %' AND state = 'idle'";
    let until = Instant::now() + Duration::from_secs(20);
    while !watch.exists(subscribed, ()).unwrap() {
        assert!(Instant::now() < until, "nothing listens");
        thread::yield_now();
    }
    let hears = mean("hears");
    println!("figure: a change reaches another node after {looks:?} by looks, {hears:?} by notifications");
    assert!(hears < looks, "{hears:?}, {looks:?} by looks");
    listening.unwrap().stop();
}
