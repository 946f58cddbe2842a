//! The rows of the table `usage`.

use records::block::{self, Block};
use shared::usage::{UsageEvent, UsageLog as _};
use tempfile::TempDir;

use super::{Process, event};
use crate::db::engine::Db;
use crate::db::packed_row::put;
use crate::db::record_id::{NodeId, RecordId};

/// Puts all exchanges into one row, as earlier releases did whatever day they started on.
pub(crate) fn in_one_row(db: &mut Db) {
    let sql = "SELECT names, rows FROM usage ORDER BY id";
    let rows: Vec<(Vec<u8>, Vec<u8>)> =
        db.rows(sql, (), |row| Ok((row.get("names")?, row.get("rows")?))).unwrap();
    let mut whole = Block::default();
    for (names, packed) in &rows {
        let names = block::names(names);
        for (record, trace) in block::rows(packed, &names).flatten() {
            whole.push(&record, trace);
        }
    }
    db.execute("DELETE FROM usage", ()).unwrap();
    put(db, RecordId::here(1), &whole).unwrap();
}

/// Stores the exchanges of a node's last row as another row.
pub(crate) fn copy_last_row(db: &Db, node: NodeId, id: RecordId) {
    let sql = "SELECT names, rows FROM usage WHERE id < :end ORDER BY id DESC LIMIT 1";
    let (names, packed): (Vec<u8>, Vec<u8>) =
        db.row(sql, [RecordId::end_of(node)], |row| Ok((row.get("names")?, row.get("rows")?))).unwrap();
    let (mut copy, names) = (Block::default(), block::names(&names));
    for (record, trace) in block::rows(&packed, &names).flatten() {
        copy.push(&record, trace);
    }
    put(db, id, &copy).unwrap();
}

#[test]
fn a_row_contains_exchanges_of_one_day_and_only_the_last_row_grows() {
    const DAY_MS: u64 = 24 * 3_600_000;
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    let midnight = 1_700_006_400_000;
    assert_eq!(midnight % DAY_MS, 0);
    let mut started_at = |process: &mut Process, times: &[u64]| {
        for started_at_ms in times {
            assert!(log.append(&UsageEvent { started_at_ms: *started_at_ms, ..event(*started_at_ms) }));
        }
        process.settle();
    };
    let [yesterday, today] = [midnight - 1_000, midnight];
    // Exchanges of both days end in turns after midnight.
    started_at(&mut process, &[yesterday]);
    started_at(&mut process, &[yesterday + 1, today, yesterday + 2, today + 1, yesterday + 3]);
    started_at(&mut process, &[today + 2]);
    started_at(&mut process, &[yesterday + 4]);
    started_at(&mut process, &[today + 3]);
    let sql =
        format!("SELECT id, exchanges FROM usage WHERE first_ms / {DAY_MS} = last_ms / {DAY_MS} ORDER BY id");
    let rows: Vec<(i64, i64)> =
        process.meter.db().rows(&sql, (), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(rows, [(1, 4), (2, 3), (3, 1), (4, 1)]);
    assert_eq!(process.stored(), [9; 3]);
}
