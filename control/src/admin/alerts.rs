//! `alerts` and `alert-rules`: conditions that need a person.

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use shared::port::Body;

use super::list::{Containing, ListPage, PageOf, SortValue, SortedPaging};
use super::reference::{NoContent, NoMembers};
use super::{ApiError, Call, Route, field, json, json_of_version, route_of, write_of};
use crate::common::change::FieldChange;
use crate::db::alert_rules::{self, AlertKind, Severity, ShownRule};
use crate::db::alerts::{self, Alert, AlertFilter, AlertState};
use crate::db::engine::DbResult;
use crate::db::names::Labels;
use crate::writer::command::alerts::{AcknowledgeAlert, CreateRule, DeleteRule, EditRule, TestRule};

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "alerts", |call| Box::pin(list(call)))
        .answers::<ListPage<Alert>>(
            "Lists alerts, newest first, or in order of `severity`, `opened`, `resolved` or `times`.",
        )
        .query::<AlertList>(),
    route_of(Method::GET, "alerts/{}", |call| Box::pin(find(call))).answers::<Alert>("Shows an alert."),
    write_of(Method::POST, "alerts/{}/ack", |call| Box::pin(acknowledge(call)))
        .answers::<Alert>("Acknowledges an alert.")
        .takes::<NoMembers>(),
    route_of(Method::GET, "alert-rules", |call| Box::pin(rules(call)))
        .answers::<ListPage<ShownRule>>("Lists the rules. There are at most 200, on one page."),
    write_of(Method::POST, "alert-rules", |call| Box::pin(create(call)))
        .answers::<ShownRule>("Creates a rule.")
        .statuses(&[201])
        .takes::<NewRule>(),
    route_of(Method::GET, "alert-rules/{}", |call| Box::pin(show(call)))
        .answers::<ShownRule>("Shows a rule."),
    write_of(Method::PATCH, "alert-rules/{}", |call| Box::pin(edit(call)))
        .answers::<ShownRule>("Changes a rule.")
        .takes::<RulePatch>()
        .reads_version(),
    write_of(Method::DELETE, "alert-rules/{}", |call| Box::pin(delete(call)))
        .answers::<NoContent>("Deletes a rule. Its open alerts are resolved.")
        .reads_version(),
    write_of(Method::POST, "alert-rules/{}/test", |call| Box::pin(test(call)))
        .answers::<RuleTest>(
            "Emits the rule's event, marked as a test, to workers and webhooks. No alert is opened.",
        )
        .takes::<NoMembers>(),
];

type AlertList = (SortedPaging<AlertColumn>, AlertQuery, Containing);

/// The filters of a list.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AlertQuery {
    /// Only alerts in this state.
    state: Option<AlertState>,
    /// Only alerts of this kind.
    kind: Option<AlertKind>,
    /// Only alerts about this object.
    object: Option<String>,
}

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (paging, AlertQuery { state, kind, object }, Containing { q: text }): AlertList = call.query()?;
    let page = PageOf::of(paging)?;
    let kind = kind.map(|kind| kind.name().to_owned());
    let filter = AlertFilter { state, kind, object, text };
    let (before, rows) = (page.after.clone(), page.rows());
    let found = call.app.readers.ask(move |db| alerts::page(db, &filter, &before, rows)).await?;
    json(&ListPage::sorted(found, &page, |alert| &alert.id, value))
}

/// A column by which the list can be sorted.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum AlertColumn {
    Severity,
    Opened,
    Resolved,
    Times,
}

fn value(alert: &Alert, column: AlertColumn) -> Option<SortValue> {
    Some(match column {
        AlertColumn::Severity => u64::from(alert.severity == Severity::Bad).into(),
        AlertColumn::Opened => alert.first_at_ms.into(),
        AlertColumn::Resolved => alert.resolved_at_ms?.into(),
        AlertColumn::Times => alert.times.into(),
    })
}

async fn find(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    json(&call.found("alert", alerts::find).await?)
}

async fn acknowledge(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    call.no_fields()?;
    call.execute(StatusCode::OK, AcknowledgeAlert { id: call.argument().to_owned() }).await
}

async fn rules(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let ask = call.app.readers.ask(|db| {
        let mut labels = Labels::default();
        let shown = |rule| ShownRule::of(db, &mut labels, rule);
        alert_rules::all(db)?.into_iter().map(shown).collect::<DbResult<Vec<_>>>()
    });
    json(&ListPage::whole(ask.await?))
}

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let found = call.found("alert rule", |db, id| {
        let Some(rule) = alert_rules::find(db, id)? else { return Ok(None) };
        let version = rule.version;
        Ok(Some((ShownRule::of(db, &mut Labels::default(), rule)?, version)))
    });
    let (rule, version) = found.await?;
    json_of_version(&rule, version)
}

/// A rule to create.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct NewRule {
    /// 1 to 200 characters on one line.
    name: String,
    kind: AlertKind,
    /// The objects that the rule concerns, as alerts name them; null for all.
    #[serde(default)]
    objects: Option<Vec<String>>,
    /// Required for the kinds that have one: per cent of a limit (`quota_warning`), days (`key_expiring`,
    /// `certificate_expiring`), hours (`credential_expiring`), times the usual spending (`spend_anomaly`), per cent of free space
    /// (`disk_low`), minutes (`shipping_behind`).
    #[serde(default)]
    threshold: Option<f64>,
    /// Required for `spend_anomaly`: spending of an hour up to this amount is never an anomaly, in micro-dollars.
    #[serde(default)]
    floor_micro_usd: Option<u64>,
    /// `bad` by default.
    #[serde(default)]
    severity: Option<Severity>,
    /// The time for which a condition must hold before an alert opens, up to 86,400; 0 by default.
    #[serde(default)]
    hold_seconds: Option<u32>,
    /// The time for which a condition must be absent before its alert is resolved, up to 86,400; 300 by default.
    #[serde(default)]
    clear_seconds: Option<u32>,
}

async fn create(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let new: NewRule = call.json()?;
    let create = CreateRule {
        name: field::name("name", &new.name)?,
        kind: new.kind,
        objects: new.objects.map(objects).transpose()?,
        threshold: new.threshold,
        floor_micro_usd: new.floor_micro_usd,
        severity: new.severity.unwrap_or(Severity::Bad),
        hold_seconds: seconds("hold_seconds", new.hold_seconds.unwrap_or(0))?,
        clear_seconds: seconds("clear_seconds", new.clear_seconds.unwrap_or(CLEAR_SECONDS))?,
    };
    call.execute(StatusCode::CREATED, create).await
}

/// Changes to a rule. Absent members are kept.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RulePatch {
    #[serde(default)]
    name: Option<String>,
    /// Null for all objects.
    #[serde(default)]
    objects: FieldChange<Vec<String>>,
    #[serde(default)]
    threshold: Option<f64>,
    #[serde(default)]
    floor_micro_usd: Option<u64>,
    #[serde(default)]
    severity: Option<Severity>,
    #[serde(default)]
    hold_seconds: Option<u32>,
    #[serde(default)]
    clear_seconds: Option<u32>,
    #[serde(default)]
    enabled: Option<bool>,
}

async fn edit(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let patch: RulePatch = call.json()?;
    let edit = EditRule {
        id: call.argument().to_owned(),
        if_version: call.if_match()?,
        name: patch.name.map(|name| field::name("name", &name)).transpose()?,
        objects: match patch.objects {
            FieldChange::Keep => None,
            FieldChange::Clear => Some(None),
            FieldChange::Set(list) => Some(Some(objects(list)?)),
        },
        threshold: patch.threshold,
        floor_micro_usd: patch.floor_micro_usd,
        severity: patch.severity,
        hold_seconds: patch.hold_seconds.map(|value| seconds("hold_seconds", value)).transpose()?,
        clear_seconds: patch.clear_seconds.map(|value| seconds("clear_seconds", value)).transpose()?,
        enabled: patch.enabled,
    };
    call.execute(StatusCode::OK, edit).await
}

async fn delete(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let delete = DeleteRule { id: call.argument().to_owned(), if_version: call.if_match()? };
    call.execute(StatusCode::NO_CONTENT, delete).await
}

/// The event that a test has emitted.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RuleTest {
    /// The number of the event.
    sequence: i64,
}

async fn test(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    call.no_fields()?;
    call.execute(StatusCode::OK, TestRule { id: call.argument().to_owned() }).await
}

fn objects(objects: Vec<String>) -> Result<Vec<String>, ApiError> {
    let fits = |object: &String| !object.is_empty() && object.len() <= OBJECT_BYTES_MAX;
    if objects.is_empty() || objects.len() > OBJECTS_MAX || !objects.iter().all(fits) {
        let message =
            format!("objects must be null, or 1 to {OBJECTS_MAX} texts of 1 to {OBJECT_BYTES_MAX} bytes.");
        return Err(ApiError::parameter("objects", message));
    }
    Ok(objects)
}

fn seconds(name: &str, seconds: u32) -> Result<u32, ApiError> {
    if seconds <= SECONDS_MAX {
        return Ok(seconds);
    }
    Err(ApiError::parameter(name, format!("{name} must be a number from 0 to {SECONDS_MAX}.")))
}

const CLEAR_SECONDS: u32 = 300;
const SECONDS_MAX: u32 = 86_400;
const OBJECTS_MAX: usize = 100;
const OBJECT_BYTES_MAX: usize = 600;
