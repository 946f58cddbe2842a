//! The table `sign_in_flows`: sign-ins at the vendors of provider instances that have begun, at most one for each instance,
//! and how the last one failed. The process that deletes the row of a flow completes it, so it is completed once.

use crate::common::bounds::SIGN_INS;
use crate::db::engine::{Db, DbResult, Row, named_params};

/// A sign-in that has begun, or that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SignInFlowRow {
    /// The ID of the provider instance.
    pub(crate) provider: String,
    /// The random name of the flow.
    pub(crate) id: String,
    /// The sealed flow; `None` after it failed.
    pub(crate) flow: Option<Vec<u8>>,
    /// The time until which the human must have consented, or at which the flow failed, in milliseconds since the Unix
    /// epoch.
    pub(crate) ends_at_ms: u64,
    /// The reason of the failure.
    pub(crate) failure: Option<String>,
}

/// Returns all rows.
pub(crate) fn all(db: &Db) -> DbResult<Vec<SignInFlowRow>> {
    db.rows(ALL, (), of)
}

/// Returns the flow with this name.
pub(crate) fn find(db: &Db, id: &str) -> DbResult<Option<SignInFlowRow>> {
    db.optional_row(FIND, named_params! {":id": id}, of)
}

/// Stores a flow in place of an earlier one of its provider instance. If there are more than [`SIGN_INS`] rows then, the
/// one that ends first gives way.
pub(crate) fn begin(db: &Db, row: &SignInFlowRow) -> DbResult<()> {
    let SignInFlowRow { provider, id, flow, ends_at_ms, failure: _ } = row;
    let values = named_params! {":provider": provider, ":id": id, ":flow": flow, ":ends": ends_at_ms};
    db.execute(BEGIN, values)?;
    make_room(db, provider)
}

/// Stores that the flow `id` failed, unless another one of its provider instance has begun since.
pub(crate) fn fail(db: &Db, (provider, id): (&str, &str), failed_at_ms: u64, failure: &str) -> DbResult<()> {
    let values =
        named_params! {":provider": provider, ":id": id, ":failed": failed_at_ms, ":failure": failure};
    db.execute(FAIL, values)?;
    make_room(db, provider)
}

/// Deletes the flow `id`. Returns false if there is no such flow: it was completed, cancelled or replaced.
pub(crate) fn end(db: &Db, id: &str) -> DbResult<bool> {
    Ok(db.execute(END, named_params! {":id": id})? > 0)
}

/// Deletes the row of a provider instance. Returns false if it had none.
pub(crate) fn cancel(db: &Db, provider: &str) -> DbResult<bool> {
    Ok(db.execute(CANCEL, named_params! {":provider": provider})? > 0)
}

/// Deletes up to `rows_max` rows that ended before `before_ms`, and returns their number.
pub(crate) fn forget(db: &Db, before_ms: u64, rows_max: u32) -> DbResult<usize> {
    db.execute(FORGET, named_params! {":before": before_ms, ":rows": rows_max})
}

/// Deletes the rows of other provider instances that end first, as long as there are too many.
fn make_room(db: &Db, provider: &str) -> DbResult<()> {
    let count: u64 = db.row(COUNT, (), |row| row.get("flows"))?;
    let excess = SIGN_INS.excess(usize::try_from(count).unwrap_or(usize::MAX));
    if excess > 0 {
        let excess = u64::try_from(excess).unwrap_or(u64::MAX);
        db.execute(MAKE_ROOM, named_params! {":provider": provider, ":excess": excess})?;
    }
    Ok(())
}

fn of(row: Row<'_>) -> DbResult<SignInFlowRow> {
    Ok(SignInFlowRow {
        provider: row.get("provider")?,
        id: row.get("id")?,
        flow: row.get("flow")?,
        ends_at_ms: row.get("ends_at_ms")?,
        failure: row.get("failure")?,
    })
}

/// The time for which a failure is shown.
pub(crate) const FAILURE_KEPT_MS: u64 = 24 * super::HOUR_MS;

const ALL: &str = "SELECT provider, id, flow, ends_at_ms, failure FROM sign_in_flows ORDER BY provider";
const FIND: &str =
    "SELECT provider, id, flow, ends_at_ms, failure FROM sign_in_flows WHERE id = :id AND flow IS NOT NULL";
const BEGIN: &str = "INSERT INTO sign_in_flows (provider, id, flow, ends_at_ms, failure) \
     VALUES (:provider, :id, :flow, :ends, NULL) ON CONFLICT (provider) DO UPDATE SET id = excluded.id, \
     flow = excluded.flow, ends_at_ms = excluded.ends_at_ms, failure = NULL";
const FAIL: &str = "INSERT INTO sign_in_flows (provider, id, flow, ends_at_ms, failure) \
     VALUES (:provider, :id, NULL, :failed, :failure) ON CONFLICT (provider) DO UPDATE SET id = excluded.id, \
     flow = NULL, ends_at_ms = excluded.ends_at_ms, failure = excluded.failure \
     WHERE sign_in_flows.id = excluded.id OR sign_in_flows.flow IS NULL";
const END: &str = "DELETE FROM sign_in_flows WHERE id = :id AND flow IS NOT NULL";
const CANCEL: &str = "DELETE FROM sign_in_flows WHERE provider = :provider";
const COUNT: &str = "SELECT count(*) AS flows FROM sign_in_flows";
const MAKE_ROOM: &str = "DELETE FROM sign_in_flows WHERE provider IN (SELECT provider FROM sign_in_flows \
     WHERE provider <> :provider ORDER BY ends_at_ms, provider LIMIT :excess)";
const FORGET: &str = "DELETE FROM sign_in_flows WHERE provider IN \
     (SELECT provider FROM sign_in_flows WHERE ends_at_ms < :before ORDER BY ends_at_ms LIMIT :rows)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::bounds::tests::passes;
    use crate::db::testing::migrated;

    fn db() -> Db {
        migrated()
    }

    fn flow(provider: &str, id: &str, ends_at_ms: u64) -> SignInFlowRow {
        let (provider, id) = (provider.to_owned(), id.to_owned());
        SignInFlowRow { provider, id, flow: Some(vec![1]), ends_at_ms, failure: None }
    }

    #[test]
    fn a_flow_is_ended_once_and_a_later_one_replaces_it() {
        let db = db();
        begin(&db, &flow("p", "one", 9)).unwrap();
        begin(&db, &flow("p", "two", 9)).unwrap();
        assert_eq!(find(&db, "one").unwrap(), None);
        assert_eq!(find(&db, "two").unwrap(), Some(flow("p", "two", 9)));
        assert!(!end(&db, "one").unwrap() && end(&db, "two").unwrap() && !end(&db, "two").unwrap());
        assert!(all(&db).unwrap().is_empty());
    }

    #[test]
    fn a_failure_is_stored_unless_another_flow_has_begun() {
        let db = db();
        fail(&db, ("p", "one"), 5, "denied").unwrap();
        fail(&db, ("p", "older"), 6, "late").unwrap();
        let row = &all(&db).unwrap()[0];
        assert_eq!((row.failure.as_deref(), row.ends_at_ms, &row.flow), (Some("late"), 6, &None));
        assert!(!end(&db, "older").unwrap(), "a failed flow cannot be completed");
        begin(&db, &flow("p", "two", 9)).unwrap();
        fail(&db, ("p", "one"), 7, "denied").unwrap();
        assert_eq!(all(&db).unwrap(), [flow("p", "two", 9)]);
        fail(&db, ("p", "two"), 8, "denied").unwrap();
        assert_eq!(find(&db, "two").unwrap(), None);
        assert!(cancel(&db, "p").unwrap() && !cancel(&db, "p").unwrap());
    }

    #[test]
    fn the_flow_that_ends_first_gives_way_and_old_rows_are_deleted() {
        let db = db();
        let most = SIGN_INS.max() as u64;
        let begin = |n: u64| begin(&db, &flow(&format!("p{n}"), &format!("{n}"), 100 - n)).unwrap();
        passes(&SIGN_INS, || (0..=most).for_each(begin));
        assert_eq!(all(&db).unwrap().len(), SIGN_INS.max());
        assert_eq!(find(&db, &(most - 1).to_string()).unwrap(), None);
        assert!(find(&db, &most.to_string()).unwrap().is_some(), "the new one stays");
        assert_eq!(forget(&db, 50, 3).unwrap(), 3);
        assert_eq!(forget(&db, 50, 99).unwrap(), 10);
    }
}
