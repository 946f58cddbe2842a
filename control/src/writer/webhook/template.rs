//! The body of a message: the event as JSON, or as a message for Slack.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::db::outbox::Event;
use crate::db::webhooks::WebhookFormat;

/// Returns the body of a message about `event`. It is the same for each try.
pub(crate) fn body(event: &Event, format: WebhookFormat) -> Vec<u8> {
    let body = match format {
        WebhookFormat::Json => serde_json::to_vec(&JsonMessage {
            kind: &event.kind,
            timestamp: timestamp(event.created_at_ms),
            id: &event.id,
            sequence: event.sequence,
            object: event.object.as_deref(),
            data: &event.data,
        }),
        WebhookFormat::Slack => serde_json::to_vec(&json!({"text": slack_text(event)})),
    };
    body.unwrap_or_default()
}

/// The members `type`, `timestamp` and `data` are those that Standard Webhooks recommends.
#[derive(Serialize)]
struct JsonMessage<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    timestamp: String,
    id: &'a str,
    sequence: i64,
    object: Option<&'a str>,
    data: &'a RawValue,
}

/// Formats a time as RFC 3339 in UTC.
fn timestamp(unix_ms: u64) -> String {
    let at = i64::try_from(unix_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map(|at| format!("{at:.3}")).unwrap_or_default()
}

/// Returns a line such as `*Provider down: openai-main*: Requests have failed since ...`.
fn slack_text(event: &Event) -> String {
    let data: Value = serde_json::from_str(event.data.get()).unwrap_or_default();
    let text = data.get("text").and_then(Value::as_str).unwrap_or_default();
    let state = data.get("state").and_then(Value::as_str).filter(|state| *state == "resolved");
    let state = state.map(|_| " (resolved)").unwrap_or_default();
    let title = data.get("title").and_then(Value::as_str).unwrap_or(&event.kind);
    let line = format!("*{title}*{state}: {text}");
    escaped(&line.chars().take(SLACK_CHARS_MAX).collect::<String>())
}

/// Escapes the characters that begin mentions and links in Slack.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Below the length at which Slack cuts a text.
const SLACK_CHARS_MAX: usize = 3_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn event(data: &Value) -> Event {
        Event {
            id: "evt_1".into(),
            sequence: 7,
            kind: "provider_down".into(),
            object: Some("up".into()),
            created_at_ms: 1_795_000_000_123,
            data: RawValue::from_string(data.to_string()).unwrap(),
        }
    }

    #[test]
    fn a_json_message_has_the_members_that_standard_webhooks_recommends() {
        let body = body(&event(&json!({"text": "it is down"})), WebhookFormat::Json);
        let message: Value = serde_json::from_slice(&body).unwrap();
        let want = json!({
            "type": "provider_down", "timestamp": "2026-11-18T11:06:40.123Z", "id": "evt_1", "sequence": 7,
            "object": "up", "data": {"text": "it is down"},
        });
        assert_eq!(message, want);
    }

    #[test]
    fn a_slack_message_is_one_line_in_which_nobody_can_be_mentioned() {
        let data = json!({"title": "Provider down: up", "text": "<!channel> & <http://evil|click>", "state": "resolved"});
        let message: Value = serde_json::from_slice(&body(&event(&data), WebhookFormat::Slack)).unwrap();
        let text = message["text"].as_str().unwrap();
        let want = "*Provider down: up* (resolved): &lt;!channel&gt; &amp; &lt;http://evil|click&gt;";
        assert_eq!(text, want);
        let long = event(&json!({"text": "x".repeat(10_000)}));
        assert!(body(&long, WebhookFormat::Slack).len() < 3_100);
    }
}
