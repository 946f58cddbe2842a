//! The table `extensions`: services outside the process that provide models. Their secrets are sealed.

use crate::db::engine::{Db, DbResult, Row, named_params};

/// A stored extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExtensionRow {
    pub(crate) name: String,
    pub(crate) url: String,
    /// The sealed shared secret.
    pub(crate) secret: Vec<u8>,
    pub(crate) secret_at_ms: u64,
    pub(crate) enabled: bool,
    /// The result of the last probe as JSON; `None` if none has ended since the address or the secret was set.
    pub(crate) last_check: Option<String>,
    /// The providers that the last successful probe found, as JSON.
    pub(crate) providers: String,
    pub(crate) version: u64,
    pub(crate) created_at_ms: u64,
    pub(crate) updated_at_ms: u64,
}

impl ExtensionRow {
    fn of(row: Row<'_>) -> DbResult<Self> {
        Ok(Self {
            name: row.get("name")?,
            url: row.get("url")?,
            secret: row.get("secret")?,
            secret_at_ms: row.get("secret_at_ms")?,
            enabled: row.get("enabled")?,
            last_check: row.get("last_check")?,
            providers: row.get("providers")?,
            version: row.get("version")?,
            created_at_ms: row.get("created_at_ms")?,
            updated_at_ms: row.get("updated_at_ms")?,
        })
    }
}

/// Returns up to `rows` extensions with names after `after`; only those whose name or address contains `text`, if given.
pub(crate) fn page(db: &Db, text: Option<&str>, after: &str, rows: i64) -> DbResult<Vec<ExtensionRow>> {
    let values = named_params! {":q": text.map(str::to_ascii_lowercase), ":after": after, ":rows": rows};
    db.rows(PAGE, values, ExtensionRow::of)
}

pub(crate) fn find(db: &Db, name: &str) -> DbResult<Option<ExtensionRow>> {
    db.optional_row(FIND, [name], ExtensionRow::of)
}

pub(crate) fn count(db: &Db) -> DbResult<u64> {
    db.row(COUNT, (), |row| row.get(0))
}

/// Inserts a new row, or replaces the one with the same name.
pub(crate) fn put(tx: &Db, extension: &ExtensionRow) -> DbResult<()> {
    tx.execute(
        PUT,
        named_params! {
            ":name": extension.name,
            ":url": extension.url,
            ":secret": extension.secret,
            ":secret_at": extension.secret_at_ms,
            ":enabled": extension.enabled,
            ":check": extension.last_check,
            ":providers": extension.providers,
            ":version": extension.version,
            ":created": extension.created_at_ms,
            ":updated": extension.updated_at_ms,
        },
    )?;
    Ok(())
}

pub(crate) fn delete(tx: &Db, name: &str) -> DbResult<()> {
    tx.execute(DELETE, [name])?;
    Ok(())
}

const PAGE: &str = "SELECT * FROM extensions WHERE name > :after AND (:q IS NULL OR instr(lower(name), :q) > 0 \
     OR instr(lower(url), :q) > 0) ORDER BY name LIMIT :rows";
const FIND: &str = "SELECT * FROM extensions WHERE name = :name";
const COUNT: &str = "SELECT count(*) FROM extensions";
const PUT: &str = "INSERT INTO extensions (name, url, secret, secret_at_ms, enabled, last_check, providers, version, \
     created_at_ms, updated_at_ms) VALUES (:name, :url, :secret, :secret_at, :enabled, :check, :providers, :version, \
     :created, :updated) ON CONFLICT (name) DO UPDATE SET url = excluded.url, secret = excluded.secret, \
     secret_at_ms = excluded.secret_at_ms, enabled = excluded.enabled, last_check = excluded.last_check, \
     providers = excluded.providers, version = excluded.version, updated_at_ms = excluded.updated_at_ms";
const DELETE: &str = "DELETE FROM extensions WHERE name = :name";
