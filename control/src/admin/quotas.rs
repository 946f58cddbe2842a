//! `quotas`: limits and their current usage.

use std::sync::Arc;

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use shared::port::Body;
use shared::quota::{Metric, Period, Subject};

use super::list::{Containing, PageOf, PageRows, SortValue, SortedPaging};
use super::query::{Choice, Count, Named};
use super::reference::NoContent;
use super::{ApiError, Call, Route, json, json_of_version, route_of, write_of};
use crate::admin::permission::Permission;
use crate::db::names::Labels;
use crate::db::quotas::{self, Counted, Enforcement, KeyLimit, Of, QuotaFilter};
use crate::writer::command::quotas::{CreateQuota, DeleteQuota, EditQuota, QuotaStanding};

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "quotas", |call| Box::pin(list(call)))
        .answers::<QuotaPage>(
            "Lists the limits and their use, in order of `share` (used and reserved, of the limit), `used`, `limit`, \
             `name` (of the subject) or `resets` if wanted.",
        )
        .query::<(SortedPaging<QuotaColumn>, QuotaQuery, Containing)>()
        .permits(Permission::SeeQuotas),
    write_of(Method::POST, "quotas", |call| Box::pin(create(call)))
        .answers::<QuotaStanding>("Creates a limit.")
        .statuses(&[201])
        .takes::<NewQuota>(),
    route_of(Method::GET, "quotas/{}", |call| Box::pin(show(call)))
        .answers::<QuotaStanding>("Shows a limit and its use.")
        .permits(Permission::SeeQuotas),
    write_of(Method::PATCH, "quotas/{}", |call| Box::pin(edit(call)))
        .answers::<QuotaStanding>("Changes a limit.")
        .takes::<QuotaPatch>()
        .reads_version(),
    write_of(Method::DELETE, "quotas/{}", |call| Box::pin(delete(call)))
        .answers::<NoContent>("Deletes a limit.")
        .reads_version(),
];

/// One page of limits.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct QuotaPage {
    data: Vec<QuotaStanding>,
    /// The `cursor` of the next page; null on the last one.
    next_cursor: Option<String>,
    /// The number of limits on all pages. Null without `sort`, because a list in its own order is not read to its end.
    matching: Option<u64>,
}

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (paging, query, containing): (SortedPaging<QuotaColumn>, QuotaQuery, Containing) = call.query()?;
    let (page, text) = (PageOf::of(paging)?, containing.lower_case());
    let share_ppm_min = query.share_percent_min.map(|percent| percent.0.saturating_mul(10_000));
    let filter = QuotaFilter { scope: call.standing.scope(), ..query.filter()? };
    let counters = Arc::clone(&call.app.counters);
    let ask = call.app.readers.ask(move |db| {
        let mut labels = Labels::default();
        let mut found = PageRows::new(&page);
        let mut matching = 0;
        // The names that a search looks at are not in the table, nor is the use.
        let rows = if text.is_some() || share_ppm_min.is_some() { i64::MAX } else { page.rows() };
        quotas::each(db, &filter, (&page.after, rows), |row| {
            let standing = QuotaStanding::of(db, &mut labels, &counters, row)?;
            if text.as_deref().is_none_or(|text| standing.mentions(text))
                && share_ppm_min.is_none_or(|min| standing.share_ppm() >= min)
            {
                matching += 1;
                found.add(standing, |standing| &standing.id, value);
            }
            Ok(())
        })?;
        let matching = page.column().map(|_| matching);
        let (data, next_cursor) = found.page().into_parts();
        Ok(QuotaPage { data, next_cursor, matching })
    });
    json(&ask.await?)
}

/// A column by which the list can be sorted.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum QuotaColumn {
    Share,
    Used,
    Limit,
    Name,
    Resets,
}

fn value(standing: &QuotaStanding, column: QuotaColumn) -> Option<SortValue> {
    Some(match column {
        QuotaColumn::Share => standing.share_ppm().into(),
        QuotaColumn::Used => standing.used.into(),
        QuotaColumn::Limit => standing.limit.into(),
        QuotaColumn::Name => standing.subject.name.as_deref().unwrap_or_default().into(),
        QuotaColumn::Resets => standing.resets_at_ms?.into(),
    })
}

/// The filters of a list: by `kind`, or by subjects of one kind.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct QuotaQuery {
    /// Only limits of which at least so many per cent are used or reserved.
    share_percent_min: Option<Count>,
    /// Only limits of subjects of this kind.
    kind: Option<Choice<Subject>>,
    /// Only limits of this key, by ID, or of several, separated by commas.
    key: Option<String>,
    /// Only limits of this project, by ID, or of several, separated by commas.
    project: Option<String>,
    /// Only limits of this human, by ID, or of several, separated by commas.
    principal: Option<String>,
    /// Only limits of this provider, by ID, or of several, separated by commas.
    provider: Option<String>,
}

impl Named for Subject {
    fn named() -> Vec<(&'static str, Self)> {
        [Self::Key, Self::Project, Self::Principal, Self::Provider, Self::Gateway]
            .map(|kind| (kind.name(), kind))
            .to_vec()
    }
}

impl QuotaQuery {
    fn filter(self) -> Result<QuotaFilter, ApiError> {
        let kind = self.kind.map(|kind| kind.0);
        let mut filter = QuotaFilter { kind, ..QuotaFilter::default() };
        for (kind, ids) in [
            (Subject::Key, self.key),
            (Subject::Project, self.project),
            (Subject::Principal, self.principal),
            (Subject::Provider, self.provider),
        ] {
            let Some(ids) = ids else { continue };
            if filter.kind.is_some() {
                let message = "Send exactly one of kind, key, project, principal and provider.";
                return Err(ApiError::parameter(kind.name(), message));
            }
            let ids = ids.split(',').map(str::to_owned).collect();
            filter = QuotaFilter { kind: Some(kind), ids: Some(ids), scope: None };
        }
        Ok(filter)
    }
}

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let counters = Arc::clone(&call.app.counters);
    let found = call.found("quota", move |db, id| {
        let row = quotas::find(db, id)?;
        row.map(|row| QuotaStanding::of(db, &mut Labels::default(), &counters, row)).transpose()
    });
    let found = found.await?;
    json_of_version(&found, found.version)
}

/// A limit to create.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct NewQuota {
    subject: Of,
    /// `provider/model`, if only requests to one model count.
    #[serde(default)]
    model: Option<String>,
    /// The endpoint, if only requests that name it count.
    #[serde(default)]
    endpoint: Option<String>,
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::Metric"))]
    metric: Metric,
    /// Absent for concurrent requests only.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Option<crate::common::shared_shapes::Period>"))]
    window: Option<Period>,
    /// In the unit of the metric; money in millionths of a dollar.
    limit: u64,
    #[serde(default)]
    enforcement: Enforcement,
    /// The longest time that a request waits until it fits, in milliseconds; at most 300000. For hard limits of concurrent
    /// requests or a minute.
    #[serde(default)]
    wait_ms: u64,
}

async fn create(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let NewQuota { subject, model, endpoint, metric, window, limit, enforcement, wait_ms } = call.json()?;
    check_window(metric, window, "")?;
    let counted = Counted { subject, model, endpoint };
    check_scope(&counted)?;
    let limit = bounded(limit, "")?;
    let create = CreateQuota { counted, metric, period: window, limit, enforcement, wait_ms };
    call.execute(StatusCode::CREATED, create).await
}

/// Changes to a limit. Absent members are kept.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct QuotaPatch {
    /// In the unit of the metric; money in millionths of a dollar.
    #[serde(default)]
    limit: Option<u64>,
    #[serde(default)]
    enforcement: Option<Enforcement>,
    /// In milliseconds; 0 rejects at once.
    #[serde(default)]
    wait_ms: Option<u64>,
}

async fn edit(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let QuotaPatch { limit, enforcement, wait_ms } = call.json()?;
    let edit = EditQuota {
        id: call.argument().to_owned(),
        if_version: call.if_match()?,
        limit: limit.map(|limit| bounded(limit, "")).transpose()?,
        enforcement,
        wait_ms,
    };
    call.execute(StatusCode::OK, edit).await
}

async fn delete(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let delete = DeleteQuota { id: call.argument().to_owned(), if_version: call.if_match()? };
    call.execute(StatusCode::NO_CONTENT, delete).await
}

/// Rejects an id for the gateway, and a model of a provider other than the subject, which would never be counted.
fn check_scope(counted: &Counted) -> Result<(), ApiError> {
    let Counted { subject, model, .. } = counted;
    if (subject.kind == Subject::Gateway) != subject.id.is_empty() {
        let message = "subject: kind gateway must have no id, and every other kind requires one.";
        return Err(ApiError::parameter("subject", message));
    }
    let provider = provider_of(model.as_deref(), "")?;
    if subject.kind == Subject::Provider && provider.is_some_and(|provider| provider != subject.id) {
        let message = format!("model must be a model of the provider '{}'.", subject.id);
        return Err(ApiError::parameter("model", message));
    }
    Ok(())
}

/// Returns the provider of a model. Here and below, `place` is the prefix of the invalid parameter's name.
fn provider_of<'a>(model: Option<&'a str>, place: &str) -> Result<Option<&'a str>, ApiError> {
    let Some(model) = model else { return Ok(None) };
    let (provider, _) = model
        .split_once('/')
        .ok_or_else(|| ApiError::parameter(&format!("{place}model"), "model must be 'provider/model'."))?;
    Ok(Some(provider))
}

/// Concurrent requests take no window; every other metric requires one.
fn check_window(metric: Metric, window: Option<Period>, place: &str) -> Result<(), ApiError> {
    let message = match (metric, window) {
        (Metric::ConcurrentRequests, Some(_)) => "concurrent_requests have no window. Omit window.",
        (Metric::ConcurrentRequests, None) | (_, Some(_)) => return Ok(()),
        (_, None) => "window must be one of minute, hour, day, week, month, total.",
    };
    Err(ApiError::parameter(&format!("{place}window"), message))
}

fn bounded(limit: u64, place: &str) -> Result<u64, ApiError> {
    if limit > LIMIT_MAX {
        let message = format!("limit must be at most {LIMIT_MAX}.");
        return Err(ApiError::parameter(&format!("{place}limit"), message));
    }
    Ok(limit)
}

/// Validates the limits of new keys in `field` of the body; no two may count the same thing.
pub(super) fn key_limits(field: &str, limits: Vec<KeyLimit>) -> Result<Vec<KeyLimit>, ApiError> {
    if limits.len() > KEY_LIMITS_MAX {
        return Err(ApiError::parameter(
            field,
            format!("{field} must have at most {KEY_LIMITS_MAX} entries."),
        ));
    }
    for (index, limit) in limits.iter().enumerate() {
        let place = format!("{field}[{index}].");
        check_window(limit.metric, limit.period, &place)?;
        bounded(limit.limit, &place)?;
        provider_of(limit.model.as_deref(), &place)?;
        let is_twin = |other: &KeyLimit| other.counts_as(limit) && other.enforcement == limit.enforcement;
        if limits.iter().take(index).any(is_twin) {
            let message = format!("{field}[{index}] has the same scope as an earlier entry.");
            return Err(ApiError::parameter(&format!("{field}[{index}]"), message));
        }
    }
    Ok(limits)
}

/// 10^12 units. For a cost in micro-dollars, this is a million dollars.
const LIMIT_MAX: u64 = 1_000_000_000_000;
/// The maximum number of limits that a key can be created with.
const KEY_LIMITS_MAX: usize = 32;
