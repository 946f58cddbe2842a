//! The daily sums of one key, read without those of all others.

use std::sync::LazyLock;

use super::sums::{SELECTED, UsageSums};
use crate::db::engine::{Db, DbResult};

/// Returns the sums of each UTC day of a key that begins at `first` or later, by its first hour since the Unix epoch. The
/// sums of one day may be in several parts.
pub(crate) fn days_of_key(db: &Db, key: &str, first: u64) -> DbResult<Vec<(u64, UsageSums)>> {
    db.rows(&DAYS, (key, first), |row| Ok((row.get(UsageSums::SELECTED)?, UsageSums::read(row)?)))
}

static DAYS: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT {}, hour FROM usage_day WHERE key = :key AND hour >= :first", SELECTED.sql)
});

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use shared::id::KeyId;
    use shared::usage::{UsageEvent, UsageLog as _};

    use super::*;
    use crate::db::HOUR_MS;
    use crate::usage::tests::{Process, event};

    #[test]
    fn the_days_of_a_key_take_the_same_steps_among_many_keys() {
        let home = tempfile::TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let mut log = process.journal.log().unwrap();
        let steps = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&steps);
        process.meter.db_mut().on_each_step(move || {
            count.fetch_add(1, Ordering::Relaxed);
            false
        });
        let mut taken = Vec::new();
        for keys in [0..2, 2..2_000] {
            for key in keys {
                log.append(&UsageEvent { key: KeyId::new(format!("key_{key}")), ..event(key) });
            }
            process.settle();
            let before = steps.load(Ordering::Relaxed);
            let days =
                days_of_key(process.meter.db_mut(), "key_1", event(0).started_at_ms / HOUR_MS / 24 * 24);
            taken.push(steps.load(Ordering::Relaxed) - before);
            assert_eq!(days.unwrap().iter().map(|(_, sums)| sums.requests).collect::<Vec<_>>(), [1]);
        }
        assert!(taken[1] <= taken[0] + 9, "{taken:?}");
    }
}
