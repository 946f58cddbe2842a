//! One try to send a message to a webhook: a signed POST whose answer's head decides. Redirects are not followed, and the
//! answer's body is not read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Request};
use shared::clock::unix_ms;
use shared::port::{HeadOnly, HttpClient, HttpLimits};
use shared::sanitize::diagnostic;
use shared::standard_webhooks::{WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP};

use crate::db::outbox::Event;
use crate::db::webhooks::{WebhookFormat, WebhookRow, place};
use crate::vault::{SealError, VaultKeys};
use crate::webhook::{PAUSE_MS_MAX, WebhookSecret, body, signature};

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

/// Returns the pause of a `Retry-After` in seconds or as a date; 0 if there is none.
fn retry_after_ms(headers: &HeaderMap, now_ms: u64) -> u64 {
    let Some(text) = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()) else { return 0 };
    let seconds = text.trim().parse::<u64>().ok().map(|seconds| seconds.saturating_mul(1_000));
    let date = || {
        let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_millisecond();
        Some(u64::try_from(at).ok()?.saturating_sub(now_ms))
    };
    seconds.or_else(date).unwrap_or(0).min(PAUSE_MS_MAX)
}

const LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_secs(10), body_bytes_max: 0 };
const ERROR_CHARS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn retry_after_is_read_in_seconds_and_as_a_date() {
        let now_ms = 1_792_840_060_000; // Sat, 24 Oct 2026 11:07:40 GMT
        for (text, want) in [
            ("7", 7_000),
            ("Sat, 24 Oct 2026 11:08:40 GMT", 60_000),
            ("Sat, 24 Oct 2026 11:06:40 GMT", 0),
            ("99999999999999999999", 0),
            ("9999999", 3_600_000),
            ("soon", 0),
        ] {
            let headers = [(RETRY_AFTER, HeaderValue::from_static(text))].into_iter().collect();
            assert_eq!(retry_after_ms(&headers, now_ms), want, "{text}");
        }
        assert_eq!(retry_after_ms(&HeaderMap::new(), now_ms), 0);
    }
}
