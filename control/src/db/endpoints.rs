//! The table `endpoints`: ordered failover lists created through the API. The column `failover` has the list of an endpoint, or
//! an object with the list and those settings that are not the default.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use shared::usage::TargetOrder;

use crate::db::engine::{Db, DbError, DbResult, Row, named_params};

/// A stored endpoint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EndpointRow {
    pub(crate) name: String,
    pub(crate) content: EndpointContent,
    pub(crate) version: u64,
    pub(crate) created_at_ms: u64,
    pub(crate) updated_at_ms: u64,
}

/// The content of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct EndpointContent {
    /// Its targets in the order in which they are tried.
    pub(crate) failover: Vec<StoredMember>,
    /// The system text put before that of every request.
    #[serde(default)]
    pub(crate) preamble: Option<String>,
    /// Further names, and patterns that end in `*`.
    #[serde(default)]
    pub(crate) also: Vec<String>,
    /// The order of its targets within a tier; `listed` by default.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::TargetOrder"))]
    pub(crate) order: TargetOrder,
    /// True to keep a session at its target; null for the default, which is true unless `order` is `listed`.
    #[serde(default)]
    pub(crate) sticky: Option<bool>,
    /// True to accept chat requests in the form of the Responses API, as Cursor sends them.
    #[serde(default)]
    pub(crate) cursor_bodies: bool,
}

/// The column `failover`.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredTargets {
    List(Vec<StoredMember>),
    Settings(StoredSettings),
}

/// The list of an endpoint and its settings.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredSettings {
    failover: Vec<StoredMember>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    also: Vec<String>,
    #[serde(default)]
    order: TargetOrder,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sticky: Option<bool>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cursor_bodies: bool,
}

impl StoredTargets {
    fn of(content: &EndpointContent) -> Self {
        let EndpointContent { failover, preamble, also, order, sticky, cursor_bodies } = content.clone();
        let plain = EndpointContent { failover: failover.clone(), preamble, ..EndpointContent::default() };
        match plain == *content {
            true => Self::List(failover),
            false => Self::Settings(StoredSettings { failover, also, order, sticky, cursor_bodies }),
        }
    }

    fn content(self, preamble: Option<String>) -> EndpointContent {
        match self {
            Self::List(failover) => EndpointContent { failover, preamble, ..EndpointContent::default() },
            Self::Settings(StoredSettings { failover, also, order, sticky, cursor_bodies }) => {
                EndpointContent { failover, preamble, also, order, sticky, cursor_bodies }
            }
        }
    }
}

/// A provider instance and one of its models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Target"))]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredMember {
    pub(crate) provider: String,
    pub(crate) model: String,
    /// Its share of the requests, from 0 to 1000; 0 comes after all others of its tier. Absent for 1. Not with the order
    /// `listed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<u16>,
    /// Its tier, from 1 to 9: every target of a lower one comes before. Absent for 1. Not with the order `listed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tier: Option<u8>,
    /// The seconds in which a stream must have content, which take precedence over those of its provider. Absent for those of
    /// the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_content_timeout: Option<f64>,
}

impl StoredMember {
    /// Creates a member without a weight or tier of its own.
    pub(crate) fn new(provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            model: model.into(),
            weight: None,
            tier: None,
            first_content_timeout: None,
        }
    }

    /// Returns the time in which a stream must have content, if it sets one.
    pub(crate) fn content_limit(&self) -> Option<Duration> {
        self.first_content_timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    /// Returns true if both are the same target.
    pub(crate) fn is_same_target(&self, other: &Self) -> bool {
        (&self.provider, &self.model) == (&other.provider, &other.model)
    }
}

impl EndpointRow {
    fn of(row: Row<'_>) -> DbResult<Self> {
        let stored: String = row.get("failover")?;
        let stored: StoredTargets = serde_json::from_str(&stored).map_err(DbError::bad_value)?;
        Ok(Self {
            name: row.get("name")?,
            content: stored.content(row.get("preamble")?),
            version: row.get("version")?,
            created_at_ms: row.get("created_at_ms")?,
            updated_at_ms: row.get("updated_at_ms")?,
        })
    }
}

/// Returns every endpoint, ordered by name.
pub(crate) fn all(db: &Db) -> DbResult<Vec<EndpointRow>> {
    db.rows(ALL, (), EndpointRow::of)
}

pub(crate) fn find(db: &Db, name: &str) -> DbResult<Option<EndpointRow>> {
    db.optional_row(FIND, [name], EndpointRow::of)
}

/// Returns the name of the endpoint that has `also` as a further name or as a pattern, if there is one. No character of such a
/// name is escaped in JSON.
pub(crate) fn with_further_name(db: &Db, also: &str) -> DbResult<Option<String>> {
    let with_text: Vec<_> = db.rows(WITH_TEXT, [also], EndpointRow::of)?;
    let mut owners = with_text.into_iter().filter(|row| row.content.also.iter().any(|name| name == also));
    Ok(owners.next().map(|row| row.name))
}

/// Returns the names of the endpoints that have a member of this provider instance.
pub(crate) fn with_provider(db: &Db, provider: &str) -> DbResult<Vec<String>> {
    let mut with_text: Vec<_> = db.rows(WITH_TEXT, [provider], EndpointRow::of)?;
    with_text.retain(|row| row.content.failover.iter().any(|member| member.provider == provider));
    Ok(with_text.into_iter().map(|row| row.name).collect())
}

/// Inserts a new row, or stores the next version of one.
pub(crate) fn put(tx: &Db, endpoint: &EndpointRow) -> DbResult<()> {
    let failover =
        serde_json::to_string(&StoredTargets::of(&endpoint.content)).map_err(DbError::bad_value)?;
    tx.execute(
        PUT,
        named_params! {
            ":name": endpoint.name,
            ":failover": failover,
            ":preamble": endpoint.content.preamble,
            ":version": endpoint.version,
            ":created": endpoint.created_at_ms,
            ":updated": endpoint.updated_at_ms,
        },
    )?;
    Ok(())
}

pub(crate) fn delete(tx: &Db, name: &str) -> DbResult<()> {
    tx.execute(DELETE, [name])?;
    Ok(())
}

const ALL: &str = "SELECT * FROM endpoints ORDER BY name";
const FIND: &str = "SELECT * FROM endpoints WHERE name = :name";
const WITH_TEXT: &str = "SELECT * FROM endpoints WHERE instr(failover, :text) > 0 ORDER BY name";
const PUT: &str = "INSERT INTO endpoints (name, failover, preamble, version, created_at_ms, updated_at_ms) \
     VALUES (:name, :failover, :preamble, :version, :created, :updated) \
     ON CONFLICT (name) DO UPDATE SET failover = excluded.failover, preamble = excluded.preamble, \
     version = excluded.version, updated_at_ms = excluded.updated_at_ms";
const DELETE: &str = "DELETE FROM endpoints WHERE name = :name";
