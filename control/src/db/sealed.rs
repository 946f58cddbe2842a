//! All columns that contain sealed values, and a check that opens every value.

use crate::common::vault::{SealPlace, VaultKeys};
use crate::db::engine::{Db, DbResult};

/// A column of sealed values; NULL means that the row has no sealed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealedColumn {
    pub(crate) table: &'static str,
    pub(crate) column: &'static str,
    /// The column that identifies the row in the seal place.
    pub(crate) id: &'static str,
    /// A query for every id and value.
    select: &'static str,
}

/// All sealed columns. Excludes the data key, which is sealed by the key from the environment.
pub(crate) const SEALED: &[SealedColumn] = &[
    SealedColumn {
        table: "vault",
        column: "sealed",
        id: "name",
        select: "SELECT name AS id, sealed AS value FROM vault WHERE name NOT IN ('data_key', 'data_key_next')",
    },
    SealedColumn {
        table: "idempotency",
        column: "body",
        id: "key",
        select: "SELECT key AS id, body AS value FROM idempotency",
    },
    SealedColumn {
        table: "keys",
        column: "sealed",
        id: "id",
        select: "SELECT id, sealed AS value FROM keys WHERE sealed IS NOT NULL",
    },
    SealedColumn {
        table: "providers",
        column: "credential",
        id: "id",
        select: "SELECT id, credential AS value FROM providers WHERE credential IS NOT NULL",
    },
    SealedColumn {
        table: "providers",
        column: "headers",
        id: "id",
        select: "SELECT id, headers AS value FROM providers WHERE headers IS NOT NULL",
    },
    SealedColumn {
        table: "credentials",
        column: "sealed",
        id: "provider",
        select: "SELECT provider AS id, sealed AS value FROM credentials",
    },
    SealedColumn {
        table: "extensions",
        column: "secret",
        id: "name",
        select: "SELECT name AS id, secret AS value FROM extensions",
    },
    SealedColumn {
        table: "oauth_connections",
        column: "tokens",
        id: "provider",
        select: "SELECT provider AS id, tokens AS value FROM oauth_connections WHERE tokens IS NOT NULL",
    },
    SealedColumn {
        table: "sign_in_flows",
        column: "flow",
        id: "id",
        select: "SELECT id, flow AS value FROM sign_in_flows WHERE flow IS NOT NULL",
    },
    SealedColumn {
        table: "webhooks",
        column: "url",
        id: "id",
        select: "SELECT id, url AS value FROM webhooks",
    },
    SealedColumn {
        table: "webhooks",
        column: "secret",
        id: "id",
        select: "SELECT id, secret AS value FROM webhooks",
    },
    SealedColumn {
        table: "webhooks",
        column: "secret_before",
        id: "id",
        select: "SELECT id, secret_before AS value FROM webhooks WHERE secret_before IS NOT NULL",
    },
];

/// A sealed value that does not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unopened {
    /// The table.
    pub table: &'static str,
    /// The column.
    pub column: &'static str,
    /// The id of the row.
    pub id: String,
}

/// The result of opening all sealed values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The number of values that open.
    pub opened: u64,
    /// The first values that do not open.
    pub unopened: Vec<Unopened>,
    /// The number of values that do not open.
    pub unopened_count: u64,
}

/// Opens every sealed value of every existing table, one at a time.
pub(crate) fn survey(db: &Db, keys: &VaultKeys) -> DbResult<Survey> {
    let mut survey = Survey::default();
    for sealed in SEALED {
        if !db.has_table(sealed.table)? {
            continue;
        }
        let mut statement = db.prepare(sealed.select)?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let id: String = row.get("id")?;
            let place = SealPlace { table: sealed.table, column: sealed.column, id: &id };
            let value = row.get::<&[u8]>("value").unwrap_or_default();
            if keys.open(&place, value).is_ok() {
                survey.opened += 1;
                continue;
            }
            survey.unopened_count += 1;
            if survey.unopened.len() < UNOPENED_MAX {
                survey.unopened.push(Unopened { table: sealed.table, column: sealed.column, id });
            }
        }
    }
    Ok(survey)
}

/// Limit on the listed values; the others are only counted.
const UNOPENED_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use shared::secret::Secret;
    use tempfile::TempDir;

    use super::*;
    use crate::db::sqlite_state::open::open;
    use crate::db::testing::in_memory;

    /// Blob columns that are not sealed, because they contain no secrets.
    const OTHERS: &[(&str, &str)] = &[
        ("audit", "mac"),
        ("board", "body"),
        ("device_sign_ins", "code_hash"),
        ("documents", "content"),
        ("documents", "digest"),
        ("idempotency", "fingerprint"),
        ("keys", "hash"),
        ("response_origins", "hash"),
        ("usage", "requests"),
        ("usage", "names"),
        ("usage", "rows"),
        ("usage_period", "figures"),
        ("usage_requests", "entries"),
    ];

    #[test]
    fn every_sealed_blob_column_of_the_schema_is_listed() {
        let db = in_memory();
        let sql = "SELECT t.name, c.name FROM pragma_table_list t, pragma_table_info(t.name) c \
                   WHERE t.schema = 'main' AND c.type = 'BLOB' AND t.name NOT LIKE 'sqlite_%'";
        let mut statement = db.prepare(sql).unwrap();
        let blobs: Vec<(String, String)> = statement.rows((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        for (table, column) in &blobs {
            let pair = (table.as_str(), column.as_str());
            let sealed = SEALED.iter().any(|sealed| (sealed.table, sealed.column) == pair);
            assert!(sealed != OTHERS.contains(&pair), "{pair:?} is either sealed or in the list of others");
        }
        let known = |sealed: &SealedColumn| {
            blobs
                .iter()
                .any(|(table, column)| (table.as_str(), column.as_str()) == (sealed.table, sealed.column))
        };
        assert!(SEALED.iter().all(known));
        for sealed in SEALED {
            db.prepare(sealed.select).unwrap();
            db.prepare(&format!("SELECT {} FROM {}", sealed.id, sealed.table)).unwrap();
        }
    }

    #[test]
    fn a_survey_names_values_that_do_not_open() {
        let dir = TempDir::new().unwrap();
        let state = open(dir.path(), &Secret::new([1; 32])).unwrap();
        let put = |key: &str, at: &str| {
            let place = SealPlace { table: "idempotency", column: "body", id: at };
            let body = state.keys.seal(&place, b"{}").unwrap();
            let sql = "INSERT INTO idempotency VALUES ('admin', :key, x'00', 200, NULL, :body, 0)";
            state.writer.execute(sql, (key, body)).unwrap();
        };
        put("one", "one");
        let before = survey(&state.writer, &state.keys).unwrap();
        assert!(before.unopened.is_empty() && before.opened >= 3, "{before:?}");
        put("moved", "two");
        let after = survey(&state.writer, &state.keys).unwrap();
        assert_eq!(after.opened, before.opened);
        let unopened = Unopened { table: "idempotency", column: "body", id: "moved".into() };
        assert_eq!(after.unopened, [unopened]);
    }
}
