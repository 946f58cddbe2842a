//! The transactions one by one.

use shared::quota::share::{AssertedShare, GrantNeed, ShareChange};

use super::*;
use crate::db::record_id::NodeId;
use crate::db::testing::{ClusterDatabase, process_of, shared_database};

const NODE: u64 = 1;
const OTHER: u64 = 2;

/// Returns a database with limits: requests in total and by the hour, cost by the day, requests by the minute and at the
/// same time. It does not pause after its start.
fn database() -> Option<(ClusterDatabase<'static>, Db)> {
    let database = shared_database()?;
    let db = database.connect();
    for (id, metric, period, amount) in [
        ("concurrent", "concurrent_requests", None, 10),
        ("cost", "cost_micro_usd", Some("day"), 10),
        ("hour", "requests", Some("hour"), 100),
        ("minute", "requests", Some("minute"), 60),
        ("total", "requests", Some("total"), 100),
    ] {
        db.execute(
            "INSERT INTO quotas (id, kind, subject, metric, period, amount, hard, version, created_at_ms, updated_at_ms) \
             VALUES (:id, 'gateway', '', :metric, :period, :amount, 1, 1, 1, 1)",
            (id, metric, period, amount),
        )
        .unwrap();
    }
    Some((database, db))
}

/// Begins a process.
fn begun(db: &mut Db, node: u64) -> Fence {
    let process = process_of(db, node);
    begin(db, process, 0).unwrap().unwrap().fence
}

fn key(quota: &str, start_ms: u64) -> WindowKey {
    WindowKey { quota: quota.into(), start_ms }
}

fn ask(wanted: u64, claim: u64) -> GrantAsk {
    GrantAsk { wanted, claim, waiting: None }
}

fn needs(least: u64, wanted: u64) -> GrantAsk {
    GrantAsk { wanted, claim: 1, waiting: Some(GrantNeed { least, wanted }) }
}

/// Runs work, which must pass, and returns the results of its grants.
fn work_on(db: &mut Db, fence: &mut Fence, actions: Vec<ShareAction>) -> Vec<GrantAnswer> {
    let ran = run(db, &ShareTransaction::Work(*fence, actions), &[]).unwrap();
    let ShareAnswer::Done { grants, .. } = ran.answer else { panic!("{ran:?}") };
    fence.seq += 1;
    grants
}

fn granted(amount: u64) -> GrantAnswer {
    GrantAnswer { amount, ..GrantAnswer::default() }
}

/// Returns the grants of a window, of the node and of the other one.
fn rows(db: &Db, quota: &str) -> (i64, i64, i64) {
    let sum = |sql: &str| -> i64 { db.row(sql, [quota], |row| row.get(0)).unwrap() };
    let of_window = "SELECT CAST(coalesce(sum(granted), 0) AS BIGINT) FROM quota_window WHERE quota = :quota";
    let of_node =
        "SELECT CAST(coalesce(sum(granted), 0) AS BIGINT) FROM quota_share WHERE quota = :quota AND node = 1";
    let of_other =
        "SELECT CAST(coalesce(sum(granted), 0) AS BIGINT) FROM quota_share WHERE quota = :quota AND node = 2";
    (sum(of_window), sum(of_node), sum(of_other))
}

#[test]
fn portions_shrink_and_the_rest_goes_to_requests_that_wait() {
    let Some((_database, mut db)) = database() else { return };
    let db = &mut db;
    let (mut one, mut other) = (begun(db, NODE), begun(db, OTHER));
    let total = || key("total", 0);
    // A quarter of 100 for each of two nodes, and both windows in one transaction.
    let actions = vec![
        ShareAction::Renew,
        ShareAction::Grant(key("hour", 7_200_000), ask(90, 1)),
        ShareAction::Grant(total(), ask(90, 1)),
    ];
    assert_eq!(work_on(db, &mut one, actions), [granted(25), granted(25)]);
    assert_eq!(work_on(db, &mut other, vec![ShareAction::Grant(total(), ask(90, 1))]), [granted(18)]);
    assert_eq!(rows(db, "total"), (43, 25, 18));
    assert_eq!(rows(db, "hour"), (25, 25, 0));
    // What is asked for in advance is less than one claim; a request gets what it needs, and no more.
    assert_eq!(work_on(db, &mut one, vec![ShareAction::Grant(total(), ask(90, 20))]), [granted(0)]);
    assert_eq!(work_on(db, &mut one, vec![ShareAction::Grant(total(), needs(50, 50))]), [granted(50)]);
    let short = GrantAnswer { amount: 7, has_short: true, pause_ms: 0 };
    assert_eq!(work_on(db, &mut other, vec![ShareAction::Grant(total(), needs(2, 30))]), [short]);
    assert_eq!(work_on(db, &mut one, vec![ShareAction::Grant(total(), needs(0, 1))]), [granted(0)]);
    assert_eq!(rows(db, "total"), (100, 75, 25));
    // The node that starved is known to the other one, which gives back.
    let held = total();
    let ran = run(db, &ShareTransaction::Work(other, vec![ShareAction::Renew]), &[&held]).unwrap();
    other.seq += 1;
    assert_eq!(ran.answer, ShareAnswer::Done { grants: vec![], pressed: vec![total()] });
    let change = ShareChange { amount: 9, frees_short: true };
    assert_eq!(work_on(db, &mut other, vec![ShareAction::GiveBack(total(), change)]), []);
    assert_eq!(rows(db, "total"), (91, 75, 16));
    let short = GrantAnswer { amount: 9, has_short: true, pause_ms: 0 };
    assert_eq!(work_on(db, &mut one, vec![ShareAction::Grant(total(), needs(1, 10))]), [short]);
    // What was used beyond a hold raises the window beyond its limit, and then nothing is granted.
    let change = ShareChange { amount: 5, frees_short: true };
    work_on(db, &mut one, vec![ShareAction::Report(total(), change)]);
    assert_eq!(work_on(db, &mut other, vec![ShareAction::Grant(total(), needs(0, 1))]), [granted(0)]);
    assert_eq!(rows(db, "total"), (105, 89, 16));
}

#[test]
fn the_limit_of_the_database_is_the_one_that_holds_in_its_counted_units() {
    let Some((_database, mut db)) = database() else { return };
    let db = &mut db;
    let mut fence = begun(db, NODE);
    let cost = || key("cost", 0);
    assert_eq!(
        work_on(db, &mut fence, vec![ShareAction::Grant(cost(), needs(6_000, 6_000))]),
        [granted(6_000)]
    );
    db.execute("UPDATE quotas SET amount = 5 WHERE id = 'cost'", ()).unwrap();
    assert_eq!(work_on(db, &mut fence, vec![ShareAction::Grant(cost(), needs(0, 1))]), [granted(0)]);
    db.execute(
        "INSERT INTO quota_share (quota, start_ms, node, granted, used) VALUES ('cost', 0, 2, 0, 33)",
        (),
    )
    .unwrap();
    let held = cost();
    let ran = run(db, &ShareTransaction::Work(fence, vec![ShareAction::Renew]), &[&held]).unwrap();
    assert_eq!(ran.news, [WindowNews { key: cost(), is_pressed: true, elsewhere: 33 }]);
    fence.seq += 1;
    db.execute("DELETE FROM quotas WHERE id = 'cost'", ()).unwrap();
    let actions =
        |change| vec![ShareAction::Grant(cost(), needs(0, 1)), ShareAction::GiveBack(key("gone", 0), change)];
    let change = ShareChange { amount: 5, frees_short: true };
    assert_eq!(work_on(db, &mut fence, actions(change)), [granted(0)], "of a limit that is gone");
}

#[test]
fn a_fence_lets_only_the_next_transaction_of_the_process_pass() {
    let Some((_database, mut db)) = database() else { return };
    let db = &mut db;
    let fence = begun(db, NODE);
    let work =
        |fence: Fence| ShareTransaction::Work(fence, vec![ShareAction::Grant(key("total", 0), ask(9, 1))]);
    for (name, other) in [
        ("an earlier number", Fence { seq: fence.seq - 1, ..fence }),
        ("a later number", Fence { seq: fence.seq + 1, ..fence }),
        ("an earlier process", Fence { incarnation: fence.incarnation - 1, ..fence }),
        ("another node", Fence { node: OTHER, ..fence }),
    ] {
        assert_eq!(run(db, &work(other), &[]).unwrap().answer, ShareAnswer::Fenced, "{name}");
    }
    assert_eq!(rows(db, "total"), (0, 0, 0));
    db.execute("UPDATE cluster SET server = server - 1", ()).unwrap();
    assert_eq!(run(db, &work(fence), &[]).unwrap().answer, ShareAnswer::Fenced, "another server");
    // The resynchronization sees the server, and nothing is granted for a while.
    let ran = run(db, &ShareTransaction::Resynchronize(fence), &[]).unwrap();
    assert_eq!(ran.answer, ShareAnswer::Resynchronized { seq: fence.seq + 1, rows: vec![] });
    let fence = Fence { seq: fence.seq + 1, ..fence };
    let ShareAnswer::Done { grants, .. } = run(db, &work(fence), &[]).unwrap().answer else { panic!() };
    assert!(grants[0].amount == 0 && (1..=5_000).contains(&grants[0].pause_ms), "{grants:?}");
    // A process that starts takes the place of this one.
    begun(db, NODE);
    let ran = run(db, &ShareTransaction::Resynchronize(fence), &[]).unwrap();
    assert_eq!(ran.answer, ShareAnswer::Superseded);
    assert!(begin(db, fence, 0).unwrap().is_none(), "superseded before it began");
}

#[test]
fn a_process_whose_registration_was_lost_begins_with_what_its_node_had() {
    let Some((_database, mut db)) = database() else { return };
    let db = &mut db;
    let mut earlier = begun(db, NODE);
    work_on(db, &mut earlier, vec![ShareAction::Grant(key("total", 0), needs(30, 30))]);
    let later = process_of(db, NODE);
    let lost = "UPDATE fences SET incarnation = :incarnation, seq = :seq WHERE node = 1";
    db.execute(lost, (earlier.incarnation, earlier.seq)).unwrap();
    let begun = begin(db, later, 0).unwrap().unwrap();
    assert_eq!(begun.rows, [ShareRow { key: key("total", 0), granted: 30, has_short: false }]);
    let mut fence = begun.fence;
    assert_eq!(work_on(db, &mut fence, vec![ShareAction::Renew]), []);
    let late = ShareTransaction::Work(earlier, vec![ShareAction::Renew]);
    assert_eq!(run(db, &late, &[]).unwrap().answer, ShareAnswer::Fenced);
}

#[test]
fn shares_are_asserted_after_commits_were_lost() {
    let Some((_database, mut db)) = database() else { return };
    let db = &mut db;
    let (mut one, mut other) = (begun(db, NODE), begun(db, OTHER));
    let total = key("total", 0);
    work_on(db, &mut one, vec![ShareAction::Grant(total.clone(), needs(40, 40))]);
    work_on(db, &mut other, vec![ShareAction::Grant(total.clone(), needs(50, 50))]);
    // The transactions of the first node are lost.
    let found = FoundFence { incarnation: one.incarnation, seq: one.seq - 1 };
    db.execute("UPDATE fences SET seq = :seq WHERE node = 1", [found.seq]).unwrap();
    db.execute("UPDATE quota_window SET granted = 50", ()).unwrap();
    db.execute("DELETE FROM quota_share WHERE node = 1", ()).unwrap();
    for _ in 0..2 {
        // As often as it is asked: the fence stays as it is.
        let ran = run(db, &ShareTransaction::Resynchronize(one), &[]).unwrap();
        assert_eq!(ran.answer, ShareAnswer::Lost(found));
    }
    let asserted = AssertedShare { key: total.clone(), granted: 60, has_short: true };
    let gone = AssertedShare { key: key("gone", 0), granted: 3, has_short: false };
    let assert = ShareTransaction::Assert { fence: one, found, shares: vec![gone, asserted] };
    assert_eq!(run(db, &assert, &[]).unwrap().answer, ShareAnswer::Asserted);
    assert_eq!(rows(db, "total"), (110, 60, 50), "also beyond the limit");
    assert_eq!(run(db, &assert, &[]).unwrap().answer, ShareAnswer::Fenced, "once");
    one.seq += 1;
    let change = ShareChange { amount: 20, frees_short: true };
    work_on(db, &mut one, vec![ShareAction::GiveBack(total.clone(), change)]);
    assert_eq!(rows(db, "total"), (90, 40, 50));
    let rows_of = |node, db: &mut Db, fence| {
        let ran = run(db, &ShareTransaction::Resynchronize(fence), &[&total]).unwrap();
        let ShareAnswer::Resynchronized { rows, .. } = ran.answer else { panic!("{node}: {ran:?}") };
        rows
    };
    let row = |granted| vec![ShareRow { key: total.clone(), granted, has_short: false }];
    assert_eq!((rows_of(NODE, db, one), rows_of(OTHER, db, other)), (row(40), row(50)));
    // A process that starts finds what its node had.
    let mut rows_at_start = |node| {
        let process = process_of(db, node);
        begin(db, process, 0).unwrap().unwrap().rows
    };
    assert_eq!(rows_at_start(NODE), row(40));
    assert_eq!(rows_at_start(3), []);
}

#[test]
fn shares_in_timed_limits_of_silent_nodes_are_free_and_their_nodes_resynchronize() {
    let Some((_database, mut db)) = database() else { return };
    let db = &mut db;
    for (quota, rest, left_ms) in [("minute", 60, 121_000), ("concurrent", 10, 600_000)] {
        let (mut one, mut other) = (begun(db, NODE), begun(db, OTHER));
        let window = || key(quota, 0);
        work_on(db, &mut other, vec![ShareAction::Grant(window(), needs(rest, rest))]);
        let wait =
            |db: &mut Db, one: &mut Fence| work_on(db, one, vec![ShareAction::Grant(window(), needs(1, 1))]);
        let silent_for = |db: &Db, ms: u64| {
            let sql = "UPDATE nodes SET alive_until_ms = alive_until_ms - :ms WHERE node = 2";
            db.execute(sql, [ms]).unwrap();
        };
        silent_for(db, left_ms - 3_000);
        assert_eq!(wait(db, &mut one), [granted(0)], "{quota}");
        silent_for(db, 3_000);
        assert_ne!(wait(db, &mut one), [granted(0)], "{quota}");
        let (sum, node, gone) = rows(db, quota);
        assert_eq!((sum, gone), (node, 0), "{quota}");
        let late = ShareTransaction::Work(other, vec![ShareAction::Renew]);
        assert_eq!(run(db, &late, &[]).unwrap().answer, ShareAnswer::Fenced, "{quota}");
    }
    // A share of a calendar window stays counted.
    let mut other = begun(db, OTHER);
    work_on(db, &mut other, vec![ShareAction::Grant(key("total", 0), needs(100, 100))]);
    db.execute("UPDATE nodes SET alive_until_ms = 0 WHERE node = 2", ()).unwrap();
    let mut one = begun(db, NODE);
    assert_eq!(work_on(db, &mut one, vec![ShareAction::Grant(key("total", 0), needs(1, 1))]), [granted(0)]);
}

#[test]
fn what_was_used_is_reported_without_a_change_of_what_was_granted() {
    let Some((_database, mut db)) = database() else { return };
    let db = &mut db;
    let mut fence = begun(db, NODE);
    let (total, hour) = (("total", 0), 3_600_000);
    work_on(db, &mut fence, vec![ShareAction::Grant(key("total", 0), needs(30, 30))]);
    let of_total = |amount| [(("total".to_owned(), 0), amount)];
    used::add(db, 1, &of_total(12)).unwrap();
    used::add(db, 1, &of_total(3)).unwrap();
    // A limit that only counts has no shares, and another node has used some of it.
    used::add(db, 2, &of_total(7)).unwrap();
    let used = |db: &Db| [1, 2].map(|node| crate::db::quotas::used_by_node(db, total, node).unwrap());
    assert_eq!(used(db), [15, 7]);
    for (node, change, want) in [(1, -5, [10, 7]), (2, -9, [8, 0]), (1, 4, [12, 0]), (2, -50, [0, 0])] {
        used::correct(db, total, node, change).unwrap();
        assert_eq!(used(db), want, "{change} by {node}");
        assert_eq!(rows(db, "total"), (30, 30, 0), "{change} by {node}");
    }
    let windows: Vec<_> = (0..9).map(|n| (("hour".to_owned(), n * hour), 1)).collect();
    used::add(db, 1, &windows).unwrap();
    let kept: u64 =
        db.row("SELECT count(*) FROM quota_share WHERE quota = 'hour'", (), |row| row.get(0)).unwrap();
    assert_eq!(kept, 7, "old windows are forgotten");
}

#[test]
fn what_a_lost_node_has_unused_is_given_back_and_it_notices_that_when_it_returns() {
    let Some((_database, mut db)) = database() else { return };
    let db = &mut db;
    let (mut one, mut other) = (begun(db, NODE), begun(db, OTHER));
    let grants = |quotas: &[&str]| -> Vec<ShareAction> {
        quotas.iter().map(|quota| ShareAction::Grant(key(quota, 0), ask(40, 1))).collect()
    };
    work_on(db, &mut one, grants(&["concurrent", "minute", "total"]));
    work_on(db, &mut other, grants(&["total"]));
    used::add(db, 1, &[(("total".to_owned(), 0), 15)]).unwrap();
    let (all, of_one, of_other) = rows(db, "total");
    assert!(of_one > 15 && of_other > 0);
    let held = lost::of_node(db, NodeId::new(1)).unwrap();
    let held: Vec<_> = held.iter().map(|share| (share.quota.as_str(), share.granted, share.used)).collect();
    assert!(held.contains(&("total", of_one.unsigned_abs(), 15)), "{held:?}");
    assert_eq!(lost::release(db, NodeId::new(1)).unwrap(), 1);
    assert_eq!(rows(db, "total"), (all - (of_one - 15), 15, of_other));
    assert!(rows(db, "concurrent").1 > 0 && rows(db, "minute").1 > 0, "these are free by themselves");
    assert_eq!(lost::release(db, NodeId::new(1)).unwrap(), 0);
    let late = run(db, &ShareTransaction::Work(one, vec![ShareAction::Renew]), &[]).unwrap();
    assert_eq!(late.answer, ShareAnswer::Fenced, "it reads its shares again");
}
