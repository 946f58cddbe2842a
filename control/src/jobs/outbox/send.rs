//! One try to send a message to a webhook: a signed POST whose answer's head decides. Redirects are not followed, and the
//! answer's body is not read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::CONTENT_TYPE;
use shared::clock::unix_ms;
use shared::port::{HeadOnly, HttpClient, HttpLimits};
use shared::sanitize::diagnostic;
use shared::standard_webhooks::{WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP};

use crate::common::vault::{SealError, VaultKeys};
use crate::db::outbox::Event;
use crate::db::webhooks::{WebhookFormat, WebhookRow, place};
use crate::writer::webhook::{WebhookSecret, body, retry_after_ms, signature};

/// A message for a receiver.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The same for each try.
    id: String,
    body: Bytes,
}

impl Message {
    /// Returns the message about `event`.
    pub(crate) fn of(event: &Event, format: WebhookFormat) -> Self {
        Self { id: event.id.clone(), body: body(event, format).into() }
    }
}

/// The outcome of a try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentMessage {
    /// The status of the answer, if there was one.
    pub(crate) status: Option<u16>,
    /// The reason of the failure; `None` for a success.
    pub(crate) error: Option<String>,
    /// The pause that the receiver asks for; 0 for none.
    pub(crate) retry_after_ms: u64,
}

impl SentMessage {
    fn failed(error: String) -> Self {
        Self { status: None, error: Some(error), retry_after_ms: 0 }
    }
}

/// Sends a message once.
pub(crate) async fn send(
    keys: &VaultKeys,
    http: &Arc<dyn HttpClient>,
    webhook: &WebhookRow,
    message: &Message,
) -> SentMessage {
    let Ok((url, request)) = request(keys, webhook, message) else {
        return SentMessage::failed("The address or secret of the webhook cannot be decrypted.".to_owned());
    };
    let Ok(request) = request else {
        return SentMessage::failed("The address of the webhook is invalid.".to_owned());
    };
    match http.send(request, LIMITS).await {
        Ok(answer) if answer.status().is_success() => {
            SentMessage { status: Some(answer.status().as_u16()), error: None, retry_after_ms: 0 }
        }
        Ok(answer) => {
            let status = answer.status();
            let what = if status.is_redirection() { ", and redirects are not followed" } else { "" };
            SentMessage {
                status: Some(status.as_u16()),
                error: Some(format!("The receiver returned status {}{what}.", status.as_u16())),
                retry_after_ms: retry_after_ms(answer.headers(), unix_ms()),
            }
        }
        Err(error) => {
            let text = diagnostic(&error.to_string(), &[&url]).into_owned();
            SentMessage::failed(text.chars().take(ERROR_CHARS_MAX).collect())
        }
    }
}

/// Returns the address of the webhook and the signed request, or an error if the webhook's values do not open.
fn request(
    keys: &VaultKeys,
    webhook: &WebhookRow,
    message: &Message,
) -> Result<(String, http::Result<Request<Bytes>>), SealError> {
    let open = |column: &str, sealed: &[u8]| keys.open(&place(column, &webhook.id), sealed);
    let (now_ms, url) = (unix_ms(), open("url", &webhook.url)?);
    let url = String::from_utf8(url.expose().clone()).map_err(|_| SealError)?;
    let mut secrets = vec![WebhookSecret::of(open("secret", &webhook.secret)?)];
    if let Some((sealed, until_ms)) = &webhook.secret_before
        && *until_ms > now_ms
    {
        secrets.push(WebhookSecret::of(open("secret_before", sealed)?));
    }
    let seconds = now_ms / 1_000;
    let request = Request::post(&url)
        .header(CONTENT_TYPE, "application/json")
        .header(WEBHOOK_ID, &message.id)
        .header(WEBHOOK_TIMESTAMP, seconds)
        .header(WEBHOOK_SIGNATURE, signature(&secrets, &message.id, seconds, &message.body))
        .extension(HeadOnly)
        .body(message.body.clone());
    Ok((url, request))
}

const LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_secs(10), body_bytes_max: 0 };
const ERROR_CHARS_MAX: usize = 300;
