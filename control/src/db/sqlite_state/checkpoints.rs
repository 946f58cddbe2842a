//! Moves the write-ahead log into the database, on a separate connection and thread. The commits of the writer thread,
//! and everything that waits for them, need not wait for it. If the log grows faster than it is moved, the commit that
//! finds it too long moves it (`open.rs`).

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use shared::alarm::Alarm;

use super::files::Files;
use crate::db::engine::{Db, DbResult};

/// A handle to the checkpoint thread.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    go_on: Sender<()>,
    thread: JoinHandle<()>,
}

impl Checkpoints {
    /// Starts the thread for these databases.
    pub(crate) fn start(files: Files, alarm: &Alarm) -> io::Result<Self> {
        let (go_on, end) = bounded(0);
        let thread = alarm.spawn("llmgw-checkpoint", move || {
            run(&files, &end);
            Ok(())
        })?;
        Ok(Self { go_on, thread })
    }

    /// Ends the thread.
    pub(crate) fn stop(self) {
        let Self { go_on, thread } = self;
        drop(go_on);
        if thread.join().is_err() {
            tracing::error!("the checkpoint thread had ended unexpectedly");
        }
    }
}

fn run(files: &Files, end: &Receiver<()>) {
    let mut db = None;
    while end.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        if let Err(error) = checkpoint(&mut db, files) {
            tracing::debug!("cannot checkpoint the write-ahead log: {error}");
            db = None;
        }
    }
}

/// Moves the pages that no reader still needs in the log, without waiting for readers or writers. Costs almost nothing
/// if there are none.
fn checkpoint(db: &mut Option<Db>, files: &Files) -> DbResult<()> {
    let db = match db {
        Some(db) => db,
        None => db.insert(files.writer()?),
    };
    db.row(PASSIVE, (), |_| Ok(()))
}

const EVERY: Duration = Duration::from_secs(1);
const PASSIVE: &str = "PRAGMA wal_checkpoint(PASSIVE)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::sqlite_state::open::connect_writer;

    #[test]
    fn a_checkpoint_moves_pages_to_the_database_and_restarts_the_wal() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("test.db");
        std::fs::File::create(&path).unwrap();
        let writer = connect_writer(&path).unwrap();
        writer.batch("CREATE TABLE t (a BLOB) STRICT").unwrap();
        let (mut other, files) = (None, Files { main: path.clone(), usage: None });
        let log = path.with_file_name("test.db-wal");
        let mut longest = 0;
        for _ in 0..20 {
            writer.execute("INSERT INTO t VALUES (zeroblob(100000))", ()).unwrap();
            checkpoint(&mut other, &files).unwrap();
            longest = longest.max(log.metadata().unwrap().len());
        }
        assert!(path.metadata().unwrap().len() > 2_000_000, "all of it is in the database");
        assert!(longest < 400_000, "{longest}: each commit begins at the start of the log");
    }
}
