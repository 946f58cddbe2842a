//! `webhooks`: receivers of events (ADM-5).

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use shared::clock::unix_ms;
use shared::port::Body;

use super::list::{Containing, ListPage, PageOf, SortValue, SortedPaging};
use super::reference::{NoContent, NoMembers};
use super::{ApiError, Call, Route, field, json, json_of_version, route_of, write_of};
use crate::common::change::FieldChange;
use crate::db::alert_rules::AlertKind;
use crate::db::audit::AuditEntry;
use crate::db::outbox::{self, Event};
use crate::db::webhooks::{self, WebhookFormat, WebhookRow};
use crate::jobs::outbox::{Message, send};
use crate::writer::command::webhooks::{
    CreateWebhook, DeleteWebhook, EditWebhook, RotateWebhook, ShownWebhook, WebhookWithSecret,
};
use crate::writer::webhook::{WebhookAddress, check_address};

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "webhooks", |call| Box::pin(list(call)))
        .answers::<ListPage<ListedWebhook>>(
            "Lists the webhooks, in order of `name`, `created` or `state` if wanted.",
        )
        .query::<WebhookList>(),
    route_of(Method::POST, "webhooks", |call| Box::pin(create(call)))
        .answers::<WebhookWithSecret>("Creates a webhook. Its secret is shown only here.")
        .statuses(&[201])
        .takes::<NewWebhook>(),
    route_of(Method::GET, "webhooks/{}", |call| Box::pin(show(call)))
        .answers::<ShownWebhook>("Shows a webhook."),
    write_of(Method::PATCH, "webhooks/{}", |call| Box::pin(edit(call)))
        .answers::<ShownWebhook>("Changes a webhook.")
        .takes::<WebhookPatch>()
        .reads_version(),
    write_of(Method::DELETE, "webhooks/{}", |call| Box::pin(delete(call)))
        .answers::<NoContent>("Deletes a webhook with its deliveries.")
        .reads_version(),
    route_of(Method::POST, "webhooks/{}/rotate", |call| Box::pin(rotate(call)))
        .answers::<WebhookWithSecret>("Replaces the secret. The one before also signs for some time.")
        .takes::<Rotation>()
        .reads_version(),
    route_of(Method::POST, "webhooks/{}/test", |call| Box::pin(test(call)))
        .answers::<WebhookTest>("Sends an event of the kind `test` once, outside the outbox.")
        .takes::<NoMembers>()
        .acts_each_time(),
];

/// A webhook in a list.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ListedWebhook {
    #[serde(flatten)]
    webhook: ShownWebhook,
    /// The number of its deliveries that failed too often and are only tried again on request.
    dead: u64,
}

type WebhookList = (SortedPaging<WebhookColumn>, Containing);

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (paging, Containing { q: text }): WebhookList = call.query()?;
    let page = PageOf::of(paging)?;
    let (after, rows) = (page.after.clone(), page.rows());
    let ask = call.app.readers.ask(move |db| {
        Ok((webhooks::page(db, text.as_deref(), &after, rows)?, outbox::dead_by_webhook(db)?))
    });
    let (found, dead) = ask.await?;
    let now_ms = unix_ms();
    let found = ListPage::sorted(found, &page, |webhook| &webhook.id, value);
    json(&found.map(|row| ListedWebhook {
        webhook: ShownWebhook::of(&row, now_ms),
        dead: dead.get(&row.id).copied().unwrap_or(0),
    }))
}

/// A column by which the list can be sorted.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum WebhookColumn {
    Name,
    Created,
    State,
}

fn value(webhook: &WebhookRow, column: WebhookColumn) -> Option<SortValue> {
    Some(match column {
        WebhookColumn::Name => webhook.name.as_str().into(),
        WebhookColumn::Created => webhook.created_at_ms.into(),
        WebhookColumn::State => u64::from(webhook.disabled).into(),
    })
}

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let webhook = find(&call).await?;
    json_of_version(&ShownWebhook::of(&webhook, unix_ms()), webhook.version)
}

async fn find(call: &Call<'_>) -> Result<WebhookRow, ApiError> {
    call.found("webhook", webhooks::find).await
}

/// A webhook to create.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct NewWebhook {
    /// 1 to 200 characters on one line.
    name: String,
    /// An `http` or `https` address. The rules for base URLs of providers apply.
    url: String,
    #[serde(default)]
    format: WebhookFormat,
    /// The kinds of events that it receives; null for all.
    #[serde(default)]
    kinds: Option<Vec<String>>,
    /// True to also receive the ends of conditions. False by default.
    #[serde(default)]
    send_resolved: bool,
    /// True to receive events strictly in their order: one that fails holds the later ones back. False by default.
    #[serde(default)]
    in_order: bool,
    /// The longest pause after the first failure, from 1 to 3,600 seconds; 5 by default. It doubles with each further
    /// failure, up to an hour.
    #[serde(default)]
    retry_seconds: Option<u32>,
}

async fn create(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let new: NewWebhook = call.json()?;
    let create = CreateWebhook {
        name: field::name("name", &new.name)?,
        address: address(&new.url)?,
        format: new.format,
        kinds: new.kinds.map(kinds).transpose()?,
        send_resolved: new.send_resolved,
        in_order: new.in_order,
        retry_seconds: retry_seconds(new.retry_seconds.unwrap_or(RETRY_SECONDS))?,
    };
    call.execute(StatusCode::CREATED, create).await
}

/// Changes to a webhook. Absent members are kept.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct WebhookPatch {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    format: Option<WebhookFormat>,
    /// Null for all kinds.
    #[serde(default)]
    kinds: FieldChange<Vec<String>>,
    #[serde(default)]
    send_resolved: Option<bool>,
    #[serde(default)]
    in_order: Option<bool>,
    /// From 1 to 3,600 seconds.
    #[serde(default)]
    retry_seconds: Option<u32>,
    /// True stops new events and tries.
    #[serde(default)]
    disabled: Option<bool>,
}

async fn edit(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let patch: WebhookPatch = call.json()?;
    let edit = EditWebhook {
        id: call.argument().to_owned(),
        if_version: call.if_match()?,
        name: patch.name.map(|name| field::name("name", &name)).transpose()?,
        address: patch.url.map(|url| address(&url)).transpose()?,
        format: patch.format,
        kinds: match patch.kinds {
            FieldChange::Keep => None,
            FieldChange::Clear => Some(None),
            FieldChange::Set(list) => Some(Some(kinds(list)?)),
        },
        send_resolved: patch.send_resolved,
        in_order: patch.in_order,
        retry_seconds: patch.retry_seconds.map(retry_seconds).transpose()?,
        disabled: patch.disabled,
    };
    call.execute(StatusCode::OK, edit).await
}

async fn delete(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let delete = DeleteWebhook { id: call.argument().to_owned(), if_version: call.if_match()? };
    call.execute(StatusCode::NO_CONTENT, delete).await
}

/// A rotation of the secret.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SecretRotation"))]
#[serde(deny_unknown_fields)]
struct Rotation {
    /// The time for which the secret before signs as well, from 0 to 2,592,000 seconds; 86,400 by default.
    #[serde(default)]
    overlap_seconds: Option<u64>,
}

async fn rotate(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let Rotation { overlap_seconds } = call.json()?;
    let seconds = overlap_seconds.unwrap_or(OVERLAP_SECONDS);
    if seconds > OVERLAP_SECONDS_MAX {
        let message = format!("overlap_seconds must be a number from 0 to {OVERLAP_SECONDS_MAX}.");
        return Err(ApiError::parameter("overlap_seconds", message));
    }
    let id = call.argument().to_owned();
    let rotate = RotateWebhook { id, if_version: call.if_match()?, overlap_ms: seconds * 1_000 };
    call.execute(StatusCode::OK, rotate).await
}

/// The result of a test.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct WebhookTest {
    /// True if the receiver answered with a status from 200 to 299.
    ok: bool,
    /// The status of the answer; null if there was none.
    status: Option<u16>,
    /// The reason of the failure; null if `ok`.
    error: Option<String>,
    duration_ms: u64,
}

async fn test(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    call.no_fields()?;
    let webhook = find(&call).await?;
    let now_ms = unix_ms();
    let data = json!({"text": format!("Test of the webhook {}.", webhook.name), "state": "open"});
    let event = Event {
        id: format!("evt_test_{now_ms:012x}"),
        sequence: 0,
        kind: "test".to_owned(),
        object: None,
        created_at_ms: now_ms,
        data: RawValue::from_string(data.to_string()).unwrap_or_default(),
    };
    let message = Message::of(&event, webhook.format);
    let sent = send(&call.app.keys, &call.app.http, &webhook, &message).await;
    let outcome = WebhookTest {
        ok: sent.error.is_none(),
        status: sent.status,
        error: sent.error,
        duration_ms: unix_ms().saturating_sub(now_ms),
    };
    call.record(AuditEntry::done("webhook.test", "webhook", &webhook.id).after(json!(outcome))).await?;
    json(&outcome)
}

fn address(url: &str) -> Result<WebhookAddress, ApiError> {
    check_address(url).map_err(|fault| ApiError::parameter("url", format!("url: {fault}.")))
}

/// Validates a filter of kinds.
pub(super) fn kinds(kinds: Vec<String>) -> Result<Vec<String>, ApiError> {
    let known = AlertKind::ALL.map(|(name, _)| name);
    if kinds.is_empty() || kinds.iter().any(|kind| !known.contains(&kind.as_str())) {
        let message = format!("kinds must be null, or some of: {}.", known.join(", "));
        return Err(ApiError::parameter("kinds", message));
    }
    let mut kinds = kinds;
    kinds.sort();
    kinds.dedup();
    Ok(kinds)
}

fn retry_seconds(seconds: u32) -> Result<u32, ApiError> {
    if (1..=RETRY_SECONDS_MAX).contains(&seconds) {
        return Ok(seconds);
    }
    let message = format!("retry_seconds must be a number from 1 to {RETRY_SECONDS_MAX}.");
    Err(ApiError::parameter("retry_seconds", message))
}

const RETRY_SECONDS: u32 = 5;
const RETRY_SECONDS_MAX: u32 = 3_600;
const OVERLAP_SECONDS: u64 = 86_400;
const OVERLAP_SECONDS_MAX: u64 = 2_592_000;
