//! The path of an event from `append` to the table: no failure on the way may lose or duplicate it.

mod faults;
mod repriced;
mod rows;
mod scale;
mod shared_files;
mod shipping;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use records::frame::{self, Frame, JournalSpot};
use shared::alarm::Alarm;
use shared::id::{KeyId, ModelId, ProviderId};
use shared::operation::Operation;
use shared::quota::{Counter, Counters, Metric, Period, Quota, Scope, Subject};
use shared::usage::{Details, Outcome, Provenance, TokenCounts, Units, Unpriced, UsageEvent, UsageLog as _};
use tempfile::TempDir;

pub(crate) use self::rows::{copy_last_row, in_one_row};
use crate::common::bounds::JOURNAL_BYTES;
use crate::common::bounds::tests::passes;
use crate::db::engine::{Db, DbResult};
use crate::db::key_check::{make_keys, open_keys};
use crate::db::sqlite_state::migrate::migrate;
use crate::routing::config::{self, Environment};
use crate::routing::publish::{Publisher, PublisherParams};
use crate::usage::gauge::{Gauge, add, read};
use crate::usage::ingest::{Meter, Round};
use crate::usage::journal::segment::file_id;
use crate::usage::journal::{Journal, WorkerLog};
use crate::usage::request_index::RUN;
use crate::usage::requests::{Bounds, RequestFilter, page};
use crate::usage::retention::RetentionPass;
use crate::writer::{Writer, WriterState};

/// Creates a finished exchange; `n` distinguishes it from others.
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
        units: Units::ZERO,
        provenance: Provenance::Reported,
        tier: None,
        picture: None,
        vendor_cost_nano_usd: None,
        upstream_id: None,
        tags: None,
        end_user: None,
        cost_nano_usd: Some(1_500),
        quota_nano_usd: None,
        price: Some("config in 0.05 out 0.05".into()),
        unpriced: Unpriced::NOTHING,
        head_us: Some(500),
        first_content_us: Some(700),
        details: Details::default(),
        trace: Vec::new(),
    }
}

/// A database and a journal in one directory, as in one process.
pub(crate) struct Process {
    pub(crate) journal: Journal,
    pub(crate) meter: Meter,
    pub(crate) counters: Arc<Counters>,
    db: PathBuf,
    dir: PathBuf,
}

impl Process {
    pub(crate) fn start(home: &Path) -> Self {
        let (db, dir) = (home.join("test.db"), home.join("journal"));
        let mut writer = Db::create(&db).unwrap();
        writer.set_pragma(None, "journal_mode", "WAL").unwrap();
        // The tests only end processes, never the machine.
        writer.set_pragma(None, "synchronous", "OFF").unwrap();
        migrate(&mut writer).unwrap();
        Self::with(writer, db, dir)
    }

    pub(crate) fn with(writer: Db, db: PathBuf, dir: PathBuf) -> Self {
        let (journal, inbox) = Journal::open(dir.clone()).unwrap();
        let counters = Arc::<Counters>::default();
        let mut meter = Meter::new(writer, inbox, Arc::clone(journal.gauge()), Arc::clone(&counters));
        meter.rest_files_for(Duration::ZERO);
        Self { journal, meter, counters, db, dir }
    }

    /// Stores a limit on the requests of the whole gateway, and returns its counter, which is not published yet.
    pub(crate) fn limit_gateway(&mut self) -> Arc<Counter> {
        let row = "INSERT INTO quotas VALUES ('q', 'gateway', '', NULL, NULL, 'requests', 'total', 9, 1, 1, 0, 0, 0)";
        self.meter.db_mut().execute(row, ()).unwrap();
        let quota = self.counters.put(Quota {
            id: "q".into(),
            subject: Subject::Gateway,
            scope: Scope::default(),
            metric: Metric::Requests,
            period: Some(Period::Total),
            limit: 9,
            is_hard: true,
            wait_ms: 0,
            counter: Arc::new(Counter::new(Period::Total, 0)),
        });
        Arc::clone(&quota.counter)
    }

    pub(crate) fn gauge(&self) -> &Gauge {
        self.journal.gauge()
    }

    /// Runs rounds until there is nothing more to do.
    pub(crate) fn settle(&mut self) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.meter.round() != Round::Idle {
            assert!(Instant::now() < until, "still not stored: {:?}", self.gauge().failing());
        }
    }

    pub(crate) fn sql(&self, sql: &str) -> i64 {
        Db::create(&self.db).unwrap().row(sql, (), |row| row.get(0)).unwrap()
    }

    /// Returns the exchanges by the rows' own counts, the distinct request ids, and the sum of the hours. All are equal
    /// if nothing was lost or duplicated.
    pub(crate) fn stored(&self) -> [i64; 3] {
        shipping::stored_in(&Db::create(&self.db).unwrap())
    }

    /// Returns the number of files that contain events.
    pub(crate) fn files(&self) -> usize {
        paths(&self.dir).iter().filter(|path| !is_blank(path)).count()
    }
}

/// Returns the request ids of all exchanges in the table.
fn requests(db: &Db) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let bounds = Bounds { rows: 5_000, until: Instant::now() + Duration::from_secs(60) };
        let page = page(db, &RequestFilter::default(), cursor, bounds).unwrap();
        ids.extend(page.rows.into_iter().map(|row| row.request_id));
        cursor = page.next;
        if cursor.is_none() {
            return ids;
        }
    }
}

pub(crate) fn paths(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn is_blank(path: &Path) -> bool {
    fs::read(path).unwrap().iter().all(|byte| *byte == 0)
}

/// Returns the only journal file that contains events.
pub(crate) fn only_file(dir: &Path) -> PathBuf {
    let mut files: Vec<_> = paths(dir).into_iter().filter(|path| !is_blank(path)).collect();
    assert_eq!(files.len(), 1);
    files.remove(0)
}

/// Returns the frames of a file that contains nothing else.
pub(crate) fn frames(path: &Path) -> Vec<Vec<u8>> {
    let (bytes, file) = (fs::read(path).unwrap(), file_id(path).unwrap());
    let (mut at, mut frames) = (0, Vec::new());
    let spot = |at: usize| Some(JournalSpot { file, at: at as u64 });
    while let Frame::Whole(_, length) = frame::first(&bytes[at..], spot(at)) {
        frames.push(bytes[at..at + length].to_vec());
        at += length;
    }
    assert!(bytes[at..].iter().all(|byte| *byte == 0));
    frames
}

pub(crate) fn append(log: &mut WorkerLog, numbers: std::ops::Range<u64>) {
    for n in numbers {
        assert!(log.has_room());
        assert!(log.append(&event(n)));
    }
}

/// Creates an event with a record of 64 KiB.
pub(crate) fn large(n: u64) -> UsageEvent {
    UsageEvent { selector: "x".repeat(64 << 10).into(), ..event(n) }
}

#[test]
fn stored_events_become_rows_and_their_file_is_deleted() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
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
    assert_eq!(
        process.sql("SELECT CAST(sum(input_tokens + output_tokens) AS BIGINT) FROM usage_hour"),
        20 * 30
    );
}

#[test]
fn many_events_are_stored_in_several_transactions() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    append(&mut log, 0..3_000);
    assert_eq!(process.meter.round(), Round::More);
    assert!(process.stored()[0] < 3_000);
    process.settle();
    assert_eq!(process.stored(), [3_000; 3], "while the file is still open");
    append(&mut log, 3_000..3_010);
    process.settle();
    assert_eq!(process.stored(), [3_010; 3]);
    drop(log);
    process.settle();
    assert_eq!((process.stored(), process.files()), ([3_010; 3], 0));
    assert_eq!(read(&process.gauge().lost), 0);
}

#[test]
fn single_exchanges_share_a_row() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    for n in 0..200 {
        append(&mut log, n..n + 1);
        process.settle();
    }
    assert_eq!(process.stored(), [200; 3]);
    assert_eq!(process.sql("SELECT count(*) FROM usage"), 4, "64 are worth a row");
}

#[test]
fn a_row_has_a_size_limit() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    let large = |n: u64| UsageEvent { request_id: format!("{n:05}{}", "x".repeat(4_000)).into(), ..event(n) };
    (0..200).for_each(|n| assert!(log.append(&large(n))));
    process.settle();
    assert_eq!(process.stored(), [200; 3]);
    let most = process.sql("SELECT max(length(rows)) FROM usage");
    assert!((256 << 10..262 << 10).contains(&most), "{most}");
}

#[test]
fn a_kill_before_storing_loses_no_record() {
    let home = TempDir::new().unwrap();
    let process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    append(&mut log, 0..10);
    std::mem::forget(log);
    drop(process);
    let mut process = Process::start(home.path());
    process.settle();
    assert_eq!((process.stored(), process.files()), ([10; 3], 0));
}

#[test]
fn a_kill_after_storing_duplicates_no_record() {
    let home = TempDir::new().unwrap();
    for round in 0..3 {
        let mut process = Process::start(home.path());
        let mut log = process.journal.log().unwrap();
        append(&mut log, round * 10..round * 10 + 5);
        process.settle();
        append(&mut log, round * 10 + 5..round * 10 + 10);
        std::mem::forget(log);
    }
    let mut process = Process::start(home.path());
    process.settle();
    assert_eq!((process.stored(), process.files()), ([30; 3], 0));
}

#[test]
fn damaged_frames_are_skipped_and_the_others_are_stored() {
    let home = TempDir::new().unwrap();
    let process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    append(&mut log, 0..10);
    std::mem::forget(log);
    let path = only_file(&process.dir);
    drop(process);
    let mut frames = frames(&path);
    let half = frames[3].len() / 2;
    frames[3][half..].fill(0);
    let scrawl = b"\xff\x00 no frame \xff\xfe\xff";
    frames[5][..scrawl.len()].copy_from_slice(scrawl);
    frames[6][20] ^= 1;
    // The frame's length now extends far beyond the end of the file.
    frames[8][6] = 0x0f;
    frames.push(vec![b'x'; (1 << 20) + 5]);
    fs::write(&path, frames.concat()).unwrap();
    fs::write(path.with_file_name("notes.txt"), "not ours").unwrap();

    let mut process = Process::start(home.path());
    process.settle();
    assert_eq!(process.stored(), [6; 3]);
    assert!(read(&process.gauge().garbage_lines) >= 4);
    assert_eq!(process.files(), 1, "only what is not ours is left");
}

#[test]
fn a_cut_last_record_loses_only_itself() {
    let home = TempDir::new().unwrap();
    let process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    append(&mut log, 0..3);
    std::mem::forget(log);
    let path = only_file(&process.dir);
    let frames = frames(&path);
    let whole = frames.concat();
    drop(process);
    let last = whole.len() - frames[2].len();
    for cut in last..=whole.len() {
        // The file ends with the cut frame, or with zeros after it.
        for size in [cut, whole.len() + 5_000] {
            let home = TempDir::new().unwrap();
            fs::create_dir(home.path().join("journal")).unwrap();
            let copy = home.path().join("journal").join(path.file_name().unwrap());
            let mut left = whole[..cut].to_vec();
            left.resize(size, 0);
            fs::write(&copy, &left).unwrap();
            let mut process = Process::start(home.path());
            process.settle();
            let is_whole = left.starts_with(&whole);
            let stored = if is_whole { 3 } else { 2 };
            assert_eq!((process.stored(), process.files()), ([stored; 3], 0), "cut at {cut}, {size} bytes");
            let is_cut = cut != last && !is_whole;
            assert_eq!(read(&process.gauge().garbage_lines) > 0, is_cut, "cut at {cut}, {size} bytes");
        }
    }
}

#[test]
fn a_record_longer_than_a_read_is_stored_with_its_neighbours() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    log.append(&event(0));
    log.append(&UsageEvent { selector: "x".repeat(300 << 10).into(), ..event(1) });
    log.append(&event(2));
    process.settle();
    assert_eq!(process.stored(), [3; 3]);
    assert_eq!(read(&process.gauge().garbage_lines), 0);
}

#[test]
fn a_deleted_journal_file_that_reappears_is_not_stored_again() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    append(&mut log, 0..10);
    let path = only_file(&process.dir);
    let content = fs::read(&path).unwrap();
    process.settle();
    drop(log);
    process.settle();
    assert_eq!(process.files(), 0);
    drop(process);
    fs::write(&path, content).unwrap();
    let mut process = Process::start(home.path());
    process.settle();
    assert_eq!((process.stored(), process.files()), ([10; 3], 0));
    drop(process);
    let mut process = Process::start(home.path());
    append(&mut process.journal.log().unwrap(), 10..11);
    process.settle();
    assert_eq!(process.sql("SELECT count(*) FROM usage_journal"), 1, "the mark of the lost file is gone");
}

#[test]
fn a_full_journal_file_is_followed_by_another() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    for n in 0..130 {
        log.append(&large(n));
    }
    assert_eq!(process.files(), 130_usize.div_ceil(15), "15 such records and no more fit into a mebibyte");
    assert!(read(&process.gauge().sealed_bytes) >= 7 << 20);
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
    let mut db = Db::create(&path).unwrap();
    migrate(&mut db).unwrap();
    // Migrations that rebuild tables leave free pages; remove them.
    db.batch("VACUUM").unwrap();
    let pages: i64 = db.pragma(None, "page_count").unwrap();
    db.set_pragma(None, "max_page_count", pages).unwrap();
    let mut process = Process::with(db, path, dir);
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
    process.meter.db().set_pragma(None, "max_page_count", 1_000_000).unwrap();
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
fn a_journal_that_is_too_large_stops_admission() {
    let home = TempDir::new().unwrap();
    let process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    log.append(&event(0));
    let frame = u64::try_from(frames(&only_file(&process.dir))[0].len()).unwrap();
    add(&process.gauge().sealed_bytes, JOURNAL_BYTES.max() as u64 - frame - 1);
    assert!(log.has_room());
    add(&process.gauge().sealed_bytes, 1);
    assert!(!passes(&JOURNAL_BYTES, || log.has_room()));
}

#[test]
fn huge_token_counts_are_clamped() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    let most = u64::MAX;
    let tokens = TokenCounts::of_list([most; TokenCounts::COUNT]);
    for n in 0..50 {
        log.append(&UsageEvent { tokens, duration_us: most, head_us: Some(most), ..event(n) });
    }
    process.settle();
    assert_eq!(process.stored(), [50; 3]);
    assert_eq!(process.sql("SELECT CAST(sum(input_tokens) AS BIGINT) FROM usage_hour"), 50 << 36);
}

#[test]
fn concurrent_threads_lose_and_duplicate_no_record() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let logs: Vec<WorkerLog> = (0..4).map(|_| process.journal.log().unwrap()).collect();
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

fn writer_state(mut meter: Meter, home: &Path) -> WriterState {
    let variables = [
        ("LLMGW_API_KEY", "administrator-key-of-the-tests".to_owned()),
        ("LLMGW_CREDENTIAL_ENCRYPTION_KEY", BASE64_STANDARD.encode([3; 32])),
        ("LLMGW_STATE_DIR", home.display().to_string()),
        ("LLMGW_RETENTION_USAGE_DAYS", "36500".to_owned()),
    ];
    let environment = Environment::read(variables.map(|(name, value)| (name.into(), value.into())));
    let config = Arc::new(config::load(&Arc::new(environment)).unwrap().config);
    let key = &config.credential_encryption_key;
    let retention = RetentionPass::new(&config.lifetimes, Arc::default());
    let db = meter.db_mut();
    make_keys(db, key).unwrap();
    let keys = Arc::new(open_keys(db, key).unwrap());
    let ((out, _), catalog, counters) = (shared::snapshot::channel(), Arc::default(), Arc::default());
    let params = PublisherParams {
        config,
        keys: Arc::clone(&keys),
        catalog,
        tokens: crate::common::credential::AccessTokens::default(),
        counters,
        freshness: shared::freshness::Freshness::default(),
        out,
    };
    let publisher = Publisher::start(params, db).unwrap();
    WriterState { meter, publisher, keys, retention, follower: None }
}

#[test]
fn the_writer_thread_stores_on_a_timer_when_asked_and_at_its_end() {
    let home = TempDir::new().unwrap();
    let Process { journal, meter, db, .. } = Process::start(home.path());
    let count = || -> i64 {
        let sql = "SELECT CAST(coalesce(sum(exchanges), 0) AS BIGINT) FROM usage";
        Db::create(&db).unwrap().row(sql, (), |row| row.get(0)).unwrap()
    };
    let writer = Writer::start(writer_state(meter, home.path()), &Alarm::default()).unwrap();
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
    runtime.block_on(writer.handle().flush(Duration::from_secs(10)));
    assert_eq!(count(), 50);
    append(&mut log, 50..60);
    drop(log);
    writer.stop();
    assert_eq!(count(), 60);
    assert_eq!(fs::read_dir(home.path().join("journal")).unwrap().count(), 0);
}

#[test]
fn the_writer_thread_indexes_the_requests_that_it_stores() {
    let home = TempDir::new().unwrap();
    let Process { journal, meter, db, .. } = Process::start(home.path());
    let mut log = journal.log().unwrap();
    append(&mut log, 0..RUN + 100);
    let writer = Writer::start(writer_state(meter, home.path()), &Alarm::default()).unwrap();
    let runs = || {
        let sql = "SELECT count(*) FROM usage_requests";
        Db::create(&db).unwrap().row(sql, (), |row| row.get::<i64>(0)).unwrap()
    };
    let until = Instant::now() + Duration::from_secs(60);
    while runs() != 256 {
        assert!(Instant::now() < until, "no run is made");
        std::thread::yield_now();
    }
    drop(log);
    writer.stop();
}

#[test]
fn a_panic_of_the_writer_thread_raises_the_alarm() {
    let home = TempDir::new().unwrap();
    let Process { meter, .. } = Process::start(home.path());
    let (rung, ring) = std::sync::mpsc::channel();
    let alarm = Alarm::new(move || rung.send(()).unwrap());
    let writer = Writer::start(writer_state(meter, home.path()), &alarm).unwrap();
    let handle = writer.handle();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let task = |_: &mut Db| -> DbResult<()> { panic!("on purpose") };
    runtime.block_on(handle.run_on_usage(task)).unwrap_err();
    ring.recv().unwrap();
    assert_eq!(alarm.cause(), Some("thread llmgw-writer ended: it panicked"));
}
