//! Reading the table `usage`: pages of exchanges, newest first, and one exchange with its trace.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, named_params, params_from_iter};
use serde::Serialize;
use serde_json::value::RawValue;

/// What usage can be filtered and grouped by; the name is the same in the API and in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Model,
    Provider,
    Endpoint,
    Key,
    Project,
    Operation,
    Outcome,
}

impl Column {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Model,
        Self::Provider,
        Self::Endpoint,
        Self::Key,
        Self::Project,
        Self::Operation,
        Self::Outcome,
    ];

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Provider => "provider",
            Self::Endpoint => "endpoint",
            Self::Key => "key",
            Self::Project => "project",
            Self::Operation => "operation",
            Self::Outcome => "outcome",
        }
    }
}

/// Which exchanges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) from_ms: Option<u64>,
    /// The first moment that is too late.
    pub(crate) to_ms: Option<u64>,
    pub(crate) status: Option<u16>,
    pub(crate) names: Vec<(Column, String)>,
}

/// The last row of the page before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) started_at_ms: u64,
    pub(crate) id: i64,
}

/// Some exchanges, newest first.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) rows: Vec<Row>,
    /// Where the next page goes on, if there is one.
    pub(crate) next: Option<Cursor>,
}

/// One exchange, as the API shows it.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    #[serde(skip)]
    id: i64,
    pub(crate) request_id: String,
    started_at_ms: u64,
    duration_us: u64,
    operation: String,
    key: String,
    project: Option<String>,
    principal: Option<String>,
    selector: String,
    endpoint: Option<String>,
    provider: Option<String>,
    model: Option<String>,
    stream: bool,
    status: u16,
    outcome: String,
    error: Option<String>,
    tokens: Tokens,
    provenance: String,
    head_us: Option<u64>,
    first_content_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<Box<RawValue>>,
}

#[derive(Debug, Serialize)]
struct Tokens {
    input: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
    reasoning: u64,
}

/// Up to `limit` exchanges that pass `filter`, from `cursor` on.
pub(crate) fn page(
    db: &Connection,
    filter: &Filter,
    cursor: Option<Cursor>,
    limit: u32,
) -> rusqlite::Result<Page> {
    let (mut conditions, mut values) = (Vec::new(), Vec::new());
    let mut and = |condition: String, value: Value| {
        conditions.push(condition);
        values.push(value);
    };
    for (column, name) in &filter.names {
        and(format!("{} = ?", column.name()), name.clone().into());
    }
    let moments = [("started_at_ms >= ?", filter.from_ms), ("started_at_ms < ?", filter.to_ms)];
    for (condition, moment) in moments {
        if let Some(moment) = moment {
            and(condition.to_owned(), integer(moment));
        }
    }
    if let Some(status) = filter.status {
        and("status = ?".to_owned(), i64::from(status).into());
    }
    if let Some(cursor) = cursor {
        and("(started_at_ms, id) < (?, ?)".to_owned(), integer(cursor.started_at_ms));
        values.push(cursor.id.into());
    }
    values.push(i64::from(limit).saturating_add(1).into());
    let wanted = if conditions.is_empty() { "TRUE".to_owned() } else { conditions.join(" AND ") };
    let sql = format!("SELECT {COLUMNS} FROM usage WHERE {wanted} {NEWEST_FIRST} LIMIT ?");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement
        .query_map(params_from_iter(values), |row| read(row, Trace::Left))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = rows.len() > limit;
    rows.truncate(limit);
    let last = rows.last().map(|row| Cursor { started_at_ms: row.started_at_ms, id: row.id });
    Ok(Page { rows, next: last.filter(|_| more) })
}

/// The newest exchange with this request id, with its trace.
pub(crate) fn row(db: &Connection, request_id: &str) -> rusqlite::Result<Option<Row>> {
    let sql = format!("SELECT {COLUMNS}, trace FROM usage WHERE request_id = :id {NEWEST_FIRST} LIMIT 1");
    let mut statement = db.prepare_cached(&sql)?;
    statement.query_row(named_params! {":id": request_id}, |row| read(row, Trace::Taken)).optional()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trace {
    Taken,
    Left,
}

fn read(row: &rusqlite::Row<'_>, trace: Trace) -> rusqlite::Result<Row> {
    Ok(Row {
        id: row.get("id")?,
        request_id: row.get("request_id")?,
        started_at_ms: row.get("started_at_ms")?,
        duration_us: row.get("duration_us")?,
        operation: row.get("operation")?,
        key: row.get("key")?,
        project: row.get("project")?,
        principal: row.get("principal")?,
        selector: row.get("selector")?,
        endpoint: row.get("endpoint")?,
        provider: row.get("provider")?,
        model: row.get("model")?,
        stream: row.get("stream")?,
        status: row.get("status")?,
        outcome: row.get("outcome")?,
        error: row.get("error")?,
        tokens: Tokens {
            input: row.get("input_tokens")?,
            cache_read: row.get("cache_read_tokens")?,
            cache_write: row.get("cache_write_tokens")?,
            output: row.get("output_tokens")?,
            reasoning: row.get("reasoning_tokens")?,
        },
        provenance: row.get("provenance")?,
        head_us: row.get("head_us")?,
        first_content_us: row.get("first_content_us")?,
        trace: match trace {
            Trace::Taken => RawValue::from_string(row.get("trace")?).ok(),
            Trace::Left => None,
        },
    })
}

fn integer(number: u64) -> Value {
    i64::try_from(number).unwrap_or(i64::MAX).into()
}

const COLUMNS: &str = "id, request_id, started_at_ms, duration_us, operation, key, project, principal, selector, \
     endpoint, provider, model, stream, status, outcome, error, input_tokens, cache_read_tokens, \
     cache_write_tokens, output_tokens, reasoning_tokens, provenance, head_us, first_content_us";
const NEWEST_FIRST: &str = "ORDER BY started_at_ms DESC, id DESC";
