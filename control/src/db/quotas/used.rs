//! The tables `quota_window` and `quota_share`: consumption by limit, calendar window and node. The initial consumption of a
//! new limit is read from the sums of usage.
//!
//! Invariant: `granted` of a window is the sum of `granted` of its shares, and `used` of a share is at most its `granted`.
//! This process compares with the limit itself, so both of its share grow together.

use records::{Record, Trace, block};
use shared::quota::{Period, Spent, Subject};

use super::Counted;
use crate::db::HOUR_MS;
use crate::db::engine::{Db, DbResult, named_params};
use crate::db::packed_row::{PackedRow, unless_damaged};
use crate::db::record_id::NodeId;

/// Returns the amount that all nodes have used of a limit in the window that began at `start_ms`, including due amounts.
pub(crate) fn used(db: &Db, id: &str, start_ms: u64) -> DbResult<u64> {
    let amounts: Vec<i64> = db.rows(USED, (id, start_ms), |row| row.get("used"))?;
    let sum = amounts.into_iter().map(|amount| amount.min(USED_MAX)).fold(0, i64::saturating_add);
    Ok(u64::try_from(sum).unwrap_or(0))
}

/// Returns the amount that a node has used of a limit in a window.
pub(crate) fn used_by_node(db: &Db, (id, start_ms): (&str, u64), node: u32) -> DbResult<u64> {
    let used: Option<i64> = db.optional_row(USED_BY_NODE, (id, start_ms, node), |row| row.get("used"))?;
    Ok(used.and_then(|used| u64::try_from(used).ok()).unwrap_or(0))
}

/// Adds to the used amount of a window, and deletes windows that ended long before a new one. It counts as that of node 0: of
/// the only node, or what all had used before the limit was made.
pub(crate) fn add_used(tx: &Db, id: &str, start_ms: u64, amount: u64) -> DbResult<()> {
    let amount = i64::try_from(amount).unwrap_or(USED_MAX).min(USED_MAX);
    let values = named_params! {":quota": id, ":start": start_ms, ":amount": amount, ":most": USED_MAX};
    tx.execute(GRANT, values)?;
    let values = named_params! {
        ":quota": id, ":start": start_ms, ":node": NodeId::FIRST, ":amount": amount, ":most": USED_MAX,
    };
    let used: i64 = tx.row(ADD, values, |row| row.get("used"))?;
    if used > amount {
        return Ok(());
    }
    forget_old(tx, id, start_ms)
}

/// Deletes windows that ended long before the one that begins at `start_ms`.
pub(super) fn forget_old(tx: &Db, id: &str, start_ms: u64) -> DbResult<()> {
    for sql in [FORGET_WINDOWS, FORGET_SHARES] {
        let values =
            named_params! {":quota": id, ":start": start_ms, ":hours": HOURS_KEPT_MS, ":kept": KEPT_MS};
        tx.execute(sql, values)?;
    }
    Ok(())
}

/// Changes the used amount of a window. The amount never becomes negative.
pub(crate) fn correct_used(tx: &Db, id: &str, start_ms: u64, change: i64) -> DbResult<()> {
    if let Ok(amount) = u64::try_from(change) {
        return add_used(tx, id, start_ms, amount);
    }
    let mut left = change.max(-USED_MAX).saturating_neg();
    let shares: Vec<(NodeId, i64)> =
        tx.rows(SHARES, (id, start_ms), |row| Ok((row.get("node")?, row.get("used")?)))?;
    for (node, used) in shares {
        let amount = used.clamp(0, left);
        if amount > 0 {
            let values = named_params! {":quota": id, ":start": start_ms, ":node": node, ":amount": amount};
            tx.execute(TAKE_BACK, values)?;
            let values = named_params! {":quota": id, ":start": start_ms, ":amount": amount};
            tx.execute(TAKE_BACK_GRANT, values)?;
        }
        left -= amount;
    }
    Ok(())
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

/// Calls `each` with every stored exchange that started at `from_ms` or later, except those of damaged rows; with those of
/// `node` alone unless it is `None`.
pub(crate) fn recent(
    db: &Db,
    (from_ms, node): (u64, Option<u32>),
    mut each: impl FnMut(&Record<'_>, Trace<'_>),
) -> DbResult<()> {
    let is_read = |row: &PackedRow<'_>| node.is_none_or(|node| row.id.node().number() == node);
    let mut statement = db.prepare(RECENT)?;
    let mut blocks = statement.query([from_ms])?;
    while let Some(found) = blocks.next()? {
        let Some(row) = unless_damaged(PackedRow::read(found))?.filter(is_read) else { continue };
        let Some(packed) = unless_damaged(row.rows())? else { continue };
        let rows = block::rows(packed, &row.names).flatten();
        rows.filter(|(record, _)| record.started_at_ms >= from_ms)
            .for_each(|(record, trace)| each(&record, trace));
    }
    Ok(())
}

macro_rules! forget_in {
    ($table:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " WHERE quota = :quota AND start_ms < :start - \
             CASE (SELECT period FROM quotas WHERE id = :quota) WHEN 'hour' THEN :hours ELSE :kept END"
        )
    };
}

/// The time after its start for which a window is kept: longer than a month plus the longest exchange.
pub(crate) const KEPT_MS: u64 = 62 * 24 * HOUR_MS;
/// The same for windows of an hour, of which there would be many.
const HOURS_KEPT_MS: u64 = 6 * HOUR_MS;
/// The largest amount that is added to another one, so that sums of two do not overflow.
pub(super) const USED_MAX: i64 = i64::MAX / 2;
const USED: &str = "SELECT used FROM quota_share WHERE quota = :quota AND start_ms = :start \
     UNION ALL SELECT amount AS used FROM usage_due WHERE quota = :quota AND at = :start \
     AND id > (SELECT taken FROM usage_place)";
const USED_BY_NODE: &str =
    "SELECT used FROM quota_share WHERE quota = :quota AND start_ms = :start AND node = :node";
const GRANT: &str = "INSERT INTO quota_window (quota, start_ms, granted) VALUES (:quota, :start, :amount) \
     ON CONFLICT (quota, start_ms) DO UPDATE SET \
     granted = CASE WHEN quota_window.granted < :most THEN quota_window.granted ELSE :most END + excluded.granted";
const ADD: &str = "INSERT INTO quota_share (quota, start_ms, node, granted, used) \
     VALUES (:quota, :start, :node, :amount, :amount) ON CONFLICT (quota, start_ms, node) DO UPDATE SET \
     granted = CASE WHEN quota_share.granted < :most THEN quota_share.granted ELSE :most END + excluded.granted, \
     used = CASE WHEN quota_share.used < :most THEN quota_share.used ELSE :most END + excluded.used RETURNING used";
pub(super) const SHARES: &str =
    "SELECT node, used FROM quota_share WHERE quota = :quota AND start_ms = :start ORDER BY node";
const TAKE_BACK: &str = "UPDATE quota_share SET granted = granted - :amount, used = used - :amount \
     WHERE quota = :quota AND start_ms = :start AND node = :node";
const TAKE_BACK_GRANT: &str = "UPDATE quota_window SET granted = granted - :amount \
     WHERE quota = :quota AND start_ms = :start";
const FORGET_WINDOWS: &str = forget_in!("quota_window");
const FORGET_SHARES: &str = forget_in!("quota_share");
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
            let sql = "INSERT INTO quotas VALUES (:period, 'gateway', '', NULL, NULL, 'requests', :period, 9, 1, 1, 1, 1, 0)";
            db.execute(sql, [period]).unwrap();
            for n in 0..200 {
                add_used(db, period, n * hours * HOUR_MS, 1).unwrap();
            }
            for table in ["quota_share", "quota_window"] {
                let sql = format!("SELECT count(*) FROM {table} WHERE quota = :quota");
                let rows: u64 = db.row(&sql, [period], |row| row.get(0)).unwrap();
                assert_eq!(rows, kept, "{table} {period}");
            }
        }
    }

    #[test]
    fn a_window_grants_what_its_shares_hold_and_corrections_reach_those_of_other_nodes() {
        let home = tempfile::TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let db = process.meter.db_mut();
        db.execute(
            "INSERT INTO quotas VALUES ('q', 'gateway', '', NULL, NULL, 'requests', 'total', 9, 1, 1, 1, 1, 0)",
            (),
        )
        .unwrap();
        db.batch(
            "INSERT INTO quota_window (quota, start_ms, granted) VALUES ('q', 0, 50);
             INSERT INTO quota_share VALUES ('q', 0, 1, 50, 30);",
        )
        .unwrap();
        let grants = |db: &Db| -> (i64, i64) {
            let sql = "SELECT granted, (SELECT CAST(sum(granted) AS BIGINT) FROM quota_share WHERE quota = 'q') \
                       FROM quota_window WHERE quota = 'q'";
            db.row(sql, (), |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
        };
        for (change, want, granted) in
            [(7, 37, 57), (5, 42, 62), (-4, 38, 58), (-20, 18, 38), (-100, 0, 20), (3, 3, 23)]
        {
            correct_used(db, "q", 0, change).unwrap();
            assert_eq!(used(db, "q", 0).unwrap(), want, "after {change}");
            let own = used_by_node(db, ("q", 0), 0).unwrap() + used_by_node(db, ("q", 0), 1).unwrap();
            assert_eq!((own, used_by_node(db, ("q", 0), 2).unwrap()), (want, 0), "after {change}");
            assert_eq!(grants(db), (granted, granted), "after {change}");
        }
        for _ in 0..3 {
            add_used(db, "q", 0, u64::MAX).unwrap();
        }
        assert!(used(db, "q", 0).unwrap() > 1 << 60, "sums do not overflow");
    }
}
