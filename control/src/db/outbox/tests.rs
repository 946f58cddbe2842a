//! Events, their receivers and their retention, on a real database.

use rusqlite::Connection;
use serde_json::json;

use super::*;

const DAY_MS: u64 = 86_400_000;

fn opened() -> Connection {
    let mut db = Connection::open_in_memory().unwrap();
    db.pragma_update(None, "foreign_keys", true).unwrap();
    crate::db::migrate::migrate(&mut db).unwrap();
    db
}

fn webhook(db: &Connection, id: &str, kinds: Option<&str>, send_resolved: bool) {
    let row =
        "INSERT INTO webhooks VALUES (?, 'w', x'00', '', 'json', ?, ?, 0, 5, 0, x'00', NULL, NULL, 1, 0, 0)";
    db.execute(row, (id, kinds, send_resolved)).unwrap();
}

fn event(db: &Connection, kind: &str, is_resolution: bool, now_ms: u64) -> i64 {
    emit(db, &NewEvent { kind, object: None, data: &json!({}), is_resolution }, now_ms).unwrap()
}

fn receivers(db: &Connection, number: i64) -> Vec<String> {
    let sql = "SELECT coalesce(webhook, 'workers') FROM outbox WHERE event = ? ORDER BY 1";
    let mut statement = db.prepare(sql).unwrap();
    statement.query_map([number], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
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
    let left: i64 = db.query_row("SELECT count(*) FROM events, outbox", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

/// M-204.
#[test]
fn expired_events_are_deleted_unless_a_webhook_waits_for_them() {
    let db = opened();
    let old = event(&db, "disk_low", false, DAY_MS);
    webhook(&db, "w", None, false);
    let waiting = event(&db, "disk_low", false, DAY_MS);
    let delivered = event(&db, "disk_low", false, DAY_MS);
    let new = event(&db, "disk_low", false, 9 * DAY_MS);
    let done = "UPDATE outbox SET state = 'delivered', next_at_ms = NULL WHERE event = ?";
    db.execute(done, [delivered]).unwrap();
    assert_eq!(forget(&db, 2 * DAY_MS, 64).unwrap(), 2);
    let mut statement = db.prepare("SELECT DISTINCT event FROM outbox ORDER BY 1").unwrap();
    let left: Vec<i64> =
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(left, [waiting, new]);
    assert!(old < waiting, "numbers ascend");
    assert_eq!(forget(&db, 2 * DAY_MS, 64).unwrap(), 0);
    db.execute("UPDATE events SET id = id + 100000 WHERE id = ?", [new]).unwrap_err();
}

#[test]
fn the_oldest_events_beyond_the_maximum_are_deleted() {
    let db = opened();
    event(&db, "disk_low", false, 1);
    db.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'events'", [EVENTS_MAX]).unwrap();
    event(&db, "disk_low", false, 1);
    assert_eq!(forget(&db, 0, 64).unwrap(), 1);
    assert_eq!(figures(&db).unwrap(), OutboxFigures { pending: 0, dead: 0, for_workers: 1 });
}
