//! Writes that fail within a batch, and failing publications: the resulting commits, snapshots and outcomes.

use http::StatusCode;
use serde_json::json;
use shared::snapshot::{SnapshotReader, channel};
use tokio::sync::oneshot::Receiver;

use super::*;
use crate::common::actor::Who;
use crate::db::key_check::open_keys;
use crate::routing::publish::tests::{config, started};
use shared::secret::Secret;

/// Runs SQL, so that its errors are database errors.
#[derive(Debug)]
struct Sql(&'static str, Touched);

impl Command for Sql {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        write.db.batch(self.0)?;
        let audit = AuditEntry::done("test.sql", "test", self.0);
        Done::new(&json!({"sql": self.0}), audit, self.1.clone())
    }
}

struct Room {
    _folder: tempfile::TempDir,
    db: Db,
    keys: VaultKeys,
    publisher: Publisher,
    reader: SnapshotReader,
}

impl Room {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), "", &[]);
        let (out, reader) = channel();
        let (publisher, db) = started(&config, out);
        let keys = open_keys(&db, &Secret::new(crate::routing::publish::tests::KEY)).unwrap();
        db.batch("CREATE TABLE t (a INTEGER UNIQUE)").unwrap();
        Self { _folder: folder, db, keys, publisher, reader }
    }

    fn execute(&mut self, queued: Vec<QueuedWrite>) -> TouchedAccess {
        execute(&mut self.db, &self.keys, &mut self.publisher, None, queued)
    }

    fn count(&self, sql: &str) -> i64 {
        self.db.row(sql, (), |row| row.get(0)).unwrap()
    }
}

fn queued(sql: &'static str, touched: Touched) -> (QueuedWrite, Receiver<WriteOutcome>) {
    let actor = Actor { who: Who::admin(), address: None, request_id: None };
    let command = Box::new(Sql(sql, touched));
    let (caller, outcome) = oneshot::channel();
    ((AdminWrite { command, actor, status: StatusCode::OK, idempotency: None }, caller), outcome)
}

#[test]
fn a_failed_write_is_rolled_back_without_the_others() {
    let mut room = Room::open();
    let scripts = [
        "INSERT INTO t VALUES (1)",
        "INSERT INTO t VALUES (2); INSERT INTO t VALUES (1)",
        "INSERT INTO nowhere VALUES (1)",
        "INSERT INTO t VALUES (3)",
    ];
    let (writes, mut outcomes): (Vec<_>, Vec<_>) =
        scripts.into_iter().map(|sql| queued(sql, Touched::NOTHING)).unzip();
    room.execute(writes);
    let answered: Vec<bool> =
        outcomes.iter_mut().map(|outcome| matches!(outcome.try_recv(), Ok(Ok(_)))).collect();
    assert_eq!(answered, [true, false, false, true]);
    assert!(matches!(failed(&mut room), Err(CommandRefusal::Failed(_))), "the next one is served as ever");
    assert_eq!(
        (room.count("SELECT CAST(sum(a) AS BIGINT) FROM t"), room.count("SELECT count(*) FROM t")),
        (4, 2)
    );
    assert_eq!(room.count("SELECT count(*) FROM audit WHERE action = 'test.sql'"), 2);
}

fn failed(room: &mut Room) -> WriteOutcome {
    let (write, mut outcome) = queued("INSERT INTO t VALUES (1)", Touched::NOTHING);
    room.execute(vec![write]);
    outcome.try_recv().unwrap()
}

#[test]
fn a_committed_change_that_was_not_published_is_published_later() {
    let mut room = Room::open();
    let before = room.reader.load().generation;
    let (hide, mut hidden) = queued("ALTER TABLE endpoints RENAME TO elsewhere", Touched::ROUTING);
    room.execute(vec![hide]);
    let Ok(Ok(answer)) = hidden.try_recv() else { panic!("it was committed") };
    assert_eq!((answer.status, answer.published), (StatusCode::OK, false));
    assert_eq!((room.reader.load().generation, room.publisher.is_owing()), (before, true));

    let (show, mut shown) = queued("ALTER TABLE elsewhere RENAME TO endpoints", Touched::NOTHING);
    room.execute(vec![show]);
    let Ok(Ok(answer)) = shown.try_recv() else { panic!("it was committed") };
    assert!(answer.published);
    assert_eq!((room.reader.load().generation, room.publisher.is_owing()), (before + 1, false));
}
