//! Lists, paged by cursor: `{"data": [...], "next_cursor": null | string}` (ADM-2).

use serde::Serialize;

use super::ApiError;
use super::query::Query;

/// The requested page of a list that is ordered by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageOf {
    /// The last id of the previous page; empty for the first page.
    pub(crate) after: String,
    pub(crate) limit: usize,
}

impl PageOf {
    /// Takes `limit` and `cursor` out of a query.
    pub(crate) fn take(query: &mut Query) -> Result<Self, ApiError> {
        let limit = query.number("limit", 1, LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT);
        Ok(Self { after: query.text("cursor").unwrap_or_default(), limit })
    }

    /// Returns the number of rows to query: one more than the page holds, to detect whether another page follows.
    pub(crate) fn rows(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(i64::MAX).saturating_add(1)
    }
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
    pub(crate) fn page(mut rows: Vec<T>, page: &PageOf, id: impl Fn(&T) -> &str) -> Self {
        let more = rows.len() > page.limit;
        rows.truncate(page.limit);
        let next_cursor = rows.last().filter(|_| more).map(|row| id(row).to_owned());
        Self { data: rows, next_cursor }
    }

    /// Converts the rows of the page.
    pub(crate) fn map<U>(self, shown: impl FnMut(T) -> U) -> ListPage<U> {
        ListPage { data: self.data.into_iter().map(shown).collect(), next_cursor: self.next_cursor }
    }

    /// A complete list that never exceeds one page.
    pub(crate) fn whole(rows: Vec<T>) -> Self {
        Self { data: rows, next_cursor: None }
    }
}

const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 500;
