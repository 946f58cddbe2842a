//! Tests of the look-ups, from the journal to the port.

use std::time::Duration;

use shared::id::{ModelId, ProjectId};
use shared::usage::{Details, StateHash, StoredState, UsageEvent, UsageLog as _};
use tempfile::TempDir;

use super::*;
use crate::db::sqlite_state::files::Files;
use crate::usage::tests::{Process, event};

const DAY_MS: u64 = 86_400_000;

fn hash(n: u8) -> StateHash {
    StateHash([n; 16])
}

/// An exchange of a project, whose provider stored the response `n`.
fn stored(project: Option<&str>, n: u8, conversation: Option<u8>, at_ms: u64) -> UsageEvent {
    let state = StoredState {
        response: hash(n),
        conversation: conversation.map(hash),
        address: "a.example:443".into(),
        is_deleted: false,
    };
    let details = Details { stored_state: Some(Box::new(state)), ..Details::default() };
    UsageEvent { project: project.map(ProjectId::new), started_at_ms: at_ms, details, ..event(u64::from(n)) }
}

fn wanted(owner: &str, n: u8, tells_foreign: bool) -> WantedState {
    WantedState { owner: owner.to_owned(), hash: hash(n), tells_foreign }
}

fn own(tokens: Option<u64>) -> StateOrigin {
    StateOrigin::Own {
        provider: shared::id::ProviderId::new("p"),
        address: "a.example:443".to_owned(),
        tokens,
    }
}

fn store(process: &mut Process, events: &[UsageEvent]) {
    let mut log = process.journal.log().unwrap();
    events.iter().for_each(|event| assert!(log.append(event)));
    process.settle();
}

#[test]
fn an_origin_is_stored_with_its_record_and_found_by_its_owner_alone() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let now_ms = unix_ms();
    store(&mut process, &[stored(Some("prj"), 1, Some(2), now_ms), stored(None, 3, None, now_ms), event(9)]);
    let db = process.meter.db_mut();
    let find = |owner, n, tells_foreign| table::find(db, &wanted(owner, n, tells_foreign), now_ms).unwrap();
    assert_eq!(find("project:prj", 1, false), own(Some(30)));
    assert_eq!(find("key:admin", 3, false), own(Some(30)));
    for (owner, n) in
        [("project:other", 1), ("key:prj", 1), ("key:admin", 1), ("project:prj", 3), ("project:prj", 4)]
    {
        assert_eq!(find(owner, n, false), StateOrigin::Unknown, "{owner} {n}");
    }
    assert_eq!(find("project:prj", 2, true), own(None), "a conversation");
    assert_eq!(find("project:other", 2, true), StateOrigin::Foreign);
    assert_eq!(find("project:other", 5, true), StateOrigin::Unknown);
    assert_eq!(process.sql("SELECT count(*) FROM response_origins"), 3);
    assert_eq!(process.stored(), [3, 3, 3], "the records are stored as well");
}

#[test]
fn origins_are_kept_for_30_days_and_deleted_oldest_first() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let now_ms = unix_ms();
    let ages = [0, 1, 29, 30, 31, 40];
    let events: Vec<_> =
        (1..).zip(ages).map(|(n, age)| stored(Some("prj"), n, None, now_ms - age * DAY_MS)).collect();
    store(&mut process, &events);
    let known = |process: &mut Process| -> Vec<u64> {
        let db = process.meter.db_mut();
        let is_known =
            |n| table::find(db, &wanted("project:prj", n, false), now_ms).unwrap() != StateOrigin::Unknown;
        (1..).zip(ages).filter(|(n, _)| is_known(*n)).map(|(_, age)| age).collect()
    };
    assert_eq!(known(&mut process), [0, 1, 29, 30]);
    assert!(forget(process.meter.db_mut(), now_ms - KEPT_DAYS * DAY_MS).unwrap());
    assert_eq!(process.sql("SELECT count(*) FROM response_origins"), 4);
    assert_eq!(known(&mut process), [0, 1, 29, 30]);
}

#[test]
fn the_newest_origin_of_an_id_counts() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let now_ms = unix_ms();
    let of = |model: &str, at_ms| UsageEvent {
        model: Some(ModelId::new(model)),
        ..stored(Some("prj"), 1, None, at_ms)
    };
    let other = |event: UsageEvent| UsageEvent { provider: Some(shared::id::ProviderId::new("q")), ..event };
    store(&mut process, &[other(of("a", now_ms - 3 * DAY_MS)), other(of("b", now_ms)), of("c", now_ms)]);
    let found = table::find(process.meter.db_mut(), &wanted("project:prj", 1, false), now_ms).unwrap();
    assert_eq!(found, own(Some(30)));
    assert_eq!(process.sql("SELECT count(*) FROM response_origins"), 2, "one a day");
}

/// The exchange in which a project deletes the response `n`.
fn deleted(n: u8, at_ms: u64) -> UsageEvent {
    let mut event = stored(Some("prj"), n, None, at_ms);
    event.details.stored_state.as_mut().unwrap().is_deleted = true;
    UsageEvent { model: None, ..event }
}

#[test]
fn a_deleted_response_stays_unknown_in_whatever_order_its_exchanges_are_stored() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let now_ms = unix_ms();
    let day_before = now_ms - DAY_MS;
    store(
        &mut process,
        &[
            stored(Some("prj"), 1, None, now_ms),
            deleted(1, now_ms),
            deleted(2, now_ms),
            stored(Some("prj"), 2, None, now_ms),
            stored(Some("prj"), 3, None, day_before),
            deleted(3, now_ms),
            stored(Some("other"), 1, None, now_ms),
            stored(Some("prj"), 4, None, now_ms),
        ],
    );
    let db = process.meter.db_mut();
    let find = |owner, n| table::find(db, &wanted(owner, n, false), now_ms).unwrap();
    for n in [1, 2, 3] {
        assert_eq!(find("project:prj", n), StateOrigin::Unknown, "{n}");
    }
    assert_eq!(find("project:prj", 4), own(Some(30)));
    assert_eq!(find("project:other", 1), own(Some(30)), "one with the same ID of another project");
}

/// A port whose thread reads the database of `process`.
fn start(home: &TempDir, process: &Process) -> (Arc<dyn StateOrigins>, OriginThread) {
    let queue = OriginQueue::new(Arc::clone(process.journal.gauge()));
    let port = queue.port();
    let storage = Storage::from(Files { main: home.path().join("test.db"), usage: None });
    (port, queue.start(&storage, &Alarm::default()).unwrap())
}

#[tokio::test]
async fn a_look_up_says_if_records_of_an_earlier_process_wait() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    store(&mut process, &[stored(Some("prj"), 1, None, unix_ms())]);
    let (port, thread) = start(&home, &process);
    process.gauge().is_behind.store(true, Ordering::Release);
    assert_eq!(port.find(wanted("project:prj", 1, false)).await, Ok(own(Some(30))));
    assert_eq!(port.find(wanted("project:prj", 2, false)).await, Err(LookupRefusal::Behind));
    process.gauge().is_behind.store(false, Ordering::Release);
    assert_eq!(port.find(wanted("project:prj", 2, false)).await, Ok(StateOrigin::Unknown));
    thread.stop();
    assert_eq!(port.find(wanted("project:prj", 1, false)).await, Err(LookupRefusal::Failed));
}

#[tokio::test]
async fn one_flood_of_unknown_ids_ends_at_its_owner() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    store(
        &mut process,
        &[stored(Some("prj"), 1, None, unix_ms()), stored(Some("flood"), 1, None, unix_ms())],
    );
    let (port, thread) = start(&home, &process);
    let mut refused = 0;
    for _ in 0..2_000 {
        refused += u32::from(port.find(wanted("project:flood", 2, false)).await == Err(LookupRefusal::Busy));
    }
    assert!(refused > 0, "at some time nothing more is looked up");
    assert_eq!(port.find(wanted("project:prj", 1, false)).await, Ok(own(Some(30))), "others are served");
    thread.stop();
}

#[tokio::test]
async fn look_ups_beyond_the_queue_and_those_whose_callers_left_are_not_made() {
    let home = TempDir::new().unwrap();
    let process = Process::start(home.path());
    let queue = OriginQueue::new(Arc::clone(process.journal.gauge()));
    let port = queue.port();
    // Nobody takes them yet.
    let waiting: Vec<_> =
        (0..WAITING_MAX).map(|n| port.find(wanted(&format!("project:{}", n / 8), 1, false))).collect();
    let beyond = port.find(wanted("project:one more", 1, false));
    assert_eq!(beyond.await, Err(LookupRefusal::Busy));
    drop(waiting);
    let storage = Storage::from(Files { main: home.path().join("test.db"), usage: None });
    let thread = queue.start(&storage, &Alarm::default()).unwrap();
    let found = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            match port.find(wanted("project:one more", 1, false)).await {
                Err(LookupRefusal::Busy) => tokio::task::yield_now().await,
                other => break other,
            }
        }
    });
    assert_eq!(found.await.unwrap(), Ok(StateOrigin::Unknown));
    thread.stop();
}
