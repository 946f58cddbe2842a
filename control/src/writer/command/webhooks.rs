//! Commands that change webhooks.

use serde::Serialize;
use serde_json::json;
use shared::secret::Secret;

use super::{Command, CommandRefusal, Done, Write};
use crate::db::audit::AuditEntry;
use crate::db::ids::new_id;
use crate::db::outbox::delivery;
use crate::db::webhooks::{self, WebhookFormat, WebhookRow, place};
use crate::routing::publish::{EffectWarning, Touched};
use crate::writer::webhook::{WebhookAddress, WebhookSecret};

/// A webhook as the API and the audit show it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Webhook"))]
pub(crate) struct ShownWebhook {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The origin of its address and the last characters of a long path. The address itself is not shown.
    pub(crate) url: String,
    pub(crate) format: WebhookFormat,
    /// The kinds of events that it receives; null for all.
    pub(crate) kinds: Option<Vec<String>>,
    /// True if it also receives the ends of conditions.
    pub(crate) send_resolved: bool,
    /// True if an event waits until the ones before it are delivered or dead.
    pub(crate) in_order: bool,
    /// The longest pause after the first failure, in seconds. It doubles with each further failure.
    pub(crate) retry_seconds: u32,
    /// True if it receives no new events, and waiting ones are not tried.
    pub(crate) disabled: bool,
    /// The time until which the secret before the last rotation signs as well, in milliseconds since the Unix epoch; null
    /// if only one secret signs.
    pub(crate) secret_before_until_ms: Option<u64>,
    /// Grows with each change; the `ETag` of the object.
    pub(crate) version: u64,
    /// In milliseconds since the Unix epoch.
    pub(crate) created_at_ms: u64,
    /// In milliseconds since the Unix epoch.
    pub(crate) updated_at_ms: u64,
}

impl ShownWebhook {
    pub(crate) fn of(row: &WebhookRow, now_ms: u64) -> Self {
        let until_ms = row.secret_before.as_ref().map(|(_, until_ms)| *until_ms);
        Self {
            id: row.id.clone(),
            name: row.name.clone(),
            url: row.url_hint.clone(),
            format: row.format,
            kinds: row.kinds.clone(),
            send_resolved: row.send_resolved,
            in_order: row.in_order,
            retry_seconds: row.retry_seconds,
            disabled: row.disabled,
            secret_before_until_ms: until_ms.filter(|until_ms| *until_ms > now_ms),
            version: row.version,
            created_at_ms: row.created_at_ms,
            updated_at_ms: row.updated_at_ms,
        }
    }
}

/// A webhook with its new secret, which is shown only once.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct WebhookWithSecret {
    #[serde(flatten)]
    webhook: ShownWebhook,
    /// The secret for verifying signatures, as the libraries of Standard Webhooks take it; null in the answer to a
    /// repeated request.
    secret: Option<String>,
}

/// Creates a webhook.
#[derive(Debug)]
pub(crate) struct CreateWebhook {
    pub(crate) name: String,
    pub(crate) address: WebhookAddress,
    pub(crate) format: WebhookFormat,
    pub(crate) kinds: Option<Vec<String>>,
    pub(crate) send_resolved: bool,
    pub(crate) in_order: bool,
    pub(crate) retry_seconds: u32,
}

/// Changes a webhook. Absent values are kept.
#[derive(Debug)]
pub(crate) struct EditWebhook {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
    pub(crate) name: Option<String>,
    pub(crate) address: Option<WebhookAddress>,
    pub(crate) format: Option<WebhookFormat>,
    pub(crate) kinds: Option<Option<Vec<String>>>,
    pub(crate) send_resolved: Option<bool>,
    pub(crate) in_order: Option<bool>,
    pub(crate) retry_seconds: Option<u32>,
    pub(crate) disabled: Option<bool>,
}

/// Replaces the secret of a webhook. The one before signs as well for `overlap_ms`.
#[derive(Debug)]
pub(crate) struct RotateWebhook {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
    pub(crate) overlap_ms: u64,
}

/// Deletes a webhook with its deliveries.
#[derive(Debug)]
pub(crate) struct DeleteWebhook {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
}

impl Command for CreateWebhook {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        if webhooks::count(write.db)? >= WEBHOOKS_MAX {
            return Err(CommandRefusal::conflict(format!(
                "There are {WEBHOOKS_MAX} webhooks, the maximum. Delete one first."
            )));
        }
        let (id, secret) = (new_id("whk", write.now_ms)?, WebhookSecret::generate()?);
        let row = WebhookRow {
            url: write.keys.seal(&place("url", &id), self.address.url.expose().as_bytes())?,
            url_hint: self.address.hint.clone(),
            name: self.name.clone(),
            format: self.format,
            kinds: self.kinds.clone(),
            send_resolved: self.send_resolved,
            in_order: self.in_order,
            retry_seconds: self.retry_seconds,
            disabled: false,
            secret: write.keys.seal(&place("secret", &id), secret.bytes())?,
            secret_before: None,
            version: 1,
            created_at_ms: write.now_ms,
            updated_at_ms: write.now_ms,
            id,
        };
        webhooks::put(write.db, &row)?;
        let shown = ShownWebhook::of(&row, write.now_ms);
        let audit = AuditEntry::done("webhook.create", "webhook", &row.id).after(json!(shown));
        with_secret(shown, &secret, audit)
    }
}

impl Command for EditWebhook {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.id, self.if_version)?;
        let mut after = WebhookRow {
            name: self.name.clone().unwrap_or_else(|| before.name.clone()),
            format: self.format.unwrap_or(before.format),
            kinds: self.kinds.clone().unwrap_or_else(|| before.kinds.clone()),
            send_resolved: self.send_resolved.unwrap_or(before.send_resolved),
            in_order: self.in_order.unwrap_or(before.in_order),
            retry_seconds: self.retry_seconds.unwrap_or(before.retry_seconds),
            disabled: self.disabled.unwrap_or(before.disabled),
            version: before.version + 1,
            updated_at_ms: write.now_ms,
            ..before.clone()
        };
        if let Some(address) = self.address.clone() {
            after.url = write.keys.seal(&place("url", &after.id), address.url.expose().as_bytes())?;
            after.url_hint = address.hint;
        }
        webhooks::put(write.db, &after)?;
        let (before, shown) =
            (ShownWebhook::of(&before, write.now_ms), ShownWebhook::of(&after, write.now_ms));
        let audit =
            AuditEntry::done("webhook.edit", "webhook", &after.id).before(json!(before)).after(json!(shown));
        Ok(Done::new(&shown, audit, Touched::NOTHING)?.version(after.version))
    }
}

impl Command for RotateWebhook {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.id, self.if_version)?;
        let secret = WebhookSecret::generate()?;
        let until_ms = write.now_ms.saturating_add(self.overlap_ms);
        let secret_before = if self.overlap_ms == 0 {
            None
        } else {
            let opened: Secret<Vec<u8>> = write.keys.open(&place("secret", &before.id), &before.secret)?;
            Some((write.keys.seal(&place("secret_before", &before.id), opened.expose())?, until_ms))
        };
        let after = WebhookRow {
            secret: write.keys.seal(&place("secret", &before.id), secret.bytes())?,
            secret_before,
            version: before.version + 1,
            updated_at_ms: write.now_ms,
            ..before
        };
        webhooks::put(write.db, &after)?;
        let shown = ShownWebhook::of(&after, write.now_ms);
        let audit = AuditEntry::done("webhook.rotate", "webhook", &after.id).after(json!(shown));
        with_secret(shown, &secret, audit)
    }
}

impl Command for DeleteWebhook {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.id, self.if_version)?;
        let warning = lost_deliveries(delivery::undelivered(write.db, &before.id)?);
        webhooks::delete(write.db, &before.id)?;
        let audit = AuditEntry::done("webhook.delete", "webhook", &before.id)
            .before(json!(ShownWebhook::of(&before, write.now_ms)));
        Ok(Done::without_output(audit, Touched::NOTHING).warning(warning))
    }
}

/// Returns the warning that undelivered events are deleted with their webhook; `None` if there are none.
fn lost_deliveries(count: u64) -> Option<EffectWarning> {
    let message = match count {
        0 => return None,
        1 => "1 event that was not delivered to it yet will not be.".to_owned(),
        _ => format!("{count} events that were not delivered to it yet will not be."),
    };
    Some(EffectWarning { code: "deliveries_deleted", param: None, message, objects: Vec::new() })
}

/// Returns the answer that shows a new secret; the answer for repeated requests lacks it.
fn with_secret(
    webhook: ShownWebhook,
    secret: &WebhookSecret,
    audit: AuditEntry,
) -> Result<Done, CommandRefusal> {
    let version = webhook.version;
    let mut output = WebhookWithSecret { webhook, secret: Some(secret.text()) };
    let done = Done::new(&output, audit, Touched::NOTHING)?.version(version);
    output.secret = None;
    done.kept(&output)
}

fn expect(write: &Write<'_>, id: &str, if_version: Option<u64>) -> Result<WebhookRow, CommandRefusal> {
    let found = webhooks::find(write.db, id)?.ok_or_else(|| CommandRefusal::not_found("webhook", id))?;
    CommandRefusal::if_stale(if_version, found.version)?;
    Ok(found)
}

const WEBHOOKS_MAX: u64 = 64;
