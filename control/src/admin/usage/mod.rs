//! `GET /admin/api/usage`: sums over a period, in total or by group and time bucket, in pages.

mod charge;
mod csv;
pub(crate) mod export;
mod reconcile;
mod reprice;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::{Method, Response};
use serde::{Deserialize, Serialize};
use shared::clock::unix_ms;
use shared::port::Body;
use shared::usage::{Class, TokenCounts, Units};

use self::charge::{Charge, ChargeQuery};
use super::cursor::Cursor;
use super::list::{Direction, SortedBy};
use super::query::{Choice, CommaList, LocalSpan, Named, Number, choose};
use super::reference::FileContent;
use super::requests::{ColumnQuery, MarkQuery};
use super::{ApiError, Call, Route, json, route_of, write_of};
use crate::admin::permission::Permission;
use crate::common::money::MicroUsd;
use crate::db::engine::{Db, DbResult};
use crate::db::names::{Labels, NameLabel, NamedKind};
use crate::usage::dimension::{CLIENT, Dimension, END_USER, TAG};
use crate::usage::report::calendar::{BucketLength, Calendar};
use crate::usage::report::{
    GroupOrder, ReportCursor, ReportGroup, ReportPage, ReportPart, ReportQuestion, SORTED_MAX, Unanswerable,
    page,
};
use crate::usage::requests::{Column, by_class, units_by_class};
use crate::usage::sums::{Figure, UsageSums};
use crate::writer::FLUSH_TIME_MAX;

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "usage", |call| Box::pin(report(call)))
        .answers::<UsageAnswer>("Sums usage by groups and buckets of time.")
        .query::<UsageList>()
        .permits(Permission::SeeUsage),
    route_of(Method::GET, "usage/export", |call| Box::pin(export::export(call)))
        .answers::<FileContent>("Sends the records as a file.")
        .query::<export::ExportList>()
        .permits(Permission::SeeUsage),
    route_of(Method::POST, "usage/reconcile", |call| Box::pin(reconcile::reconcile(call)))
        .answers::<reconcile::ReconcileAnswer>("Compares the records with a vendor's export.")
        .takes::<reconcile::ReconcileRequest>()
        .acts_each_time(),
    write_of(Method::POST, "usage/reprice", |call| Box::pin(reprice::reprice(call)))
        .answers::<reprice::RepriceAnswer>("Computes the costs of past requests again.")
        .takes::<reprice::RepriceRequest>(),
];

/// Sums the exchanges that started at or after `from` and before `to`.
async fn report(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let app = call.app;
    let (period, filters, page_of, charge): UsageList = call.query()?;
    let charge = Charge::of(charge)?;
    let question = question(&call, period, filters)?;
    let part = part(page_of, &question)?;
    app.writer.flush(FLUSH_TIME_MAX).await;
    let owned = question.clone();
    let found = app.readers.ask(move |db| {
        let page = page(db, &owned, &part)?;
        Ok(match page {
            Ok(page) => Ok((owners(db, &owned, &page.groups)?, page)),
            Err(why) => Err(why),
        })
    });
    let (owners, page) = found.await?.map_err(unanswerable)?;
    json(&UsageAnswer::of(&question, charge.as_ref(), owners, page)?)
}

type UsageList = ((LocalSpan, UsageQuery), (ColumnQuery, MarkQuery), UsagePage, ChargeQuery);

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UsageQuery {
    /// The length of the buckets of time. One bucket if absent.
    bucket: Option<Choice<BucketLength>>,
    /// The dimensions of the groups. `tag:NAME` is a tag.
    group_by: Option<CommaList<String>>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UsagePage {
    /// The figure by which the groups are sorted. By name if absent.
    sort: Option<Choice<Figure>>,
    /// The direction of `sort`. Descending if absent.
    order: Option<Direction>,
    /// The maximum number of groups on the page, and its default.
    limit: Option<Number<1, LINES_MAX>>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl Named for BucketLength {
    fn named() -> Vec<(&'static str, Self)> {
        vec![("hour", Self::Hour), ("day", Self::Day), ("week", Self::Week), ("month", Self::Month)]
    }
}

impl Named for Figure {
    fn named() -> Vec<(&'static str, Self)> {
        let fixed = [
            ("cost", Self::Cost),
            ("requests", Self::Requests),
            ("requests_unpriced", Self::Unpriced),
            ("tokens", Self::Tokens),
            ("lost_cost", Self::Lost),
        ];
        fixed.into_iter().chain(Class::ALL.map(|class| (class.column(), Self::Of(class)))).collect()
    }
}

fn question(
    call: &Call<'_>,
    (span, UsageQuery { bucket, group_by }): (LocalSpan, UsageQuery),
    (columns, marks): (ColumnQuery, MarkQuery),
) -> Result<ReportQuestion, ApiError> {
    let marks = marks.marks(call.app)?;
    let ((from_ms, to_ms), zone) = span.ms()?;
    let from_ms = from_ms.unwrap_or(0);
    let to_ms = to_ms.unwrap_or_else(|| unix_ms().saturating_add(1));
    if from_ms > to_ms {
        return Err(ApiError::parameter("from", "from must not be after to."));
    }
    let calendar = Calendar { bucket: bucket.map(|bucket| bucket.0), zone };
    let group_by = dimensions(group_by, DIMENSIONS_MAX)?;
    let (filters, scope) = (columns.names(), call.usage_scope());
    Ok(ReportQuestion { from_ms, to_ms, calendar, group_by, filters, marks, scope })
}

fn part(query: UsagePage, question: &ReportQuestion) -> Result<ReportPart, ApiError> {
    let UsagePage { sort, order, limit, cursor } = query;
    let sorting = SortedBy { sort, order }.sorting()?;
    let order =
        sorting.map(|sorting| GroupOrder { figure: sorting.column.0, descending: sorting.descending });
    let limit = limit.map_or(LINES_MAX, |limit| limit.0);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let cursor = cursor.map(|text| self::cursor(&text, question, order)).transpose()?;
    let now = Instant::now();
    Ok(ReportPart { order, cursor, limit, page_until: now + PAGE_TIME, until: now + READING_TIME })
}

fn cursor(
    text: &str,
    question: &ReportQuestion,
    order: Option<GroupOrder>,
) -> Result<ReportCursor, ApiError> {
    let cursor = Cursor::<ReportCursor>::read(text).ok();
    cursor.filter(|cursor| cursor.fits(question.group_by.len(), order)).ok_or_else(|| {
        let message = "cursor must be the next_cursor of an earlier page of the same query.";
        ApiError::parameter("cursor", message)
    })
}

fn unanswerable(why: Unanswerable) -> ApiError {
    match why {
        Unanswerable::TooManyGroups => {
            let message = format!(
                "The response would have more than {SORTED_MAX} groups, the maximum for sorting; request a \
                 shorter period or fewer groups, or omit sort."
            );
            ApiError::parameter("sort", message)
        }
        Unanswerable::OnlyDaysBefore(at_ms) => {
            let at = Calendar::whole().shown(at_ms).unwrap_or_default();
            let message = format!(
                "Before {at}, only sums of whole UTC days are stored, without tags, end users and clients; \
                 use tz=UTC without them, or a later from."
            );
            ApiError::parameter("from", message)
        }
    }
}

/// Returns the dimensions of `group_by`, at most `most`.
pub(super) fn dimensions(
    group_by: Option<CommaList<String>>,
    most: usize,
) -> Result<Vec<Dimension>, ApiError> {
    let mut choices: Vec<(&str, Dimension)> =
        Column::ALL.iter().map(|column| (column.name(), Dimension::Column(*column))).collect();
    choices.extend([(END_USER, Dimension::EndUser), (CLIENT, Dimension::Client)]);
    choices.push(("tag:NAME", Dimension::Tag("NAME".to_owned())));
    let mut dimensions = Vec::new();
    for name in group_by.map_or_else(Vec::new, |names| names.0) {
        let dimension = match name.strip_prefix(TAG).filter(|name| !name.is_empty()) {
            Some(tag) => Dimension::Tag(tag.to_owned()),
            None => choose("group_by", &name, &choices)?,
        };
        if !dimensions.contains(&dimension) {
            dimensions.push(dimension);
        }
    }
    if dimensions.len() > most {
        let message = format!("group_by must have at most {most} names.");
        return Err(ApiError::parameter("group_by", message));
    }
    Ok(dimensions)
}

/// The names that belong to the ids of a group.
type Owners = BTreeMap<&'static str, Option<String>>;

/// Returns the names of each group, in the order of the groups.
fn owners(db: &Db, question: &ReportQuestion, groups: &[ReportGroup]) -> DbResult<Vec<Owners>> {
    let mut labels = Labels::default();
    let mut of_group = |group: &ReportGroup| {
        let ids = group.names.iter().map(|id| id.as_deref().unwrap_or_default());
        names_of_group(db, &mut labels, question.group_by.iter().zip(ids))
    };
    groups.iter().map(&mut of_group).collect()
}

/// Returns the names of the keys, projects and humans among the ids of a group. An empty id has no name.
pub(super) fn names_of_group<'a>(
    db: &Db,
    labels: &mut Labels,
    ids: impl Iterator<Item = (&'a Dimension, &'a str)>,
) -> DbResult<Owners> {
    let mut owners = Owners::new();
    for (dimension, id) in ids {
        let Some((named, name, email)) = dimension.column().and_then(owner) else { continue };
        let label = if id.is_empty() { NameLabel::default() } else { labels.find(db, named, id)? };
        owners.insert(name, label.name);
        email.map(|email| owners.insert(email, label.email));
    }
    Ok(owners)
}

/// Returns the kind of object whose ids a column holds, and the response fields for its name and e-mail address.
fn owner(column: Column) -> Option<(NamedKind, &'static str, Option<&'static str>)> {
    match column {
        Column::Key => Some((NamedKind::Key, "key", None)),
        Column::Project => Some((NamedKind::Project, "project", None)),
        Column::Principal => Some((NamedKind::Principal, "principal", Some("principal_email"))),
        Column::Model | Column::Provider | Column::Endpoint | Column::Operation | Column::Outcome => None,
    }
}

/// A report of usage.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Usage"))]
struct UsageAnswer {
    /// The start of the time, in milliseconds since the Unix epoch.
    from_ms: u64,
    /// The end of the time, exclusive, in milliseconds since the Unix epoch.
    to_ms: u64,
    /// The time zone of the buckets.
    tz: String,
    /// The mark-up and the currency of every `amount`; absent without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    charge: Option<charge::ShownCharge>,
    /// The sums over all pages; null if an answer computed from records has several pages.
    totals: Option<ChargedSums>,
    data: Vec<UsageLine>,
    /// The `cursor` of the next page; null on the last one.
    next_cursor: Option<String>,
}

/// The sums of a group in a bucket of time.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UsageLine {
    /// In milliseconds since the Unix epoch; absent without buckets.
    #[serde(skip_serializing_if = "Option::is_none")]
    bucket_start_ms: Option<u64>,
    /// The start of the bucket in local time of the requested time zone; absent without buckets.
    #[serde(skip_serializing_if = "Option::is_none")]
    bucket_start: Option<String>,
    /// The ids of the group; null for exchanges without one.
    group: BTreeMap<String, Option<String>>,
    /// The names of the keys, projects and humans among the ids; null if unknown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, Option<String>>"))]
    names: Owners,
    #[serde(flatten)]
    figures: ChargedSums,
}

impl UsageAnswer {
    fn of(
        question: &ReportQuestion,
        charge: Option<&Charge>,
        owners: Vec<Owners>,
        page: ReportPage,
    ) -> Result<Self, ApiError> {
        let calendar = &question.calendar;
        let mut data = Vec::new();
        // Without groups and buckets, the only line would repeat the totals.
        let has_lines = calendar.bucket.is_some() || !question.group_by.is_empty();
        for (group, names) in page.groups.into_iter().zip(owners).filter(|_| has_lines) {
            let bucket_start_ms = calendar.bucket.map(|_| group.bucket_ms);
            data.push(UsageLine {
                bucket_start_ms,
                bucket_start: bucket_start_ms.and_then(|at_ms| calendar.shown(at_ms)),
                group: question.group_by.iter().map(Dimension::name).zip(group.names).collect(),
                names,
                figures: ChargedSums::of(group.sums, charge)?,
            });
        }
        Ok(Self {
            from_ms: question.from_ms,
            to_ms: question.to_ms,
            tz: calendar.zone.iana_name().unwrap_or("UTC").to_owned(),
            charge: charge.map(Charge::shown),
            totals: page.totals.map(|totals| ChargedSums::of(totals, charge)).transpose()?,
            data,
            next_cursor: page.next.map(|next| Cursor(next).text()),
        })
    }
}

/// Sums, with the charge for them.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ChargedFigures"))]
struct ChargedSums {
    /// The charge for the cost, in the report's currency; absent without a mark-up and a currency.
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<String>,
    #[serde(flatten)]
    figures: Figures,
}

impl ChargedSums {
    fn of(sums: UsageSums, charge: Option<&Charge>) -> Result<Self, ApiError> {
        let amount = |charge: &Charge| {
            let message =
                "The amounts are too large for exact computation; use a smaller rate or markup_percent.";
            charge.amount(sums.cost_nano_usd).ok_or_else(|| ApiError::parameter("rate", message))
        };
        Ok(Self { amount: charge.map(amount).transpose()?, figures: Figures::of(sums) })
    }
}

/// Sums over requests.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Figures {
    requests: u64,
    /// Attempts, failed ones included, whose cost is unknown and not in the sum.
    requests_unpriced: u64,
    /// The known cost, including failed attempts.
    cost_micro_usd: MicroUsd,
    /// The known cost of failed attempts.
    lost_micro_usd: MicroUsd,
    /// The cost that vendors reported.
    vendor_cost_micro_usd: MicroUsd,
    tokens: UsageTokens,
    /// Other billed units by class.
    #[serde(serialize_with = "units_by_class")]
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, u64>"))]
    units: Units,
    /// In microseconds; null without requests.
    duration_us_avg: Option<u64>,
    /// The time to the first content, in microseconds; null if no request had content.
    first_content_us_avg: Option<u64>,
}

/// Tokens by class, and their sum.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UsageTokens {
    #[serde(flatten, serialize_with = "by_class")]
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, u64>"))]
    classes: [u64; TokenCounts::COUNT],
    total: u64,
}

impl Figures {
    fn of(sums: UsageSums) -> Self {
        Self {
            requests: sums.requests,
            requests_unpriced: sums.unpriced,
            cost_micro_usd: MicroUsd(sums.cost_nano_usd),
            lost_micro_usd: MicroUsd(sums.lost_nano_usd),
            vendor_cost_micro_usd: MicroUsd(sums.vendor_cost_nano_usd),
            tokens: UsageTokens { classes: sums.tokens.list(), total: sums.tokens.total() },
            units: sums.units,
            duration_us_avg: sums.duration_us.checked_div(sums.requests),
            first_content_us_avg: sums.first_content_us.checked_div(sums.first_contents),
        }
    }
}

/// The maximum number of names in `group_by`.
const DIMENSIONS_MAX: usize = 8;
/// The maximum number of groups in a page.
const LINES_MAX: u64 = 10_000;
/// A page that is not full after this time returns a cursor to continue from.
const PAGE_TIME: Duration = Duration::from_secs(3);
/// A query that takes longer is rejected.
const READING_TIME: Duration = Duration::from_secs(8);
