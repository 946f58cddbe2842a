//! Lists, paged by cursor: `{"data": [...], "next_cursor": null | string}` (ADM-2).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ApiError;
use super::cursor::Cursor;
use super::query::Number;

/// The requested page of a list, which is in its own order or sorted by a column `C`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageOf<C = NoColumn> {
    /// The last id of the previous page of a list in its own order; empty for the first page and for a sorted list.
    pub(crate) after: String,
    pub(crate) limit: usize,
    sorted: Option<SortedPage<C>>,
}

/// The columns of a list that is always in its own order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum NoColumn {}

/// The requested page of a sorted list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SortedPage<C> {
    sorting: Sorting<C>,
    /// The place of the last row of the previous page; `None` for the first page.
    after: Option<Place>,
    /// The time since which the rows of the list are sorted, if older ones are left out.
    since_ms: Option<u64>,
}

/// The page of a list.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Paging {
    /// The maximum number of entries on the page. 50 if absent.
    limit: Option<Number<1, 500>>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SortedBy<C> {
    /// The column by which the list is sorted. In its own order if absent.
    pub(crate) sort: Option<C>,
    /// The direction of `sort`. Descending if absent.
    pub(crate) order: Option<Direction>,
}

/// The page of a list that can be sorted by a column `C`.
pub(crate) type SortedPaging<C> = (Paging, SortedBy<C>);

/// The filter of a list by text.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Containing {
    /// A part of the name, in any case.
    pub(crate) q: Option<String>,
}

impl Containing {
    pub(crate) fn lower_case(self) -> Option<String> {
        self.q.map(|text| text.to_lowercase())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Direction {
    Desc,
    Asc,
}

/// The column by which a list is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sorting<C> {
    pub(crate) column: C,
    pub(crate) descending: bool,
}

impl Paging {
    pub(crate) fn limit(&self) -> usize {
        self.limit.map_or(LIMIT_DEFAULT, Number::rows)
    }

    pub(crate) fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// Returns the page of a list in its own order.
    pub(crate) fn page(self) -> PageOf {
        PageOf { limit: self.limit(), after: self.cursor.unwrap_or_default(), sorted: None }
    }
}

impl<C> SortedBy<C> {
    /// Returns the column and the direction.
    pub(crate) fn sorting(self) -> Result<Option<Sorting<C>>, ApiError> {
        if self.sort.is_none() && self.order.is_some() {
            let message = "order requires sort, which names the field to sort by.";
            return Err(ApiError::parameter("order", message));
        }
        let descending = self.order != Some(Direction::Asc);
        Ok(self.sort.map(|column| Sorting { column, descending }))
    }
}

impl<C: Copy> PageOf<C> {
    /// Returns the page that a query asks for.
    pub(crate) fn of((paging, sorted_by): SortedPaging<C>) -> Result<Self, ApiError>
    where
        C: Serialize,
    {
        let limit = paging.limit();
        let read = paging.cursor().and_then(|text| Cursor::<SortCursor>::read(text).ok());
        let Some(sorting) = sorted_by.sorting()? else {
            return match read {
                Some(cursor) => Err(cursor.misused()),
                None => Ok(Self { after: paging.cursor.unwrap_or_default(), limit, sorted: None }),
            };
        };
        let sorted = match (paging.cursor, read) {
            (None, _) => SortedPage { sorting, after: None, since_ms: None },
            (Some(_), Some(cursor)) => cursor.page(sorting)?,
            (Some(_), None) => return Err(ApiError::parameter("cursor", FOREIGN_CURSOR)),
        };
        Ok(Self { after: String::new(), limit, sorted: Some(sorted) })
    }

    /// Returns the number of rows to query: one more than the page holds, to detect whether another page follows. A sorted
    /// page needs all rows.
    pub(crate) fn rows(&self) -> i64 {
        match self.sorted {
            Some(_) => i64::MAX,
            None => i64::try_from(self.limit).unwrap_or(i64::MAX).saturating_add(1),
        }
    }

    /// Same as [`Self::rows`] for a list in memory.
    pub(crate) fn rows_max(&self) -> usize {
        usize::try_from(self.rows()).unwrap_or(usize::MAX)
    }

    /// The only page of a list, which may be sorted.
    pub(crate) fn whole(sorting: Option<Sorting<C>>) -> Self {
        let sorted = sorting.map(|sorting| SortedPage { sorting, after: None, since_ms: None });
        Self { after: String::new(), limit: usize::MAX - 1, sorted }
    }

    /// Returns the time since which the rows of the previous page were sorted, if older ones were left out.
    pub(crate) fn since_ms(&self) -> Option<u64> {
        self.sorted.as_ref().and_then(|sorted| sorted.since_ms)
    }

    /// True if the last row of the previous page had a value in the column by which the list is sorted.
    pub(crate) fn follows_known(&self) -> bool {
        matches!(self.last_rank(), Some(Rank::By(_)))
    }

    /// True if the last row of the previous page had no value in the column by which the list is sorted.
    pub(crate) fn follows_unknown(&self) -> bool {
        matches!(self.last_rank(), Some(Rank::Unknown))
    }

    fn last_rank(&self) -> Option<&Rank> {
        Some(&self.sorted.as_ref()?.after.as_ref()?.rank)
    }

    /// Returns the column by which the list is sorted; `None` for a list in its own order.
    pub(crate) fn column(&self) -> Option<C> {
        self.sorted.as_ref().map(|sorted| sorted.sorting.column)
    }
}

/// The value by which a row is sorted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum SortValue {
    Number(u64),
    /// In lower case.
    Text(String),
}

impl From<u64> for SortValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for SortValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_lowercase())
    }
}

/// The place of a row in a list. Rows of equal rank are ordered by id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    rank: Rank,
    id: Directed<String>,
}

/// The rank of a row in a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The number of the row in the list's own order.
    Own(usize),
    By(Directed<SortValue>),
    /// The row has no value. Such rows come last in either direction.
    Unknown,
}

/// A value that is compared in the direction of its list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Directed<T> {
    Ascending(T),
    Descending(Reverse<T>),
}

impl<T> Directed<T> {
    fn of(value: T, descending: bool) -> Self {
        if descending { Self::Descending(Reverse(value)) } else { Self::Ascending(value) }
    }

    fn into_value(self) -> T {
        match self {
            Self::Ascending(value) | Self::Descending(Reverse(value)) => value,
        }
    }
}

impl Place {
    fn sorted(value: Option<SortValue>, id: String, descending: bool) -> Self {
        let rank = value.map_or(Rank::Unknown, |value| Rank::By(Directed::of(value, descending)));
        Self { rank, id: Directed::of(id, descending) }
    }
}

/// The content of the cursor of a sorted list.
#[derive(Serialize, Deserialize)]
struct SortCursor {
    sort: String,
    descending: bool,
    value: Option<SortValue>,
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
}

impl SortCursor {
    fn of<C: Serialize>(sorting: &Sorting<C>, place: Place, since_ms: Option<u64>) -> Self {
        let value = match place.rank {
            Rank::By(value) => Some(value.into_value()),
            Rank::Own(_) | Rank::Unknown => None,
        };
        let (sort, descending) = (name(&sorting.column), sorting.descending);
        Self { sort, descending, value, id: place.id.into_value(), since_ms }
    }

    /// Returns the page that begins after the row; fails if the cursor is of a list in another order.
    fn page<C: Serialize>(self, sorting: Sorting<C>) -> Result<SortedPage<C>, ApiError> {
        if (&self.sort, self.descending) != (&name(&sorting.column), sorting.descending) {
            return Err(self.misused());
        }
        let after = Some(Place::sorted(self.value, self.id, self.descending));
        Ok(SortedPage { sorting, after, since_ms: self.since_ms })
    }

    fn misused(&self) -> ApiError {
        let order = if self.descending { "desc" } else { "asc" };
        let message = format!(
            "cursor is of a list with sort={} and order={order}; send it with these, or omit it for the first page.",
            self.sort
        );
        ApiError::parameter("cursor", message)
    }
}

/// Returns the name of a column.
fn name(column: &impl Serialize) -> String {
    let name = serde_json::to_value(column).unwrap_or_default();
    name.as_str().unwrap_or_default().to_owned()
}

/// One page of a list.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "{T}Page"))]
pub(crate) struct ListPage<T> {
    data: Vec<T>,
    /// The `cursor` of the next page; null on the last one.
    next_cursor: Option<String>,
}

impl<T> ListPage<T> {
    /// Builds a page from `rows`, queried with [`PageOf::rows`]; `id` returns a row's position in the order.
    pub(crate) fn page(rows: Vec<T>, page: &PageOf, id: impl Fn(&T) -> &str) -> Self {
        Self::sorted(rows, page, id, |_, column| match column {})
    }

    /// Same as [`Self::page`] for a list that can be sorted; `value` returns the value of a row in a column.
    pub(crate) fn sorted<C: Copy + Serialize>(
        rows: impl IntoIterator<Item = T>,
        page: &PageOf<C>,
        id: impl Fn(&T) -> &str,
        value: impl Fn(&T, C) -> Option<SortValue>,
    ) -> Self {
        let mut found = PageRows::new(page);
        for row in rows {
            found.add(row, &id, &value);
        }
        found.page()
    }

    /// Converts the rows of the page.
    pub(crate) fn map<U>(self, shown: impl FnMut(T) -> U) -> ListPage<U> {
        ListPage { data: self.data.into_iter().map(shown).collect(), next_cursor: self.next_cursor }
    }

    /// A complete list that never exceeds one page.
    pub(crate) fn whole(rows: Vec<T>) -> Self {
        Self { data: rows, next_cursor: None }
    }

    pub(crate) fn rows(&self) -> &[T] {
        &self.data
    }

    /// Returns the rows and the cursor of the next page.
    pub(crate) fn into_parts(self) -> (Vec<T>, Option<String>) {
        (self.data, self.next_cursor)
    }
}

/// The rows of a page while a list is read. Holds at most one row more than the page, however long the list is.
#[derive(Debug)]
pub(crate) struct PageRows<'a, T, C> {
    page: &'a PageOf<C>,
    rows: BTreeMap<Place, T>,
}

impl<'a, T, C: Copy + Serialize> PageRows<'a, T, C> {
    pub(crate) fn new(page: &'a PageOf<C>) -> Self {
        Self { page, rows: BTreeMap::new() }
    }

    /// Takes the next row of the list. Drops it if it is not on the page.
    pub(crate) fn add(
        &mut self,
        row: T,
        id: impl FnOnce(&T) -> &str,
        value: impl FnOnce(&T, C) -> Option<SortValue>,
    ) {
        let id = id(&row).to_owned();
        let value = self.page.column().and_then(|column| value(&row, column));
        self.add_with(value, id, || row);
    }

    /// Same as [`Self::add`] for a row that is built only if it is on the page.
    pub(crate) fn add_with(&mut self, value: Option<SortValue>, id: String, row: impl FnOnce() -> T) {
        let (place, after) = match &self.page.sorted {
            None => (Place { rank: Rank::Own(self.rows.len()), id: Directed::Ascending(id) }, None),
            Some(SortedPage { sorting, after, .. }) => {
                (Place::sorted(value, id, sorting.descending), after.as_ref())
            }
        };
        let is_full = self.rows.len() > self.page.limit;
        let is_late = is_full && self.rows.last_key_value().is_some_and(|(last, _)| *last < place);
        if is_late || after.is_some_and(|after| place <= *after) {
            return;
        }
        self.rows.insert(place, row());
        if is_full {
            self.rows.pop_last();
        }
    }

    pub(crate) fn page(self) -> ListPage<T> {
        self.page_since(None)
    }

    /// Same as [`Self::page`] if the rows before `since_ms` are left out on this page and those that follow.
    pub(crate) fn page_since(mut self, since_ms: Option<u64>) -> ListPage<T> {
        let more = self.rows.len() > self.page.limit;
        if more {
            self.rows.pop_last();
        }
        let last = self.rows.last_key_value().filter(|_| more).map(|(place, _)| place.clone());
        let next_cursor = last.map(|place| match &self.page.sorted {
            None => place.id.into_value(),
            Some(SortedPage { sorting, .. }) => Cursor(SortCursor::of(sorting, place, since_ms)).text(),
        });
        ListPage { data: self.rows.into_values().collect(), next_cursor }
    }
}

const LIMIT_DEFAULT: usize = 50;
const FOREIGN_CURSOR: &str = "cursor must be the next_cursor of an earlier page with the same sort and order; omit it for the first page.";
