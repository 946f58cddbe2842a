//! From `append` to the table: never lost, never doubled, whatever fails in between.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use shared::id::{KeyId, ModelId, ProviderId};
use shared::operation::Operation;
use shared::usage::{Outcome, Provenance, TokenCounts, UsageEvent, UsageLog as _};
use tempfile::TempDir;

use super::gauge::{Gauge, add, read};
use super::ingest::{Meter, Round};
use super::journal::{JOURNAL_BYTES_MAX, Journal, Log};
use super::segment::{Segment, read_chunk};
use super::writer::Writer;
use crate::store::migrate::migrate;

/// A finished exchange; `n` tells it from others.
pub(crate) fn event(n: u64) -> UsageEvent {
    UsageEvent {
        request_id: format!("req-{n}").into(),
        started_at_ms: 1_700_000_000_000 + n,
        duration_us: 1_000 + n,
        operation: Operation::ChatCompletions,
        key: KeyId::new("admin"),
        project: None,
        principal: None,
        selector: "p/m".into(),
        endpoint: None,
        provider: Some(ProviderId::new("p")),
        model: Some(ModelId::new("m")),
        stream: n.is_multiple_of(2),
        status: 200,
        outcome: Outcome::Completed,
        error: None,
        tokens: TokenCounts { input: 10, output: 20, ..TokenCounts::default() },
        provenance: Provenance::Reported,
        head_us: Some(500),
        first_content_us: Some(700),
        trace: Vec::new(),
    }
}

/// A database and a journal in one directory, as one process has them.
struct Process {
    journal: Journal,
    meter: Meter,
    db: PathBuf,
    dir: PathBuf,
}

impl Process {
    fn start(home: &Path, queue_max: usize) -> Self {
        let (db, dir) = (home.join("test.db"), home.join("journal"));
        let mut writer = Connection::open(&db).unwrap();
        writer.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
        // These tests end no machine, only processes.
        writer.pragma_update(None, "synchronous", "OFF").unwrap();
        migrate(&mut writer).unwrap();
        Self::with(writer, db, dir, queue_max)
    }

    fn with(writer: Connection, db: PathBuf, dir: PathBuf, queue_max: usize) -> Self {
        let (journal, inbox) = Journal::open(dir.clone(), queue_max).unwrap();
        let meter = Meter::new(writer, inbox, Arc::clone(journal.gauge()));
        Self { journal, meter, db, dir }
    }

    fn gauge(&self) -> &Gauge {
        self.journal.gauge()
    }

    /// Rounds until there is nothing more to do at the moment.
    fn settle(&mut self) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.meter.round() != Round::Idle {
            assert!(Instant::now() < until, "still not stored: {:?}", self.gauge().failing());
        }
    }

    fn sql(&self, sql: &str) -> i64 {
        Connection::open(&self.db).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Rows, distinct exchanges and the sum of the hours: equal when nothing is lost or doubled.
    fn stored(&self) -> [i64; 3] {
        [
            self.sql("SELECT count(*) FROM usage"),
            self.sql("SELECT count(DISTINCT request_id) FROM usage"),
            self.sql("SELECT coalesce(sum(requests), 0) FROM usage_hour"),
        ]
    }

    fn files(&self) -> usize {
        fs::read_dir(&self.dir).unwrap().count()
    }
}

fn append(log: &mut Log, numbers: std::ops::Range<u64>) {
    for n in numbers {
        assert!(log.has_room());
        log.append(event(n));
    }
}

#[test]
fn events_become_rows_and_their_file_goes_when_all_are_stored() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path(), 100);
    let mut log = process.journal.log().unwrap();
    append(&mut log, 0..10);
    process.settle();
    assert_eq!(process.stored(), [10; 3]);
    assert_eq!(process.files(), 1, "it is still being written");
    append(&mut log, 10..20);
    drop(log);
    process.settle();
    assert_eq!(process.stored(), [20; 3]);
    assert_eq!(process.files(), 0);
    assert!(process.meter.is_done());
    assert_eq!(read(&process.gauge().sealed_bytes), 0);
    assert_eq!(process.sql("SELECT sum(input_tokens + output_tokens) FROM usage_hour"), 20 * 30);
}

#[test]
fn a_full_queue_spills_into_the_file_and_is_read_again() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path(), 4);
    let mut log = process.journal.log().unwrap();
    append(&mut log, 0..3_000);
    assert_eq!(read(&process.gauge().spilled), 2_996);
    process.settle();
    assert_eq!(process.stored(), [3_000; 3], "while the file is still open");
    append(&mut log, 3_000..3_010);
    process.settle();
    assert_eq!(process.stored(), [3_010; 3]);
    drop(log);
    process.settle();
    assert_eq!((process.stored(), process.files()), ([3_010; 3], 0));
}

#[test]
fn a_process_that_is_killed_before_it_stored_loses_nothing() {
    let home = TempDir::new().unwrap();
    let process = Process::start(home.path(), 100);
    let mut log = process.journal.log().unwrap();
    append(&mut log, 0..10);
    std::mem::forget(log);
    drop(process);
    let mut process = Process::start(home.path(), 100);
    process.settle();
    assert_eq!((process.stored(), process.files()), ([10; 3], 0));
}

#[test]
fn a_process_that_is_killed_after_it_stored_doubles_nothing() {
    let home = TempDir::new().unwrap();
    for round in 0..3 {
        let mut process = Process::start(home.path(), 100);
        let mut log = process.journal.log().unwrap();
        append(&mut log, round * 10..round * 10 + 5);
        process.settle();
        append(&mut log, round * 10 + 5..round * 10 + 10);
        std::mem::forget(log);
    }
    let mut process = Process::start(home.path(), 100);
    process.settle();
    assert_eq!((process.stored(), process.files()), ([30; 3], 0));
}

#[test]
fn what_was_cut_off_or_scrawled_over_is_passed_over_and_the_rest_is_stored() {
    let home = TempDir::new().unwrap();
    let process = Process::start(home.path(), 100);
    let mut log = process.journal.log().unwrap();
    append(&mut log, 0..10);
    std::mem::forget(log);
    let path = fs::read_dir(&process.dir).unwrap().next().unwrap().unwrap().path();
    drop(process);
    let mut lines: Vec<Vec<u8>> =
        fs::read(&path).unwrap().split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let half = lines[3].len() / 2;
    lines[3].truncate(half);
    lines[3].push(b'\n');
    lines[5] = b"\xff\x00 no JSON\n".to_vec();
    lines[6] = b"{\"s\":7,\"e\":{\"request_id\":\"x\"}}\n".to_vec();
    lines.push(vec![b'x'; (1 << 20) + 5]);
    lines.push(b"\n\n".to_vec());
    lines.push(lines[1][..lines[1].len() - 1].to_vec());
    fs::write(&path, lines.concat()).unwrap();
    fs::write(path.with_file_name("notes.txt"), "not ours").unwrap();

    let mut process = Process::start(home.path(), 100);
    process.settle();
    assert_eq!(process.stored(), [7; 3]);
    assert_eq!(read(&process.gauge().garbage_lines), 5, "the long line counts as two");
    assert_eq!(process.files(), 1, "only what is not ours is left");
}

#[test]
fn a_last_line_cut_at_any_byte_costs_only_itself() {
    let home = TempDir::new().unwrap();
    let process = Process::start(home.path(), 100);
    let mut log = process.journal.log().unwrap();
    append(&mut log, 0..3);
    std::mem::forget(log);
    let path = fs::read_dir(&process.dir).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&path).unwrap();
    drop(process);
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for cut in last..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let chunk = read_chunk(&Segment::left_over(path.clone(), 1, 0), 0).unwrap();
        let (events, next) = if cut == whole.len() { (3, cut) } else { (2, last) };
        assert_eq!(
            (chunk.events.len(), chunk.next, chunk.at_end),
            (events, next as u64, true),
            "cut at {cut}"
        );
        assert_eq!(chunk.garbage_lines, 0);
    }
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let mut process = Process::start(home.path(), 100);
    process.settle();
    assert_eq!((process.stored(), process.files()), ([2; 3], 0));
}

#[test]
fn a_full_file_is_left_for_another() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path(), 1_000);
    let mut log = process.journal.log().unwrap();
    let large = |n| UsageEvent { selector: "x".repeat(64 << 10).into(), ..event(n) };
    for n in 0..130 {
        log.append(large(n));
    }
    assert_eq!(process.files(), 2);
    assert!(read(&process.gauge().sealed_bytes) >= 8 << 20);
    process.settle();
    assert_eq!((process.stored(), process.files()), ([130; 3], 1));
    assert_eq!(read(&process.gauge().sealed_bytes), 0);
    drop(log);
    process.settle();
    assert_eq!(process.files(), 0);
}

#[test]
fn a_database_that_is_full_keeps_events_waiting_and_recovers() {
    let home = TempDir::new().unwrap();
    let (path, dir) = (home.path().join("test.db"), home.path().join("journal"));
    let mut db = Connection::open(&path).unwrap();
    migrate(&mut db).unwrap();
    let pages: i64 = db.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    db.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
    let mut process = Process::with(db, path, dir, 50);
    let mut log = process.journal.log().unwrap();
    append(&mut log, 0..200);
    let mut failures = 0;
    while failures < 3 {
        match process.meter.round() {
            Round::Failing(pause) => {
                assert!(pause <= Duration::from_secs(4));
                failures = if read(&process.gauge().stored) == 0 { failures + 1 } else { 0 };
            }
            other => panic!("stored into a full database: {other:?}"),
        }
    }
    assert!(process.gauge().failing().unwrap().error.contains("full"));
    assert_eq!(process.stored(), [0; 3], "nothing of a batch is left");
    assert!(log.has_room(), "the journal takes what comes");
    process.meter.db().pragma_update_and_check(None, "max_page_count", 1_000_000, |_| Ok(())).unwrap();
    let again = Instant::now();
    while process.meter.round() != Round::Idle {
        assert!(again.elapsed() < Duration::from_secs(20), "room that is back is noticed in time");
    }
    assert_eq!(process.gauge().failing(), None);
    assert_eq!(process.stored(), [200; 3]);
    drop(log);
    process.settle();
    assert_eq!(process.files(), 0);
}

#[test]
fn a_journal_that_cannot_be_written_stops_admission_before_anything_is_lost() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path(), 8);
    let mut log = process.journal.log().unwrap();
    log.append(event(0));
    let full = || OpenOptions::new().append(true).open("/dev/full").unwrap();
    let good = log.replace_file(full());
    for n in 1..4 {
        assert!(log.has_room());
        log.append(event(n));
    }
    assert!(!log.has_room(), "half of the queue is kept for exchanges on their way");
    (4..8).for_each(|n| log.append(event(n)));
    assert_eq!((read(&process.gauge().lost), read(&process.gauge().journal_failures)), (0, 7));
    log.append(event(99));
    assert_eq!(read(&process.gauge().lost), 1, "neither place had room");
    process.settle();
    assert!(log.has_room());
    drop(log.replace_file(good));
    append(&mut log, 8..10);
    assert_eq!(read(&process.gauge().journal_failures), 8, "it is written again");
    drop(log);
    process.settle();
    assert_eq!((process.stored(), process.files()), ([10; 3], 0));
}

#[test]
fn a_journal_that_is_too_large_stops_admission() {
    let home = TempDir::new().unwrap();
    let process = Process::start(home.path(), 8);
    let mut log = process.journal.log().unwrap();
    log.append(event(0));
    let line =
        fs::metadata(fs::read_dir(&process.dir).unwrap().next().unwrap().unwrap().path()).unwrap().len();
    add(&process.gauge().sealed_bytes, JOURNAL_BYTES_MAX - line - 1);
    assert!(log.has_room());
    add(&process.gauge().sealed_bytes, 1);
    assert!(!log.has_room());
}

#[test]
fn a_line_after_a_torn_one_begins_anew() {
    let home = TempDir::new().unwrap();
    let process = Process::start(home.path(), 8);
    let mut log = process.journal.log().unwrap();
    log.append(event(0));
    let path = fs::read_dir(&process.dir).unwrap().next().unwrap().unwrap().path();
    File::options().append(true).open(&path).unwrap().write_all(b"{\"s\":2,\"e\":{\"req").unwrap();
    log.set_torn();
    log.append(event(2));
    std::mem::forget(log);
    drop(process);
    let mut process = Process::start(home.path(), 8);
    process.settle();
    assert_eq!((process.stored(), read(&process.gauge().garbage_lines)), ([2; 3], 1));
}

#[test]
fn absurd_counts_are_kept_within_bounds() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path(), 100);
    let mut log = process.journal.log().unwrap();
    let most = u64::MAX;
    let tokens =
        TokenCounts { input: most, cache_read: most, cache_write: most, output: most, reasoning: most };
    for n in 0..50 {
        log.append(UsageEvent { tokens, duration_us: most, head_us: Some(most), ..event(n) });
    }
    process.settle();
    assert_eq!(process.stored(), [50; 3]);
    assert_eq!(process.sql("SELECT sum(input_tokens) FROM usage"), 50 << 36);
    assert_eq!(process.sql("SELECT sum(input_tokens) FROM usage_hour"), 50 << 36);
}

#[test]
fn many_threads_and_a_small_queue_lose_and_double_nothing() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path(), 64);
    let logs: Vec<Log> = (0..4).map(|_| process.journal.log().unwrap()).collect();
    let threads: Vec<_> = (0_u64..)
        .zip(logs)
        .map(|(thread, mut log)| {
            std::thread::spawn(move || append(&mut log, thread * 2_000..thread * 2_000 + 2_000))
        })
        .collect();
    while !threads.iter().all(std::thread::JoinHandle::is_finished) {
        process.meter.round();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    process.settle();
    assert_eq!((process.stored(), process.files()), ([8_000; 3], 0));
}

#[test]
fn the_writer_thread_stores_on_a_timer_when_asked_and_at_its_end() {
    let home = TempDir::new().unwrap();
    let Process { journal, meter, db, .. } = Process::start(home.path(), 100);
    let count = || -> i64 {
        Connection::open(&db).unwrap().query_row("SELECT count(*) FROM usage", [], |row| row.get(0)).unwrap()
    };
    let writer = Writer::start(meter).unwrap();
    let mut log = journal.log().unwrap();
    append(&mut log, 0..1);
    let appended = Instant::now();
    while count() == 0 {
        assert!(
            appended.elapsed() < Duration::from_secs(1),
            "a finished exchange is visible within a second"
        );
        std::thread::yield_now();
    }
    append(&mut log, 1..50);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(writer.flusher().flush(Duration::from_secs(10)));
    assert_eq!(count(), 50);
    append(&mut log, 50..60);
    drop(log);
    writer.stop();
    assert_eq!(count(), 60);
    assert_eq!(fs::read_dir(home.path().join("journal")).unwrap().count(), 0);
}
