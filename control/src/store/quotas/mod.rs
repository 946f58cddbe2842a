//! The tables `quotas` and `quota_used`: limits, and what was used of them in each calendar window.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, named_params};
use serde::{Deserialize, Serialize};
use shared::id::{EndpointName, ModelId, ProviderId};
use shared::quota::{Metric, Period, Scope, Spent, Subject};

use super::record::{Name, Record};
use super::{block, keys};

/// A limit, as stored and as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    pub(crate) id: String,
    #[serde(flatten)]
    pub(crate) counted: Counted,
    pub(crate) metric: Metric,
    /// None for concurrent requests alone.
    #[serde(rename = "window")]
    pub(crate) period: Option<Period>,
    /// In the unit of the metric; money in micro-dollars.
    pub(crate) limit: u64,
    pub(crate) enforcement: Enforcement,
    pub(crate) version: u64,
    pub(crate) created_at_ms: u64,
    pub(crate) updated_at_ms: u64,
}

/// The requests that a limit counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Counted {
    pub(crate) subject: Of,
    /// `provider/model`, if only requests to one model count.
    pub(crate) model: Option<String>,
    /// If only requests that name one endpoint count.
    pub(crate) endpoint: Option<String>,
}

/// The subject of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Of {
    pub(crate) kind: Subject,
    /// Of a key: of the first key of its rotations, which stands for all of them. The gateway has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) id: String,
}

/// What happens to a request that does not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Enforcement {
    /// It is refused.
    #[default]
    Hard,
    /// It is counted.
    Warn,
}

impl Row {
    fn of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let hard: bool = row.get("hard")?;
        Ok(Self {
            id: row.get("id")?,
            counted: Counted {
                subject: Of { kind: row.get::<_, Named<Subject>>("kind")?.0, id: row.get("subject")? },
                model: row.get("model")?,
                endpoint: row.get("endpoint")?,
            },
            metric: row.get::<_, Named<Metric>>("metric")?.0,
            period: row.get::<_, Option<Named<Period>>>("period")?.map(|named| named.0),
            limit: row.get("amount")?,
            enforcement: if hard { Enforcement::Hard } else { Enforcement::Warn },
            version: row.get("version")?,
            created_at_ms: row.get("created_at_ms")?,
            updated_at_ms: row.get("updated_at_ms")?,
        })
    }

    pub(crate) fn is_hard(&self) -> bool {
        self.enforcement == Enforcement::Hard
    }
}

/// A value that is stored by the name that it has in the API.
struct Named<T>(T);

impl FromSql for Named<Subject> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        by_name(value, &Subject::ALL, Subject::name)
    }
}

impl FromSql for Named<Metric> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        by_name(value, &Metric::ALL, Metric::name)
    }
}

impl FromSql for Named<Period> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        by_name(value, &Period::ALL, Period::name)
    }
}

fn by_name<T: Copy>(value: ValueRef<'_>, all: &[T], name: fn(T) -> &'static str) -> FromSqlResult<Named<T>> {
    let text = value.as_str()?;
    let known = all.iter().copied().find(|value| name(*value) == text);
    known.map(Named).ok_or(FromSqlError::InvalidType)
}

/// The limits of a list: all, those of a kind of subject, or those of one subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) kind: Option<Subject>,
    pub(crate) id: Option<String>,
}

/// Up to `rows` limits whose ids come after `after`.
pub(crate) fn page(db: &Connection, filter: &Filter, after: &str, rows: i64) -> rusqlite::Result<Vec<Row>> {
    let family = match (filter.kind, &filter.id) {
        (Some(Subject::Key), Some(key)) => keys::family(db, key)?,
        _ => None,
    };
    let values = named_params! {
        ":kind": filter.kind.map(Subject::name),
        ":subject": family.as_ref().or(filter.id.as_ref()),
        ":after": after,
        ":rows": rows,
    };
    db.prepare_cached(PAGE)?.query_map(values, Row::of)?.collect()
}

/// Every limit of a subject.
pub(crate) fn of_subject(db: &Connection, subject: &Of) -> rusqlite::Result<Vec<Row>> {
    db.prepare_cached(OF_SUBJECT)?.query_map([subject.kind.name(), &subject.id], Row::of)?.collect()
}

pub(crate) fn find(db: &Connection, id: &str) -> rusqlite::Result<Option<Row>> {
    db.prepare_cached(FIND)?.query_row([id], Row::of).optional()
}

/// The limit of the same subject on the same thing in the same time, if there is one.
pub(crate) fn twin(db: &Connection, row: &Row) -> rusqlite::Result<Option<String>> {
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
    db.prepare_cached(TWIN)?.query_row(values, |row| row.get("id")).optional()
}

/// Stores a new limit, or the next version of one.
pub(crate) fn put(tx: &Connection, row: &Row) -> rusqlite::Result<()> {
    tx.prepare_cached(PUT)?.execute(named_params! {
        ":id": row.id,
        ":kind": row.counted.subject.kind.name(),
        ":subject": row.counted.subject.id,
        ":model": row.counted.model,
        ":endpoint": row.counted.endpoint,
        ":metric": row.metric.name(),
        ":period": row.period.map(Period::name),
        ":amount": row.limit,
        ":hard": row.is_hard(),
        ":version": row.version,
        ":created": row.created_at_ms,
        ":updated": row.updated_at_ms,
    })?;
    Ok(())
}

pub(crate) fn delete(tx: &Connection, id: &str) -> rusqlite::Result<()> {
    tx.prepare_cached(DELETE)?.execute([id])?;
    Ok(())
}

impl Counted {
    /// True if what was served by `provider` with `model`, asked for as `endpoint`, is among it, if the subject is.
    fn covers(&self, provider: &str, model: &str, endpoint: &str) -> bool {
        let is_model = |wanted: &String| wanted.split_once('/') == Some((provider, model));
        self.model.as_ref().is_none_or(is_model)
            && self.endpoint.as_ref().is_none_or(|wanted| wanted == endpoint)
    }

    /// The same as the data plane asks it.
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

/// All limits, by the key, project or human that they bind.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) all: Vec<Arc<Row>>,
    by_subject: HashMap<Of, Vec<Arc<Row>>>,
}

impl Rules {
    pub(crate) fn load(db: &Connection) -> rusqlite::Result<Self> {
        let mut rules = Self::default();
        for row in db.prepare_cached(ALL)?.query_map([], Row::of)? {
            let row = Arc::new(row?);
            rules.by_subject.entry(row.counted.subject.clone()).or_default().push(Arc::clone(&row));
            rules.all.push(row);
        }
        if rules.all.iter().any(|row| row.counted.subject.kind == Subject::Key) {
            rules.load_families(db)?;
        }
        Ok(rules)
    }

    /// Adds each key of a family with limits, because records and requests name the key.
    fn load_families(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let mut statement = db.prepare_cached(LIMITED_KEYS)?;
        let mut keys = statement.query([])?;
        while let Some(found) = keys.next()? {
            let (key, family): (String, String) = (found.get("id")?, found.get("family")?);
            if key != family
                && let Some(rows) = self.by_subject.get(&Of { kind: Subject::Key, id: family })
            {
                let rows = rows.clone();
                self.by_subject.insert(Of { kind: Subject::Key, id: key }, rows);
            }
        }
        Ok(())
    }

    /// The limits that bind a key of this project that acts as this human; what is not there is empty.
    pub(crate) fn of<'a, const N: usize>(
        &'a self,
        subjects: [(Subject, &str); N],
    ) -> impl Iterator<Item = &'a Arc<Row>> + use<'a, N> {
        let subjects = subjects.map(|(kind, id)| Of { kind, id: id.to_owned() });
        subjects.into_iter().filter_map(|of| self.by_subject.get(&of)).flatten()
    }

    /// The limits that count an exchange. Those of the gateway count that of a project only.
    pub(crate) fn of_record<'a>(
        &'a self,
        record: &Record<'a>,
    ) -> impl Iterator<Item = &'a Arc<Row>> + use<'a> {
        let [provider, model, endpoint] =
            [Name::Provider, Name::Model, Name::Endpoint].map(|name| record.name(name));
        let project = record.name(Name::Project);
        let gateway = if project.is_empty() { None } else { self.by_subject.get(&GATEWAY) };
        let subjects = [
            (Subject::Key, record.name(Name::Key)),
            (Subject::Project, project),
            (Subject::Principal, record.name(Name::Principal)),
            (Subject::Provider, provider),
        ];
        let rows = self.of(subjects).chain(gateway.into_iter().flatten());
        rows.filter(move |row| row.counted.covers(provider, model, endpoint))
    }
}

/// The subject of the limits of the whole gateway.
const GATEWAY: Of = Of { kind: Subject::Gateway, id: String::new() };

/// What was used of a limit in the window that began at `start_ms`, counted or still due.
pub(crate) fn used(db: &Connection, id: &str, start_ms: u64) -> rusqlite::Result<u64> {
    db.prepare_cached(USED)?.query_row((id, start_ms), |row| row.get("used"))
}

/// Adds to what was used in a window, and forgets the windows long before it. Runs in the transaction that stores
/// the usage.
pub(crate) fn add_used(tx: &Connection, id: &str, start_ms: u64, amount: u64) -> rusqlite::Result<()> {
    let amount = i64::try_from(amount).unwrap_or(i64::MAX);
    let values = named_params! {":quota": id, ":start": start_ms, ":amount": amount};
    tx.prepare_cached(ADD)?.execute(values)?;
    tx.prepare_cached(FORGET)?.execute((id, start_ms.saturating_sub(KEPT_MS)))?;
    Ok(())
}

/// Returns the usage since `start_ms`, the beginning of a window of `period`, as far as it is stored. A window begins
/// with a day and is summed by the days, which outlive the hours; only one of an hour is not.
pub(crate) fn used_since(
    db: &Connection,
    counted: &Counted,
    period: Period,
    start_ms: u64,
) -> rusqlite::Result<Spent> {
    let [by_hour, by_day] = match counted.subject.kind {
        Subject::Key => USED_BY_KEY,
        Subject::Project => USED_BY_PROJECT,
        Subject::Principal => USED_BY_PRINCIPAL,
        Subject::Provider => USED_BY_PROVIDER,
        Subject::Gateway => USED_BY_PROJECTS,
    };
    let statement = if period == Period::Hour { by_hour } else { by_day };
    let hour = start_ms / super::rollup::HOUR_MS;
    let Counted { subject, model, endpoint } = counted;
    db.prepare_cached(statement)?.query_row((&subject.id, hour, model, endpoint), |row| {
        Ok(Spent {
            requests: row.get("requests")?,
            input_tokens: row.get("input")?,
            output_tokens: row.get("output")?,
            cost_nano_usd: Some(row.get("cost")?),
        })
    })
}

/// Gives `each` every stored exchange that began at `from_ms` or later.
pub(crate) fn recent(
    db: &Connection,
    from_ms: u64,
    mut each: impl FnMut(&Record<'_>),
) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached(RECENT)?;
    let mut blocks = statement.query([from_ms])?;
    while let Some(found) = blocks.next()? {
        let names = block::names(found.get_ref("names")?.as_blob()?);
        let rows = block::rows(found.get_ref("rows")?.as_blob()?, &names).flatten();
        rows.map(|(record, _)| record)
            .filter(|record| record.started_at_ms >= from_ms)
            .for_each(|record| each(&record));
    }
    Ok(())
}

/// Windows are kept for as long after their beginning: longer than a month, and than any exchange runs.
const KEPT_MS: u64 = 62 * 24 * 3_600_000;

const PAGE: &str = "SELECT * FROM quotas WHERE id > :after AND (:kind IS NULL OR kind = :kind) \
     AND (:subject IS NULL OR subject = :subject) ORDER BY id LIMIT :rows";
const FIND: &str = "SELECT * FROM quotas WHERE id = ?";
const ALL: &str = "SELECT * FROM quotas ORDER BY id";
const OF_SUBJECT: &str = "SELECT * FROM quotas WHERE kind = ? AND subject = ? ORDER BY id";
const TWIN: &str = "SELECT id FROM quotas WHERE kind = :kind AND subject = :subject AND model IS :model \
     AND endpoint IS :endpoint AND metric = :metric AND period IS :period AND hard = :hard AND id <> :id";
const PUT: &str = "INSERT INTO quotas (id, kind, subject, model, endpoint, metric, period, amount, hard, version, \
     created_at_ms, updated_at_ms) VALUES (:id, :kind, :subject, :model, :endpoint, :metric, :period, :amount, :hard, \
     :version, :created, :updated) \
     ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, hard = excluded.hard, version = excluded.version, \
     updated_at_ms = excluded.updated_at_ms";
const DELETE: &str = "DELETE FROM quotas WHERE id = ?";
const LIMITED_KEYS: &str = "SELECT id, family FROM keys \
     WHERE family IN (SELECT subject FROM quotas WHERE kind = 'key') \
     UNION ALL SELECT id, family FROM former_keys \
     WHERE family IN (SELECT subject FROM quotas WHERE kind = 'key')";
const USED: &str = "SELECT \
     min(coalesce((SELECT used FROM quota_used WHERE quota = ?1 AND window_start_ms = ?2), 0), 0x3fffffffffffffff) + \
     min(coalesce((SELECT sum(amount) FROM usage_due WHERE quota = ?1 AND at = ?2 \
     AND id > (SELECT taken FROM usage_place)), 0), 0x3fffffffffffffff) AS used";
const ADD: &str = "INSERT INTO quota_used (quota, window_start_ms, used) VALUES (:quota, :start, :amount) \
     ON CONFLICT DO UPDATE SET used = min(used, 0x3fffffffffffffff) + min(excluded.used, 0x3fffffffffffffff)";
const FORGET: &str = "DELETE FROM quota_used WHERE quota = ? AND window_start_ms < ?";
const RECENT: &str = "SELECT names, rows FROM usage WHERE last_ms >= ?";

macro_rules! used_by {
    ($table:literal, $subject:literal) => {
        concat!(
            "SELECT coalesce(sum(CASE WHEN outcome = 'failed' THEN 0 ELSE requests END), 0) AS requests, \
             coalesce(sum(input_tokens + cache_read_tokens + cache_write_tokens), 0) AS input, \
             coalesce(sum(output_tokens + reasoning_tokens), 0) AS output, \
             coalesce(sum(cost_nano_usd), 0) AS cost \
             FROM ",
            $table,
            " WHERE ",
            $subject,
            " AND hour >= ?2 AND (?3 IS NULL OR provider || '/' || model = ?3) AND (?4 IS NULL OR endpoint = ?4)"
        )
    };
    ($subject:literal) => {
        [used_by!("usage_hour", $subject), used_by!("usage_day", $subject)]
    };
}

const USED_BY_KEY: [&str; 2] = used_by!(
    "key IN (SELECT id FROM keys WHERE family = ?1 UNION ALL SELECT id FROM former_keys WHERE family = ?1)"
);
const USED_BY_PROJECT: [&str; 2] = used_by!("project = ?1");
const USED_BY_PRINCIPAL: [&str; 2] = used_by!("principal = ?1");
const USED_BY_PROVIDER: [&str; 2] = used_by!("provider = ?1");
const USED_BY_PROJECTS: [&str; 2] = used_by!("?1 = '' AND project <> ''");
