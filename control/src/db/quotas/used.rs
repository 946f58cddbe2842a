//! The table `quota_used`: consumption by limit and calendar window. The initial consumption of a new limit is read
//! from the sums of usage.

use records::{Record, Trace, block};
use shared::quota::{Period, Spent, Subject};

use super::Counted;
use crate::db::HOUR_MS;
use crate::db::engine::{Db, DbResult, named_params};
use crate::db::packed_row::{PackedRow, unless_damaged};

/// Returns the used amount of a limit in the window that began at `start_ms`, including due amounts.
pub(crate) fn used(db: &Db, id: &str, start_ms: u64) -> DbResult<u64> {
    let (used, due): (Option<i64>, Option<i64>) =
        db.row(USED, (id, start_ms), |row| Ok((row.get("used")?, row.get("due")?)))?;
    let sum: i64 = used.into_iter().chain(due).map(|amount| amount.min(USED_MAX)).sum();
    Ok(u64::try_from(sum).unwrap_or(0))
}

/// Adds to the used amount of a window, and deletes windows that ended long before it. Runs in the transaction that
/// stores the usage.
pub(crate) fn add_used(tx: &Db, id: &str, start_ms: u64, amount: u64) -> DbResult<()> {
    let amount = i64::try_from(amount).unwrap_or(USED_MAX).min(USED_MAX);
    let values = named_params! {":quota": id, ":start": start_ms, ":amount": amount, ":most": USED_MAX};
    tx.execute(ADD, values)?;
    let values = named_params! {":quota": id, ":start": start_ms, ":hours": HOURS_KEPT_MS, ":kept": KEPT_MS};
    tx.execute(FORGET, values)?;
    Ok(())
}

/// Changes the used amount of a window. The amount never becomes negative.
pub(crate) fn correct_used(tx: &Db, id: &str, start_ms: u64, change: i64) -> DbResult<()> {
    let change = change.clamp(-USED_MAX, USED_MAX);
    let values = named_params! {
        ":quota": id, ":start": start_ms, ":first": change.max(0), ":change": change, ":most": USED_MAX,
    };
    tx.execute(CORRECT, values).map(drop)
}

/// Returns the stored usage since `start_ms`, the start of a window of `period`. Windows start with a day and are read
/// from the daily sums, which are kept longer than the hourly ones; only the hourly window is read from those.
pub(crate) fn used_since(db: &Db, counted: &Counted, period: Period, start_ms: u64) -> DbResult<Spent> {
    let [by_hour, by_day] = match counted.subject.kind {
        Subject::Key => USED_BY_KEY,
        Subject::Project => USED_BY_PROJECT,
        Subject::Principal => USED_BY_PRINCIPAL,
        Subject::Provider => USED_BY_PROVIDER,
        Subject::Gateway => USED_BY_PROJECTS,
    };
    let statement = if period == Period::Hour { by_hour } else { by_day };
    let hour = start_ms / HOUR_MS;
    let Counted { subject, model, endpoint } = counted;
    db.row(statement, (&subject.id, hour, model, endpoint), |row| {
        Ok(Spent {
            requests: row.get("requests")?,
            input_tokens: row.get("input")?,
            output_tokens: row.get("output")?,
            cost_nano_usd: Some(row.get("cost")?),
        })
    })
}

/// Calls `each` with every stored exchange that started at `from_ms` or later, except those of damaged rows.
pub(crate) fn recent(db: &Db, from_ms: u64, mut each: impl FnMut(&Record<'_>, Trace<'_>)) -> DbResult<()> {
    let mut statement = db.prepare(RECENT)?;
    let mut blocks = statement.query([from_ms])?;
    while let Some(found) = blocks.next()? {
        let read = PackedRow::read(found).and_then(|row| Ok((row.rows()?, row.names)));
        let Some((packed, names)) = unless_damaged(read)? else { continue };
        let rows = block::rows(packed, &names).flatten();
        rows.filter(|(record, _)| record.started_at_ms >= from_ms)
            .for_each(|(record, trace)| each(&record, trace));
    }
    Ok(())
}

/// The time after its start for which a window is kept: longer than a month plus the longest exchange.
pub(crate) const KEPT_MS: u64 = 62 * 24 * HOUR_MS;
/// The same for windows of an hour, of which there would be many.
const HOURS_KEPT_MS: u64 = 6 * HOUR_MS;
/// The largest amount that is added to another one, so that sums of two do not overflow.
const USED_MAX: i64 = i64::MAX / 2;
const USED: &str = "SELECT \
     (SELECT used FROM quota_used WHERE quota = :quota AND window_start_ms = :start) AS used, \
     (SELECT CAST(sum(amount) AS BIGINT) FROM usage_due WHERE quota = :quota AND at = :start \
     AND id > (SELECT taken FROM usage_place)) AS due";
const ADD: &str = "INSERT INTO quota_used (quota, window_start_ms, used) VALUES (:quota, :start, :amount) \
     ON CONFLICT (quota, window_start_ms) DO UPDATE SET \
     used = CASE WHEN quota_used.used < :most THEN quota_used.used ELSE :most END + excluded.used";
const CORRECT: &str = "INSERT INTO quota_used (quota, window_start_ms, used) VALUES (:quota, :start, :first) \
     ON CONFLICT (quota, window_start_ms) DO UPDATE SET used = CASE \
     WHEN quota_used.used >= :most THEN :most + :change \
     WHEN quota_used.used + :change > 0 THEN quota_used.used + :change ELSE 0 END";
const FORGET: &str = "DELETE FROM quota_used WHERE quota = :quota AND window_start_ms < :start - \
     CASE (SELECT period FROM quotas WHERE id = :quota) WHEN 'hour' THEN :hours ELSE :kept END";
const RECENT: &str = "SELECT * FROM usage WHERE last_ms >= :from";

macro_rules! used_by {
    ($table:literal, $subject:literal) => {
        concat!(
            "SELECT CAST(coalesce(sum(CASE WHEN outcome = 'failed' THEN 0 ELSE requests END), 0) AS BIGINT) AS requests, \
             CAST(coalesce(sum(input_tokens + cache_read_tokens + cache_write_tokens + cache_write_1h_tokens \
             + audio_input_tokens + image_input_tokens), 0) AS BIGINT) AS input, \
             CAST(coalesce(sum(output_tokens + reasoning_tokens + audio_output_tokens + image_output_tokens), 0) AS BIGINT) AS output, \
             CAST(coalesce(sum(cost_nano_usd), 0) AS BIGINT) AS cost \
             FROM ",
            $table,
            " WHERE ",
            $subject,
            " AND hour >= :hour AND (:model IS NULL OR provider || '/' || model = :model) \
             AND (:endpoint IS NULL OR endpoint = :endpoint)"
        )
    };
    ($subject:literal) => {
        [used_by!("usage_hour", $subject), used_by!("usage_day", $subject)]
    };
}

const USED_BY_KEY: [&str; 2] = used_by!(
    "key IN (SELECT id FROM keys WHERE family = :subject UNION ALL SELECT id FROM former_keys WHERE family = :subject)"
);
const USED_BY_PROJECT: [&str; 2] = used_by!("project = :subject");
const USED_BY_PRINCIPAL: [&str; 2] = used_by!("principal = :subject AND project <> ''");
const USED_BY_PROVIDER: [&str; 2] = used_by!("provider = :subject");
const USED_BY_PROJECTS: [&str; 2] = used_by!(":subject = '' AND project <> ''");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::tests::Process;

    #[test]
    fn windows_that_nothing_shows_are_forgotten() {
        let home = tempfile::TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let db = process.meter.db_mut();
        for (period, hours, kept) in [("hour", 1, 7), ("day", 24, 63)] {
            let sql = "INSERT INTO quotas VALUES (:period, 'gateway', '', NULL, NULL, 'requests', :period, 9, 1, 1, 1, 1)";
            db.execute(sql, [period]).unwrap();
            for n in 0..200 {
                add_used(db, period, n * hours * HOUR_MS, 1).unwrap();
            }
            let rows: u64 = db
                .row("SELECT count(*) FROM quota_used WHERE quota = :quota", [period], |row| row.get(0))
                .unwrap();
            assert_eq!(rows, kept, "{period}");
        }
    }
}
