//! Retention (CFG-7): deletes expired usage, usage sums, audit records, stored answers to repeated requests, events of
//! the outbox, and what is remembered of ended sessions and sign-ins. The writer thread deletes in short steps with long
//! pauses, so that neither administrators nor the data plane notice.
//!
//! Usage expires by whole days in UTC. Exchanges and hourly sums are deleted together, so that they always agree; daily
//! sums are kept for [`DAYS_OF_SUMS`], so that a year can be charted. Deleting frees pages that the database file
//! reuses; the file does not shrink.

pub(super) mod tables;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use shared::clock::unix_ms;

use crate::common::background::Job;
use crate::common::vault::VaultKeys;
use crate::db::HOUR_MS;
use crate::db::cluster::clock;
use crate::db::engine::postgres::partitions;
use crate::db::engine::{Db, DbError, DbErrorKind, DbResult, Transaction};
use crate::db::{alerts, audit, device_sign_ins, ended_sessions, idempotency, outbox, sign_in_flows};
use crate::routing::config::Lifetimes;
use crate::usage::gauge::{Pruning, add};
use crate::usage::rollup::{DAY_HOURS, SumsTable};
use crate::usage::{origins, periods};

/// The retention job: a repeated pass over all tables with expiring rows, in small steps.
#[derive(Debug)]
pub(crate) struct RetentionPass {
    usage_days: u64,
    audit_days: u64,
    outbox_days: u64,
    gauge: Arc<Pruning>,
    /// The time when the next step is due.
    due: Instant,
    /// The start of the current pass.
    pass_began: Instant,
    /// The stage that the current pass has reached.
    stage: RetentionStage,
    /// The first hour whose sums the current pass keeps, in hours since the Unix epoch.
    kept_from_hour: u64,
    /// The reason why the current pass could not make or drop partitions.
    refusal: Option<String>,
    /// Reports the passes.
    job: Option<Job>,
}

/// The stages of a pass, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetentionStage {
    Begin,
    Usage,
    Hours,
    Days,
    Origins,
    Periods,
    Audit,
    Answers,
    Outbox,
    Sessions,
}

/// What a step has deleted.
#[derive(Debug, Default)]
struct Deleted {
    /// Rows of `usage`.
    rows: u64,
    /// The exchanges in them.
    exchanges: u64,
    /// Audit records.
    audits: u64,
}

impl RetentionPass {
    pub(crate) fn new(lifetimes: &Lifetimes, gauge: Arc<Pruning>) -> Self {
        let now = Instant::now();
        Self {
            usage_days: lifetimes.usage_days.into(),
            audit_days: lifetimes.audit_days.into(),
            outbox_days: lifetimes.delivered_outbox_days.into(),
            gauge,
            due: now,
            pass_began: now,
            stage: RetentionStage::Begin,
            kept_from_hour: 0,
            refusal: None,
            job: None,
        }
    }

    /// Reports each pass with `job`.
    pub(crate) fn reported_by(self, job: Job) -> Self {
        Self { job: Some(job), ..self }
    }

    /// True if a step is due.
    pub(crate) fn is_due(&self) -> bool {
        self.due <= Instant::now()
    }

    /// Runs one step, in one transaction.
    pub(crate) fn step(&mut self, db: &mut Db, keys: &VaultKeys) {
        let began = Instant::now();
        if self.stage == RetentionStage::Begin {
            self.pass_began = began;
            self.report(Job::begins);
        }
        let worked = clock::earlier_ms(db).and_then(|now_ms| self.work(db, keys, now_ms, began + STEP));
        match worked {
            Ok(stage) => {
                self.stage = stage;
                let now = Instant::now();
                self.due = now + rest_before(stage, now - began, now - self.pass_began);
                if stage == RetentionStage::Begin {
                    let ended = self.refusal.clone().map_or(Ok(()), Err);
                    self.report(|job| {
                        job.ends(ended);
                        job.waits_until(unix_ms().saturating_add(BETWEEN_PASSES_MS));
                    });
                }
            }
            Err(error) if partitions::is_in_use(&error) => {
                tracing::debug!("the partitions of usage are changed later: {error}");
                self.due = Instant::now() + AFTER_FAILURE;
            }
            // The partitions stay with their sums, and the other tables have their turn.
            Err(error) if self.stage == RetentionStage::Usage && error.kind() == DbErrorKind::Refused => {
                self.refuse(&error);
                (self.stage, self.kept_from_hour) = (RetentionStage::Hours, 0);
            }
            Err(error) => {
                tracing::warn!("cannot delete expired records: {error}");
                self.due = Instant::now() + AFTER_FAILURE;
                self.report(|job| job.ends(Err(error.to_string())));
            }
        }
        let held = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.gauge.held_us_max.fetch_max(held, Relaxed);
    }

    /// Notes that the user of the database may neither make nor drop partitions.
    fn refuse(&mut self, error: &DbError) {
        let why = format!(
            "the partitions of the table usage can be neither made nor dropped: {error}; let the user of LLMGW_DATABASE_URL own the table \
             and its partitions (ALTER TABLE usage OWNER TO ...)"
        );
        if self.refusal.is_none() {
            tracing::warn!("{why}");
        }
        self.refusal = Some(why);
    }

    fn report(&self, report: impl FnOnce(&Job)) {
        if let Some(job) = &self.job {
            report(job);
        }
    }

    /// Runs the current stage, and those that follow it as long as there is time. Returns the stage to go on with.
    fn work(
        &mut self,
        db: &mut Db,
        keys: &VaultKeys,
        now_ms: u64,
        until: Instant,
    ) -> DbResult<RetentionStage> {
        let usage_before = before(now_ms, self.usage_days);
        let stage = self.stage;
        if stage == RetentionStage::Begin {
            self.refusal = None;
            if db.is_postgres() {
                match partitions::make_ahead(db, now_ms) {
                    Err(error) if error.kind() == DbErrorKind::Refused => self.refuse(&error),
                    made => made?,
                }
            }
            self.gauge.backlog_rows.store(tables::usage_rows(db, usage_before)?, Relaxed);
            self.kept_from_hour = tables::oldest_exchange(db, usage_before)? / HOUR_MS;
            return Ok(RetentionStage::Usage);
        }
        let mut deleted = Deleted::default();
        let stage = db.lazily(|tx| {
            let mut stage = stage;
            loop {
                let (is_done, next) = self.delete(tx, stage, (keys, now_ms, until), &mut deleted)?;
                if !is_done {
                    return Ok(stage);
                }
                stage = next;
                if stage == RetentionStage::Begin || Instant::now() >= until {
                    return Ok(stage);
                }
            }
        })?;
        let gauge = &self.gauge;
        let left = |rows: u64| Some(rows.saturating_sub(deleted.rows));
        let _ = gauge.backlog_rows.fetch_update(Relaxed, Relaxed, left);
        add(&gauge.usage_records, deleted.exchanges);
        add(&gauge.audit_records, deleted.audits);
        if stage == RetentionStage::Begin {
            gauge.pass_ended_at_ms.store(now_ms, Relaxed);
        }
        Ok(stage)
    }

    /// Deletes some rows of a stage. Returns true if no expired rows are left, and the stage that follows.
    fn delete(
        &self,
        tx: &Transaction<'_>,
        stage: RetentionStage,
        (keys, now_ms, until): (&VaultKeys, u64, Instant),
        deleted: &mut Deleted,
    ) -> DbResult<(bool, RetentionStage)> {
        let hour = |days| before(now_ms, days) / HOUR_MS;
        Ok(match stage {
            RetentionStage::Begin | RetentionStage::Usage => {
                let (rows, exchanges, is_done) = tables::usage(tx, before(now_ms, self.usage_days), until)?;
                deleted.rows += rows;
                deleted.exchanges += exchanges;
                (is_done, RetentionStage::Hours)
            }
            RetentionStage::Hours => {
                (tables::sums(tx, SumsTable::Hours, self.kept_from_hour, until)?, RetentionStage::Days)
            }
            RetentionStage::Days => {
                let days = self.usage_days.max(DAYS_OF_SUMS);
                (tables::sums(tx, SumsTable::Days, hour(days), until)?, RetentionStage::Origins)
            }
            RetentionStage::Origins => {
                let days = self.usage_days.min(origins::KEPT_DAYS);
                (origins::forget(tx, before(now_ms, days))?, RetentionStage::Periods)
            }
            RetentionStage::Periods => {
                let days = self.usage_days.max(DAYS_OF_SUMS);
                (periods::prune(tx, now_ms, days, until)?, RetentionStage::Audit)
            }
            RetentionStage::Audit => {
                let before_ms = now_ms.saturating_sub(self.audit_days.saturating_mul(DAY_MS));
                let audits = audit::forget(tx, keys, before_ms, AUDIT_ROWS)?;
                deleted.audits += audits;
                (audits < u64::from(AUDIT_ROWS), RetentionStage::Answers)
            }
            RetentionStage::Answers => (
                tables::idempotency(tx, now_ms.saturating_sub(idempotency::KEPT_MS))?,
                RetentionStage::Outbox,
            ),
            RetentionStage::Outbox => {
                let before_ms = now_ms.saturating_sub(self.outbox_days.saturating_mul(DAY_MS));
                let rows =
                    outbox::forget(tx, before_ms, OUTBOX_ROWS)? + alerts::forget(tx, before_ms, OUTBOX_ROWS)?;
                (rows == 0, RetentionStage::Sessions)
            }
            RetentionStage::Sessions => {
                let failed_before_ms = now_ms.saturating_sub(sign_in_flows::FAILURE_KEPT_MS);
                let rows = ended_sessions::forget(tx, now_ms, SESSION_ROWS)?
                    + device_sign_ins::forget(tx, now_ms, SESSION_ROWS)?
                    + sign_in_flows::forget(tx, failed_before_ms, SESSION_ROWS)?;
                (rows == 0, RetentionStage::Begin)
            }
        })
    }
}

/// Returns the pause before `stage`, after a step that took `held`, in a pass that has lasted `lasted`.
fn rest_before(stage: RetentionStage, held: Duration, lasted: Duration) -> Duration {
    match stage {
        RetentionStage::Begin => BETWEEN_PASSES,
        RetentionStage::Usage
        | RetentionStage::Hours
        | RetentionStage::Days
        | RetentionStage::Origins
        | RetentionStage::Periods
        | RetentionStage::Audit
        | RetentionStage::Answers
        | RetentionStage::Outbox
        | RetentionStage::Sessions => {
            let rest_max = if lasted > UNHURRIED { REST_MAX_HURRIED } else { REST_MAX };
            rest_max.min(held * REST)
        }
    }
}

/// Returns the first moment of the UTC day that is `days` days before `now_ms`.
fn before(now_ms: u64, days: u64) -> u64 {
    let moment = now_ms.saturating_sub(days.saturating_mul(DAY_MS));
    moment - moment % DAY_MS
}

const DAY_MS: u64 = DAY_HOURS * HOUR_MS;
/// Days that daily sums are kept, or as long as usage if that is longer.
const DAYS_OF_SUMS: u64 = 400;
/// The time for which a step deletes before it commits; the commit comes on top. A statement is not interrupted, so a
/// step may last some milliseconds.
const STEP: Duration = Duration::from_millis(1);
/// The pause after a step, as a multiple of the step's duration. So few of the requests that share a core with the
/// writer thread meet a step that their 99th percentile does not change.
const REST: u32 = 4_000;
/// Upper bound of the pause. A step deletes about 2,000 exchanges, so ten million are deleted within `UNHURRIED`.
const REST_MAX: Duration = Duration::from_secs(4);
/// A pass that lasts longer uses shorter pauses, because the next day brings as many rows to delete.
const UNHURRIED: Duration = Duration::from_secs(6 * 3_600);
const REST_MAX_HURRIED: Duration = Duration::from_millis(250);
const BETWEEN_PASSES_MS: u64 = 600_000;
const BETWEEN_PASSES: Duration = Duration::from_millis(BETWEEN_PASSES_MS);
const AFTER_FAILURE: Duration = Duration::from_secs(30);
const AUDIT_ROWS: u32 = 64;
const OUTBOX_ROWS: u32 = 64;
const SESSION_ROWS: u32 = 64;

#[cfg(test)]
mod tests {
    use shared::id::{ModelId, ProjectId};
    use shared::quota::{Period, Subject};
    use shared::usage::{UsageEvent, UsageLog as _};

    use super::*;
    use crate::db::ended_sessions::SessionEnd;
    use crate::db::quotas::{self, Counted, Of};
    use crate::db::testing::{ClusterDatabase, add_node, shared_database};
    use crate::usage::tests::{Process, event, in_one_row};

    fn lifetimes(usage_days: u32) -> Lifetimes {
        Lifetimes { usage_days, audit_days: 1, delivered_outbox_days: 1, backups_kept: 1 }
    }

    /// Runs steps until a pass has ended, and returns their number.
    fn pass(retention: &mut RetentionPass, process: &mut Process, keys: &VaultKeys) -> u32 {
        let mut steps = 0;
        loop {
            retention.step(process.meter.usage_mut(), keys);
            steps += 1;
            if retention.stage == RetentionStage::Begin {
                return steps;
            }
        }
    }

    #[test]
    fn retention_deletes_records_by_day_and_keeps_day_sums_longer() {
        let home = tempfile::TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let key = shared::secret::Secret::new([1; 32]);
        crate::db::key_check::make_keys(process.meter.db_mut(), &key).unwrap();
        let keys = crate::db::key_check::open_keys(process.meter.db_mut(), &key).unwrap();
        let today = unix_ms() / DAY_MS * DAY_MS;
        let ages = [0, 1, 29, 30, 31, 399, 400, 401, 500];
        let mut log = process.journal.log().unwrap();
        for age in ages {
            for n in 0..200 {
                // Includes the first and the last moment of the day.
                let started_at_ms = today - age * DAY_MS + n * (DAY_MS - 1) / 199;
                log.append(&UsageEvent { started_at_ms, project: Some(ProjectId::new("prj")), ..event(n) });
            }
            process.settle();
            // Closes the open row, so that each day has a separate one.
            process.meter.usage_mut();
        }
        let gauge = Arc::new(Pruning::default());
        let mut retention = RetentionPass::new(&lifetimes(30), Arc::clone(&gauge));
        assert!(retention.is_due());
        pass(&mut retention, &mut process, &keys);
        let count = |process: &Process, sql: &str| process.sql(sql);
        assert_eq!(count(&process, "SELECT CAST(sum(exchanges) AS BIGINT) FROM usage"), 4 * 200);
        assert_eq!(
            count(&process, "SELECT CAST(sum(requests) AS BIGINT) FROM usage_hour"),
            4 * 200,
            "together with their hours"
        );
        assert_eq!(
            count(&process, "SELECT CAST(sum(requests) AS BIGINT) FROM usage_day"),
            7 * 200,
            "a year can be charted"
        );
        let left = u64::try_from(count(&process, "SELECT min(first_ms) FROM usage")).unwrap();
        assert_eq!(left, today - 30 * DAY_MS, "the whole of the oldest day that is kept");
        assert_eq!((gauge.usage_records.load(Relaxed), gauge.backlog_rows.load(Relaxed)), (5 * 200, 0));
        let subject = Of { kind: Subject::Project, id: "prj".to_owned() };
        let project = Counted { subject, model: None, endpoint: None };
        let used = quotas::used_since(process.meter.db_mut(), &project, Period::Total, 0).unwrap();
        assert_eq!(used.requests, 7 * 200, "a new limit begins with all that the days know");
        assert!(!retention.is_due(), "it rests between two passes");
        // Exchanges that are stored after the pass go into a new row.
        log.append(&event(1));
        log.append(&UsageEvent { started_at_ms: today, ..event(2) });
        process.settle();
        pass(&mut retention, &mut process, &keys);
        assert_eq!(
            count(&process, "SELECT CAST(sum(exchanges) AS BIGINT) FROM usage"),
            4 * 200 + 1,
            "the exchange of an earlier day has a row of its own"
        );
    }

    /// Starts the first node on a database; also returns its directory, another connection, and its keys.
    fn node(database: &ClusterDatabase<'_>) -> (tempfile::TempDir, Db, Process, VaultKeys) {
        let (home, watch) = (tempfile::TempDir::new().unwrap(), database.connect());
        add_node(&watch, 1);
        let at_home = |name| home.path().join(name);
        let mut process = Process::with(database.connect_as(1), at_home("none.db"), at_home("journal"));
        let key = shared::secret::Secret::new([1; 32]);
        crate::db::key_check::make_keys(process.meter.db_mut(), &key).unwrap();
        let keys = crate::db::key_check::open_keys(process.meter.db_mut(), &key).unwrap();
        (home, watch, process, keys)
    }

    #[test]
    fn records_of_a_day_whose_partition_was_dropped_are_stored_when_their_node_is_back_and_expire() {
        let Some(database) = shared_database() else { return };
        let (_home, watch, mut process, keys) = node(&database);
        let now_ms = unix_ms();
        let expired_ms = now_ms - 32 * DAY_MS;
        partitions::make_ahead(process.meter.usage_mut(), now_ms).unwrap();
        partitions::make_day(process.meter.usage_mut(), expired_ms / DAY_MS).unwrap();
        let count = |sql: &str| -> u64 { watch.row(sql, (), |row| row.get(0)).unwrap() };
        let parts = || count("SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass('usage')");
        let kept = || {
            let hours = count("SELECT CAST(sum(requests) AS BIGINT) FROM usage_hour");
            [count("SELECT count(*) FROM usage"), count("SELECT count(*) FROM usage_rest"), hours]
        };
        let mut log = process.journal.log().unwrap();
        for (n, started_at_ms) in [(1, expired_ms), (2, now_ms)] {
            log.append(&UsageEvent { started_at_ms, ..event(n) });
        }
        process.settle();
        assert_eq!((kept(), parts()), ([2, 0, 2], 6));
        let gauge = Arc::new(Pruning::default());
        let mut retention = RetentionPass::new(&lifetimes(30), Arc::clone(&gauge));
        pass(&mut retention, &mut process, &keys);
        assert_eq!((kept(), parts()), ([1, 0, 1], 5), "the day was dropped");
        log.append(&UsageEvent { started_at_ms: expired_ms, ..event(3) });
        process.settle();
        assert_eq!(kept(), [2, 1, 2]);
        pass(&mut retention, &mut process, &keys);
        assert_eq!((kept(), parts()), ([1, 0, 1], 5));
        assert_eq!(gauge.usage_records.load(Relaxed), 2);
    }

    #[test]
    fn a_user_who_does_not_own_the_table_of_usage_is_told_and_the_other_tables_are_pruned() {
        let Some(database) = shared_database() else { return };
        let (_home, _watch, mut process, keys) = node(&database);
        let end = SessionEnd::of_human("old", unix_ms() - 2 * DAY_MS);
        ended_sessions::put(process.meter.db_mut(), &end).unwrap();
        database.query("GRANT ALL ON usage, usage_rest TO PUBLIC; ALTER TABLE usage OWNER TO CURRENT_USER");
        let mut retention = RetentionPass::new(&lifetimes(30), Arc::default());
        pass(&mut retention, &mut process, &keys);
        assert!(ended_sessions::all(process.meter.db_mut(), 0).unwrap().is_empty());
        assert!(retention.refusal.unwrap().contains("ALTER TABLE usage OWNER TO"));
    }

    #[test]
    fn a_row_over_midnight_keeps_the_sums_of_all_its_hours() {
        let home = tempfile::TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let key = shared::secret::Secret::new([1; 32]);
        crate::db::key_check::make_keys(process.meter.db_mut(), &key).unwrap();
        let keys = crate::db::key_check::open_keys(process.meter.db_mut(), &key).unwrap();
        let oldest = unix_ms() / DAY_MS * DAY_MS - 30 * DAY_MS;
        let mut log = process.journal.log().unwrap();
        for started_at_ms in [oldest - 2 * HOUR_MS, oldest - 1, oldest] {
            log.append(&UsageEvent { started_at_ms, ..event(1) });
        }
        process.settle();
        in_one_row(process.meter.usage_mut());
        pass(&mut RetentionPass::new(&lifetimes(30), Arc::default()), &mut process, &keys);
        assert_eq!(process.sql("SELECT CAST(sum(exchanges) AS BIGINT) FROM usage"), 3);
        assert_eq!(process.sql("SELECT CAST(sum(requests) AS BIGINT) FROM usage_hour"), 3);
    }

    #[test]
    fn ended_sessions_and_failed_sign_ins_are_forgotten() {
        let home = tempfile::TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let key = shared::secret::Secret::new([1; 32]);
        crate::db::key_check::make_keys(process.meter.db_mut(), &key).unwrap();
        let keys = crate::db::key_check::open_keys(process.meter.db_mut(), &key).unwrap();
        let (now_ms, db) = (unix_ms(), process.meter.db_mut());
        for (name, age_ms) in [("old", 2 * DAY_MS), ("new", 0)] {
            let end = SessionEnd::of_human(name, now_ms - age_ms);
            ended_sessions::put(db, &end).unwrap();
            sign_in_flows::fail(db, (name, name), now_ms - age_ms, "denied").unwrap();
        }
        pass(&mut RetentionPass::new(&lifetimes(30), Arc::default()), &mut process, &keys);
        let db = process.meter.db_mut();
        let ended = ended_sessions::all(db, 0).unwrap();
        let failed = sign_in_flows::all(db).unwrap();
        assert_eq!((ended.len(), ended[0].holder.as_str()), (1, "principal/new"));
        assert_eq!((failed.len(), failed[0].provider.as_str()), (1, "new"));
    }

    #[test]
    fn a_late_retention_pass_shortens_its_pauses() {
        let (hour, ms) = (Duration::from_secs(3_600), Duration::from_millis(1));
        assert_eq!(rest_before(RetentionStage::Usage, 3 * ms, 5 * hour), REST_MAX);
        assert_eq!(rest_before(RetentionStage::Hours, 3 * ms, 7 * hour), REST_MAX_HURRIED);
        assert_eq!(
            rest_before(RetentionStage::Hours, ms / 100, hour),
            40 * ms,
            "there was hardly anything to delete"
        );
        assert_eq!(rest_before(RetentionStage::Begin, ms, 7 * hour), BETWEEN_PASSES);
    }

    #[test]
    fn a_large_retention_backlog_is_deleted_in_short_steps() {
        let home = tempfile::TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let key = shared::secret::Secret::new([1; 32]);
        crate::db::key_check::make_keys(process.meter.db_mut(), &key).unwrap();
        let keys = crate::db::key_check::open_keys(process.meter.db_mut(), &key).unwrap();
        let mut log = process.journal.log().unwrap();
        for n in 0..5_000 {
            let model = Some(ModelId::new(format!("m{n}{}", "x".repeat(400))));
            log.append(&UsageEvent { model, started_at_ms: n * 100_000, ..event(n) });
        }
        process.settle();
        let gauge = Arc::new(Pruning::default());
        let mut retention = RetentionPass::new(&lifetimes(1), Arc::clone(&gauge));
        let steps = pass(&mut retention, &mut process, &keys);
        assert!(steps > 8, "{steps}");
        assert_eq!(process.sql("SELECT count(*) FROM usage, usage_hour, usage_day"), 0);
        assert_eq!(gauge.usage_records.load(Relaxed), 5_000);
        assert!(gauge.pass_ended_at_ms.load(Relaxed) > 0 && gauge.held_us_max.load(Relaxed) > 0);
    }
}
