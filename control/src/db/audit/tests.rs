//! Tampers with the chain in every way that verification must detect.

use serde_json::json;
use shared::secret::Secret;
use tempfile::TempDir;

use super::*;
use crate::common::actor::Who;
use crate::common::bounds::LIVE_AUDIT_ROWS;
use crate::common::bounds::tests::passes;
use crate::db::audit_pages::{self, AuditRow};
use crate::db::chain::{ChainBroken, ChainHolds, verify};
use crate::db::engine::Db;
use crate::db::sqlite_state::open::{Opened, open};

const ROWS: i64 = 8;

fn opened(dir: &TempDir) -> Opened {
    open(dir.path(), &Secret::new([1; 32])).unwrap()
}

/// Creates a state with a chain of [`ROWS`] rows, one minute apart.
fn chained() -> (TempDir, Opened) {
    let dir = TempDir::new().unwrap();
    let state = opened(&dir);
    for number in 1..=ROWS {
        add(&state, number);
    }
    (dir, state)
}

fn add(state: &Opened, number: i64) {
    let (address, request_id) = match number % 2 {
        0 => (Some([127, 0, 0, 1].into()), Some(format!("request {number}"))),
        _ => (None, None),
    };
    let actor = Actor { who: Who::admin(), address, request_id };
    let entry = AuditEntry::done("key.create", "key", "key_1").after(json!({"number": number}));
    append(&state.writer, &state.keys, &actor, minute(number), &entry).unwrap();
}

fn minute(number: i64) -> u64 {
    u64::try_from(number).unwrap() * 60_000
}

fn verified(state: &Opened) -> Result<ChainHolds, ChainBroken> {
    verify(&state.writer, &state.keys).unwrap()
}

/// Returns the fault that verification finds after `sql`, and rolls `sql` back.
fn tampered(state: &Opened, sql: &str) -> ChainBroken {
    state.writer.batch(&format!("PRAGMA ignore_check_constraints = 1; BEGIN; {sql}")).unwrap();
    let broken = verified(state).expect_err(sql);
    state.writer.batch("ROLLBACK").unwrap();
    broken
}

#[test]
fn the_newest_rows_are_shown_and_older_ones_of_the_same_moment_are_counted() {
    let (_dir, state) = chained();
    let first = ROWS + LIVE_AUDIT_ROWS.max() as i64;
    (ROWS + 1..=first).for_each(|number| add(&state, number));
    let newest = |after| audit_pages::newest(&state.writer, after).unwrap();
    let ids = |rows: &[AuditRow]| (rows.len(), rows[0].id);
    assert_eq!(ids(&newest(ROWS)), (LIVE_AUDIT_ROWS.max(), ROWS + 1));
    let cut = passes(&LIVE_AUDIT_ROWS, || newest(ROWS - 1));
    assert_eq!(ids(&cut), (LIVE_AUDIT_ROWS.max(), ROWS + 1));
}

#[test]
fn a_chain_holds_across_starts_and_has_its_length() {
    let (dir, state) = chained();
    assert_eq!(verified(&state), Ok(ChainHolds { rows: ROWS, last_id: ROWS }));
    drop(state);
    let state = opened(&dir);
    add(&state, ROWS + 1);
    assert_eq!(verified(&state), Ok(ChainHolds { rows: ROWS + 1, last_id: ROWS + 1 }));
    let empty = TempDir::new().unwrap();
    assert_eq!(verified(&opened(&empty)), Ok(ChainHolds { rows: 0, last_id: 0 }));
}

#[test]
fn a_flipped_byte_in_any_column_of_any_row_is_found() {
    let (_dir, state) = chained();
    let columns: Vec<String> =
        state.writer.rows("SELECT name FROM pragma_table_info('audit')", (), |row| row.get(0)).unwrap();
    assert!(columns.len() >= 11, "{columns:?}");
    for id in 1..=ROWS {
        for column in &columns {
            let change = match column.as_str() {
                "id" => "id + 1000".to_owned(),
                "at_ms" => "at_ms + 1".to_owned(),
                // A byte that happens to be zero is changed to another value.
                "mac" => "substr(mac, 1, 31) || iif(substr(mac, 32) = x'00', x'01', x'00')".to_owned(),
                text => format!("coalesce(substr({text}, 1, length({text}) - 1) || '!', '')"),
            };
            let change = if column == "mac" { format!("CAST({change} AS BLOB)") } else { change };
            let sql = format!("UPDATE audit SET {column} = {change} WHERE id = {id}");
            let want = if column == "id" { ChainBroken::Missing(id, id) } else { ChainBroken::Changed(id) };
            assert_eq!(tampered(&state, &sql), want, "{sql}");
        }
    }
}

#[test]
fn a_flipped_bit_in_a_mac_is_detected() {
    let (_dir, state) = chained();
    let mac: Vec<u8> = state.writer.row("SELECT mac FROM audit WHERE id = 3", (), |row| row.get(0)).unwrap();
    let set = |mac: &[u8]| state.writer.execute("UPDATE audit SET mac = :mac WHERE id = 3", [mac]).unwrap();
    for bit in 0..mac.len() * 8 {
        let mut flipped = mac.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        set(&flipped);
        assert_eq!(verified(&state), Err(ChainBroken::Changed(3)), "bit {bit}");
    }
    set(&mac);
    assert!(verified(&state).is_ok());
}

#[test]
fn missing_and_inserted_audit_rows_are_named() {
    let copy = "INSERT INTO audit SELECT {}, at_ms, actor, action, object_kind, object_id, outcome, address, \
                request_id, detail, mac FROM audit WHERE id = 8";
    let (_dir, state) = chained();
    for (sql, want) in [
        ("DELETE FROM audit WHERE id = 1".to_owned(), ChainBroken::Missing(1, 1)),
        ("DELETE FROM audit WHERE id IN (4, 5)".to_owned(), ChainBroken::Missing(4, 5)),
        ("DELETE FROM audit WHERE id >= 7".to_owned(), ChainBroken::Missing(7, 8)),
        ("DELETE FROM audit".to_owned(), ChainBroken::Missing(1, 8)),
        (copy.replace("{}", "9"), ChainBroken::PutIn(9)),
        (copy.replace("{}", "0"), ChainBroken::PutIn(0)),
        (
            "DELETE FROM audit WHERE id = 8; UPDATE audit SET id = 8 WHERE id = 7".to_owned(),
            ChainBroken::Missing(7, 7),
        ),
        // Removes the oldest row and moves the others up: every remaining row is intact by itself.
        ("DELETE FROM audit WHERE id = 1; UPDATE audit SET id = id - 1".to_owned(), ChainBroken::Changed(1)),
        ("DELETE FROM vault WHERE name = 'audit_ends'".to_owned(), ChainBroken::Ends),
        ("UPDATE vault SET sealed = zeroblob(109) WHERE name = 'audit_ends'".to_owned(), ChainBroken::Ends),
    ] {
        assert_eq!(tampered(&state, &sql), want, "{sql}");
    }
}

#[test]
fn a_later_row_does_not_hide_deleted_rows() {
    for sql in
        ["DELETE FROM audit WHERE id = 8", "DELETE FROM vault WHERE name = 'audit_ends'; DELETE FROM audit"]
    {
        let (dir, state) = chained();
        state.writer.batch(sql).unwrap();
        drop(state);
        let state = opened(&dir);
        add(&state, 9);
        assert!(verified(&state).is_err(), "{sql}");
        assert_eq!(forget(&state.writer, &state.keys, 0, 1).unwrap(), 0);
    }
}

#[test]
fn old_rows_are_forgotten_and_the_rest_still_verifies() {
    let (dir, state) = chained();
    let forget =
        |state: &Opened, before, rows| forget(&state.writer, &state.keys, minute(before), rows).unwrap();
    assert_eq!(forget(&state, 1, 100), 0);
    assert_eq!(forget(&state, 6, 3), 3);
    assert_eq!(forget(&state, 6, 100), 2);
    assert_eq!(verified(&state), Ok(ChainHolds { rows: 3, last_id: 8 }));
    assert_eq!(forget(&state, 100, 100), 3);
    assert_eq!(verified(&state), Ok(ChainHolds { rows: 0, last_id: 8 }));
    drop(state);
    let state = opened(&dir);
    add(&state, 9);
    assert_eq!(verified(&state), Ok(ChainHolds { rows: 1, last_id: 9 }));
    state.writer.execute("DELETE FROM audit", ()).unwrap();
    assert_eq!(verified(&state), Err(ChainBroken::Missing(9, 9)));
}

#[test]
fn an_old_row_that_was_changed_is_kept_as_evidence() {
    for change in ["UPDATE audit SET actor = 'x' WHERE id = 3", "DELETE FROM audit WHERE id = 2"] {
        let (_dir, state) = chained();
        state.writer.execute(change, ()).unwrap();
        let before = verified(&state);
        assert!(before.is_err());
        assert_eq!(forget(&state.writer, &state.keys, minute(6), 100).unwrap(), 0);
        assert_eq!(verified(&state), before, "{change}");
    }
}

#[test]
fn a_database_from_before_the_audit_gets_a_chain() {
    let dir = TempDir::new().unwrap();
    drop(opened(&dir));
    let path = dir.path().join(crate::db::sqlite_state::open::DATABASE);
    let db = Db::create(&path).unwrap();
    let tables: Vec<String> = {
        db.rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name <> 'vault'", (), |row| row.get(0)).unwrap()
    };
    db.set_pragma(None, "foreign_keys", false).unwrap();
    for table in tables {
        db.execute(&format!("DROP TABLE {table}"), ()).unwrap();
    }
    let (_, usage) = crate::db::sqlite_state::migrate::MIGRATIONS[1];
    db.batch(usage).unwrap();
    db.execute("DELETE FROM vault WHERE name = 'audit_ends'", ()).unwrap();
    db.set_pragma(None, "user_version", 2).unwrap();
    drop(db);
    let state = opened(&dir);
    add(&state, 1);
    assert_eq!(verified(&state), Ok(ChainHolds { rows: 1, last_id: 1 }));
}
