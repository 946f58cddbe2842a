//! The table `webhooks`: receivers of events. Addresses and secrets in these rows are sealed.

use serde::{Deserialize, Serialize};

use crate::common::vault::SealPlace;
use crate::db::engine::{Db, DbResult, Row, named_params};

/// A stored webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebhookRow {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The sealed address.
    pub(crate) url: Vec<u8>,
    /// The part of the address that may be shown.
    pub(crate) url_hint: String,
    pub(crate) format: WebhookFormat,
    /// The kinds of events that it receives; `None` for all.
    pub(crate) kinds: Option<Vec<String>>,
    /// True if it also receives the ends of conditions.
    pub(crate) send_resolved: bool,
    /// True if an event waits until the ones before it are delivered or dead.
    pub(crate) in_order: bool,
    /// The longest pause after the first failure, which doubles with each further one.
    pub(crate) retry_seconds: u32,
    pub(crate) disabled: bool,
    /// The sealed secret, as bytes.
    pub(crate) secret: Vec<u8>,
    /// The sealed secret before the last rotation, and the time until which it signs as well.
    pub(crate) secret_before: Option<(Vec<u8>, u64)>,
    pub(crate) version: u64,
    pub(crate) created_at_ms: u64,
    pub(crate) updated_at_ms: u64,
}

/// The shape of the messages for a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum WebhookFormat {
    /// The event as JSON.
    #[default]
    Json,
    /// A message for Slack, or for a receiver that accepts the same.
    Slack,
}

impl WebhookFormat {
    fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Slack => "slack",
        }
    }
}

impl WebhookRow {
    fn of(row: Row<'_>) -> DbResult<Self> {
        let format: String = row.get("format")?;
        let kinds: Option<String> = row.get("kinds")?;
        let secret_before: Option<Vec<u8>> = row.get("secret_before")?;
        Ok(Self {
            id: row.get("id")?,
            name: row.get("name")?,
            url: row.get("url")?,
            url_hint: row.get("url_hint")?,
            format: if format == "slack" { WebhookFormat::Slack } else { WebhookFormat::Json },
            kinds: kinds.map(|kinds| serde_json::from_str(&kinds).unwrap_or_default()),
            send_resolved: row.get("send_resolved")?,
            in_order: row.get("in_order")?,
            retry_seconds: row.get("retry_seconds")?,
            disabled: row.get("disabled")?,
            secret: row.get("secret")?,
            secret_before: secret_before.zip(row.get("secret_before_until_ms")?),
            version: row.get("version")?,
            created_at_ms: row.get("created_at_ms")?,
            updated_at_ms: row.get("updated_at_ms")?,
        })
    }
}

/// Returns the place of a sealed value of the webhook `id`.
pub(crate) fn place<'a>(column: &'a str, id: &'a str) -> SealPlace<'a> {
    SealPlace { table: "webhooks", column, id }
}

/// Returns up to `rows` webhooks with ids after `after`; only those whose name, shown address or id contains `text`, if
/// given.
pub(crate) fn page(db: &Db, text: Option<&str>, after: &str, rows: i64) -> DbResult<Vec<WebhookRow>> {
    let values = named_params! {":q": text.map(str::to_ascii_lowercase), ":after": after, ":rows": rows};
    db.rows(PAGE, values, WebhookRow::of)
}

/// Returns the number of webhooks.
pub(crate) fn count(db: &Db) -> DbResult<u64> {
    db.row(COUNT, (), |row| row.get(0))
}

/// Returns the enabled webhooks that have a due delivery.
pub(crate) fn with_due(db: &Db, now_ms: u64) -> DbResult<Vec<String>> {
    db.rows(WITH_DUE, [now_ms], |row| row.get(0))
}

pub(crate) fn find(db: &Db, id: &str) -> DbResult<Option<WebhookRow>> {
    db.optional_row(FIND, [id], WebhookRow::of)
}

/// Inserts a new row, or stores the next version of one.
pub(crate) fn put(tx: &Db, webhook: &WebhookRow) -> DbResult<()> {
    let kinds = webhook.kinds.as_ref().map(|kinds| serde_json::json!(kinds).to_string());
    let (secret_before, until_ms) =
        webhook.secret_before.as_ref().map(|(secret, until)| (secret, until)).unzip();
    tx.execute(
        PUT,
        named_params! {
            ":id": webhook.id,
            ":name": webhook.name,
            ":url": webhook.url,
            ":url_hint": webhook.url_hint,
            ":format": webhook.format.name(),
            ":kinds": kinds,
            ":send_resolved": webhook.send_resolved,
            ":in_order": webhook.in_order,
            ":retry_seconds": webhook.retry_seconds,
            ":disabled": webhook.disabled,
            ":secret": webhook.secret,
            ":secret_before": secret_before,
            ":until": until_ms,
            ":version": webhook.version,
            ":created": webhook.created_at_ms,
            ":updated": webhook.updated_at_ms,
        },
    )?;
    Ok(())
}

/// Deletes a webhook with its deliveries.
pub(crate) fn delete(tx: &Db, id: &str) -> DbResult<()> {
    tx.execute(DELETE, [id])?;
    Ok(())
}

const PAGE: &str = "SELECT * FROM webhooks WHERE id > :after AND (:q IS NULL OR instr(lower(name), :q) > 0 \
     OR instr(lower(url_hint), :q) > 0 OR instr(lower(id), :q) > 0) ORDER BY id LIMIT :rows";
const COUNT: &str = "SELECT count(*) FROM webhooks";
const WITH_DUE: &str = "SELECT id FROM webhooks w WHERE disabled = 0 AND EXISTS (SELECT 1 FROM outbox o \
     WHERE o.webhook = w.id AND o.state = 'pending' AND o.next_at_ms <= :now) ORDER BY id";
const FIND: &str = "SELECT * FROM webhooks WHERE id = :id";
const PUT: &str = "INSERT INTO webhooks (id, name, url, url_hint, format, kinds, send_resolved, in_order, retry_seconds, \
     disabled, secret, secret_before, secret_before_until_ms, version, created_at_ms, updated_at_ms) VALUES (:id, :name, \
     :url, :url_hint, :format, :kinds, :send_resolved, :in_order, :retry_seconds, :disabled, :secret, :secret_before, :until, \
     :version, :created, :updated) \
     ON CONFLICT (id) DO UPDATE SET name = excluded.name, url = excluded.url, url_hint = excluded.url_hint, \
     format = excluded.format, kinds = excluded.kinds, send_resolved = excluded.send_resolved, \
     in_order = excluded.in_order, retry_seconds = excluded.retry_seconds, disabled = excluded.disabled, \
     secret = excluded.secret, secret_before = excluded.secret_before, \
     secret_before_until_ms = excluded.secret_before_until_ms, version = excluded.version, \
     updated_at_ms = excluded.updated_at_ms";
const DELETE: &str = "DELETE FROM webhooks WHERE id = :id";
