//! The table `ended_sessions`: console sessions that were ended before their time. A row is kept until no ticket of its
//! session is valid anyway.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::common::bounds::ENDED_SESSIONS;
use crate::db::engine::{Db, DbResult, Row, named_params};

/// The end of one session, or of all sessions that a holder has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionEnd {
    /// The [`holder_of_human`] or [`holder_of_key`].
    pub(crate) holder: String,
    /// SHA-256 of the session's ID, as hexadecimal digits; empty for all sessions of the holder that began by `began_ms`.
    pub(crate) session: String,
    /// The beginning of the session, in milliseconds since the Unix epoch.
    pub(crate) began_ms: u64,
    /// The time from which no ticket of the session is valid anyway.
    pub(crate) until_ms: u64,
}

impl SessionEnd {
    /// Ends all sessions of a holder that began by `began_ms`.
    pub(crate) fn of_all(holder: String, began_ms: u64) -> Self {
        Self { holder, session: String::new(), began_ms, until_ms: began_ms.saturating_add(SESSION_MS_MAX) }
    }

    /// Ends all sessions of a human that began by `now_ms`.
    pub(crate) fn of_human(principal: &str, now_ms: u64) -> Self {
        Self::of_all(holder_of_human(principal), now_ms)
    }

    /// True if it ends all sessions of the holder.
    pub(crate) fn is_of_all(&self) -> bool {
        self.session.is_empty()
    }
}

/// Returns the holder of the sessions of a human.
pub(crate) fn holder_of_human(principal: &str) -> String {
    format!("principal/{principal}")
}

/// Returns the holder of the sessions of an administrator's key, by the hexadecimal digits of its hash.
pub(crate) fn holder_of_key(hash: &str) -> String {
    format!("key/{hash}")
}

/// Returns all rows that are not out of date.
pub(crate) fn all(db: &Db, now_ms: u64) -> DbResult<Vec<SessionEnd>> {
    db.rows(ALL, named_params! {":now": now_ms}, of)
}

/// Stores an end, and returns the ends that it amounts to. If a holder has ended more than [`ENDED_SESSIONS`] sessions one by
/// one, the oldest of them and all sessions of the holder that began before it are ended together.
pub(crate) fn put(db: &Db, end: &SessionEnd) -> DbResult<Vec<SessionEnd>> {
    store(db, end)?;
    let mut ends = vec![end.clone()];
    if let Some(oldest) = excess(db, &end.holder)? {
        let together = SessionEnd::of_all(end.holder.clone(), oldest);
        store(db, &together)?;
        ends.push(together);
    }
    Ok(ends)
}

/// Deletes up to `rows_max` rows that are out of date, and returns their number.
pub(crate) fn forget(db: &Db, now_ms: u64, rows_max: u32) -> DbResult<usize> {
    db.execute(FORGET, named_params! {":now": now_ms, ":rows": rows_max})
}

fn store(db: &Db, end: &SessionEnd) -> DbResult<()> {
    let SessionEnd { holder, session, began_ms, until_ms } = end;
    let values =
        named_params! {":holder": holder, ":session": session, ":began": began_ms, ":until": until_ms};
    db.execute(PUT, values)?;
    if end.is_of_all() {
        db.execute(FORGET_SINGLE, named_params! {":holder": holder, ":began": began_ms})?;
    }
    Ok(())
}

/// Returns the beginning of the oldest session of a holder that was ended by itself, if there are too many of them.
fn excess(db: &Db, holder: &str) -> DbResult<Option<u64>> {
    let read = |row: Row<'_>| Ok((row.get::<u64>("ends")?, row.get::<Option<u64>>("oldest")?));
    let (ends, oldest) = db.row(COUNT_SINGLE, named_params! {":holder": holder}, read)?;
    let ends = usize::try_from(ends).unwrap_or(usize::MAX);
    Ok(oldest.filter(|_| ENDED_SESSIONS.excess(ends) > 0))
}

fn of(row: Row<'_>) -> DbResult<SessionEnd> {
    Ok(SessionEnd {
        holder: row.get("holder")?,
        session: row.get("session")?,
        began_ms: row.get("began_ms")?,
        until_ms: row.get("until_ms")?,
    })
}

/// The maximum lifetime of a session since the sign-in.
pub(crate) const SESSION_LIFE_MAX: Duration = Duration::from_hours(12);
const SESSION_MS_MAX: u64 = 12 * super::HOUR_MS;

const ALL: &str = "SELECT holder, session, began_ms, until_ms FROM ended_sessions WHERE until_ms > :now ORDER BY holder, session";
const PUT: &str = "INSERT INTO ended_sessions (holder, session, began_ms, until_ms) \
     VALUES (:holder, :session, :began, :until) ON CONFLICT (holder, session) DO UPDATE SET \
     began_ms = CASE WHEN excluded.began_ms > ended_sessions.began_ms THEN excluded.began_ms \
         ELSE ended_sessions.began_ms END, \
     until_ms = CASE WHEN excluded.until_ms > ended_sessions.until_ms THEN excluded.until_ms \
         ELSE ended_sessions.until_ms END";
const FORGET_SINGLE: &str =
    "DELETE FROM ended_sessions WHERE holder = :holder AND session <> '' AND began_ms <= :began";
const COUNT_SINGLE: &str = "SELECT count(*) AS ends, min(began_ms) AS oldest FROM ended_sessions \
     WHERE holder = :holder AND session <> ''";
const FORGET: &str = "DELETE FROM ended_sessions WHERE (holder, session) IN \
     (SELECT holder, session FROM ended_sessions WHERE until_ms <= :now ORDER BY until_ms LIMIT :rows)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::bounds::tests::passes;
    use crate::db::testing::migrated;

    fn db() -> Db {
        migrated()
    }

    fn end(holder: &str, session: &str, began_ms: u64) -> SessionEnd {
        SessionEnd { session: session.to_owned(), ..SessionEnd::of_all(holder.to_owned(), began_ms) }
    }

    #[test]
    fn an_end_is_kept_until_its_tickets_are_over() {
        let db = db();
        put(&db, &end("a", "one", 1)).unwrap();
        put(&db, &end("b", "two", 5)).unwrap();
        assert_eq!(all(&db, SESSION_MS_MAX).unwrap().len(), 2);
        assert_eq!(all(&db, SESSION_MS_MAX + 1).unwrap(), [end("b", "two", 5)]);
        assert_eq!(forget(&db, SESSION_MS_MAX, 9).unwrap(), 0);
        assert_eq!(forget(&db, SESSION_MS_MAX + 1, 9).unwrap(), 1);
        assert_eq!(all(&db, 0).unwrap(), [end("b", "two", 5)]);
    }

    #[test]
    fn the_end_of_all_replaces_single_ones_and_never_moves_back() {
        let db = db();
        for (session, began_ms) in [("one", 1), ("two", 3)] {
            put(&db, &end("a", session, began_ms)).unwrap();
        }
        put(&db, &end("a", "", 2)).unwrap();
        assert_eq!(all(&db, 0).unwrap(), [end("a", "", 2), end("a", "two", 3)]);
        put(&db, &end("a", "", 1)).unwrap();
        assert_eq!(all(&db, 0).unwrap()[0], end("a", "", 2));
    }

    #[test]
    fn a_holder_with_too_many_ends_loses_the_sessions_before_the_oldest_of_them() {
        let db = db();
        put(&db, &end("other", "one", 0)).unwrap();
        for n in 0..ENDED_SESSIONS.max() as u64 {
            assert_eq!(put(&db, &end("a", &format!("{n}"), 10 + n)).unwrap().len(), 1);
        }
        let ends = passes(&ENDED_SESSIONS, || put(&db, &end("a", "last", 5)).unwrap());
        assert_eq!(ends, [end("a", "last", 5), end("a", "", 5)]);
        let ends = put(&db, &end("a", "more", 999)).unwrap();
        assert_eq!(ends[1], end("a", "", 10), "the oldest of those that are left");
        let rows = all(&db, 0).unwrap();
        assert_eq!(rows.len(), ENDED_SESSIONS.max() + 2, "one row for all, and the other holder's");
    }
}
