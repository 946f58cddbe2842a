//! Reads the table `usage`: pages of exchanges, newest first, and single exchanges with their trace.

use crate::db::signed;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet};
use std::time::Instant;

use records::{Record, RecordName, RecordStep, Trace, block, rare_fields};
use rusqlite::{Connection, named_params};
use serde::{Serialize, Serializer};
use shared::usage::{Class, Lost, TokenCounts, Units};

use crate::db::packed_row::{PackedRow, unless_damaged};
use crate::money::MicroUsd;
use crate::usage::dimension::{self, Marks};
use crate::usage::names::{Labels, OwnerNames};
use crate::usage::request_index;

/// A property by which usage can be filtered and grouped. The API and the tables use the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Model,
    Provider,
    Endpoint,
    Key,
    Project,
    Principal,
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
        Self::Principal,
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
            Self::Principal => "principal",
            Self::Operation => "operation",
            Self::Outcome => "outcome",
        }
    }

    /// Returns the exchange's value; empty if it has none.
    pub(crate) fn of<'a>(self, record: &Record<'a>) -> &'a str {
        record.name(match self {
            Self::Model => RecordName::Model,
            Self::Provider => RecordName::Provider,
            Self::Endpoint => RecordName::Endpoint,
            Self::Key => RecordName::Key,
            Self::Project => RecordName::Project,
            Self::Principal => RecordName::Principal,
            Self::Operation => RecordName::Operation,
            Self::Outcome => RecordName::Outcome,
        })
    }
}

/// True if an exchange has all these values.
pub(crate) fn has_names(record: &Record<'_>, names: &[(Column, String)]) -> bool {
    names.iter().all(|(column, name)| column.of(record) == name)
}

/// A filter for exchanges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFilter {
    pub(crate) from_ms: Option<u64>,
    /// The end of the time, exclusive.
    pub(crate) to_ms: Option<u64>,
    pub(crate) status: Option<u16>,
    pub(crate) names: Vec<(Column, String)>,
    pub(crate) marks: Marks,
    pub(crate) error: Option<String>,
    pub(crate) request_id_prefix: Option<String>,
    pub(crate) duration_us_min: Option<u64>,
    /// In nano-dollars. An exchange with an unknown cost is outside of every range.
    pub(crate) cost_min: Option<u64>,
    pub(crate) cost_max: Option<u64>,
}

/// The last row of the previous page, or the position up to which that page has searched. Later exchanges are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestCursor {
    pub(crate) started_at_ms: u64,
    pub(crate) id: i64,
}

/// A page of exchanges, newest first.
#[derive(Debug)]
pub(crate) struct RequestRows {
    pub(crate) rows: Vec<RequestRow>,
    /// The start of the next page, if there is one.
    pub(crate) next: Option<RequestCursor>,
}

/// One exchange, as the API shows it.
#[derive(Debug, Serialize)]
pub(crate) struct RequestRow {
    pub(crate) request_id: String,
    started_at_ms: u64,
    duration_us: u64,
    operation: String,
    key: String,
    project: Option<String>,
    principal: Option<String>,
    #[serde(flatten)]
    owners: OwnerNames,
    selector: String,
    endpoint: Option<String>,
    provider: Option<String>,
    model: Option<String>,
    stream: bool,
    status: u16,
    outcome: String,
    error: Option<String>,
    #[serde(serialize_with = "by_class")]
    tokens: [u64; TokenCounts::COUNT],
    #[serde(serialize_with = "units_by_class")]
    units: Units,
    provenance: String,
    tier: Option<String>,
    picture: Option<String>,
    /// The cost of the attempt that served; null if it is unknown.
    cost_micro_usd: Option<MicroUsd>,
    /// The sum of the known costs of failed attempts.
    lost_micro_usd: MicroUsd,
    /// The cost that the vendor reported.
    vendor_cost_micro_usd: Option<MicroUsd>,
    price: Option<String>,
    upstream_id: Option<String>,
    /// The tags by name.
    tags: BTreeMap<String, String>,
    end_user: Option<String>,
    head_us: Option<u64>,
    first_content_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<Vec<RequestStep>>,
}

/// A target that was considered.
#[derive(Debug, Serialize)]
pub(crate) struct RequestStep {
    provider: String,
    model: String,
    result: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    head_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spent_us: Option<u64>,
    /// The consumption of a failed attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<LostShown>,
}

/// The consumption of a failed attempt, as the API shows it.
#[derive(Debug, Serialize)]
struct LostShown {
    #[serde(serialize_with = "by_class")]
    tokens: [u64; TokenCounts::COUNT],
    #[serde(serialize_with = "units_by_class")]
    units: Units,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    picture: Option<Box<str>>,
    /// Null if it is unknown.
    cost_micro_usd: Option<MicroUsd>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vendor_cost_micro_usd: Option<MicroUsd>,
}

impl LostShown {
    fn of(lost: Lost) -> Self {
        Self {
            tokens: lost.tokens.list(),
            units: lost.units,
            tier: lost.tier,
            picture: lost.picture,
            cost_micro_usd: lost.cost_nano_usd.map(MicroUsd),
            vendor_cost_micro_usd: lost.vendor_cost_nano_usd.map(MicroUsd),
        }
    }
}

/// Serializes token counts by the names of their classes, including zeros.
pub(crate) fn by_class<S: Serializer>(counts: &[u64; TokenCounts::COUNT], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(Class::ALL.into_iter().map(Class::name).zip(counts))
}

/// Serializes unit counts by the names of their classes, including zeros.
pub(crate) fn units_by_class<S: Serializer>(units: &Units, to: S) -> Result<S::Ok, S::Error> {
    let names = Class::ALL.into_iter().skip(TokenCounts::COUNT).map(Class::name);
    to.collect_map(names.zip(units.list()))
}

/// The bounds of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) rows: u32,
    /// The time at which the search ends even if the page is not full: a filter may match almost nothing.
    pub(crate) until: Instant,
}

/// Returns a page of the exchanges that pass `filter`, starting at `cursor`.
pub(crate) fn page(
    db: &Connection,
    filter: &RequestFilter,
    cursor: Option<RequestCursor>,
    bounds: Bounds,
) -> rusqlite::Result<RequestRows> {
    let limit = usize::try_from(bounds.rows).unwrap_or(usize::MAX);
    let to_ms = filter
        .to_ms
        .unwrap_or(u64::MAX)
        .min(cursor.map_or(u64::MAX, |at| at.started_at_ms.saturating_add(1)));
    let start = cursor.unwrap_or(RequestCursor { started_at_ms: u64::MAX, id: 0 });
    let mut newest = Newest { rows: BinaryHeap::new(), limit: limit.saturating_add(1) };
    let mut statement = db.prepare_cached(NEWEST_FIRST)?;
    let window = named_params! {":from": signed(filter.from_ms.unwrap_or(0)), ":to": signed(to_ms)};
    let mut blocks = statement.query(window)?;
    while let Some(block) = blocks.next()? {
        let last_ms = block.get("last_ms")?;
        if newest.is_before(last_ms) {
            break;
        }
        // All exchanges later than this have been searched.
        let here = RequestCursor { started_at_ms: last_ms + 1, id: 0 };
        if Instant::now() >= bounds.until && here < start {
            return newest.page(limit, Some(here)).named(db);
        }
        let row = PackedRow::read(block)?;
        if !filter.may_pass(&row.names) {
            continue;
        }
        let passing = Passing { filter, cursor, block: row.id, names: &row.names };
        newest.take_block(&passing, row.rows()?);
    }
    newest.page(limit, None).named(db)
}

/// Selects the exchanges of a block that belong to a page.
struct Passing<'a> {
    filter: &'a RequestFilter,
    cursor: Option<RequestCursor>,
    /// The id of the block.
    block: i64,
    names: &'a [&'a str],
}

impl Passing<'_> {
    /// Returns their positions and bytes, newest first.
    fn of<'a>(&self, packed: &'a [u8]) -> Vec<(RequestCursor, &'a [u8])> {
        let place = |(at, bytes): (i64, &'a [u8])| {
            let record = block::record(bytes, self.names)?.0;
            let id = (self.block << BLOCK_BITS) + at;
            let place = RequestCursor { started_at_ms: record.started_at_ms, id };
            let passes = self.filter.passes(&record) && self.cursor.is_none_or(|cursor| place < cursor);
            passes.then_some((place, bytes))
        };
        let mut places: Vec<_> = (0..).zip(block::pieces(packed)).filter_map(place).collect();
        places.sort_unstable_by_key(|(place, _)| Reverse(*place));
        places
    }
}

impl RequestRows {
    /// Adds the names to the ids.
    fn named(mut self, db: &Connection) -> rusqlite::Result<Self> {
        let mut labels = Labels::default();
        for row in &mut self.rows {
            let ids = [Some(row.key.as_str()), row.project.as_deref(), row.principal.as_deref()];
            row.owners = OwnerNames::of(db, &mut labels, ids)?;
        }
        Ok(self)
    }
}

/// Returns the newest exchange with this request id, with its trace.
pub(crate) fn row(db: &Connection, request_id: &str) -> rusqlite::Result<Option<RequestRow>> {
    let mut found: Option<RequestRow> = None;
    for id in request_index::rows_with(db, request_id)? {
        let after_ms = found.as_ref().map(|row| row.started_at_ms);
        let candidate = newest_of(db, id, request_id, after_ms)?;
        found = candidate.or(found);
    }
    Ok(found)
}

/// Returns the ids and start times of those `records` that are stored in rows that are not damaged.
pub(crate) fn stored<'a>(
    db: &Connection,
    records: impl Iterator<Item = &'a Record<'a>>,
) -> rusqlite::Result<HashSet<(String, u64)>> {
    let wanted: HashSet<_> = records.map(|record| (record.request_id, record.started_at_ms)).collect();
    let mut stored = HashSet::new();
    let begun = || wanted.iter().map(|(_, at)| *at);
    let (Some(from), Some(to)) = (begun().min(), begun().max()) else { return Ok(stored) };
    let mut statement = db.prepare_cached(BETWEEN)?;
    let mut blocks = statement.query([signed(from), signed(to)])?;
    while let Some(block) = blocks.next()? {
        let read = PackedRow::read(block).and_then(|row| Ok((row.rows()?, row.names)));
        let Some((packed, names)) = unless_damaged(read)? else { continue };
        for (row, _) in block::rows(packed, &names).flatten() {
            if wanted.contains(&(row.request_id, row.started_at_ms)) {
                stored.insert((row.request_id.to_owned(), row.started_at_ms));
            }
        }
    }
    Ok(stored)
}

/// Returns the newest exchange with this request id in one block, if it started after `after_ms`.
fn newest_of(
    db: &Connection,
    id: i64,
    request_id: &str,
    after_ms: Option<u64>,
) -> rusqlite::Result<Option<RequestRow>> {
    let mut statement = db.prepare_cached(BLOCK)?;
    let mut blocks = statement.query(named_params! {":id": id, ":after": after_ms.map(signed)})?;
    let Some(block) = blocks.next()? else { return Ok(None) };
    let row = PackedRow::read(block)?;
    let rows = block::rows(row.rows()?, &row.names).flatten();
    let newest = rows
        .filter(|(record, _)| record.request_id == request_id)
        .filter(|(record, _)| after_ms.is_none_or(|after_ms| after_ms < record.started_at_ms))
        .max_by_key(|(record, _)| record.started_at_ms);
    let row = |(record, trace): (Record<'_>, Trace<'_>)| {
        let owners = OwnerNames::of_record(db, &mut Labels::default(), &record)?;
        Ok(RequestRow::of(&record, owners, Some(trace)))
    };
    newest.map(row).transpose()
}

impl RequestFilter {
    pub(crate) fn passes(&self, record: &Record<'_>) -> bool {
        let cost = record.cost_nano_usd;
        self.from_ms.is_none_or(|from| from <= record.started_at_ms)
            && self.to_ms.is_none_or(|to| record.started_at_ms < to)
            && self.status.is_none_or(|status| status == record.status)
            && self.duration_us_min.is_none_or(|min| min <= record.duration_us)
            && self.cost_min.is_none_or(|min| cost.is_some_and(|cost| min <= cost))
            && self.cost_max.is_none_or(|max| cost.is_some_and(|cost| cost <= max))
            && self.error.as_deref().is_none_or(|error| record.name(RecordName::Error) == error)
            && self.request_id_prefix.as_deref().is_none_or(|prefix| record.request_id.starts_with(prefix))
            && has_names(record, &self.names)
            && self.marks.fit(record)
    }

    /// True if a block with these names may contain an exchange that passes.
    pub(crate) fn may_pass(&self, names: &[&str]) -> bool {
        let wanted = self.names.iter().map(|(_, name)| name).chain(&self.error);
        wanted.filter(|name| !name.is_empty()).all(|name| names.contains(&name.as_str()))
            && self.marks.may_fit(names)
    }
}

/// The newest rows found so far.
struct Newest {
    /// The rows as a heap, with the oldest on top.
    rows: BinaryHeap<Reverse<RequestEntry>>,
    limit: usize,
}

struct RequestEntry {
    place: RequestCursor,
    row: RequestRow,
}

impl Newest {
    /// True if no exchange that started at `last_ms` or earlier can be among the newest rows.
    fn is_before(&self, last_ms: u64) -> bool {
        let is_full = self.rows.len() >= self.limit;
        is_full && self.rows.peek().is_some_and(|Reverse(oldest)| last_ms < oldest.place.started_at_ms)
    }

    /// Adds the exchanges of a block that are newer than the oldest row, or for which there is room.
    fn take_block(&mut self, passing: &Passing<'_>, packed: &[u8]) {
        for (place, bytes) in passing.of(packed) {
            if self.rows.len() >= self.limit {
                if self.rows.peek().is_none_or(|Reverse(oldest)| place < oldest.place) {
                    return;
                }
                self.rows.pop();
            }
            if let Some((record, _)) = block::record(bytes, passing.names) {
                let row = RequestRow::of(&record, OwnerNames::default(), None);
                self.rows.push(Reverse(RequestEntry { place, row }));
            }
        }
    }

    /// Returns the page. If the search stopped at `end`, older rows are dropped, because others between them may be
    /// missing.
    fn page(self, limit: usize, end: Option<RequestCursor>) -> RequestRows {
        let mut rows = self.rows.into_sorted_vec();
        rows.retain(|Reverse(entry)| end.is_none_or(|end| end <= entry.place));
        let more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().map(|Reverse(entry)| entry.place);
        let next = if more { last } else { end };
        RequestRows { rows: rows.into_iter().map(|Reverse(entry)| entry.row).collect(), next }
    }
}

impl PartialEq for RequestEntry {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl Eq for RequestEntry {}

impl PartialOrd for RequestEntry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RequestEntry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.place.cmp(&other.place)
    }
}

impl RequestRow {
    /// Returns the first target that was considered.
    pub(crate) fn first_step(&self) -> Option<&RequestStep> {
        self.trace.as_ref()?.first()
    }

    pub(crate) fn of(record: &Record<'_>, owners: OwnerNames, trace: Option<Trace<'_>>) -> Self {
        let name = |name| record.name(name).to_owned();
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let or_none = |name| some(record.name(name));
        let lost_nano_usd = rare_fields::lost(&record.lost).filter_map(|(_, lost)| lost.cost_nano_usd).sum();
        Self {
            request_id: record.request_id.to_owned(),
            started_at_ms: record.started_at_ms,
            duration_us: record.duration_us,
            operation: name(RecordName::Operation),
            key: name(RecordName::Key),
            project: or_none(RecordName::Project),
            principal: or_none(RecordName::Principal),
            owners,
            selector: name(RecordName::Selector),
            endpoint: or_none(RecordName::Endpoint),
            provider: or_none(RecordName::Provider),
            model: or_none(RecordName::Model),
            stream: record.stream,
            status: record.status,
            outcome: name(RecordName::Outcome),
            error: or_none(RecordName::Error),
            tokens: record.tokens.list(),
            units: record.units,
            provenance: name(RecordName::Provenance),
            tier: or_none(RecordName::Tier),
            picture: or_none(RecordName::Picture),
            cost_micro_usd: record.cost_nano_usd.map(MicroUsd),
            lost_micro_usd: MicroUsd(lost_nano_usd),
            vendor_cost_micro_usd: record.vendor_cost_nano_usd.map(MicroUsd),
            price: or_none(RecordName::Price),
            upstream_id: some(record.upstream_id),
            tags: dimension::tags(record.name(RecordName::Tags))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            end_user: or_none(RecordName::EndUser),
            head_us: record.head_us,
            first_content_us: record.first_content_us,
            trace: trace.map(|trace| steps(record, trace)),
        }
    }
}

fn steps(record: &Record<'_>, trace: Trace<'_>) -> Vec<RequestStep> {
    let step = |step: RecordStep<'_>| RequestStep {
        provider: step.provider.to_owned(),
        model: step.model.to_owned(),
        result: step.result.to_owned(),
        status: step.status,
        head_us: step.head_us,
        spent_us: step.spent_us,
        lost: None,
    };
    let mut steps: Vec<RequestStep> = trace.map(step).collect();
    for (place, lost) in rare_fields::lost(&record.lost) {
        if let Some(step) = steps.get_mut(place) {
            step.lost = Some(LostShown::of(lost));
        }
    }
    steps
}

/// Bits of an exchange's position in its block, below the id of the block. A block contains fewer exchanges than this
/// can count.
const BLOCK_BITS: u32 = 20;

const NEWEST_FIRST: &str = "SELECT * FROM usage \
     WHERE last_ms >= :from AND first_ms < :to ORDER BY last_ms DESC";
const BETWEEN: &str = "SELECT * FROM usage WHERE last_ms >= ?1 AND first_ms <= ?2";
const BLOCK: &str = "SELECT * FROM usage WHERE id = :id AND (:after IS NULL OR last_ms > :after)";

#[cfg(test)]
mod tests;
