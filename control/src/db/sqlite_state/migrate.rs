//! Forward-only, numbered migrations, one transaction each. `user_version` is the number of the last one.
//!
//! A migration is never edited after it has landed, and none is ever reverted: an older release refuses a newer
//! database. A migration whose name begins with `usage` changes only the tables of usage and runs in the file that
//! contains them (`files.rs`). Both files count all numbers.

use super::files::is_apart;
use crate::db::engine::sqlite::row_sums;
use crate::db::engine::sqlite::schemas::MAIN;
use crate::db::engine::{Db, DbResult};

/// All migrations in order; the first one creates version 1.
pub(crate) const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_vault.sql", include_str!("migrations/0001_vault.sql")),
    ("0002_usage.sql", include_str!("migrations/0002_usage.sql")),
    ("0003_audit.sql", include_str!("migrations/0003_audit.sql")),
    ("0004_iam.sql", include_str!("migrations/0004_iam.sql")),
    ("0005_usage_cost.sql", include_str!("migrations/0005_usage_cost.sql")),
    ("0006_providers.sql", include_str!("migrations/0006_providers.sql")),
    ("0007_quotas.sql", include_str!("migrations/0007_quotas.sql")),
    ("0008_catalog.sql", include_str!("migrations/0008_catalog.sql")),
    ("0009_credentials.sql", include_str!("migrations/0009_credentials.sql")),
    ("0010_place.sql", include_str!("migrations/0010_place.sql")),
    ("0011_usage_due.sql", include_str!("migrations/0011_usage_due.sql")),
    ("0012_quota_scopes.sql", include_str!("migrations/0012_quota_scopes.sql")),
    ("0013_usage_units.sql", include_str!("migrations/0013_usage_units.sql")),
    ("0014_row_sums.sql", include_str!("migrations/0014_row_sums.sql")),
    ("0015_usage_row_sums.sql", include_str!("migrations/0015_usage_row_sums.sql")),
    ("0016_idempotency.sql", include_str!("migrations/0016_idempotency.sql")),
    ("0017_usage_requests.sql", include_str!("migrations/0017_usage_requests.sql")),
    ("0018_usage_digest.sql", include_str!("migrations/0018_usage_digest.sql")),
    ("0019_extensions.sql", include_str!("migrations/0019_extensions.sql")),
    ("0020_oauth.sql", include_str!("migrations/0020_oauth.sql")),
    ("0021_anonymous.sql", include_str!("migrations/0021_anonymous.sql")),
    ("0022_sso.sql", include_str!("migrations/0022_sso.sql")),
    ("0023_outbox.sql", include_str!("migrations/0023_outbox.sql")),
    ("0024_alerts.sql", include_str!("migrations/0024_alerts.sql")),
    ("0025_job_runs.sql", include_str!("migrations/0025_job_runs.sql")),
    ("0026_key_tags.sql", include_str!("migrations/0026_key_tags.sql")),
    ("0027_usage_day_by_key.sql", include_str!("migrations/0027_usage_day_by_key.sql")),
    ("0028_ended_sessions.sql", include_str!("migrations/0028_ended_sessions.sql")),
    ("0029_sign_in_flows.sql", include_str!("migrations/0029_sign_in_flows.sql")),
    ("0030_documents.sql", include_str!("migrations/0030_documents.sql")),
    ("0031_usage_response_origins.sql", include_str!("migrations/0031_usage_response_origins.sql")),
    ("0032_key_use.sql", include_str!("migrations/0032_key_use.sql")),
    ("0033_usage_nodes.sql", include_str!("migrations/0033_usage_nodes.sql")),
    ("0034_quota_shares.sql", include_str!("migrations/0034_quota_shares.sql")),
    ("0035_usage_journal_nodes.sql", include_str!("migrations/0035_usage_journal_nodes.sql")),
    ("0036_usage_request_runs.sql", include_str!("migrations/0036_usage_request_runs.sql")),
    ("0037_usage_period.sql", include_str!("migrations/0037_usage_period.sql")),
    ("0038_cluster.sql", include_str!("migrations/0038_cluster.sql")),
    ("0039_quota_starved.sql", include_str!("migrations/0039_quota_starved.sql")),
    ("0040_usage_of_nodes.sql", include_str!("migrations/0040_usage_of_nodes.sql")),
    ("0041_node_releases.sql", include_str!("migrations/0041_node_releases.sql")),
    ("0042_nodes_shown.sql", include_str!("migrations/0042_nodes_shown.sql")),
    ("0043_quota_wait.sql", include_str!("migrations/0043_quota_wait.sql")),
    ("0044_device_sign_ins.sql", include_str!("migrations/0044_device_sign_ins.sql")),
    ("0045_certificate_expiring.sql", include_str!("migrations/0045_certificate_expiring.sql")),
];

/// Returns the newest schema version that this release supports.
pub(crate) fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Returns the oldest version whose releases may run beside a database of this one, when nodes are upgraded one after the
/// other. The text of each migration states it; one that does not has none but its own.
pub(crate) fn oldest_beside(number: i64, sql: &str) -> i64 {
    let stated = sql.lines().find_map(|line| line.strip_prefix(OLDEST));
    stated.and_then(|version| version.trim().parse().ok()).unwrap_or(number)
}

/// Begins the line of a migration with the oldest version whose releases may run beside it.
const OLDEST: &str = "-- Oldest version beside which this one runs:";

/// Returns the version of an open database; 0 for an empty one.
pub(crate) fn version(db: &Db) -> DbResult<i64> {
    db.pragma(None, "user_version")
}

/// Migrates the database to [`newest`]. If the process is killed, the next call continues where it stopped.
pub(crate) fn migrate(db: &mut Db) -> DbResult<()> {
    let apart = is_apart(db)?;
    run(db, |name| !(apart && is_of_usage(name)))
}

/// Migrates a database that contains only the tables of usage.
pub(crate) fn migrate_usage(db: &mut Db) -> DbResult<()> {
    run(db, is_of_usage)
}

/// Creates the tables of usage, all empty.
pub(crate) fn make_usage(tx: &Db) -> DbResult<()> {
    MIGRATIONS.iter().filter(|(name, _)| is_of_usage(name)).try_for_each(|(_, sql)| tx.batch(sql))
}

fn run(db: &mut Db, is_meant: impl Fn(&str) -> bool) -> DbResult<()> {
    let from = version(db)?;
    let done = usize::try_from(from).unwrap_or(usize::MAX);
    for (number, (name, sql)) in (1_i64..).zip(MIGRATIONS).skip(done) {
        let tx = db.transaction()?;
        if is_meant(name) {
            tx.batch(sql)?;
        }
        row_sums::forget(&tx, MAIN)?;
        tx.set_pragma(None, "user_version", number)?;
        tx.commit()?;
        tracing::debug!(migration = name, "database migrated");
    }
    Ok(())
}

fn is_of_usage(name: &str) -> bool {
    name.split_once('_').is_some_and(|(_, what)| what.starts_with("usage"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_migration_list_matches_the_folder() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/db/sqlite_state/migrations");
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        let listed: Vec<_> = MIGRATIONS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, listed);
        for (number, name) in (1..).zip(listed) {
            assert!(name.starts_with(&format!("{number:04}_")), "{name}");
        }
    }

    #[test]
    fn each_migration_since_40_states_which_releases_may_run_beside_it() {
        for (number, (name, sql)) in (1..).zip(MIGRATIONS).skip(40) {
            assert!(sql.contains(OLDEST), "{name}: add '{OLDEST} N'");
            assert!(oldest_beside(number, sql) <= number, "{name}");
        }
        assert_eq!(
            (oldest_beside(41, "-- Oldest version beside which this one runs: 40\n"), oldest_beside(42, "")),
            (40, 42)
        );
    }

    #[test]
    fn each_schema_version_migrates_to_the_newest() {
        for start in 0..MIGRATIONS.len() {
            let mut db = Db::in_memory().unwrap();
            for (_, sql) in &MIGRATIONS[..start] {
                db.batch(sql).unwrap();
            }
            db.set_pragma(None, "user_version", i64::try_from(start).unwrap()).unwrap();
            migrate(&mut db).unwrap();
            assert_eq!(version(&db).unwrap(), newest());
            migrate(&mut db).unwrap();
        }
    }

    #[test]
    fn sums_of_the_first_release_are_kept_and_their_cost_is_unknown() {
        let mut db = Db::in_memory().unwrap();
        MIGRATIONS[..2].iter().for_each(|(_, sql)| db.batch(sql).unwrap());
        db.set_pragma(None, "user_version", 2).unwrap();
        for hour in [23, 24, 47] {
            let row = "INSERT INTO usage_hour VALUES (:hour, 'pj', 'k', 'p', 'm', 'e', 'o', 'c', 2, 3, 4, 5, 6, 7, 8, 9, 1)";
            db.execute(row, [hour]).unwrap();
        }
        migrate(&mut db).unwrap();
        let sums = |table: &str| -> Vec<(i64, i64, i64, i64, i64)> {
            let sql = format!(
                "SELECT hour, requests, unpriced, cost_nano_usd, reasoning_tokens FROM {table} \
                 WHERE principal = '' AND model = 'm' AND first_contents > 0 ORDER BY hour"
            );
            db.rows(&sql, (), |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?))).unwrap()
        };
        assert_eq!(sums("usage_hour"), [23, 24, 47].map(|hour| (hour, 2, 2, 0, 7)));
        assert_eq!(sums("usage_day"), [(0, 2, 2, 0, 7), (24, 4, 4, 0, 14)]);
    }

    #[test]
    fn limits_of_a_rotated_key_become_those_of_its_family() {
        let mut db = Db::in_memory().unwrap();
        db.set_pragma(None, "foreign_keys", true).unwrap();
        MIGRATIONS[..11].iter().for_each(|(_, sql)| db.batch(sql).unwrap());
        db.set_pragma(None, "user_version", 11).unwrap();
        db.batch(
            "INSERT INTO projects VALUES ('prj', 'p', 0, NULL, NULL, NULL, 1, 0, 0);
             INSERT INTO principals VALUES ('prn', 'Ada', NULL, 0, 1, 0, 0);",
        )
        .unwrap();
        for (key, from) in [("k1", None), ("k3", Some("k1")), ("k2", Some("k3")), ("other", None)] {
            let row = "INSERT INTO keys (id, name, project, hash, prefix, state, rotated_from, version, created_at_ms, \
                       updated_at_ms) VALUES (:id, '', 'prj', CAST(:id AS BLOB), '', 'active', :from, 1, 0, 0)";
            db.execute(row, (key, from)).unwrap();
        }
        for (id, column, subject) in
            [("a", "key", "k2"), ("b", "key", "other"), ("c", "project", "prj"), ("d", "principal", "prn")]
        {
            let row = format!(
                "INSERT INTO quotas (id, {column}, metric, period, amount, hard, version, created_at_ms, updated_at_ms) \
                 VALUES (:id, :subject, 'requests', 'month', 7, 1, 1, 0, 0)"
            );
            db.execute(&row, [id, subject]).unwrap();
            db.execute("INSERT INTO quota_used VALUES (:quota, 0, 5)", [id]).unwrap();
        }
        migrate(&mut db).unwrap();
        let texts = |sql: &str| -> Vec<(String, String)> {
            db.rows(sql, (), |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
        };
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(one, two)| ((*one).to_owned(), (*two).to_owned())).collect()
        };
        assert_eq!(
            texts("SELECT id, family FROM keys ORDER BY id"),
            pairs(&[("k1", "k1"), ("k2", "k1"), ("k3", "k1"), ("other", "other")])
        );
        assert_eq!(
            texts(
                "SELECT quotas.id, kind || subject || used FROM quotas JOIN quota_share ON quota = id ORDER BY 1"
            ),
            pairs(&[("a", "keyk15"), ("b", "keyother5"), ("c", "projectprj5"), ("d", "principalprn5")])
        );
    }

    #[test]
    fn a_ledger_without_nodes_becomes_that_of_node_0_with_the_same_amounts() {
        let mut db = Db::in_memory().unwrap();
        MIGRATIONS[..31].iter().for_each(|(_, sql)| db.batch(sql).unwrap());
        db.set_pragma(None, "user_version", 31).unwrap();
        db.batch(
            "INSERT INTO projects VALUES ('prj', 'p', 0, NULL, NULL, NULL, 1, 0, 0, NULL);
             INSERT INTO keys (id, name, project, hash, prefix, state, last_used_hour, family, version, created_at_ms, updated_at_ms)
                 VALUES ('used', '', 'prj', x'01', '', 'active', 77, 'used', 1, 0, 0),
                        ('new', '', 'prj', x'02', '', 'active', NULL, 'new', 1, 0, 0);
             INSERT INTO quotas VALUES ('q', 'gateway', '', NULL, NULL, 'requests', 'day', 9, 1, 1, 1, 1);
             INSERT INTO quota_used VALUES ('q', 0, 5), ('q', 86400000, 1 << 62);
             INSERT INTO usage_journal (origin, number, bytes) VALUES (7, 1, 100), (7, 2, 0);
             WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 500)
             INSERT INTO usage_hour SELECT value / 10, 'prj', 'key ' || (value % 10), '', 'p', 'm', 'e', 'o', 'c', value,
                 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24 + value FROM n;
             INSERT INTO usage_day SELECT * FROM usage_hour WHERE hour % 24 = 0;",
        )
        .unwrap();
        let sums = |db: &Db, columns: &str, table: &str| -> Vec<String> {
            let sql = format!("SELECT json_array({columns}) FROM {table} ORDER BY hour, project, key");
            db.rows(&sql, (), |row| row.get(0)).unwrap()
        };
        let columns: Vec<String> =
            db.rows("SELECT name FROM pragma_table_info('usage_hour')", (), |row| row.get(0)).unwrap();
        let columns = columns.join(", ");
        let before = ["usage_hour", "usage_day"].map(|table| sums(&db, &columns, table));
        migrate(&mut db).unwrap();
        assert_eq!(before, ["usage_hour", "usage_day"].map(|table| sums(&db, &columns, table)));
        assert_eq!((before[0].len(), before[1].len()), (500, 29));
        let numbers = |sql: &str| -> Vec<String> { db.rows(sql, (), |row| row.get(0)).unwrap() };
        assert_eq!(numbers("SELECT DISTINCT json_array(node) FROM usage_hour"), ["[0]"]);
        assert_eq!(numbers("SELECT json_array(key, node, hour) FROM key_use"), [r#"["used",0,77]"#]);
        assert_eq!(
            numbers("SELECT json_array(start_ms, node, granted, used) FROM quota_share ORDER BY start_ms"),
            ["[0,0,5,5]".to_owned(), format!("[86400000,0,{0},{0}]", 1_u64 << 62)]
        );
        let windows = "SELECT json_array(start_ms, granted, short_node) FROM quota_window WHERE start_ms = 0";
        assert_eq!(numbers(windows), ["[0,5,null]"]);
        assert_eq!(
            numbers("SELECT json_array(origin, number, bytes, node) FROM usage_journal ORDER BY number"),
            ["[7,1,100,0]", "[7,2,0,0]"]
        );
    }

    #[test]
    fn tables_of_usage_are_the_same_in_either_file() {
        let tables = |db: &Db| -> std::collections::BTreeSet<String> {
            let sql = "SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema";
            db.rows(sql, (), |row| row.get(0)).unwrap()
        };
        let [mut whole, mut usage, mut rest] = [(); 3].map(|()| Db::in_memory().unwrap());
        migrate(&mut whole).unwrap();
        migrate_usage(&mut usage).unwrap();
        run(&mut rest, |name| !is_of_usage(name)).unwrap();
        assert_eq!((version(&usage).unwrap(), version(&rest).unwrap()), (newest(), newest()));
        assert!(tables(&usage).is_disjoint(&tables(&rest)));
        assert_eq!(&tables(&usage) | &tables(&rest), tables(&whole));
    }

    #[test]
    fn every_table_is_strict() {
        let mut db = Db::in_memory().unwrap();
        migrate(&mut db).unwrap();
        let loose: i64 = db
            .row("SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND NOT strict AND name NOT LIKE 'sqlite_%'", (), |row| row.get(0))
            .unwrap();
        assert_eq!(loose, 0);
    }
}
