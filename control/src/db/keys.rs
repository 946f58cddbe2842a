//! The table `keys`: project keys, which clients present to the data plane. It contains a key's hash, not the key, and
//! a sealed copy if the key may be revealed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use shared::access::Allowlist;
use shared::key_hash::KeyHash;
use shared::tags;

use super::HOUR_MS;
use super::{allowlist, key_use};
use crate::common::bounds::EXPIRING_KEYS;
use crate::common::vault::SealPlace;
use crate::db::engine::{Db, DbResult, FromValue, Mismatch, Row, Value, named_params};

/// A project key, as the API shows it. Contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Key"))]
pub(crate) struct StoredKey {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The ID of the project.
    pub(crate) project: String,
    /// The ID of the human that the key acts as; null for none.
    pub(crate) acts_as: Option<String>,
    /// The key's first characters, by which people recognize it.
    pub(crate) prefix: String,
    pub(crate) state: KeyState,
    /// In milliseconds since the Unix epoch; null if it does not expire.
    pub(crate) expires_at_ms: Option<u64>,
    #[serde(flatten)]
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::Allowlist"))]
    pub(crate) allowlist: Allowlist,
    /// The default tags of its requests, by name. A request's own tag overrides the one with its name.
    pub(crate) tags: BTreeMap<String, String>,
    /// True if a sealed copy is kept, from which it can be revealed.
    pub(crate) recoverable: bool,
    /// The start of the latest hour in which the key was used, in milliseconds since the Unix epoch; null if never.
    pub(crate) last_used_hour_ms: Option<u64>,
    /// The ID of the key that this one replaced; null if it replaced none.
    pub(crate) rotated_from: Option<String>,
    /// The id of the first key of its rotations. All keys of this family share its limits.
    pub(crate) family: String,
    /// Grows with each change; the `ETag` of the object.
    pub(crate) version: u64,
    /// In milliseconds since the Unix epoch.
    pub(crate) created_at_ms: u64,
    /// In milliseconds since the Unix epoch.
    pub(crate) updated_at_ms: u64,
}

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyState {
    Active,
    /// The expiry time of an active key has passed. Computed from the clock; the row contains `active`.
    Expired,
    Disabled,
    Revoked,
}

impl KeyState {
    /// Every state by name.
    pub(crate) const NAMES: [(&'static str, Self); 4] = [
        ("active", Self::Active),
        ("expired", Self::Expired),
        ("disabled", Self::Disabled),
        ("revoked", Self::Revoked),
    ];

    /// Returns the state at `now_ms` of a key that expires at `expires_at_ms`.
    pub(crate) fn at(self, now_ms: u64, expires_at_ms: Option<u64>) -> Self {
        match self {
            Self::Active | Self::Expired if expires_at_ms.is_some_and(|end| end <= now_ms) => Self::Expired,
            Self::Active | Self::Expired => Self::Active,
            Self::Disabled | Self::Revoked => self,
        }
    }

    fn stored(self) -> &'static str {
        match self {
            Self::Active | Self::Expired => "active",
            Self::Disabled => "disabled",
            Self::Revoked => "revoked",
        }
    }
}

impl FromValue<'_> for KeyState {
    fn from_value(value: Value<'_>) -> Result<Self, Mismatch> {
        let text = <&str>::from_value(value)?;
        let known = Self::NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, state)| *state).ok_or(Mismatch)
    }
}

impl StoredKey {
    fn of(row: Row<'_>, now_ms: u64) -> DbResult<Self> {
        let expires_at_ms = row.get("expires_at_ms")?;
        Ok(Self {
            id: row.get("id")?,
            name: row.get("name")?,
            project: row.get("project")?,
            acts_as: row.get("acts_as")?,
            prefix: row.get("prefix")?,
            state: row.get::<KeyState>("state")?.at(now_ms, expires_at_ms),
            expires_at_ms,
            allowlist: allowlist::of(row)?,
            tags: shown_tags(row.get::<Option<String>>("tags")?.as_deref()),
            recoverable: row.get("recoverable")?,
            last_used_hour_ms: row.get::<Option<u64>>("last_used_hour")?.map(|hour| hour * HOUR_MS),
            rotated_from: row.get("rotated_from")?,
            family: row.get("family")?,
            version: row.get("version")?,
            created_at_ms: row.get("created_at_ms")?,
            updated_at_ms: row.get("updated_at_ms")?,
        })
    }

    /// The seal place of the copy of the key `id`.
    pub(crate) fn place(id: &str) -> SealPlace<'_> {
        SealPlace { table: "keys", column: "sealed", id }
    }
}

/// A filter for lists of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyFilter {
    /// IDs of projects, one of which must be the key's.
    pub(crate) projects: Option<Vec<String>>,
    pub(crate) project: Option<String>,
    pub(crate) acts_as: Option<String>,
    pub(crate) state: Option<KeyState>,
    /// The exact prefix.
    pub(crate) prefix: Option<String>,
    /// A part of the name, prefix or id; case is ignored for ASCII letters of names and ids.
    pub(crate) text: Option<String>,
}

/// Calls `take` with up to `rows` keys with ids after `after`.
pub(crate) fn each(
    db: &Db,
    now_ms: u64,
    filter: &KeyFilter,
    (after, rows): (&str, i64),
    mut take: impl FnMut(StoredKey) -> DbResult<()>,
) -> DbResult<()> {
    let expired = filter.state.map(|state| state == KeyState::Expired);
    let values = named_params! {
        ":now": now_ms,
        ":projects": filter.projects.as_ref().map(|projects| serde_json::json!(projects).to_string()),
        ":project": filter.project,
        ":acts_as": filter.acts_as,
        ":state": filter.state.map(KeyState::stored),
        ":expired": expired,
        ":prefix": filter.prefix,
        ":q": filter.text.as_deref().map(str::to_ascii_lowercase),
        ":raw": filter.text,
        ":after": after,
        ":rows": rows,
    };
    let mut statement = db.prepare(PAGE)?;
    let mut found = statement.query(values)?;
    while let Some(row) = found.next()? {
        take(StoredKey::of(row, now_ms)?)?;
    }
    Ok(())
}

/// Returns the key `id`, with its state at `now_ms`.
pub(crate) fn find(db: &Db, id: &str, now_ms: u64) -> DbResult<Option<StoredKey>> {
    db.optional_row(FIND, [id], |row| StoredKey::of(row, now_ms))
}

/// Returns id, name and expiry of up to [`EXPIRING_KEYS`] active keys that expire after `now_ms`, up to `until_ms`. Leaves out
/// those of clients that signed in: they sign in again.
pub(crate) fn expiring(db: &Db, now_ms: u64, until_ms: u64) -> DbResult<Vec<(String, String, u64)>> {
    let (tag, value) = tags::SIGNED_IN;
    let values = named_params! {
        ":now": now_ms,
        ":until": until_ms,
        ":signed_in": format!("%{tag}={value}%"),
        ":rows": EXPIRING_KEYS.max() + 1,
    };
    let mut found =
        db.rows(EXPIRING, values, |row| Ok((row.get("id")?, row.get("name")?, row.get("expires_at_ms")?)))?;
    EXPIRING_KEYS.cut(&mut found);
    Ok(found)
}

/// Returns the sealed copy of a key, if one is kept.
pub(crate) fn sealed(db: &Db, id: &str) -> DbResult<Option<Vec<u8>>> {
    let row = db.optional_row(SEALED, [id], |row| row.get("sealed"))?;
    Ok(row.flatten())
}

/// Returns the key that replaced this one, unless it is revoked.
pub(crate) fn successor(db: &Db, id: &str) -> DbResult<Option<String>> {
    db.optional_row(SUCCESSOR, [id], |row| row.get("id"))
}

/// Returns the number of keys of a project that are not revoked; only those that act as `acts_as`, if given.
pub(crate) fn living(db: &Db, project: &str, acts_as: Option<&str>) -> DbResult<u64> {
    let values = named_params! {":project": project, ":acts_as": acts_as};
    db.row(LIVING, values, |row| row.get("keys"))
}

/// Returns the number of keys that act as this human and are not revoked.
pub(crate) fn living_as(db: &Db, principal: &str) -> DbResult<u64> {
    db.row(LIVING_AS, [principal], |row| row.get("keys"))
}

/// Inserts a new key.
pub(crate) fn insert(tx: &Db, key: &StoredKey, hash: KeyHash, sealed: Option<&[u8]>) -> DbResult<()> {
    let [models, endpoints, routes] = allowlist::columns(&key.allowlist)?;
    tx.execute(
        INSERT,
        named_params! {
            ":id": key.id,
            ":name": key.name,
            ":project": key.project,
            ":acts_as": key.acts_as,
            ":hash": hash.0,
            ":prefix": key.prefix,
            ":sealed": sealed,
            ":state": key.state.stored(),
            ":expires": key.expires_at_ms,
            ":models": models,
            ":endpoints": endpoints,
            ":routes": routes,
            ":tags": tags_text(&key.tags),
            ":rotated_from": key.rotated_from,
            ":family": key.family,
            ":version": key.version,
            ":created": key.created_at_ms,
            ":updated": key.updated_at_ms,
        },
    )?;
    Ok(())
}

/// Stores the next version of a key. Erases the sealed copy of a key that is no longer recoverable.
pub(crate) fn update(tx: &Db, key: &StoredKey) -> DbResult<()> {
    let [models, endpoints, routes] = allowlist::columns(&key.allowlist)?;
    tx.execute(
        UPDATE,
        named_params! {
            ":id": key.id,
            ":name": key.name,
            ":acts_as": key.acts_as,
            ":recoverable": key.recoverable,
            ":state": key.state.stored(),
            ":expires": key.expires_at_ms,
            ":models": models,
            ":endpoints": endpoints,
            ":routes": routes,
            ":tags": tags_text(&key.tags),
            ":version": key.version,
            ":updated": key.updated_at_ms,
        },
    )?;
    Ok(())
}

/// Deletes a key. Its usage still counts for its family. Returns true if it was the last key of the family.
pub(crate) fn delete(tx: &Db, key: &StoredKey) -> DbResult<bool> {
    tx.execute(DELETE, [&key.id])?;
    key_use::forget(tx, &key.id)?;
    if tx.exists(HAS_KEYS, [&key.family])? {
        tx.execute(REMEMBER, [&key.id, &key.family])?;
        return Ok(false);
    }
    tx.execute(FORGET_FAMILY, [&key.family])?;
    Ok(true)
}

/// Deletes the keys of a project. Returns their ids and families.
pub(crate) fn delete_of(tx: &Db, project: &str) -> DbResult<(Vec<String>, BTreeSet<String>)> {
    let (mut ids, mut families) = (Vec::<String>::new(), BTreeSet::new());
    let mut statement = tx.prepare(DELETE_OF)?;
    let mut deleted = statement.query([project])?;
    while let Some(row) = deleted.next()? {
        ids.push(row.get("id")?);
        families.insert(row.get("family")?);
    }
    ids.iter().try_for_each(|id| key_use::forget(tx, id))?;
    for family in &families {
        tx.execute(FORGET_FAMILY, [family])?;
    }
    Ok((ids, families))
}

/// Returns the family of a key. Also finds a deleted key while its family has other keys.
pub(crate) fn family(db: &Db, id: &str) -> DbResult<Option<String>> {
    db.optional_row(FAMILY, [id], |row| row.get("family"))
}

/// Returns the existing keys of a family.
pub(crate) fn in_family(db: &Db, family: &str) -> DbResult<Vec<String>> {
    db.rows(IN_FAMILY, [family], |row| row.get("id"))
}

/// Returns every key of a family, including deleted ones while the family has other keys.
pub(crate) fn of_family(db: &Db, family: &str) -> DbResult<Vec<String>> {
    db.rows(OF_FAMILY, [family], |row| row.get("id"))
}

/// The parts of a key that the snapshot needs to authenticate with it.
#[derive(Debug)]
pub(crate) struct OpeningKey {
    pub(crate) id: String,
    pub(crate) hash: KeyHash,
    pub(crate) project: String,
    pub(crate) acts_as: Option<String>,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) allowlist: Allowlist,
    /// The text of the default tags.
    pub(crate) tags: Option<Box<str>>,
    /// True if the key is active and does not act as a disabled human. Its project may be disabled.
    pub(crate) is_open: bool,
}

/// Calls `take` with every open key.
pub(crate) fn each_open(db: &Db, now_ms: u64, mut take: impl FnMut(OpeningKey)) -> DbResult<()> {
    let mut statement = db.prepare(OPEN)?;
    let mut reader = OpeningReader::default();
    let mut rows = statement.query(named_params! {":now": now_ms})?;
    while let Some(row) = rows.next()? {
        take(reader.read(row)?);
    }
    Ok(())
}

/// Returns a key, open or not.
pub(crate) fn opening(db: &Db, id: &str, now_ms: u64) -> DbResult<Option<OpeningKey>> {
    let values = named_params! {":id": id, ":now": now_ms};
    db.optional_row(OPENING, values, |row| OpeningReader::default().read(row))
}

/// Returns up to `rows` keys of a project, open or not.
pub(crate) fn openings_of_project(
    db: &Db,
    project: &str,
    now_ms: u64,
    rows: usize,
) -> DbResult<Vec<OpeningKey>> {
    openings(db, OPENINGS_OF_PROJECT, project, (now_ms, rows))
}

/// Returns up to `rows` keys that act as a human, open or not.
pub(crate) fn openings_of_human(
    db: &Db,
    principal: &str,
    now_ms: u64,
    rows: usize,
) -> DbResult<Vec<OpeningKey>> {
    openings(db, OPENINGS_OF_HUMAN, principal, (now_ms, rows))
}

fn openings(db: &Db, sql: &str, owner: &str, (now_ms, rows): (u64, usize)) -> DbResult<Vec<OpeningKey>> {
    let values = named_params! {":owner": owner, ":now": now_ms, ":rows": rows};
    let mut reader = OpeningReader::default();
    db.rows(sql, values, |row| reader.read(row))
}

/// Reads an [`OpeningKey`] from each row of one statement. The first row shows the positions of the columns.
#[derive(Default)]
struct OpeningReader(Option<OpeningColumns>);

impl OpeningReader {
    fn read(&mut self, row: Row<'_>) -> DbResult<OpeningKey> {
        let columns = match &self.0 {
            Some(columns) => columns,
            None => self.0.insert(OpeningColumns::of(row)?),
        };
        columns.read(row)
    }
}

/// The column positions of an [`OpeningKey`]. Looking them up by name for each row would take most of the time.
struct OpeningColumns {
    id: usize,
    hash: usize,
    project: usize,
    acts_as: usize,
    expires_at_ms: usize,
    lists: [usize; 3],
    tags: usize,
    is_open: usize,
}

impl OpeningColumns {
    fn of(row: Row<'_>) -> DbResult<Self> {
        let place = |column: &str| row.position(column);
        Ok(Self {
            id: place("id")?,
            hash: place("hash")?,
            project: place("project")?,
            acts_as: place("acts_as")?,
            expires_at_ms: place("expires_at_ms")?,
            lists: allowlist::places(place)?,
            tags: place("tags")?,
            is_open: place("is_open")?,
        })
    }

    fn read(&self, row: Row<'_>) -> DbResult<OpeningKey> {
        Ok(OpeningKey {
            id: row.get(self.id)?,
            hash: KeyHash(row.get(self.hash)?),
            project: row.get(self.project)?,
            acts_as: row.get(self.acts_as)?,
            expires_at_ms: row.get(self.expires_at_ms)?,
            allowlist: allowlist::at(row, &self.lists)?,
            tags: row.get(self.tags)?,
            is_open: row.get(self.is_open)?,
        })
    }
}

/// Returns the tags of a stored text.
fn shown_tags(text: Option<&str>) -> BTreeMap<String, String> {
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    tags::pairs(text.unwrap_or_default()).map(owned).collect()
}

/// Returns the text of tags, as it is stored.
fn tags_text(tags: &BTreeMap<String, String>) -> Option<Box<str>> {
    tags::text(tags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect())
}

const EXPIRING: &str = "SELECT id, name, expires_at_ms FROM keys WHERE state = 'active' AND expires_at_ms > :now \
     AND expires_at_ms <= :until AND (tags IS NULL OR tags NOT LIKE :signed_in) ORDER BY expires_at_ms LIMIT :rows";
const PAGE: &str = "SELECT id, name, project, acts_as, prefix, state, expires_at_ms, models, endpoints, routes, tags, \
     sealed IS NOT NULL AS recoverable, (SELECT max(hour) FROM key_use WHERE key = keys.id) AS last_used_hour, rotated_from, family, version, created_at_ms, \
     updated_at_ms FROM keys WHERE id > :after \
     AND (:projects IS NULL OR project IN (SELECT value FROM json_each(:projects))) \
     AND (:project IS NULL OR project = :project) AND (:acts_as IS NULL OR acts_as = :acts_as) \
     AND (:state IS NULL OR state = :state AND \
     (state <> 'active' OR :expired = CASE WHEN expires_at_ms <= :now THEN 1 ELSE 0 END)) \
     AND (:prefix IS NULL OR prefix = :prefix) \
     AND (:q IS NULL OR instr(lower(name), :q) > 0 OR instr(lower(id), :q) > 0 OR instr(prefix, :raw) > 0) \
     ORDER BY id LIMIT :rows";
const FIND: &str = "SELECT *, sealed IS NOT NULL AS recoverable, \
     (SELECT max(hour) FROM key_use WHERE key = keys.id) AS last_used_hour FROM keys WHERE id = :id";
const SEALED: &str = "SELECT sealed FROM keys WHERE id = :id";
const SUCCESSOR: &str = "SELECT id FROM keys WHERE rotated_from = :rotated_from AND state <> 'revoked'";
const LIVING: &str = "SELECT count(*) AS keys FROM keys \
     WHERE project = :project AND state <> 'revoked' AND (:acts_as IS NULL OR acts_as = :acts_as)";
const LIVING_AS: &str = "SELECT count(*) AS keys FROM keys WHERE acts_as = :acts_as AND state <> 'revoked'";
const INSERT: &str = "INSERT INTO keys (id, name, project, acts_as, hash, prefix, sealed, state, expires_at_ms, \
     models, endpoints, routes, tags, rotated_from, family, version, created_at_ms, updated_at_ms) VALUES \
     (:id, :name, :project, :acts_as, :hash, :prefix, :sealed, :state, :expires, \
     :models, :endpoints, :routes, :tags, :rotated_from, :family, :version, :created, :updated)";
const UPDATE: &str = "UPDATE keys SET name = :name, acts_as = :acts_as, \
     sealed = CASE WHEN :recoverable = 1 THEN sealed END, state = :state, expires_at_ms = :expires, \
     models = :models, endpoints = :endpoints, routes = :routes, tags = :tags, version = :version, \
     updated_at_ms = :updated \
     WHERE id = :id";
const DELETE: &str = "DELETE FROM keys WHERE id = :id";
const DELETE_OF: &str = "DELETE FROM keys WHERE project = :project RETURNING id, family";
const HAS_KEYS: &str = "SELECT 1 FROM keys WHERE family = :family";
const REMEMBER: &str = "INSERT INTO former_keys (id, family) VALUES (:id, :family)";
const FORGET_FAMILY: &str = "DELETE FROM former_keys WHERE family = :family";
const FAMILY: &str = "SELECT family FROM keys WHERE id = :id \
     UNION ALL SELECT family FROM former_keys WHERE id = :id";
const IN_FAMILY: &str = "SELECT id FROM keys WHERE family = :family";
const OF_FAMILY: &str = "SELECT id FROM keys WHERE family = :family \
     UNION ALL SELECT id FROM former_keys WHERE family = :family";
const OPEN: &str = "SELECT keys.id, hash, project, acts_as, expires_at_ms, models, endpoints, routes, tags, 1 AS is_open \
     FROM keys LEFT JOIN principals ON principals.id = acts_as \
     WHERE state = 'active' AND (expires_at_ms IS NULL OR expires_at_ms > :now) \
     AND coalesce(principals.disabled, 0) = 0";
const OPENING: &str = "SELECT keys.id, hash, project, acts_as, expires_at_ms, models, endpoints, routes, tags, \
     state = 'active' AND (expires_at_ms IS NULL OR expires_at_ms > :now) \
     AND coalesce(principals.disabled, 0) = 0 AS is_open \
     FROM keys LEFT JOIN principals ON principals.id = acts_as WHERE keys.id = :id";
const OPENINGS_OF_PROJECT: &str = "SELECT keys.id, hash, project, acts_as, expires_at_ms, models, endpoints, routes, tags, \
     state = 'active' AND (expires_at_ms IS NULL OR expires_at_ms > :now) \
     AND coalesce(principals.disabled, 0) = 0 AS is_open \
     FROM keys LEFT JOIN principals ON principals.id = acts_as WHERE project = :owner ORDER BY keys.id LIMIT :rows";
const OPENINGS_OF_HUMAN: &str = "SELECT keys.id, hash, project, acts_as, expires_at_ms, models, endpoints, routes, tags, \
     state = 'active' AND (expires_at_ms IS NULL OR expires_at_ms > :now) \
     AND coalesce(principals.disabled, 0) = 0 AS is_open \
     FROM keys LEFT JOIN principals ON principals.id = acts_as WHERE acts_as = :owner ORDER BY keys.id LIMIT :rows";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::bounds::tests::passes;
    use crate::db::testing::in_memory;

    #[test]
    fn expiring_keys_beyond_the_maximum_are_left_out_and_counted() {
        let db = in_memory();
        db.execute(
            "INSERT INTO projects (id, name, disabled, version, created_at_ms, updated_at_ms) \
             VALUES ('blue', 'blue', 0, 1, 1, 1)",
            (),
        )
        .unwrap();
        db.execute(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :count) INSERT INTO keys (id, \
             name, project, hash, prefix, state, expires_at_ms, family, version, created_at_ms, updated_at_ms) \
             SELECT printf('k%06d', i), 'k', 'blue', CAST(printf('%032d', i) AS BLOB), '', 'active', 1000 + i, \
             'k' || i, 1, 1, 1 FROM n",
            [EXPIRING_KEYS.max()],
        )
        .unwrap();
        let found = passes(&EXPIRING_KEYS, || expiring(&db, 999, 9_999).unwrap());
        assert_eq!(
            (found.len(), found[0].0.as_str()),
            (EXPIRING_KEYS.max(), "k000000"),
            "the first to expire"
        );
        let fewer = expiring(&db, 1_000, 9_999).unwrap();
        assert_eq!((fewer.len(), fewer[0].0.as_str()), (EXPIRING_KEYS.max(), "k000001"));
    }
}
