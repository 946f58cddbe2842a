//! `search`: objects of every kind by name, id or prefix. `suggest`: the names that occur in usage records.

use std::time::{Duration, Instant};

use http::{Method, Response};
use records::RecordName;
use serde::{Deserialize, Serialize};
use shared::clock::unix_ms;
use shared::port::Body;

use super::query::{Choice, Named, Number};
use super::{ApiError, App, Call, Route, json, route_of};
use crate::admin::permission::Permission;
use crate::common::bounds::SUGGESTED_NAMES;
use crate::db::engine::{Db, DbResult};
use crate::db::human_scope::HumanScope;
use crate::db::names::{Labels, NamedKind};
use crate::db::search::{self, FoundRow, Wanted};
use crate::routing::catalog::facts::KnownModel;
use crate::routing::connection::{ListedEndpoint, ProviderConnection};
use crate::usage::dimension::{Dimension, Marks};
use crate::usage::occurrences::occurrences;
use crate::usage::report::calendar::Calendar;
use crate::usage::report::{ReportGroup, ReportQuestion, sums};
use crate::usage::requests::{Bounds, Column, NamedRequest, RequestFilter, page, row};
use crate::usage::scope::UsageScope;
use crate::writer::FLUSH_TIME_MAX;

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "search", |call| Box::pin(find(call)))
        .answers::<FoundList<FoundObject>>(
            "Finds objects of every kind by name, ID or prefix, the best first.",
        )
        .query::<SearchQuery>()
        .permits(Permission::Search),
    route_of(Method::GET, "suggest", |call| Box::pin(suggest(call)))
        .answers::<FoundList<Suggestion>>(
            "Lists the names in the records of the last 30 days, the most frequent first.",
        )
        .query::<SuggestQuery>()
        .permits(Permission::SeeUsage),
];

/// The kind of a found object, in the order of results that fit equally well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum FoundKind {
    Request,
    Endpoint,
    Provider,
    Extension,
    Project,
    Human,
    Key,
    Model,
    Quota,
}

/// The results, the best first.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "{T}List"))]
struct FoundList<T> {
    data: Vec<T>,
    /// Always null: there are no further pages.
    next_cursor: Option<String>,
    /// False if more would fit, or if the time or a bound left out a part of what was looked at.
    complete: bool,
}

/// A found object.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FoundObject {
    kind: FoundKind,
    /// The id or name by which its routes address it; for a model `provider/model`.
    id: String,
    title: String,
    /// A further description; null if there is none.
    subtitle: Option<String>,
    #[serde(skip)]
    rank: u8,
}

impl FoundObject {
    fn of(kind: FoundKind, row: FoundRow) -> Self {
        let FoundRow { id, title, subtitle, rank } = row;
        Self { kind, id, title, subtitle, rank }
    }
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SearchQuery {
    /// A part of a name, an ID, or the beginning of a key or of a request ID.
    #[cfg_attr(test, schemars(required))]
    q: Option<String>,
    /// The maximum number of results.
    limit: Option<Number<1, FOUND_MAX>>,
}

async fn find(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let SearchQuery { q, limit } = call.query()?;
    let limit = limit.map_or(FOUND_DEFAULT, Number::rows);
    let wanted = Wanted { text: wanted(q)?, rows: limit + 1, scope: call.standing.scope() };
    let app = call.app;
    let mut found = of_routing(app, &wanted);
    app.writer.flush(FLUSH_TIME_MAX).await;
    let scope = call.usage_scope();
    found.extend(app.readers.ask(move |db| of_database(db, &wanted, scope)).await?);
    found.sort_by(|one, other| (one.rank, one.kind, &one.title).cmp(&(other.rank, other.kind, &other.title)));
    let complete = found.len() <= limit;
    found.truncate(limit);
    json(&FoundList { data: found, next_cursor: None, complete })
}

/// Checks the text to search for.
fn wanted(text: Option<String>) -> Result<String, ApiError> {
    let text = text.unwrap_or_default().trim().to_owned();
    if text.is_empty() || text.chars().count() > TEXT_CHARS_MAX {
        let message = format!("q must be 1 to {TEXT_CHARS_MAX} characters to search for.");
        return Err(ApiError::parameter("q", message));
    }
    Ok(text)
}

/// Returns the extensions, people, projects, keys, limits and requests that fit and that the caller may see.
fn of_database(db: &Db, wanted: &Wanted, scope: UsageScope) -> DbResult<Vec<FoundObject>> {
    let mut found = Vec::new();
    let tables: [(FoundKind, Search); 5] = [
        (FoundKind::Extension, search::extensions),
        (FoundKind::Human, search::humans),
        (FoundKind::Project, search::projects),
        (FoundKind::Key, search::keys),
        (FoundKind::Quota, search::quotas),
    ];
    for (kind, search) in tables {
        found.extend(search(db, wanted)?.into_iter().map(|row| FoundObject::of(kind, row)));
    }
    found.extend(requests(db, &wanted.text, scope)?);
    Ok(found)
}

/// Returns the request with this id; or some of the latest requests whose id begins with the text, if that is long enough
/// to be meant as one.
fn requests(db: &Db, text: &str, scope: UsageScope) -> DbResult<Vec<FoundObject>> {
    let found = |request_id: String, rank| FoundObject {
        kind: FoundKind::Request,
        title: request_id.clone(),
        id: request_id,
        subtitle: None,
        rank,
    };
    let named = NamedRequest { scope: scope.clone(), ..NamedRequest::newest(text) };
    if let Some(request) = row(db, &named)? {
        return Ok(vec![found(request.request_id, 0)]);
    }
    let is_id = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if text.len() < REQUEST_PREFIX_MIN || !text.chars().all(is_id) {
        return Ok(Vec::new());
    }
    let filter =
        RequestFilter { request_id_prefix: Some(text.to_owned()), scope, ..RequestFilter::default() };
    let bounds = Bounds { rows: REQUESTS_FOUND, until: Instant::now() + REQUESTS_TIME };
    let rows = page(db, &filter, None, bounds)?.rows;
    Ok(rows.into_iter().map(|request| found(request.request_id, 1)).collect())
}

type Search = fn(&Db, &Wanted) -> DbResult<Vec<FoundRow>>;

/// Returns the providers, endpoints and models that fit; for a human, the connections that are private to them.
fn of_routing(app: &App, wanted: &Wanted) -> Vec<FoundObject> {
    let (text, limit) = (wanted.text.to_lowercase(), wanted.rows);
    let view = app.view.read();
    let found = |kind, id: &str, title: &str, subtitle: Option<&str>| {
        let rank = [id, title].into_iter().filter_map(|name| rank(name, &text)).min()?;
        let (id, title, subtitle) = (id.to_owned(), title.to_owned(), subtitle.map(str::to_owned));
        Some(FoundObject { kind, id, title, subtitle, rank })
    };
    let provider = |provider: &ProviderConnection| {
        found(FoundKind::Provider, &provider.id, &provider.id, provider.base_url())
    };
    if let Some(HumanScope { human, .. }) = &wanted.scope {
        let own = view.providers.iter().filter(|connection| connection.owner() == Some(human));
        return best(own.filter_map(provider).collect(), limit);
    }
    let endpoint = |endpoint: &ListedEndpoint| {
        let first =
            endpoint.content.failover.first().map(|member| format!("{}/{}", member.provider, member.model));
        found(FoundKind::Endpoint, &endpoint.name, &endpoint.name, first.as_deref())
    };
    let known = app.catalog.known();
    let model = |known: &KnownModel| {
        let exact = format!("{}/{}", known.provider, known.model.id);
        let title = known.model.display_name.as_deref().unwrap_or(&exact);
        let subtitle = known.model.display_name.as_ref().map(|_| exact.as_str());
        found(FoundKind::Model, &exact, title, subtitle)
    };
    let mut objects = best(view.providers.iter().filter_map(provider).collect(), limit);
    objects.extend(best(view.endpoints.iter().filter_map(endpoint).collect(), limit));
    objects.extend(best(known.iter().filter_map(model).collect(), limit));
    objects
}

/// Returns how well a name fits a text in lower case, as [`FoundRow::rank`]; `None` if it does not contain it.
fn rank(name: &str, text: &str) -> Option<u8> {
    let name = name.to_lowercase();
    let bare = name.split_once('/').map_or(name.as_str(), |(_, model)| model);
    match name.find(text) {
        Some(_) if name == text || bare == text => Some(0),
        Some(_) if name.starts_with(text) || bare.starts_with(text) => Some(1),
        Some(_) => Some(2),
        None => None,
    }
}

/// Returns the objects that fit best.
fn best(mut objects: Vec<FoundObject>, limit: usize) -> Vec<FoundObject> {
    objects.sort_by(|one, other| (one.rank, &one.title).cmp(&(other.rank, &other.title)));
    objects.truncate(limit);
    objects
}

/// A name that occurs in usage records.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Suggestion {
    /// The value for the filter of the same name.
    value: String,
    /// The name of a key, project or human; null for other fields, and if it is unknown.
    name: Option<String>,
    /// The number of requests of the last 30 days.
    requests: u64,
}

/// A field of records whose names can be suggested.
#[derive(Clone, Copy)]
enum SuggestedField {
    /// A field that the sums of usage contain.
    Column(Column),
    /// A field that only the records contain.
    Recorded(RecordName),
}

impl Named for SuggestedField {
    fn named() -> Vec<(&'static str, Self)> {
        let columns = Column::ALL.iter().map(|column| (column.name(), Self::Column(*column)));
        let recorded = [("client", RecordName::Client), ("error", RecordName::Error)];
        columns.chain(recorded.map(|(name, kind)| (name, Self::Recorded(kind)))).collect()
    }
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SuggestQuery {
    /// The field of the records whose names are wanted.
    field: Choice<SuggestedField>,
    /// A part of the name, in any case.
    q: Option<String>,
    /// The maximum number of names.
    limit: Option<Number<1, FOUND_MAX>>,
}

async fn suggest(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let SuggestQuery { field: Choice(field), q, limit } = call.query()?;
    let (text, limit) = (q.unwrap_or_default().to_lowercase(), limit.map_or(FOUND_DEFAULT, Number::rows));
    call.app.writer.flush(FLUSH_TIME_MAX).await;
    let scope = call.usage_scope();
    let reading = call.app.readers.ask(move |db| suggestions(db, (field, &scope), &text, limit));
    let (data, complete) = reading.await?;
    json(&FoundList { data, next_cursor: None, complete })
}

/// Returns the names of a field in the records in `scope` that contain `text`, the most frequent first; true with
/// them if these are all.
fn suggestions(
    db: &Db,
    (field, scope): (SuggestedField, &UsageScope),
    text: &str,
    limit: usize,
) -> DbResult<(Vec<Suggestion>, bool)> {
    let from_ms = unix_ms().saturating_sub(SUGGESTED_MS);
    let ((mut counts, mut is_complete), kind) = match field {
        SuggestedField::Column(column) => (summed(db, (column, scope), from_ms)?, kind_of(column)),
        SuggestedField::Recorded(kind) => {
            let (counts, all) = occurrences(db, (kind, scope), from_ms, Instant::now() + SCANNING_TIME)?;
            ((counts.into_iter().collect(), all), None)
        }
    };
    counts.sort_by(|(one, more), (other, less)| less.cmp(more).then_with(|| one.cmp(other)));
    let (mut labels, mut found) = (Labels::default(), Vec::new());
    is_complete &= SUGGESTED_NAMES.cut(&mut counts) == 0;
    for (value, requests) in counts {
        let named = kind.map(|kind| labels.find(db, kind, &value)).transpose()?;
        let name = named.and_then(|label| label.name);
        let has_text = |name: &String| name.to_lowercase().contains(text);
        if has_text(&value) || name.as_ref().is_some_and(has_text) {
            if found.len() >= limit {
                is_complete = false;
                break;
            }
            found.push(Suggestion { value, name, requests });
        }
    }
    Ok((found, is_complete))
}

/// Returns the names in a column, with the number of requests; true with them if these are all.
fn summed(
    db: &Db,
    (column, scope): (Column, &UsageScope),
    from_ms: u64,
) -> DbResult<(Vec<(String, u64)>, bool)> {
    let question = ReportQuestion {
        from_ms,
        to_ms: unix_ms().saturating_add(1),
        calendar: Calendar::whole(),
        group_by: vec![Dimension::Column(column)],
        filters: Vec::new(),
        marks: Marks::default(),
        scope: scope.clone(),
    };
    let (groups, is_complete) = sums(db, &question, Instant::now() + READING_TIME)?;
    let named = |ReportGroup { names, sums, .. }| Some((names.into_iter().next()??, sums.requests));
    Ok((groups.into_iter().filter_map(named).collect(), is_complete))
}

/// Returns the kind of object whose ids a column holds.
fn kind_of(column: Column) -> Option<NamedKind> {
    match column {
        Column::Key => Some(NamedKind::Key),
        Column::Project => Some(NamedKind::Project),
        Column::Principal => Some(NamedKind::Principal),
        Column::Model | Column::Provider | Column::Endpoint | Column::Operation | Column::Outcome => None,
    }
}

const FOUND_DEFAULT: usize = 20;
const FOUND_MAX: u64 = 50;
const TEXT_CHARS_MAX: usize = 200;
/// The length from which a text is compared with the beginning of request ids, how many are found, and the time for that.
const REQUEST_PREFIX_MIN: usize = 8;
const REQUESTS_FOUND: u32 = 5;
const REQUESTS_TIME: Duration = Duration::from_millis(300);
/// The time from which `suggest` takes names: 30 days.
const SUGGESTED_MS: u64 = 30 * 86_400_000;
const READING_TIME: Duration = Duration::from_secs(3);
/// The time for reading records; names of older ones are then missing.
const SCANNING_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use shared::id::ModelId;
    use shared::usage::{UsageEvent, UsageLog as _};

    use super::*;
    use crate::common::bounds::tests::passes;
    use crate::usage::tests::{Process, event};

    #[test]
    fn suggestions_say_whether_they_are_complete() {
        let home = tempfile::TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let mut log = process.journal.log().unwrap();
        let mut store = |process: &mut Process, numbers: std::ops::Range<usize>| {
            for n in numbers {
                let event = UsageEvent { started_at_ms: unix_ms(), ..event(n as u64) };
                assert!(log.append(&UsageEvent { model: Some(ModelId::new(format!("m{n:06}"))), ..event }));
            }
            process.settle();
        };
        let asked = |process: &mut Process, text: &str, limit| {
            let field = (SuggestedField::Column(Column::Model), &UsageScope::default());
            let (found, is_complete) = suggestions(process.meter.db_mut(), field, text, limit).unwrap();
            (found.len(), is_complete)
        };
        store(&mut process, 0..2);
        assert_eq!((asked(&mut process, "m", 2), asked(&mut process, "m", 1)), ((2, true), (1, false)));
        store(&mut process, 2..SUGGESTED_NAMES.max());
        assert_eq!(asked(&mut process, "m00000", 20), (10, true));
        store(&mut process, SUGGESTED_NAMES.max()..SUGGESTED_NAMES.max() + 1);
        assert_eq!(passes(&SUGGESTED_NAMES, || asked(&mut process, "m00000", 20)), (10, false));
    }
}
