//! The use of keys and projects since the beginning of the month, for lists of them. A list sums only the objects of its
//! page, unless it is sorted by these sums.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use shared::clock::unix_ms;
use shared::quota::Period;

use super::list::{ListPage, PageOf, SortValue};
use crate::common::money::MicroUsd;
use crate::db::HOUR_MS;
use crate::db::engine::{Db, DbError, DbResult};
use crate::usage::dimension::{Dimension, Marks};
use crate::usage::report::calendar::Calendar;
use crate::usage::report::{ReportQuestion, SORTED_MAX, in_time, sums};
use crate::usage::requests::Column;
use crate::usage::scope::UsageScope;
use crate::usage::sums::UsageSums;

/// The use of an object since the beginning of this month in UTC.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct MonthSpend {
    pub(super) requests: u64,
    /// Attempts, failed ones included, whose cost is unknown and not in the sum.
    pub(super) requests_unpriced: u64,
    /// The known cost, including failed attempts.
    pub(super) cost_micro_usd: MicroUsd,
}

/// A page of a list whose rows show their use.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "{T}Page"))]
pub(super) struct SpendPage<T> {
    data: Vec<T>,
    /// The `cursor` of the next page; null on the last one.
    next_cursor: Option<String>,
    /// True if the list is not in order of `spend`, although this was wanted, because the use of all its objects could not
    /// be summed in time. It is then in order of the IDs.
    partial: bool,
}

/// The use by which a list is sorted.
#[derive(Debug)]
pub(super) struct SpendRanks {
    /// True if the list is to be sorted by it.
    is_wanted: bool,
    /// The use of all objects, if it is wanted and could be summed in time.
    months: Option<MonthSpends>,
}

impl SpendRanks {
    /// Returns the value of the object `id`.
    pub(super) fn value(&self, id: &str) -> Option<SortValue> {
        self.months.as_ref().map(|months| months.of_id(id).cost_micro_usd.0.into())
    }
}

/// The use of the rows of a page.
#[derive(Debug)]
pub(super) struct PageSpend {
    /// `None` if it could not be summed in time.
    months: Option<MonthSpends>,
    /// True if the list should be in order of the use of all objects and is not.
    partial: bool,
}

impl PageSpend {
    pub(super) fn of_id(&self, id: &str) -> Option<MonthSpend> {
        self.months.as_ref().map(|months| months.of_id(id))
    }

    /// Returns the page with its rows as `listed` shows them.
    pub(super) fn page<T, U>(
        &self,
        found: ListPage<T>,
        listed: impl FnMut(T) -> DbResult<U>,
    ) -> DbResult<SpendPage<U>> {
        let (rows, next_cursor) = found.into_parts();
        let data = rows.into_iter().map(listed).collect::<DbResult<_>>()?;
        Ok(SpendPage { data, next_cursor, partial: self.partial })
    }
}

/// The use of objects since the beginning of this month.
#[derive(Debug)]
struct MonthSpends(HashMap<String, MonthSpend>);

impl MonthSpends {
    fn of_id(&self, id: &str) -> MonthSpend {
        self.0.get(id).copied().unwrap_or_default()
    }
}

/// Sums the use of the objects of a list.
#[derive(Debug)]
pub(super) struct SpendReading {
    /// The column that holds the IDs of the objects.
    column: Column,
    scope: UsageScope,
    /// The time at which a sum is given up.
    until: Instant,
}

impl SpendReading {
    pub(super) fn new(column: Column, scope: UsageScope) -> Self {
        Self { column, scope, until: Instant::now() + READING_TIME }
    }

    /// Returns the use by which the list is sorted if `is_wanted`. A list keeps to the order of its first page: if the use
    /// was not known there, later pages do without it, and if it was, a later page without it fails.
    pub(super) fn ranks<C: Copy>(&self, db: &Db, page: &PageOf<C>, is_wanted: bool) -> DbResult<SpendRanks> {
        let months =
            if is_wanted && !page.follows_unknown() { self.sum(db, self.scope.clone())? } else { None };
        if months.is_none() && is_wanted && page.follows_known() {
            return Err(DbError::too_slow());
        }
        Ok(SpendRanks { is_wanted, months })
    }

    /// Returns the use of the rows of a page.
    pub(super) fn of_page<T>(
        &self,
        db: &Db,
        ranks: SpendRanks,
        page: &ListPage<T>,
        id: impl Fn(&T) -> &str,
    ) -> DbResult<PageSpend> {
        let partial = ranks.is_wanted && ranks.months.is_none();
        let months = match ranks.months {
            Some(months) => Some(months),
            None => {
                let ids = page.rows().iter().map(|row| id(row).to_owned()).collect();
                self.sum(db, self.scope.clone().only(self.column, ids))?
            }
        };
        Ok(PageSpend { months, partial })
    }

    /// Sums the exchanges in `scope`. Returns `None` if that takes too long.
    fn sum(&self, db: &Db, scope: UsageScope) -> DbResult<Option<MonthSpends>> {
        let now_ms = unix_ms();
        let from_ms = Period::Month.window(now_ms).map_or(now_ms, |(start_ms, _)| start_ms);
        let found = in_time(sums_until(db, self.column, from_ms, scope, self.until))?;
        let spend = |(id, sums): (String, UsageSums)| {
            let spend = MonthSpend {
                requests: sums.requests,
                requests_unpriced: sums.unpriced,
                cost_micro_usd: MicroUsd(sums.cost_nano_usd),
            };
            (id, spend)
        };
        // There may be more objects than a report returns.
        let whole = found.filter(|found| found.len() < SORTED_MAX);
        Ok(whole.map(|found| MonthSpends(found.into_iter().map(spend).collect())))
    }
}

/// Sums the exchanges in `scope` that started since `from_ms`, a full hour, by the ids that `column` holds. Only sums of
/// full hours are read, not the exchanges.
pub(super) fn sums_since(
    db: &Db,
    column: Column,
    from_ms: u64,
    scope: UsageScope,
) -> DbResult<HashMap<String, UsageSums>> {
    sums_until(db, column, from_ms, scope, Instant::now() + READING_TIME)
}

fn sums_until(
    db: &Db,
    column: Column,
    from_ms: u64,
    scope: UsageScope,
    until: Instant,
) -> DbResult<HashMap<String, UsageSums>> {
    let question = ReportQuestion {
        from_ms,
        to_ms: (unix_ms() / HOUR_MS).saturating_add(1).saturating_mul(HOUR_MS),
        calendar: Calendar::whole(),
        group_by: vec![Dimension::Column(column)],
        filters: Vec::new(),
        marks: Marks::default(),
        scope,
    };
    let (groups, _) = sums(db, &question, until)?;
    let named = groups.into_iter().filter_map(|mut group| Some((group.names.pop()??, group.sums)));
    Ok(named.collect())
}

const READING_TIME: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::id::KeyId;
    use shared::usage::{UsageEvent, UsageLog as _};

    use super::*;
    use crate::admin::query::Query;
    use crate::usage::tests::{Process, event};

    /// Stores a request of each of the keys `a`, `b` and `c`, of which `a` is the dearest and `b` the cheapest.
    fn with_keys(home: &std::path::Path) -> Process {
        let mut process = Process::start(home);
        let mut log = process.journal.log().unwrap();
        for (n, key, cost) in [(0, "a", 900), (1, "b", 5), (2, "c", 40)] {
            let (key, started_at_ms) = (KeyId::new(key), unix_ms());
            log.append(&UsageEvent { key, started_at_ms, cost_nano_usd: Some(cost * 1_000), ..event(n) });
        }
        process.settle();
        process
    }

    #[derive(Clone, Copy, Serialize, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum SpendColumn {
        Spend,
    }

    /// Returns a page of the keys, whose use is summed until `until`.
    fn keys(db: &Db, query: &str, until: Instant) -> DbResult<Value> {
        let page = PageOf::of(Query::parse(query).unwrap().take_all().unwrap()).unwrap();
        let spend = SpendReading { column: Column::Key, scope: UsageScope::default(), until };
        let ranks = spend.ranks(db, &page, page.column().is_some())?;
        let found =
            ListPage::sorted(["a", "b", "c"], &page, |key| *key, |key, SpendColumn::Spend| ranks.value(key));
        let months = spend.of_page(db, ranks, &found, |key| *key)?;
        let listed = |key| Ok((key, months.of_id(key).map(|month| month.cost_micro_usd)));
        Ok(json!(months.page(found, listed)?))
    }

    #[test]
    fn a_list_that_cannot_be_sorted_in_time_says_so_and_keeps_its_order_over_all_pages() {
        let home = tempfile::TempDir::new().unwrap();
        let mut process = with_keys(home.path());
        let db = process.meter.db_mut();
        let (past, far) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        let sorted = "sort=spend&order=asc&limit=2";
        let next = |page: &Value| format!("{sorted}&cursor={}", page["next_cursor"].as_str().unwrap());
        let late = keys(db, sorted, past).unwrap();
        assert_eq!((&late["data"], &late["partial"]), (&json!([["a", null], ["b", null]]), &json!(true)));
        let rest = keys(db, &next(&late), far).unwrap();
        assert_eq!((&rest["data"], &rest["partial"]), (&json!([["c", 40.0]]), &json!(true)));
        let whole = keys(db, sorted, far).unwrap();
        assert_eq!((&whole["data"], &whole["partial"]), (&json!([["b", 5.0], ["c", 40.0]]), &json!(false)));
        let broken = keys(db, &next(&whole), past).unwrap_err();
        assert_eq!(broken.kind(), DbError::too_slow().kind());
        assert_eq!(keys(db, &next(&whole), far).unwrap()["data"], json!([["a", 900.0]]));
        let own = keys(db, "", past).unwrap();
        assert_eq!((&own["data"][0], &own["partial"]), (&json!(["a", null]), &json!(false)));
    }

    #[test]
    fn only_the_objects_of_a_page_are_summed() {
        let home = tempfile::TempDir::new().unwrap();
        let mut process = with_keys(home.path());
        let db = process.meter.db_mut();
        let spend = SpendReading::new(Column::Key, UsageScope::default());
        let scope = UsageScope::default().only(Column::Key, ["b".to_owned(), "x".to_owned()].into());
        let found = spend.sum(db, scope).unwrap().unwrap();
        assert_eq!(found.0.keys().collect::<Vec<_>>(), ["b"]);
    }
}
