//! The tables `providers` and `bindings`: provider instances created through the API, and the projects that may use a
//! private one. Secrets in these rows are sealed.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::db::engine::{Db, DbError, DbResult, Row, named_params};

/// A stored provider instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderRow {
    pub(crate) id: String,
    pub(crate) auth: String,
    pub(crate) owner: Option<String>,
    /// The settings as JSON, in the shape of the configuration file, with dots in place of secrets.
    pub(crate) settings: String,
    /// The sealed API key; if the settings list `api_keys`, JSON with all of them.
    pub(crate) credential: Option<Vec<u8>>,
    /// The part of the API key that may be shown.
    pub(crate) credential_hint: Option<String>,
    pub(crate) credential_at_ms: Option<u64>,
    /// The sealed headers, as a JSON map.
    pub(crate) headers: Option<Vec<u8>>,
    /// True if the gateway connected it because it needs no account.
    pub(crate) is_anonymous: bool,
    pub(crate) version: u64,
    pub(crate) created_at_ms: u64,
    pub(crate) updated_at_ms: u64,
}

/// A project that may use a private provider instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Binding {
    /// The ID of the project.
    pub(crate) project: String,
    /// In milliseconds since the Unix epoch.
    pub(crate) created_at_ms: u64,
}

/// The number and version of a row, which identify one state of it.
pub(crate) type Stamp = (i64, u64);

impl ProviderRow {
    fn of(row: Row<'_>) -> DbResult<Self> {
        Ok(Self {
            id: row.get("id")?,
            auth: row.get("auth")?,
            owner: row.get("owner")?,
            settings: row.get("settings")?,
            credential: row.get("credential")?,
            credential_hint: row.get("credential_hint")?,
            credential_at_ms: row.get("credential_at_ms")?,
            headers: row.get("headers")?,
            is_anonymous: row.get("is_anonymous")?,
            version: row.get("version")?,
            created_at_ms: row.get("created_at_ms")?,
            updated_at_ms: row.get("updated_at_ms")?,
        })
    }
}

/// Returns every id with the stamp of its row, ordered by id.
pub(crate) fn stamps(db: &Db) -> DbResult<Vec<(String, Stamp)>> {
    db.rows(STAMPS, (), |row| Ok((row.get("id")?, (row.get("number")?, row.get("version")?))))
}

pub(crate) fn find(db: &Db, id: &str) -> DbResult<Option<ProviderRow>> {
    db.optional_row(FIND, [id], ProviderRow::of)
}

/// Inserts a new row, or stores the next version of one.
pub(crate) fn put(tx: &Db, provider: &ProviderRow) -> DbResult<()> {
    tx.execute(
        PUT,
        named_params! {
            ":id": provider.id,
            ":auth": provider.auth,
            ":owner": provider.owner,
            ":settings": provider.settings,
            ":credential": provider.credential,
            ":hint": provider.credential_hint,
            ":credential_at": provider.credential_at_ms,
            ":headers": provider.headers,
            ":anonymous": provider.is_anonymous,
            ":version": provider.version,
            ":created": provider.created_at_ms,
            ":updated": provider.updated_at_ms,
        },
    )?;
    Ok(())
}

pub(crate) fn delete(tx: &Db, id: &str) -> DbResult<()> {
    tx.execute(DELETE, [id])?;
    Ok(())
}

/// Returns the ids of the provider instances that this human owns.
pub(crate) fn owned_by(db: &Db, principal: &str) -> DbResult<Vec<String>> {
    db.rows(OWNED, [principal], |row| row.get("id"))
}

/// Returns the ids of the provider instances that belong to this extension.
pub(crate) fn of_extension(db: &Db, extension: &str) -> DbResult<Vec<String>> {
    /// The setting that names the extension.
    #[derive(Deserialize)]
    struct OfExtension<'a> {
        #[serde(borrow)]
        extension: Option<Cow<'a, str>>,
    }
    let mut ids = Vec::new();
    let mut statement = db.prepare(WITH_TEXT)?;
    let mut rows = statement.query([extension])?;
    while let Some(row) = rows.next()? {
        let settings: OfExtension<'_> =
            serde_json::from_str(row.get("settings")?).map_err(DbError::bad_value)?;
        if settings.extension.as_deref() == Some(extension) {
            ids.push(row.get("id")?);
        }
    }
    Ok(ids)
}

/// Returns every binding, ordered by provider, then by project.
pub(crate) fn all_bindings(db: &Db) -> DbResult<Vec<(String, Binding)>> {
    db.rows(ALL_BINDINGS, (), |row| Ok((row.get("provider")?, binding(row)?)))
}

/// Returns the ids of the provider instances that are shared with a project.
pub(crate) fn bound_to(db: &Db, project: &str) -> DbResult<Vec<String>> {
    db.rows(BOUND_TO, [project], |row| row.get("provider"))
}

/// Returns the bindings of one provider instance, ordered by project.
pub(crate) fn bindings(db: &Db, provider: &str) -> DbResult<Vec<Binding>> {
    db.rows(BINDINGS, [provider], binding)
}

/// Allows a project to use a provider instance. An existing binding keeps its date.
pub(crate) fn bind(tx: &Db, provider: &str, project: &str, now_ms: u64) -> DbResult<()> {
    tx.execute(BIND, named_params! {":provider": provider, ":project": project, ":now": now_ms})?;
    Ok(())
}

/// Removes a binding. Returns false if it did not exist.
pub(crate) fn unbind(tx: &Db, provider: &str, project: &str) -> DbResult<bool> {
    Ok(tx.execute(UNBIND, [provider, project])? > 0)
}

pub(crate) fn unbind_all(tx: &Db, provider: &str) -> DbResult<()> {
    tx.execute(UNBIND_ALL, [provider])?;
    Ok(())
}

fn binding(row: Row<'_>) -> DbResult<Binding> {
    Ok(Binding { project: row.get("project")?, created_at_ms: row.get("created_at_ms")? })
}

const STAMPS: &str = "SELECT id, number, version FROM providers ORDER BY id";
const FIND: &str = "SELECT * FROM providers WHERE id = :id";
const PUT: &str = "INSERT INTO providers (id, auth, owner, settings, credential, credential_hint, \
     credential_at_ms, headers, is_anonymous, version, created_at_ms, updated_at_ms) VALUES (:id, :auth, :owner, \
     :settings, :credential, :hint, :credential_at, :headers, :anonymous, :version, :created, :updated) \
     ON CONFLICT (id) DO UPDATE SET auth = excluded.auth, owner = excluded.owner, \
     settings = excluded.settings, credential = excluded.credential, \
     credential_hint = excluded.credential_hint, credential_at_ms = excluded.credential_at_ms, \
     headers = excluded.headers, \
     is_anonymous = excluded.is_anonymous, version = excluded.version, updated_at_ms = excluded.updated_at_ms";
const DELETE: &str = "DELETE FROM providers WHERE id = :id";
const OWNED: &str = "SELECT id FROM providers WHERE owner = :owner ORDER BY id";
const WITH_TEXT: &str = "SELECT id, settings FROM providers WHERE instr(settings, :text) > 0 ORDER BY id";
const ALL_BINDINGS: &str = "SELECT * FROM bindings ORDER BY provider, project";
const BINDINGS: &str = "SELECT * FROM bindings WHERE provider = :provider ORDER BY project";
const BOUND_TO: &str = "SELECT provider FROM bindings WHERE project = :project ORDER BY provider";
const BIND: &str = "INSERT INTO bindings (provider, project, created_at_ms) VALUES (:provider, :project, :now) \
     ON CONFLICT (provider, project) DO NOTHING";
const UNBIND: &str = "DELETE FROM bindings WHERE provider = :provider AND project = :project";
const UNBIND_ALL: &str = "DELETE FROM bindings WHERE provider = :provider";
