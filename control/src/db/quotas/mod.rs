//! The tables `quotas`, `quota_window` and `quota_share`: limits, and the amounts used of them in each calendar window.

mod rules;
pub(crate) mod shares;
mod spent;
mod used;

use serde::{Deserialize, Serialize};
use shared::id::{EndpointName, ModelId, ProviderId};
use shared::quota::{Metric, Period, Scope, Subject};

pub(crate) use self::rules::Rules;
pub(crate) use self::used::{KEPT_MS, add_used, correct_used, recent, used, used_by_node, used_since};
use super::human_scope::HumanScope;
use super::keys;
use crate::db::engine::{Db, DbResult, FromValue, Mismatch, Row, Value, named_params};

/// A limit, as stored and as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "StoredQuota"))]
pub(crate) struct QuotaRow {
    pub(crate) id: String,
    #[serde(flatten)]
    pub(crate) counted: Counted,
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::Metric"))]
    pub(crate) metric: Metric,
    /// Null for concurrent requests only.
    #[serde(rename = "window")]
    #[cfg_attr(test, schemars(with = "Option<crate::common::shared_shapes::Period>"))]
    pub(crate) period: Option<Period>,
    /// The limit in the unit of the metric; money in micro-dollars.
    pub(crate) limit: u64,
    pub(crate) enforcement: Enforcement,
    /// The longest time that a request waits until it fits, in milliseconds; 0 if it is rejected at once.
    pub(crate) wait_ms: u64,
    /// Grows with each change; the `ETag` of the object.
    pub(crate) version: u64,
    /// In milliseconds since the Unix epoch.
    pub(crate) created_at_ms: u64,
    /// In milliseconds since the Unix epoch.
    pub(crate) updated_at_ms: u64,
}

/// The requests that a limit counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "CountedRequests"))]
pub(crate) struct Counted {
    pub(crate) subject: Of,
    /// `provider/model`, if only requests to one model count, else null.
    pub(crate) model: Option<String>,
    /// The endpoint, if only requests that name it count, else null.
    pub(crate) endpoint: Option<String>,
}

/// The subject of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "QuotaSubject"))]
#[serde(deny_unknown_fields)]
pub(crate) struct Of {
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::SubjectKind"))]
    pub(crate) kind: Subject,
    /// The ID; for a key, that of the first key of its rotations, which represents all of them. Absent for the gateway.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) id: String,
}

/// A limit that a key gets when it is created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyLimit {
    /// `provider/model`, if only requests to one model count.
    #[serde(default)]
    pub(crate) model: Option<String>,
    /// The endpoint, if only requests that name it count.
    #[serde(default)]
    pub(crate) endpoint: Option<String>,
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::Metric"))]
    pub(crate) metric: Metric,
    /// Null for concurrent requests only.
    #[serde(default, rename = "window")]
    #[cfg_attr(test, schemars(with = "Option<crate::common::shared_shapes::Period>"))]
    pub(crate) period: Option<Period>,
    /// In the unit of the metric; money in millionths of a dollar.
    pub(crate) limit: u64,
    #[serde(default)]
    pub(crate) enforcement: Enforcement,
    /// How long a request may wait for the limit instead of getting 429, in milliseconds; 0 for not at all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) wait_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(ms: &u64) -> bool {
    *ms == 0
}

impl KeyLimit {
    /// True if both count the same requests by the same metric in the same window.
    pub(crate) fn counts_as(&self, other: &Self) -> bool {
        let counted =
            |limit: &Self| (limit.model.clone(), limit.endpoint.clone(), limit.metric, limit.period);
        counted(self) == counted(other)
    }
}

/// The treatment of a request that exceeds a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Enforcement {
    /// The request is rejected.
    #[default]
    Hard,
    /// The request is only counted.
    Warn,
}

impl QuotaRow {
    fn of(row: Row<'_>) -> DbResult<Self> {
        let hard: bool = row.get("hard")?;
        Ok(Self {
            id: row.get("id")?,
            counted: Counted {
                subject: Of { kind: row.get::<StoredName<Subject>>("kind")?.0, id: row.get("subject")? },
                model: row.get("model")?,
                endpoint: row.get("endpoint")?,
            },
            metric: row.get::<StoredName<Metric>>("metric")?.0,
            period: row.get::<Option<StoredName<Period>>>("period")?.map(|named| named.0),
            limit: row.get("amount")?,
            enforcement: if hard { Enforcement::Hard } else { Enforcement::Warn },
            wait_ms: row.get("wait_ms")?,
            version: row.get("version")?,
            created_at_ms: row.get("created_at_ms")?,
            updated_at_ms: row.get("updated_at_ms")?,
        })
    }

    pub(crate) fn is_hard(&self) -> bool {
        self.enforcement == Enforcement::Hard
    }
}

/// A value that is stored under its API name.
struct StoredName<T>(T);

impl FromValue<'_> for StoredName<Subject> {
    fn from_value(value: Value<'_>) -> Result<Self, Mismatch> {
        by_name(value, &Subject::ALL, Subject::name)
    }
}

impl FromValue<'_> for StoredName<Metric> {
    fn from_value(value: Value<'_>) -> Result<Self, Mismatch> {
        by_name(value, &Metric::ALL, Metric::name)
    }
}

impl FromValue<'_> for StoredName<Period> {
    fn from_value(value: Value<'_>) -> Result<Self, Mismatch> {
        by_name(value, &Period::ALL, Period::name)
    }
}

fn by_name<T: Copy>(
    value: Value<'_>,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<StoredName<T>, Mismatch> {
    let text = <&str>::from_value(value)?;
    let known = all.iter().copied().find(|value| name(*value) == text);
    known.map(StoredName).ok_or(Mismatch)
}

/// A filter for lists of limits: all, those of a kind of subject, or those of some subjects of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct QuotaFilter {
    pub(crate) kind: Option<Subject>,
    pub(crate) ids: Option<Vec<String>>,
    /// The human to whose own limits, and those of whose projects, keys and connections, the list is restricted.
    pub(crate) scope: Option<HumanScope>,
}

/// Calls `take` with up to `rows` limits with ids after `after`.
pub(crate) fn each(
    db: &Db,
    filter: &QuotaFilter,
    (after, rows): (&str, i64),
    mut take: impl FnMut(QuotaRow) -> DbResult<()>,
) -> DbResult<()> {
    let subject = |id: &String| match filter.kind {
        // The limits of a key are those of its family.
        Some(Subject::Key) => Ok(keys::family(db, id)?.unwrap_or_else(|| id.clone())),
        _ => Ok(id.clone()),
    };
    let subjects = filter.ids.as_ref().map(|ids| ids.iter().map(subject).collect::<DbResult<Vec<_>>>());
    let values = named_params! {
        ":kind": filter.kind.map(Subject::name),
        ":subjects": subjects.transpose()?.map(|subjects| serde_json::json!(subjects).to_string()),
        ":after": after,
        ":rows": rows,
        ":human": filter.scope.as_ref().map(|scope| &scope.human),
        ":projects": filter.scope.as_ref().map(|scope| &scope.projects),
    };
    let mut statement = db.prepare(PAGE)?;
    let mut found = statement.query(values)?;
    while let Some(row) = found.next()? {
        take(QuotaRow::of(row)?)?;
    }
    Ok(())
}

/// Returns every limit of a subject.
pub(crate) fn of_subject(db: &Db, subject: &Of) -> DbResult<Vec<QuotaRow>> {
    db.rows(OF_SUBJECT, [subject.kind.name(), &subject.id], QuotaRow::of)
}

pub(crate) fn find(db: &Db, id: &str) -> DbResult<Option<QuotaRow>> {
    db.optional_row(FIND, [id], QuotaRow::of)
}

/// Returns another limit that counts the same requests of the same subject by the same metric, period and enforcement,
/// if there is one.
pub(crate) fn twin(db: &Db, row: &QuotaRow) -> DbResult<Option<String>> {
    let values = named_params! {
        ":kind": row.counted.subject.kind.name(),
        ":subject": row.counted.subject.id,
        ":model": row.counted.model,
        ":endpoint": row.counted.endpoint,
        ":metric": row.metric.name(),
        ":period": row.period.map(Period::name),
        ":hard": row.is_hard(),
        ":id": row.id,
    };
    db.optional_row(TWIN, values, |row| row.get("id"))
}

/// Inserts a new limit, or stores the next version of one.
pub(crate) fn put(tx: &Db, row: &QuotaRow) -> DbResult<()> {
    tx.execute(
        PUT,
        named_params! {
            ":id": row.id,
            ":kind": row.counted.subject.kind.name(),
            ":subject": row.counted.subject.id,
            ":model": row.counted.model,
            ":endpoint": row.counted.endpoint,
            ":metric": row.metric.name(),
            ":period": row.period.map(Period::name),
            ":amount": row.limit,
            ":hard": row.is_hard(),
            ":wait": row.wait_ms,
            ":version": row.version,
            ":created": row.created_at_ms,
            ":updated": row.updated_at_ms,
        },
    )?;
    Ok(())
}

pub(crate) fn delete(tx: &Db, id: &str) -> DbResult<()> {
    tx.execute(DELETE, [id])?;
    Ok(())
}

impl Counted {
    /// True if the model, provider and endpoint of a request match. Does not check the subject.
    fn covers(&self, provider: &str, model: &str, endpoint: &str) -> bool {
        let is_model = |wanted: &String| wanted.split_once('/') == Some((provider, model));
        self.model.as_ref().is_none_or(is_model)
            && self.endpoint.as_ref().is_none_or(|wanted| wanted == endpoint)
    }

    /// Returns the same scope in the data plane's type.
    pub(crate) fn scope(&self) -> Scope {
        let model = self.model.as_ref().and_then(|model| model.split_once('/'));
        let provider = match self.subject.kind {
            Subject::Provider => Some(self.subject.id.as_str()),
            Subject::Key | Subject::Project | Subject::Principal | Subject::Gateway => {
                model.map(|(provider, _)| provider)
            }
        };
        Scope {
            endpoint: self.endpoint.as_deref().map(EndpointName::new),
            provider: provider.map(ProviderId::new),
            model: model.map(|(_, model)| ModelId::new(model)),
        }
    }
}

const PAGE: &str = "SELECT * FROM quotas WHERE id > :after AND (:kind IS NULL OR kind = :kind) \
     AND (:subjects IS NULL OR subject IN (SELECT value FROM json_each(:subjects))) \
     AND (:human IS NULL OR (kind = 'principal' AND subject = :human) \
     OR (kind = 'project' AND subject IN (SELECT value FROM json_each(:projects))) \
     OR (kind = 'key' AND subject IN (SELECT family FROM keys WHERE project IN (SELECT value FROM json_each(:projects)))) \
     OR (kind = 'provider' AND subject IN (SELECT id FROM providers WHERE owner = :human))) \
     ORDER BY id LIMIT :rows";
const FIND: &str = "SELECT * FROM quotas WHERE id = :id";
const ALL: &str = "SELECT * FROM quotas ORDER BY id";
const OF_SUBJECT: &str = "SELECT * FROM quotas WHERE kind = :kind AND subject = :subject ORDER BY id";
const TWIN: &str = "SELECT id FROM quotas WHERE kind = :kind AND subject = :subject AND model IS NOT DISTINCT FROM :model \
     AND endpoint IS NOT DISTINCT FROM :endpoint AND metric = :metric AND period IS NOT DISTINCT FROM :period AND hard = :hard AND id <> :id";
const PUT: &str = "INSERT INTO quotas (id, kind, subject, model, endpoint, metric, period, amount, hard, wait_ms, \
     version, created_at_ms, updated_at_ms) VALUES (:id, :kind, :subject, :model, :endpoint, :metric, :period, :amount, \
     :hard, :wait, :version, :created, :updated) \
     ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, hard = excluded.hard, wait_ms = excluded.wait_ms, \
     version = excluded.version, updated_at_ms = excluded.updated_at_ms";
const DELETE: &str = "DELETE FROM quotas WHERE id = :id";
