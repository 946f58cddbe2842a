//! Reads the table `usage`: pages of exchanges, newest first, and single exchanges with their trace.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::time::Instant;

use records::{Record, Trace, block};

use crate::db::cluster::nodes::NodeLabel;
use crate::db::engine::{Db, DbResult, named_params};
use crate::db::names::{Labels, OwnerNames};
use crate::db::packed_row::{PackedRow, unless_damaged};
use crate::db::record_id::RecordId;
use crate::db::signed;
use crate::usage::request_index;
use crate::usage::scope::UsageScope;

mod all;
pub(crate) mod attempts;
pub(crate) mod exchange_end;
mod filter;
mod row;
mod search;

pub(crate) use self::all::each;
pub(crate) use self::filter::{Column, RequestFilter, has_names};
pub(crate) use self::row::{RequestRow, by_class, cancelled_by, protocol, units_by_class};
pub(crate) use self::search::Search;

/// The last row of the previous page, or the position up to which that page has searched. Later exchanges are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestCursor {
    pub(crate) started_at_ms: u64,
    /// The id of the row, and below it the position of the exchange in the row.
    pub(crate) id: u128,
}

impl RequestCursor {
    /// Returns the place of the exchange at a position of a row.
    fn of(record: &Record<'_>, row: RecordId, at: u32) -> Self {
        // An id that was read has a number.
        let row = row.stored().map_or(u128::MAX >> BLOCK_BITS, |number| u128::from(number.cast_unsigned()));
        Self { started_at_ms: record.started_at_ms, id: (row << BLOCK_BITS) + u128::from(at) }
    }
}

/// A page of exchanges, newest first.
#[derive(Debug)]
pub(crate) struct RequestRows {
    pub(crate) rows: Vec<RequestRow>,
    /// The start of the next page, if there is one.
    pub(crate) next: Option<RequestCursor>,
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
    db: &Db,
    filter: &RequestFilter,
    cursor: Option<RequestCursor>,
    bounds: Bounds,
) -> DbResult<RequestRows> {
    let limit = usize::try_from(bounds.rows).unwrap_or(usize::MAX);
    let filter = &filter.resolved(db)?;
    let to_ms = filter
        .to_ms
        .unwrap_or(u64::MAX)
        .min(cursor.map_or(u64::MAX, |at| at.started_at_ms.saturating_add(1)));
    let start = cursor.unwrap_or(RequestCursor { started_at_ms: u64::MAX, id: 0 });
    let mut newest = Newest { rows: BinaryHeap::new(), limit: limit.saturating_add(1) };
    let mut statement = db.prepare(NEWEST_FIRST)?;
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
        if !filter.may_pass(row.id, &row.names) {
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
    block: RecordId,
    names: &'a [&'a str],
}

impl Passing<'_> {
    /// Returns their positions and bytes, newest first.
    fn of<'a>(&self, packed: &'a [u8]) -> Vec<(RequestCursor, &'a [u8])> {
        let place = |(at, bytes): (u32, &'a [u8])| {
            let (record, trace) = block::record(bytes, self.names)?;
            let place = RequestCursor::of(&record, self.block, at);
            let passes =
                self.filter.passes(&record, trace) && self.cursor.is_none_or(|cursor| place < cursor);
            passes.then_some((place, bytes))
        };
        let mut places: Vec<_> = (0..).zip(block::pieces(packed)).filter_map(place).collect();
        places.sort_unstable_by_key(|(place, _)| Reverse(*place));
        places
    }
}

impl RequestRows {
    fn named(mut self, db: &Db) -> DbResult<Self> {
        add_owners(db, &mut self.rows)?;
        Ok(self)
    }
}

/// Adds the names of keys, projects and humans to their ids.
pub(crate) fn add_owners(db: &Db, rows: &mut [RequestRow]) -> DbResult<()> {
    let mut labels = Labels::default();
    for row in rows {
        let ids = [Some(row.key.as_str()), row.project.as_deref(), row.principal.as_deref()];
        row.owners = OwnerNames::of(db, &mut labels, ids)?;
    }
    Ok(())
}

/// The exchanges with a request id, which clients choose: several may have the same one, also of different projects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedRequest {
    pub(crate) request_id: String,
    /// The start of one of them, in milliseconds since the Unix epoch; `None` for the newest one.
    pub(crate) started_at_ms: Option<u64>,
    /// Those that the caller may see. Others do not hide them.
    pub(crate) scope: UsageScope,
}

impl NamedRequest {
    /// Names the newest exchange with this id, of any project.
    pub(crate) fn newest(request_id: impl Into<String>) -> Self {
        Self { request_id: request_id.into(), ..Self::default() }
    }

    fn is(&self, record: &Record<'_>) -> bool {
        record.request_id == self.request_id
            && self.started_at_ms.is_none_or(|at_ms| record.started_at_ms == at_ms)
            && self.scope.has(record)
    }
}

/// Returns the newest exchange that `wanted` names, with its trace.
pub(crate) fn row(db: &Db, wanted: &NamedRequest) -> DbResult<Option<RequestRow>> {
    let (mut found, newest_ms) = (None, Cell::new(None));
    let is_over = |before_ms| newest_ms.get().is_some_and(|newest_ms| before_ms <= newest_ms);
    request_index::each_row_with(db, &wanted.request_id, is_over, |id| {
        if let Some(newer) = newest_of(db, id, wanted, newest_ms.get())? {
            newest_ms.set(Some(newer.started_at_ms));
            found = Some(newer);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Returns the ids and start times of those `records` that are stored in rows that are not damaged.
pub(crate) fn stored<'a>(
    db: &Db,
    records: impl Iterator<Item = &'a Record<'a>>,
) -> DbResult<HashSet<(String, u64)>> {
    let wanted: HashSet<_> = records.map(|record| (record.request_id, record.started_at_ms)).collect();
    let mut stored = HashSet::new();
    let begun = || wanted.iter().map(|(_, at)| *at);
    let (Some(from), Some(to)) = (begun().min(), begun().max()) else { return Ok(stored) };
    let mut statement = db.prepare(BETWEEN)?;
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

/// Returns the newest exchange that `wanted` names in one block, if it started after `after_ms`.
fn newest_of(
    db: &Db,
    id: RecordId,
    wanted: &NamedRequest,
    after_ms: Option<u64>,
) -> DbResult<Option<RequestRow>> {
    let mut statement = db.prepare(BLOCK)?;
    let mut blocks = statement.query(named_params! {":id": id, ":after": after_ms.map(signed)})?;
    let Some(block) = blocks.next()? else { return Ok(None) };
    let row = PackedRow::read(block)?;
    let rows = block::rows(row.rows()?, &row.names).flatten();
    let newest = rows
        .filter(|(record, _)| wanted.is(record))
        .filter(|(record, _)| after_ms.is_none_or(|after_ms| after_ms < record.started_at_ms))
        .max_by_key(|(record, _)| record.started_at_ms);
    let row = |(record, trace): (Record<'_>, Trace<'_>)| {
        let owners = OwnerNames::of_record(db, &mut Labels::default(), &record)?;
        let mut row = RequestRow::of(&record, owners, trace).with_trace(&record, trace);
        row.node = NodeLabel::of(db, id.node())?;
        Ok(row)
    };
    newest.map(row).transpose()
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
            if let Some((record, trace)) = block::record(bytes, passing.names) {
                let row = RequestRow::of(&record, OwnerNames::default(), trace);
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

/// Bits of an exchange's position in its block, below the id of the block. A block contains fewer exchanges than this
/// can count.
const BLOCK_BITS: u32 = 20;

const NEWEST_FIRST: &str = "SELECT * FROM usage \
     WHERE last_ms >= :from AND first_ms < :to ORDER BY last_ms DESC";
const BETWEEN: &str = "SELECT * FROM usage WHERE last_ms >= :from AND first_ms <= :to";
const BLOCK: &str = "SELECT * FROM usage WHERE id = :id AND (:after IS NULL OR last_ms > :after)";

#[cfg(test)]
mod tests;
