//! Whether a server and a database can hold the state.

use shared::clock::unix_ms;

use crate::db::cluster::clock;
use crate::db::engine::{Db, DbResult};

/// The properties of a server and a database that decide whether a state can be in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fitness {
    /// The version of the server, such as 150004 for 15.4.
    pub(crate) version: i64,
    pub(crate) encoding: String,
    /// True if the server accepts no changes, as a standby does.
    pub(crate) is_read_only: bool,
    /// The level of `synchronous_commit`.
    pub(crate) synchronous_commit: String,
    /// The isolation of transactions that name none.
    pub(crate) isolation: String,
    /// By how many milliseconds the server's clock is ahead of this machine's.
    pub(crate) clock_ahead_ms: i64,
    /// True if this session is encrypted.
    pub(crate) is_encrypted: bool,
    /// The number of standbys that are connected; `None` if the user may not see them.
    pub(crate) standbys: Option<i64>,
}

/// Reads the properties of the server and the database of a session.
pub(crate) fn examine(db: &Db) -> DbResult<Fitness> {
    // Reading the clock takes a round trip, half of which lies before and half behind the server's own reading.
    let before_ms = unix_ms();
    let server_ms: i64 = db.row(CLOCK, (), |row| row.get(0))?;
    let own_ms = before_ms.midpoint(unix_ms());
    db.row(SETTINGS, (), |row| {
        Ok(Fitness {
            version: row.get("version")?,
            encoding: row.get("encoding")?,
            is_read_only: row.get::<i64>("read_only")? != 0,
            synchronous_commit: row.get("commit_level")?,
            isolation: row.get("isolation")?,
            clock_ahead_ms: server_ms.saturating_sub(i64::try_from(own_ms).unwrap_or(i64::MAX)),
            is_encrypted: row.get::<i64>("encrypted")? != 0,
            standbys: row.get("standbys")?,
        })
    })
}

impl Fitness {
    /// Returns the reason why no state can be in this database, and what to do.
    pub(crate) fn fault(&self) -> Option<(String, &'static str)> {
        let Self { version, encoding, is_read_only, clock_ahead_ms, .. } = self;
        if *version < VERSION_MIN {
            return Some((
                format!("the server is PostgreSQL {}", shown(*version)),
                "PostgreSQL 14 or newer is needed",
            ));
        }
        if encoding != "UTF8" {
            return Some((format!("its encoding is {encoding}"), "create it with ENCODING 'UTF8'"));
        }
        if *is_read_only {
            return Some((
                "the server accepts no changes, as a standby does".to_owned(),
                "name the primary server, or both with target_session_attrs=read-write",
            ));
        }
        clock::is_wrong(*clock_ahead_ms).then(|| {
            (
                format!("its clock and this machine's differ by {} s", clock_ahead_ms / 1_000),
                "let both follow a time server",
            )
        })
    }

    /// Returns what works and should be otherwise, each with what to do.
    pub(crate) fn warnings(&self) -> Vec<(String, &'static str)> {
        let mut found = Vec::new();
        if self.clock_ahead_ms.unsigned_abs() > SKEW_WARNED_MS {
            let text =
                format!("the clock of PostgreSQL and this machine's differ by {} ms", self.clock_ahead_ms);
            found.push((text, "let both follow a time server"));
        }
        if matches!(self.synchronous_commit.as_str(), "off" | "local") {
            let text = format!("synchronous_commit is {}", self.synchronous_commit);
            found.push((text, "set it to on: a failure of the server may else undo what was acknowledged"));
        }
        found
    }

    /// Returns the version as people write it.
    pub(crate) fn version_text(&self) -> String {
        shown(self.version)
    }
}

fn shown(version: i64) -> String {
    format!("{}.{}", version / 10_000, version % 10_000)
}

/// PostgreSQL 14.
const VERSION_MIN: i64 = 140_000;
const SKEW_WARNED_MS: u64 = 1_000;

const CLOCK: &str = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";
const SETTINGS: &str = "SELECT CAST(current_setting('server_version_num') AS BIGINT) AS version, \
     current_setting('server_encoding') AS encoding, \
     CASE WHEN pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' \
         THEN CAST(1 AS BIGINT) ELSE 0 END AS read_only, \
     current_setting('synchronous_commit') AS commit_level, \
     current_setting('default_transaction_isolation') AS isolation, \
     (SELECT CASE WHEN ssl THEN CAST(1 AS BIGINT) ELSE 0 END FROM pg_stat_ssl WHERE pid = pg_backend_pid()) AS encrypted, \
     (SELECT count(*) FROM pg_stat_replication) AS standbys";

#[cfg(test)]
mod tests {
    use super::*;

    fn fit() -> Fitness {
        Fitness {
            version: 150_004,
            encoding: "UTF8".to_owned(),
            is_read_only: false,
            synchronous_commit: "on".to_owned(),
            isolation: "read committed".to_owned(),
            clock_ahead_ms: -900,
            is_encrypted: true,
            standbys: Some(1),
        }
    }

    #[test]
    fn each_unfit_database_has_its_own_reason() {
        assert_eq!(
            (fit().fault(), fit().warnings(), fit().version_text()),
            (None, Vec::new(), "15.4".into())
        );
        let unfit = [
            (Fitness { version: 130_012, ..fit() }, "the server is PostgreSQL 13.12"),
            (Fitness { encoding: "SQL_ASCII".to_owned(), ..fit() }, "its encoding is SQL_ASCII"),
            (Fitness { is_read_only: true, ..fit() }, "the server accepts no changes, as a standby does"),
            (Fitness { clock_ahead_ms: -31_000, ..fit() }, "its clock and this machine's differ by -31 s"),
        ];
        for (fitness, reason) in unfit {
            assert_eq!(fitness.fault().unwrap().0, reason);
        }
        let doubtful = Fitness { clock_ahead_ms: 1_200, synchronous_commit: "off".to_owned(), ..fit() };
        assert_eq!((doubtful.fault(), doubtful.warnings().len()), (None, 2));
    }
}
