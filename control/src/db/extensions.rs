//! The table `extensions`: services outside the process that provide models. Their secrets are sealed.

use rusqlite::{Connection, OptionalExtension as _, Row, named_params};

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
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
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
pub(crate) fn page(
    db: &Connection,
    text: Option<&str>,
    after: &str,
    rows: i64,
) -> rusqlite::Result<Vec<ExtensionRow>> {
    let values = named_params! {":q": text.map(str::to_ascii_lowercase), ":after": after, ":rows": rows};
    db.prepare_cached(PAGE)?.query_map(values, ExtensionRow::of)?.collect()
}

pub(crate) fn find(db: &Connection, name: &str) -> rusqlite::Result<Option<ExtensionRow>> {
    db.prepare_cached(FIND)?.query_row([name], ExtensionRow::of).optional()
}

pub(crate) fn count(db: &Connection) -> rusqlite::Result<u64> {
    db.prepare_cached(COUNT)?.query_row([], |row| row.get(0))
}

/// Inserts a new row, or replaces the one with the same name.
pub(crate) fn put(tx: &Connection, extension: &ExtensionRow) -> rusqlite::Result<()> {
    tx.prepare_cached(PUT)?.execute(named_params! {
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
    })?;
    Ok(())
}

pub(crate) fn delete(tx: &Connection, name: &str) -> rusqlite::Result<()> {
    tx.prepare_cached(DELETE)?.execute([name])?;
    Ok(())
}

const PAGE: &str = "SELECT * FROM extensions WHERE name > :after AND (:q IS NULL OR instr(lower(name), :q) \
     OR instr(lower(url), :q)) ORDER BY name LIMIT :rows";
const FIND: &str = "SELECT * FROM extensions WHERE name = ?";
const COUNT: &str = "SELECT count(*) FROM extensions";
const PUT: &str = "INSERT INTO extensions (name, url, secret, secret_at_ms, enabled, last_check, providers, version, \
     created_at_ms, updated_at_ms) VALUES (:name, :url, :secret, :secret_at, :enabled, :check, :providers, :version, \
     :created, :updated) ON CONFLICT (name) DO UPDATE SET url = excluded.url, secret = excluded.secret, \
     secret_at_ms = excluded.secret_at_ms, enabled = excluded.enabled, last_check = excluded.last_check, \
     providers = excluded.providers, version = excluded.version, updated_at_ms = excluded.updated_at_ms";
const DELETE: &str = "DELETE FROM extensions WHERE name = ?";
