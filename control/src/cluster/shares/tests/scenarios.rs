//! Single stories: limits by the minute and of concurrent requests, a failover that loses commits, a lowered limit, and a
//! second process with the ID of a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use postgres_server::{ProxyMode, installed};
use shared::quota::Claim;

use super::cluster::{Cluster, Random, pause, send_requests};
use super::nodes::{BUDGETS, Disk, Node, TIMED};
use crate::db::testing::{connect, process_of};

const CLAIM: Claim = Claim {
    input_least: 1,
    input_wanted: 1,
    output_least: 0,
    output_wanted: 0,
    cost_least: 0,
    cost_wanted: 0,
};

/// The test is shorter than the time for which an amount counts, so nothing expires.
#[test]
fn limits_by_the_minute_and_of_concurrent_requests_hold_on_all_nodes_together() {
    if !installed() {
        return;
    }
    for seed in 1..4 {
        let cluster = Cluster::with(Random::of(seed), (TIMED, [4 + seed, 400 * seed]), 3);
        let figures = cluster.run_with(seed, 12);
        println!("{:?}", figures.unwrap_or_else(|fault| panic!("seed {seed}: {fault}")));
    }
}

#[test]
fn a_failover_that_loses_commits_lets_no_budget_be_exceeded_and_all_of_it_be_used() {
    if !installed() {
        return;
    }
    let mut cluster = Cluster::with(Random::of(7), (BUDGETS, [400, 8_000]), 3);
    let (open, budgets) = (Arc::clone(&cluster.open), Arc::clone(&cluster.budgets));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let takers = [1, 2, 3].map(|taker| {
            let (open, budgets, stop) = (&open, &budgets, &stop);
            scope.spawn(move || send_requests(Random::of(taker), open, budgets, stop))
        });
        pause(300);
        // The standby is behind: what follows is lost.
        cluster.database.query(SAVE);
        pause(400);
        cluster.nodes.iter().for_each(|node| node.proxy.set(ProxyMode::Cut));
        cluster.database.end_sessions();
        cluster.database.query(FAIL_OVER);
        cluster.heal();
        pause(2_000);
        stop.store(true, Ordering::SeqCst);
        takers.into_iter().for_each(|taker| taker.join().unwrap());
    });
    cluster.use_up().unwrap();
    let sums = cluster.database.query(
        "SELECT 1 FROM quota_window w WHERE granted <> (SELECT sum(granted) FROM quota_share s WHERE s.quota = w.quota)",
    );
    assert_eq!(sums, Vec::<Vec<String>>::new());
    let pauses = cluster.database.query("SELECT 1 FROM cluster WHERE no_grants_before_ms > 0");
    assert_eq!(pauses.len(), 1, "the nodes have seen that the server is another one");
    cluster.stop();
    cluster.budgets.checked().unwrap();
}

#[test]
fn what_nothing_holds_of_a_lowered_limit_is_given_back() {
    if !installed() {
        return;
    }
    let mut cluster = Cluster::with(Random::of(7), (BUDGETS, [100, 8_000]), 2);
    let process = Arc::clone(cluster.nodes[0].process.as_ref().unwrap());
    let begin = || until("a request is served", || process.begin(&CLAIM, None, &cluster.budgets));
    let running = [begin(), begin(), begin()];
    let granted = |want: &str| {
        let rows = cluster.database.query("SELECT granted FROM quota_window WHERE quota = 'a'");
        (rows[0][0] == want).then_some(())
    };
    assert!(granted("3").is_none(), "more is granted in advance");
    cluster.database.query("UPDATE quotas SET amount = 2");
    until("what is running is left", || granted("3"));
    running.into_iter().for_each(|request| request.end(100, &cluster.budgets));
    assert!(process.begin(&CLAIM, None, &cluster.budgets).is_none());
    cluster.stop();
}

#[test]
fn a_process_ends_when_another_one_runs_with_the_id_of_its_node() {
    if !installed() {
        return;
    }
    let mut cluster = Cluster::with(Random::of(7), (BUDGETS, [100, 8_000]), 1);
    let process = Arc::clone(cluster.nodes[0].process.as_ref().unwrap());
    until("a request is served", || process.begin(&CLAIM, None, &cluster.budgets)).end(100, &cluster.budgets);
    let mut copy = Node::new(1, postgres_server::shared().address());
    let process = process_of(&mut connect(&cluster.database.url()), 1);
    copy.start(process, cluster.database.url(), BUDGETS, Disk::default());
    let first = cluster.nodes[0].thread.as_ref().unwrap();
    until("the first one ends", || first.is_finished().then_some(()));
    let served = copy.process.as_ref().unwrap();
    until("the second one serves", || served.begin(&CLAIM, None, &cluster.budgets))
        .end(100, &cluster.budgets);
    copy.thread.take().unwrap().stop();
    cluster.nodes[0].thread = None;
}

fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < end, "{what}");
        pause(20);
    }
}

const SAVE: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; \
     CREATE TABLE fences_saved AS SELECT * FROM fences; CREATE TABLE nodes_saved AS SELECT * FROM nodes; \
     CREATE TABLE window_saved AS SELECT * FROM quota_window; CREATE TABLE share_saved AS SELECT * FROM quota_share; \
     COMMIT";
const FAIL_OVER: &str = "BEGIN; DELETE FROM fences; DELETE FROM nodes; DELETE FROM quota_share; DELETE FROM quota_window; \
     INSERT INTO fences SELECT * FROM fences_saved; INSERT INTO nodes SELECT * FROM nodes_saved; \
     INSERT INTO quota_window SELECT * FROM window_saved; INSERT INTO quota_share SELECT * FROM share_saved; \
     UPDATE cluster SET server = 1; COMMIT";
