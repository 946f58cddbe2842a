//! The sign-ins at vendors that have begun or failed, in memory: lists of providers show them without a query.

use std::sync::{Arc, Mutex, PoisonError};

use crate::db::engine::{Db, DbResult};
use crate::db::sign_in_flows::{self, FAILURE_KEPT_MS, SignInFlowRow};

/// The rows of the table `sign_in_flows` without what completes them.
#[derive(Clone, Debug, Default)]
pub(crate) struct BegunSignIns(Arc<Mutex<Arc<Vec<SignInFlowRow>>>>);

impl BegunSignIns {
    /// Reads the rows again.
    pub(super) fn reread(&self, db: &Db) -> DbResult<()> {
        let rows = sign_in_flows::all(db)?.into_iter().map(|row| SignInFlowRow { flow: None, ..row });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(rows.collect());
        Ok(())
    }

    /// True if a sign-in to this provider instance is under way.
    pub(crate) fn is_waiting(&self, provider: &str, now_ms: u64) -> bool {
        self.of(provider).is_some_and(|row| row.failure.is_none() && row.ends_at_ms > now_ms)
    }

    /// True if the flow `id` is under way: it was not completed, cancelled or replaced.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.rows().iter().any(|row| row.id == id && row.failure.is_none())
    }

    /// Returns the time and reason of the failure of the last sign-in to this provider instance, if it failed.
    pub(crate) fn failure(&self, provider: &str, now_ms: u64) -> Option<(u64, String)> {
        let row = self.of(provider)?;
        let is_shown = row.ends_at_ms <= now_ms && now_ms < row.ends_at_ms.saturating_add(FAILURE_KEPT_MS);
        is_shown.then(|| (row.ends_at_ms, row.failure.unwrap_or_else(|| EXPIRED.to_owned())))
    }

    fn of(&self, provider: &str) -> Option<SignInFlowRow> {
        self.rows().iter().find(|row| row.provider == provider).cloned()
    }

    fn rows(&self) -> Arc<Vec<SignInFlowRow>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The failure of a sign-in that ended without consent.
const EXPIRED: &str = "the vendor sent no consent in time";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::migrated;

    #[test]
    fn a_sign_in_waits_until_its_end_and_has_failed_then() {
        let db = migrated();
        let row = SignInFlowRow {
            provider: "p".to_owned(),
            id: "one".to_owned(),
            flow: Some(vec![1]),
            ends_at_ms: 9,
            failure: None,
        };
        sign_in_flows::begin(&db, &row).unwrap();
        let begun = BegunSignIns::default();
        begun.reread(&db).unwrap();
        assert!(begun.is_waiting("p", 8) && !begun.is_waiting("p", 9) && !begun.is_waiting("q", 8));
        assert!(begun.has("one") && !begun.has("two"));
        assert_eq!(begun.failure("p", 8), None);
        assert_eq!(begun.failure("p", 9), Some((9, EXPIRED.to_owned())));
        assert_eq!(begun.failure("p", 9 + FAILURE_KEPT_MS), None);
        sign_in_flows::fail(&db, ("p", "one"), 7, "denied").unwrap();
        begun.reread(&db).unwrap();
        assert!(!begun.is_waiting("p", 6) && !begun.has("one"));
        assert_eq!(begun.failure("p", 8), Some((7, "denied".to_owned())));
        assert!(!format!("{begun:?}").contains("[1]"), "without the sealed flow");
    }
}
