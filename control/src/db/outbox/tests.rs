//! Events, their receivers and their retention, on a real database.

use serde_json::json;

use super::lease::Claim;
use super::*;
use crate::common::bounds::tests::passes;
use crate::db::engine::Db;
use crate::db::testing::{in_memory, migrated};

const DAY_MS: u64 = 86_400_000;

fn opened() -> Db {
    migrated()
}

fn webhook(db: &Db, id: &str, kinds: Option<&str>, send_resolved: bool) {
    let row = "INSERT INTO webhooks VALUES (:id, 'w', :bytes, '', 'json', :kinds, :send_resolved, 0, 5, 0, :bytes, NULL, NULL, 1, 0, 0)";
    db.execute(row, (id, [0_u8].as_slice(), kinds, send_resolved)).unwrap();
}

fn event(db: &Db, kind: &str, is_resolution: bool, now_ms: u64) -> i64 {
    emit(db, &NewEvent { kind, object: None, data: &json!({}), is_resolution }, now_ms).unwrap()
}

fn receivers(db: &Db, number: i64) -> Vec<String> {
    let sql = "SELECT coalesce(webhook, 'workers') FROM outbox WHERE event = :event ORDER BY 1";
    db.rows(sql, [number], |row| row.get(0)).unwrap()
}

#[test]
fn an_event_is_stored_for_workers_and_for_each_webhook_whose_filter_it_passes() {
    let db = opened();
    webhook(&db, "all", None, false);
    webhook(&db, "disk", Some(r#"["disk_low"]"#), true);
    webhook(&db, "ends", Some(r#"["disk_low", "key_expiring"]"#), false);
    for (kind, is_resolution, want) in [
        ("disk_low", false, vec!["all", "disk", "ends", "workers"]),
        ("disk_low", true, vec!["disk", "workers"]),
        ("backup_failed", false, vec!["all", "workers"]),
    ] {
        let number = event(&db, kind, is_resolution, 7);
        assert_eq!(receivers(&db, number), want, "{kind} {is_resolution}");
    }
}

#[test]
fn an_event_is_undone_with_its_cause() {
    let mut db = opened();
    let tx = db.transaction().unwrap();
    event(&tx, "disk_low", false, 7);
    tx.rollback().unwrap();
    let left: i64 = db.row("SELECT count(*) FROM events, outbox", (), |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

/// M-117, M-204.
#[test]
fn retention_deletes_events_of_which_nothing_is_left_to_deliver() {
    let db = opened();
    let numbers =
        || -> Vec<i64> { db.rows("SELECT id FROM events ORDER BY 1", (), |row| row.get(0)).unwrap() };
    event(&db, "disk_low", false, DAY_MS);
    webhook(&db, "w", None, false);
    let set = |event: i64, state: &str, next: &str| {
        let sql = format!(
            "UPDATE outbox SET state = '{state}', next_at_ms = {next} WHERE event = :event AND webhook = 'w'"
        );
        assert_eq!(db.execute(&sql, [event]).unwrap(), 1);
    };
    let [waiting, dead, delivered] = [(); 3].map(|()| event(&db, "disk_low", false, DAY_MS));
    set(dead, "dead", "NULL");
    set(delivered, "delivered", "NULL");
    let new = event(&db, "disk_low", false, 9 * DAY_MS);
    assert_eq!(forget(&db, 2 * DAY_MS, 64).unwrap(), 2, "no worker has ever claimed an event");
    assert_eq!(numbers(), [waiting, dead, new]);
    assert_eq!(forget(&db, 2 * DAY_MS, 64).unwrap(), 0);
    set(waiting, "delivered", "NULL");
    set(dead, "delivered", "NULL");
    assert_eq!(forget(&db, 2 * DAY_MS, 64).unwrap(), 2);
    assert_eq!(numbers(), [new]);
}

/// M-117.
#[test]
fn events_wait_for_workers_once_there_are_some() {
    let db = opened();
    let count = || -> i64 { db.row("SELECT count(*) FROM events", (), |row| row.get(0)).unwrap() };
    let claim = |limit| Claim { worker: "w".into(), lease: "l".into(), until_ms: DAY_MS, limit, kinds: None };
    (0..3).for_each(|_| _ = event(&db, "disk_low", false, 1));
    let leased = lease::claim(&db, &claim(2), 1).unwrap();
    assert_eq!(forget(&db, DAY_MS, 64).unwrap(), 0, "two are leased, one waits");
    for delivery in &leased {
        lease::end(&db, delivery, None, 2).unwrap();
    }
    assert_eq!(forget(&db, DAY_MS, 64).unwrap(), 1);
    assert_eq!(count(), 2, "the one that waits, and the one that shows that there are workers");
    let leased = lease::claim(&db, &claim(2), 3).unwrap();
    leased.iter().for_each(|delivery| lease::end(&db, delivery, None, 4).unwrap());
    assert_eq!(forget(&db, DAY_MS, 64).unwrap(), 1);
    event(&db, "disk_low", false, 5);
    assert_eq!(forget(&db, DAY_MS, 64).unwrap(), 0, "it waits, also after the delivered ones are over");
}

#[test]
fn beyond_the_maximum_the_oldest_delivered_events_are_deleted() {
    // SQLite's next number can be set.
    let db = in_memory();
    webhook(&db, "w", None, false);
    let [waiting, delivered] = [(); 2].map(|()| event(&db, "disk_low", false, 1));
    let sql =
        "UPDATE outbox SET state = 'delivered', next_at_ms = NULL WHERE event = :event AND webhook = 'w'";
    db.execute(sql, [delivered]).unwrap();
    db.execute("UPDATE sqlite_sequence SET seq = :seq WHERE name = 'events'", [OUTBOX_EVENTS.max() + 2])
        .unwrap();
    event(&db, "disk_low", false, 1);
    assert_eq!(passes(&OUTBOX_EVENTS, || forget(&db, 0, 64).unwrap()), 1);
    let left: i64 = db.row("SELECT min(id) FROM events", (), |row| row.get(0)).unwrap();
    assert_eq!(left, waiting);
    assert_eq!(figures(&db).unwrap(), OutboxFigures { pending: 2, dead: 0, for_workers: 2 });
}

#[test]
fn dead_deliveries_are_counted_for_each_webhook() {
    let db = opened();
    webhook(&db, "one", None, false);
    webhook(&db, "two", None, false);
    webhook(&db, "well", None, false);
    let numbers: Vec<i64> = (0..3).map(|_| event(&db, "disk_low", false, 0)).collect();
    let kill = |webhook: Option<&str>, event: i64| {
        db.execute(
            "UPDATE outbox SET state = 'dead', next_at_ms = NULL WHERE webhook IS NOT DISTINCT FROM :webhook AND event = :event",
            (webhook, event),
        )
        .unwrap()
    };
    let killed =
        [kill(Some("one"), numbers[0]), kill(Some("one"), numbers[2]), kill(Some("two"), numbers[1])];
    assert_eq!((killed, kill(None, numbers[0])), ([1; 3], 1));
    let dead = dead_by_webhook(&db).unwrap();
    assert_eq!(dead, HashMap::from([("one".to_owned(), 2), ("two".to_owned(), 1)]));
}
